"""Encoded Parquet in memory, handed out piece by piece: what multipart uploads and segments are made from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from icefloe.connector.encoding_lane import InlineLane, Lane
from icefloe.connector.file_metrics import count_nans, iceberg_file_metadata
from icefloe.connector.parquet_format import ParquetFormat
from icefloe.connector.pending_rows import PendingRows
from icefloe.connector.row_group_assembler import EncodedSoFar, Place, RowGroupAssembler
from icefloe.connector.row_group_encoder import (
    MAGIC,
    closing_bytes,
    empty_footer,
    merge_footers,
    serialize_footer,
)
from icefloe.connector.shared_buffer import SharedBuffer
from icefloe.connector.size_estimate import EncodedRatio, shared_ratio
from icefloe.connector.writer_stats import FsEventLogger
from icefloe.errors import SchemaError, StateError
from icefloe.proto import sink_pb2
from icefloe.schemas.field_ids import update_field_ids_to_iceberg
from icefloe.schemas.sink_schema import SinkSchema
from icefloe.schemas.types import FIELD_ID_KEY

_NO_METRICS: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class HandOver:
    """What another process needs to go on: everything here, and the bytes that were split off before."""

    position_bytes: int
    # ``PAR1`` + footer of the finished row groups; None when there is none.
    footer: bytes | None
    # Finished bytes that were not split off; they stay in the writer.
    unsplit: bytes
    # Rows added since the last call that are in no row group.
    new_pending: list[pa.RecordBatch]


class BatchBufferingWriter(Protocol):
    """A writer whose output is taken away in pieces of the taker's choice."""

    def suffix(self) -> str:
        """Return the file name's ending, without a dot."""
        ...

    def add_batch_data(self, batch: pa.RecordBatch) -> None:
        """Take a batch. Raises ``SchemaError`` naming the column that does not fit."""
        ...

    @property
    def unflushed_bytes(self) -> int:
        """Estimated encoded size of the rows that are in no finished row group."""
        ...

    @property
    def buffered_bytes(self) -> int:
        """Length of the finished bytes that were not taken yet."""
        ...

    def split_to(self, length_bytes: int) -> bytes:
        """Take exactly the first ``length_bytes`` of the finished bytes."""
        ...

    def get_trailing_bytes_for_checkpoint(self) -> tuple[bytes, sink_pb2.IcebergFileMetadata | None]:
        """Return what makes the bytes taken so far a valid file with every row added so far; the writer goes on."""
        ...

    def close(self) -> tuple[bytes, sink_pb2.IcebergFileMetadata | None]:
        """Encode the rest and return all bytes that were not taken, footer included."""
        ...


class ParquetBatchBufferingWriter:
    """The ``BatchBufferingWriter`` for Parquet. One thread uses it; encoding happens in its lane.

    ``iceberg_schema`` (a table's schema as spec JSON) puts the table's field ids into the file. ``on_row_group`` is
    called in the lane's thread whenever finished bytes were added to the buffer; with ``place`` row groups go past the
    buffer to where they belong. ``encoded`` and ``pending`` continue a file that another process left.
    """

    def __init__(
        self,
        format: ParquetFormat,
        schema: SinkSchema,
        iceberg_schema: Mapping[str, Any] | None = None,
        event_logger: FsEventLogger | None = None,
        *,
        metrics_config: Mapping[str, str] = _NO_METRICS,
        lane: Lane | None = None,
        encoded: EncodedSoFar | None = None,
        pending: PendingRows | None = None,
        ratio: EncodedRatio | None = None,
        on_row_group: Callable[[SharedBuffer], None] | None = None,
        place: Place | None = None,
    ) -> None:
        arrow = schema.arrow
        self.schema = arrow if iceberg_schema is None else update_field_ids_to_iceberg(arrow, iceberg_schema)
        self.format = format
        self.buffer = SharedBuffer()
        self._has_field_ids = any(FIELD_ID_KEY in (entry.metadata or {}) for entry in self.schema)
        self._metrics_config = metrics_config
        self._events = event_logger or FsEventLogger()
        self._on_row_group = on_row_group
        self._closed = False
        self._assembler = RowGroupAssembler(
            format,
            self.schema,
            pending=pending or PendingRows(self.schema, owner="of a new writer"),
            encoded=encoded or EncodedSoFar(),
            deliver=self._deliver,
            place=place,
            ratio=ratio or shared_ratio(format, self.schema),
            lane=lane or InlineLane(),
            events=self._events,
            count_nans=self._count_nans if self._has_field_ids else None,
        )

    def suffix(self) -> str:
        return "parquet"

    @property
    def encoded(self) -> EncodedSoFar:
        """What is encoded and counted in; complete after ``settle``."""
        return self._assembler.encoded

    @property
    def pending(self) -> PendingRows:
        """The rows that are in no row group."""
        return self._assembler.pending

    @property
    def rows(self) -> int:
        """All rows added, those that other processes added included. Never waits."""
        return self._assembler.rows

    @property
    def unflushed_bytes(self) -> int:
        return self._assembler.unflushed_bytes

    @property
    def buffered_bytes(self) -> int:
        return len(self.buffer)

    @property
    def memory_bytes(self) -> int:
        """Bytes held: Arrow rows and finished bytes."""
        return self._assembler.memory_bytes + len(self.buffer)

    @property
    def arrow_memory_bytes(self) -> int:
        """Arrow bytes held: pending rows in memory and the row group under way."""
        return self._assembler.memory_bytes

    @property
    def size_bytes(self) -> int:
        """Estimated length of the file if it were closed now, without its footer."""
        return self.encoded.position_bytes + self.unflushed_bytes

    def add_batch_data(self, batch: pa.RecordBatch) -> None:
        self._check(batch)
        self._events.log(rows=batch.num_rows)
        self._assembler.add(batch)

    @property
    def ratio(self) -> EncodedRatio:
        """What is known of the encoded ratio of this schema and format."""
        return self._assembler.ratio

    def measure(self) -> bool:
        """Make sure that ``size_bytes`` is no guess, at the price of encoding on trial. False where it was none."""
        return self._assembler.measure()

    def flush_row_group(self) -> None:
        """Encode what is pending as a row group now, however small: for the sake of memory."""
        self._assembler.flush()

    def settle(self) -> None:
        """Wait until the encoding under way is done and counted in."""
        self._assembler.settle()

    def split_to(self, length_bytes: int) -> bytes:
        return self.buffer.split_to(length_bytes)

    def get_trailing_bytes_for_checkpoint(self) -> tuple[bytes, sink_pb2.IcebergFileMetadata | None]:
        aside = self._assembler.encode_aside()
        head = self.buffer.peek()
        footers = [self.encoded.footer] if self.encoded.footer is not None else []
        nan_counts = dict(self.encoded.nan_counts)
        if aside is not None:
            encoded, nans = aside
            head += encoded.data
            footers.append(encoded.footer)
            for field_id, count in nans.items():
                nan_counts[field_id] = nan_counts.get(field_id, 0) + count
        if not footers:
            return MAGIC + closing_bytes(empty_footer(self.schema, self.format)), None
        footer = merge_footers(footers)
        return head + closing_bytes(footer), self._metadata(footer, nan_counts)

    def hand_over(self) -> HandOver:
        """Return what lets another process go on, at the cost of the new rows only: nothing is encoded for it."""
        self.settle()
        footer = self.encoded.footer
        return HandOver(
            position_bytes=self.encoded.position_bytes,
            footer=None if footer is None else serialize_footer(footer),
            unsplit=self.buffer.peek(),
            new_pending=self.pending.new_rows(),
        )

    def close(self) -> tuple[bytes, sink_pb2.IcebergFileMetadata | None]:
        footer = self.finish()
        return self.split_to(self.buffered_bytes) + closing_bytes(footer), self.metadata()

    def finish(self) -> pq.FileMetaData:
        """Encode the rest into the buffer and return the footer that closes the file. Refuses rows from now on."""
        if not self._closed:
            self._assembler.flush()
            self.settle()
            self._closed = True
            if self.encoded.footer is None:
                self.buffer.write(MAGIC)
                self.encoded.position_bytes = len(MAGIC)
                self.encoded.footer = empty_footer(self.schema, self.format)
        footer = self.encoded.footer
        assert footer is not None
        return footer

    def metadata(self) -> sink_pb2.IcebergFileMetadata | None:
        """Return the Iceberg metrics of what is encoded; None for a file without field ids or without rows."""
        footer = self.encoded.footer
        if footer is None or footer.num_row_groups == 0:
            return None
        return self._metadata(footer, self.encoded.nan_counts)

    def _metadata(self, footer: pq.FileMetaData, nan_counts: Mapping[int, int]) -> sink_pb2.IcebergFileMetadata | None:
        if not self._has_field_ids:
            return None
        return iceberg_file_metadata(footer, self.schema, metrics_config=self._metrics_config, nan_counts=nan_counts)

    def _count_nans(self, batch: pa.RecordBatch) -> Mapping[int, int]:
        return count_nans(batch, self.schema)

    def _deliver(self, data: memoryview) -> None:
        self.buffer.write(data)
        if self._on_row_group is not None:
            self._on_row_group(self.buffer)

    def _check(self, batch: pa.RecordBatch) -> None:
        if self._closed:
            raise StateError("ICEFLOE_WRITER_CLOSED", "rows were added to a file that is closed")
        if not batch.schema.equals(self.schema):
            raise SchemaError("ICEFLOE_BATCH_SCHEMA", _difference(batch.schema, self.schema))
        for index, entry in enumerate(self.schema):
            if not entry.nullable and batch.column(index).null_count:
                raise SchemaError(
                    "ICEFLOE_NULL_IN_REQUIRED",
                    f"column {entry.name!r} is required, and {batch.column(index).null_count} of "
                    f"{batch.num_rows} rows have no value in it",
                )


def _difference(found: pa.Schema, wanted: pa.Schema) -> str:
    if found.names != wanted.names:
        return f"a batch has the columns {found.names}, and its file {wanted.names}"
    pairs = [(ours, theirs) for ours, theirs in zip(wanted, found, strict=True) if not ours.equals(theirs)]
    wrong = ", ".join(
        f"{ours.name!r} is {theirs.type}{'' if theirs.nullable else ' not null'} in the batch "
        f"and {ours.type}{'' if ours.nullable else ' not null'} in the file"
        for ours, theirs in pairs
    )
    return f"a batch does not fit the file it is for: {wrong}"
