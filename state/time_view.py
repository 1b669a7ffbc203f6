"""A time table as its owner sees it: insert batches, scan by time and key, flush under memory pressure."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from icefloe.errors import StateError
from icefloe.proto import state_pb2 as pb
from icefloe.state.expiring_time_key_table import ExpiringTimeKeyTable, Metadata
from icefloe.state.table import RecordBatchData, TableData
from icefloe.state.time_files import by_schema, check_batch, keep_live, refuse_nulls
from icefloe.state.time_references import ALL_KEYS, MAX_TIME, MIN_TIME, KeyBounds, narrowed
from icefloe.state.write_gate import WriteGate


class ExpiringTimeKeyView:
    """Rows that are not checkpointed stay in memory; all others are read from storage when scanned.

    For one thread. Writes after ``then_stop`` raise ``StateError``.
    """

    def __init__(self, table: ExpiringTimeKeyTable, gate: WriteGate, *, schema: pa.Schema | None) -> None:
        self._table = table
        self._gate = gate
        self._batches: list[pa.RecordBatch] = []
        self._buffered_bytes = 0
        self._cutoffs_raised = False
        # The epoch that the next files are for, where the owner has said so.
        self.epoch: int | None = None
        self.set_schema(schema)

    def set_schema(self, schema: pa.Schema | None) -> None:
        """Accept only batches of this schema from now on; None accepts any that has the time and the key column."""
        if schema is not None:
            check_batch(self._table.config, schema)
        self._schema = schema

    @property
    def buffered_bytes(self) -> int:
        """Arrow bytes of the rows in memory."""
        return self._buffered_bytes

    def insert(self, batch: pa.RecordBatch) -> None:
        """Add rows; nothing is copied. Raises ``StateError`` for a batch of another schema."""
        self._gate.check(self._table.table_name)
        if self._schema is None:
            check_batch(self._table.config, batch.schema)
        elif not batch.schema.equals(self._schema):
            raise StateError(
                "ICEFLOE_STATE_BATCH_SCHEMA",
                f"table {self._table.table_name!r} takes batches of {self._schema.names}, it was given "
                f"{batch.schema.names}, or types differ: {batch.schema.to_string()}",
            )
        refuse_nulls(self._table.config, batch)
        if batch.num_rows:
            self._batches.append(batch)
            self._buffered_bytes += batch.nbytes

    def set_cutoff(self, key: int, time: int) -> None:
        """Rows of ``key`` with a time below ``time`` are dead from now on, for good with the next checkpoint.

        A lower cutoff than before changes nothing. ``MAX_TIME`` removes the key, which must not be used again in this
        epoch. After a restore the owner passes its cutoffs again: files with very many keys do not keep them.
        """
        self._gate.check(self._table.table_name)
        if time > self._table.cutoffs.get(key, MIN_TIME):
            self._table.cutoffs[key] = time
            self._cutoffs_raised = True

    def remove_key(self, key: int) -> None:
        """Remove all rows of ``key``."""
        self.set_cutoff(key, MAX_TIME)

    def flush(self, epoch: int | None = None) -> None:
        """Write the rows in memory now, for ``epoch`` (or that of the manager), and let go of them.

        They become part of the table with the next checkpoint, which must be that of the same epoch. Raises
        ``StateError`` when the epoch is not known: a file under a lower one could be cleaned up before its record.
        """
        target = self.epoch if epoch is None else epoch
        if target is None:
            raise StateError(
                "ICEFLOE_STATE_EPOCH_UNKNOWN",
                f"table {self._table.table_name!r}: flush needs the epoch that is being written: open the manager with "
                "epoch=, or pass it here",
            )
        self._gate.check(self._table.table_name)
        self.epoch = target
        self._table.flushed += self._table.write_rows(target, self._batches)
        self._batches, self._buffered_bytes = [], 0

    def scan(
        self,
        *,
        min_time: int | None = None,
        key: int | None = None,
        key_range: KeyBounds | None = None,
        columns: Sequence[str] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the live rows at or after ``min_time`` of one key, of an inclusive range, or of all keys.

        The rows are those of the moment of the call, those not checkpointed included, whatever is inserted, flushed or
        cut off while they are read. With ``key`` they come in the order of their times. Batches have the schema they
        were inserted with. Reads lazily: only row groups that can match and only ``columns``. Raises
        ``CorruptStateError`` when a file is gone or garbled.
        """
        bounds = (key, key) if key is not None else key_range or ALL_KEYS
        least = MIN_TIME if min_time is None else min_time
        known = self._table.cutoffs
        cutoffs = dict(known) if key is None else {key: known[key]} if key in known else {}
        files = [
            part
            for file in (*self._table.files, *self._table.flushed)
            if (part := narrowed(file, keys=bounds, min_time=least, cutoffs=cutoffs)) is not None
        ]
        in_memory = self._in_memory(bounds, least, cutoffs)
        if key is None:
            return self._by_file(files, in_memory, cutoffs, columns)
        return self._in_time_order(files, in_memory, cutoffs, columns)

    def _by_file(
        self,
        files: list[pb.ParquetTimeFile],
        in_memory: list[pa.RecordBatch],
        cutoffs: Mapping[int, int],
        columns: Sequence[str] | None,
    ) -> Iterator[pa.RecordBatch]:
        for file in files:
            yield from self._table.read(file, cutoffs, only=columns)
        for batch in in_memory:
            yield batch if columns is None else batch.select(list(columns))

    def _in_time_order(
        self,
        files: list[pb.ParquetTimeFile],
        in_memory: list[pa.RecordBatch],
        cutoffs: Mapping[int, int],
        columns: Sequence[str] | None,
    ) -> Iterator[pa.RecordBatch]:
        time = self._table.config.time_column
        waiting = sorted(files, key=lambda file: (file.min_time, file.epoch))
        while waiting:
            # Files whose times overlap are sorted together; as a rule each is alone, and what is in memory comes last.
            together = [waiting.pop(0)]
            while waiting and waiting[0].min_time <= max(file.max_time for file in together):
                together.append(waiting.pop(0))
            end = max(file.max_time for file in together)
            earlier, in_memory = _split_by_time(in_memory, time, end)
            if len(together) == 1 and not earlier:
                yield from self._table.read(together[0], cutoffs, only=columns)
            else:
                rows = [batch for file in together for batch in self._table.read(file, cutoffs)]
                yield from _sorted_by_time([*rows, *earlier], time, columns)
        yield from _sorted_by_time(in_memory, time, columns)

    def _in_memory(self, bounds: KeyBounds, least: int, cutoffs: Mapping[int, int]) -> list[pa.RecordBatch]:
        everything = pb.ParquetTimeFile(
            min_routing_key=bounds[0],
            max_routing_key=bounds[1],
            min_time=max(least, self._table.floor),
            max_time=MAX_TIME,
        )
        live = (keep_live(self._table.config, batch, everything, cutoffs) for batch in self._batches)
        return [batch for batch in live if batch.num_rows]

    @property
    def has_unsaved(self) -> bool:
        """Whether rows or cutoffs wait for a checkpoint."""
        return bool(self._batches or self._table.flushed or self._cutoffs_raised)

    def unsaved(self, current: Metadata | None) -> Iterator[TableData]:
        """Yield what the checkpointer must write."""
        for batch in self._batches:
            yield RecordBatchData(batch)

    def saved(self, metadata: Metadata | None) -> None:
        """The checkpoint that took ``unsaved`` is complete."""
        self._batches, self._buffered_bytes, self._cutoffs_raised = [], 0, False


def _split_by_time(
    batches: list[pa.RecordBatch], time: str, end: int
) -> tuple[list[pa.RecordBatch], list[pa.RecordBatch]]:
    """Return the rows up to ``end`` and those after it; a batch that is all on one side is not copied."""
    earlier, later = [], []
    for batch in batches:
        mask = pc.less_equal(batch.column(time), end)
        if not pc.any(mask).as_py():
            later.append(batch)
        elif pc.all(mask).as_py():
            earlier.append(batch)
        else:
            earlier.append(batch.filter(mask))
            later.append(batch.filter(pc.invert(mask)))
    return earlier, later


def _sorted_by_time(
    batches: list[pa.RecordBatch], time: str, columns: Sequence[str] | None
) -> Iterator[pa.RecordBatch]:
    bounds = [pc.min_max(batch.column(time)).as_py() for batch in batches]
    overlap = any(left["max"] > right["min"] for left, right in itertools.pairwise(bounds))
    for group in by_schema(batches) if overlap else [[batch] for batch in batches]:
        rows = pa.Table.from_batches(group)
        ordered = rows if _ascending(rows.column(time)) else rows.take(pc.sort_indices(rows.column(time)))
        chosen = ordered if columns is None else ordered.select(list(columns))
        yield from chosen.to_batches()


def _ascending(times: pa.ChunkedArray) -> bool:
    return bool(pc.all(pc.less_equal(times[:-1], times[1:]), min_count=0).as_py()) if len(times) > 1 else True
