"""Rows in, row groups of the target size out, in order and at their final offsets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.parquet as pq

from icefloe.connector.encoding_lane import Lane
from icefloe.connector.parquet_format import ParquetFormat
from icefloe.connector.pending_rows import PendingRows
from icefloe.connector.row_group_encoder import EncodedRowGroup, PlacedRowGroup, encode_row_group
from icefloe.connector.size_estimate import EncodedRatio
from icefloe.connector.writer_stats import FsEventLogger

CountNans = Callable[[pa.RecordBatch], Mapping[int, int]]
# Encodes a row group where it belongs, at this offset.
Place = Callable[[pa.Table, int], PlacedRowGroup]


@dataclass(slots=True)
class EncodedSoFar:
    """What is encoded of a file: enough to go on behind it, together with the pending rows."""

    position_bytes: int = 0
    footer: pq.FileMetaData | None = None
    rows: int = 0
    arrow_bytes: int = 0
    nan_counts: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Encoded:
    row_group: PlacedRowGroup
    nan_counts: Mapping[int, int]


class RowGroupAssembler:
    """Encodes in a lane; at most one row group of the file is under way, and its outcome is collected by the caller.

    ``deliver`` gets each row group's bytes in the lane's thread; with ``place`` they are never in memory: it puts them
    where they belong, in the same thread. An error of the lane is raised by the next call here.
    """

    def __init__(
        self,
        format: ParquetFormat,
        schema: pa.Schema,
        *,
        pending: PendingRows,
        encoded: EncodedSoFar,
        deliver: Callable[[memoryview], None],
        place: Place | None = None,
        ratio: EncodedRatio,
        lane: Lane,
        events: FsEventLogger,
        count_nans: CountNans | None = None,
    ) -> None:
        self._format = format
        self._schema = schema
        self.pending = pending
        self.encoded = encoded
        self._deliver = deliver
        self._place = place
        self._ratio = ratio
        self._lane = lane
        self._events = events
        self._count_nans = count_nans
        self._under_way: Future[_Encoded] | None = None
        self._under_way_bytes = 0
        self._under_way_rows = 0

    @property
    def rows(self) -> int:
        """All rows: encoded, under way and pending. Never waits."""
        return self.encoded.rows + self._under_way_rows + self.pending.rows

    @property
    def unflushed_bytes(self) -> int:
        """Estimated encoded size of the rows that are in no finished row group."""
        return self._estimate(self.pending.arrow_bytes, self.pending.batches) + self._estimate(self._under_way_bytes)

    @property
    def memory_bytes(self) -> int:
        """Arrow bytes held: pending rows in memory and the row group under way."""
        return self.pending.memory_bytes + self._under_way_bytes

    def add(self, batch: pa.RecordBatch) -> None:
        """Buffer a batch; full row groups are given to the lane."""
        self.pending.add(batch)
        if self._under_way is not None and self._under_way.done():
            self.settle()
        target = self._format.row_group_bytes
        while True:
            estimate = self._estimate(self.pending.arrow_bytes, self.pending.batches)
            # Rows that gathered over many epochs were never at hand together: half-way their size is measured once.
            if self.pending.stored_rows and estimate * 2 >= target and self.measure():
                continue
            if estimate < target or self.pending.memory_rows == 0:
                return
            if self.settle():
                # The outcome changed the ratio: look again.
                continue
            self._start(self.pending.take(max(1, self.pending.arrow_bytes * target // estimate)))

    def flush(self) -> None:
        """Give all pending rows to the lane as one row group, whatever its size."""
        self.settle()
        if self.pending.rows:
            self._start(self.pending.take())

    def settle(self) -> bool:
        """Wait for the row group under way and count it in. Returns False when there was none."""
        if self._under_way is None:
            return False
        # Raises again at every call after a failure: rows were taken and are in no row group.
        done = self._under_way.result()
        self._under_way = None
        self._under_way_bytes = self._under_way_rows = 0
        so_far, row_group = self.encoded, done.row_group
        if so_far.footer is None:
            so_far.footer = row_group.footer
        else:
            so_far.footer.append_row_groups(row_group.footer)
        so_far.position_bytes += row_group.length_bytes
        so_far.rows += row_group.rows
        so_far.arrow_bytes += row_group.arrow_bytes
        for field_id, count in done.nan_counts.items():
            so_far.nan_counts[field_id] = so_far.nan_counts.get(field_id, 0) + count
        self._ratio.observe(row_group.arrow_bytes, row_group.length_bytes)
        return True

    def measure(self) -> bool:
        """Encode the pending rows on trial, where their size is no more than a guess. Returns False where it is known.

        Without it the first file of a process would end far below its size: a small sample compresses worse.
        """
        if self.encoded.arrow_bytes or not self._ratio.is_guess(self.pending.arrow_bytes):
            return False
        trial = self.encode_aside()
        if trial is not None:
            self._ratio.observe(trial[0].arrow_bytes, len(trial[0].data))
        return trial is not None

    def encode_aside(self) -> tuple[EncodedRowGroup, Mapping[int, int]] | None:
        """Encode the pending rows where they would stand, and leave everything as it is. None when there are none."""
        self.settle()
        if self.pending.rows == 0:
            return None
        table = self.pending.peek()
        return self._encode(table, self.encoded.position_bytes), self._nans(table)

    def _start(self, table: pa.Table) -> None:
        position = self.encoded.position_bytes
        self._under_way_bytes, self._under_way_rows = table.nbytes, table.num_rows
        self._under_way = self._lane.submit(lambda: self._encode_and_deliver(table, position))

    def _encode_and_deliver(self, table: pa.Table, position_bytes: int) -> _Encoded:
        data = None
        with self._events.timing("encode_us"):
            if self._place is not None:
                row_group = self._place(table, position_bytes)
            else:
                encoded = self._encode(table, position_bytes)
                data = encoded.data
                row_group = PlacedRowGroup(len(data), encoded.footer, encoded.rows, encoded.arrow_bytes)
            nans = self._nans(table)
        self._events.log(row_groups=1, encoded_bytes=row_group.length_bytes, uncompressed_bytes=row_group.arrow_bytes)
        if data is not None:
            self._deliver(data)
        return _Encoded(row_group, nans)

    def _encode(self, table: pa.Table, position_bytes: int) -> EncodedRowGroup:
        return encode_row_group(table, position_bytes=position_bytes, schema=self._schema, format=self._format)

    def _nans(self, table: pa.Table) -> Mapping[int, int]:
        totals: dict[int, int] = {}
        if self._count_nans is not None:
            for batch in table.to_batches():
                for field_id, count in self._count_nans(batch).items():
                    totals[field_id] = totals.get(field_id, 0) + count
        return totals

    @property
    def ratio(self) -> EncodedRatio:
        """What is known of the writer's encoded ratio."""
        return self._ratio

    def _estimate(self, arrow_bytes: int, batches: Sequence[pa.RecordBatch] = ()) -> int:
        if arrow_bytes == 0:
            return 0
        if self.encoded.arrow_bytes:
            return arrow_bytes * self.encoded.position_bytes // self.encoded.arrow_bytes
        return self._ratio.estimate(arrow_bytes, batches)
