"""Rows of time tables as Parquet: grouped by key when written, so that reading one key fetches little else."""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from icefloe.errors import StateError
from icefloe.proto import state_pb2 as pb
from icefloe.state.migration import check_version
from icefloe.state.parquet_files import ParquetSource, encode_parquet_rows, unreadable_file, written_schema
from icefloe.state.parquet_metadata import CheckpointParquetMetadata
from icefloe.state.time_references import MAX_TIME, MIN_TIME

# A file with more keys than this is described by its bounds alone, so that metadata stays small.
MAX_LISTED_KEYS: Final = 1000
_MAX_ROW_GROUPS: Final = 128
_MIN_GROUP_BYTES: Final = 256 << 10
_MAX_GROUP_BYTES: Final = 32 << 20
# How many compressed bytes of row groups are fetched at once.
_FETCH_BYTES: Final = 8 << 20
_READ_ROWS: Final = 1 << 16
# Rows of more Arrow bytes than this become several files: one is encoded at a time, so memory stays within the rows
# and one file, and a restore of one key fetches few others.
MAX_FILE_ARROW_BYTES: Final = 64 << 20

Columns = pb.ExpiringKeyedTimeTableConfig


def check_batch(columns: Columns, schema: pa.Schema) -> None:
    """Raise ``StateError`` unless the schema has the table's int64 time column and uint64 key column."""
    for name, kind in ((columns.time_column, pa.int64()), (columns.key_column, pa.uint64())):
        index = schema.get_field_index(name)
        if index < 0 or schema.field(index).type != kind:
            found = "missing or there twice" if index < 0 else f"of type {schema.field(index).type}"
            raise StateError(
                "ICEFLOE_STATE_BATCH_SCHEMA",
                f"table {columns.table_name!r} needs a column {name!r} of type {kind} in its batches; it is {found}",
            )


def refuse_nulls(columns: Columns, batch: pa.RecordBatch) -> None:
    """Raise ``StateError`` for a row without a time or a key: nothing could ever find or expire it."""
    for name in (columns.time_column, columns.key_column):
        if batch.column(name).null_count:
            raise StateError(
                "ICEFLOE_STATE_BATCH_NULLS",
                f"table {columns.table_name!r}: {batch.column(name).null_count} rows have a null in {name!r}",
            )


def sorted_by_key(columns: Columns, batches: Sequence[pa.RecordBatch]) -> pa.Table:
    """Return the rows by key, then time; rows equal in both keep their order. Batches of one key are not copied."""
    runs = [_single_key_run(columns, batch) for batch in batches]
    if all(run is not None for run in runs):
        ordered = sorted(zip(runs, batches, strict=True), key=lambda pair: pair[0][:2])  # type: ignore[index]
        neighbours = itertools.pairwise(ordered)
        if all(a[0] != b[0] or a[2] <= b[1] for (a, _), (b, _) in neighbours):  # type: ignore[index]
            return pa.Table.from_batches([batch for _, batch in ordered], batches[0].schema)
    table = pa.Table.from_batches(batches)
    order = pc.sort_indices(
        table.select([columns.key_column, columns.time_column]),
        sort_keys=[(columns.key_column, "ascending"), (columns.time_column, "ascending")],
    )
    return table.unify_dictionaries().take(order)


def _single_key_run(columns: Columns, batch: pa.RecordBatch) -> tuple[int, int, int] | None:
    keys = pc.min_max(batch.column(columns.key_column)).as_py()
    if keys["min"] != keys["max"]:
        return None
    times = batch.column(columns.time_column)
    if not pc.all(pc.less_equal(times[:-1], times[1:]), min_count=0).as_py():
        return None
    return keys["min"], times[0].as_py(), times[-1].as_py()


def cut_into_files(columns: Columns, table: pa.Table) -> Iterator[pa.Table]:
    """Yield slices of rows sorted by key that are small enough for one file each; equal rows are never parted."""
    files = -(-table.nbytes // MAX_FILE_ARROW_BYTES)
    step = -(-table.num_rows // max(files, 1))
    keys, times = table.column(columns.key_column), table.column(columns.time_column)
    begin = 0
    while begin < table.num_rows:
        end = min(begin + step, table.num_rows)
        # Rows of one key and time keep their order only within a file.
        while end < table.num_rows and keys[end] == keys[end - 1] and times[end] == times[end - 1]:
            end += 1
        yield table.slice(begin, end - begin)
        begin = end


def encode_time_file(columns: Columns, table: pa.Table, *, state_version: int) -> tuple[memoryview, pb.ParquetTimeFile]:
    """Return the file of rows sorted by key, and a reference to it without name, epoch and size."""
    runs = pc.run_end_encode(table.column(columns.key_column).combine_chunks())
    keys, ends = runs.values.to_pylist(), runs.run_ends.to_pylist()
    starts = [0, *ends[:-1]]
    times = table.column(columns.time_column)
    firsts, lasts = (times.take(pa.array(at, pa.int64())).to_pylist() for at in (starts, [end - 1 for end in ends]))
    reference = pb.ParquetTimeFile(
        min_routing_key=keys[0],
        max_routing_key=keys[-1],
        min_time=min(firsts),
        max_time=max(lasts),
        rows=table.num_rows,
    )
    if len(keys) <= MAX_LISTED_KEYS:
        entries = zip(keys, firsts, lasts, starts, ends, strict=True)
        reference.keys.extend(
            pb.KeyRange(key=k, min_time=a, max_time=b, rows=end - start) for k, a, b, start, end in entries
        )
    groups = (table.slice(start, end - start) for start, end in _row_groups(starts, ends, table.nbytes))
    counters = [columns.key_column, columns.time_column]
    data = encode_parquet_rows(groups, table.schema, state_version=state_version, counters=counters)
    return data, reference


def _row_groups(starts: list[int], ends: list[int], arrow_bytes: int) -> Iterator[tuple[int, int]]:
    """Cut at key changes: small keys share a row group, a large key has its own ones."""
    rows = ends[-1]
    row_bytes = max(arrow_bytes / rows, 1.0)
    least = max(-(-rows // _MAX_ROW_GROUPS), int(_MIN_GROUP_BYTES / row_bytes), 1)
    most = max(int(_MAX_GROUP_BYTES / row_bytes), least)
    begin = 0
    for start, end in zip(starts, ends, strict=True):
        if end - start >= least and start > begin:
            yield begin, start
            begin = start
        while end - begin >= least:
            cut = min(begin + most, end)
            yield begin, cut
            begin = cut
    if begin < rows:
        yield begin, rows


def read_rows(
    source: ParquetSource,
    columns: Columns,
    file: pb.ParquetTimeFile,
    *,
    cutoffs: Mapping[int, int],
    state_version: int,
    only: Sequence[str] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the live rows that a reference covers, in the file's own schema; fetch only row groups that may have some.

    Raises ``CorruptStateError`` when the file is gone or garbled, ``StateVersionError`` when it is of a newer version.
    """
    parquet = source.open(file.file, size_bytes=file.bytes, crc32=file.crc32)
    found = parquet.schema_arrow.metadata
    version = CheckpointParquetMetadata.from_key_values(found, object_name=file.file).state_version
    check_version(version, oldest=0, supported=state_version, object_name=file.file)
    schema = written_schema(parquet).with_metadata(CheckpointParquetMetadata.without(found))
    read = None if only is None else list(dict.fromkeys([*only, columns.time_column, columns.key_column]))
    for groups in _fetches(parquet.metadata, columns, file):
        try:
            batches = list(parquet.iter_batches(batch_size=_READ_ROWS, row_groups=groups, columns=read))
        except (pa.ArrowException, OSError) as error:
            raise unreadable_file(file.file, error) from error
        for batch in batches:
            live = keep_live(columns, batch, file, cutoffs)
            if live.num_rows:
                chosen = live if only is None else live.select(list(only))
                yield _as_written(chosen, schema)


def _as_written(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    fields = [schema.field(name) for name in batch.schema.names]
    wanted = pa.schema(fields, metadata=schema.metadata)
    if all(a.type.equals(b.type, check_metadata=True) for a, b in zip(batch.schema, fields, strict=True)):
        return batch.replace_schema_metadata(schema.metadata)
    return batch.cast(wanted)


def _fetches(metadata: pq.FileMetaData, columns: Columns, file: pb.ParquetTimeFile) -> Iterator[list[int]]:
    groups: list[int] = []
    size = 0
    for index in range(metadata.num_row_groups):
        group = metadata.row_group(index)
        if not _may_match(group, columns, file):
            continue
        if groups and size + group.total_byte_size > _FETCH_BYTES:
            yield groups
            groups, size = [], 0
        groups.append(index)
        size += group.total_byte_size
    if groups:
        yield groups


def _may_match(group: pq.RowGroupMetaData, columns: Columns, file: pb.ParquetTimeFile) -> bool:
    bounds = {}
    for index in range(group.num_columns):
        column = group.column(index)
        if column.path_in_schema in (columns.key_column, columns.time_column) and column.is_stats_set:
            bounds[column.path_in_schema] = column.statistics.min, column.statistics.max
    first, last = bounds.get(columns.key_column, (file.min_routing_key, file.max_routing_key))
    if last < file.min_routing_key or first > file.max_routing_key:
        return False
    if columns.time_column in bounds and bounds[columns.time_column][1] < file.min_time:
        return False
    if not file.keys:
        return True
    at = bisect_left(file.keys, first, key=lambda entry: entry.key)
    return at < len(file.keys) and file.keys[at].key <= last


def keep_live(
    columns: Columns, batch: pa.RecordBatch, file: pb.ParquetTimeFile, cutoffs: Mapping[int, int]
) -> pa.RecordBatch:
    """Return the rows of ``batch`` that the reference covers and no cutoff has ended."""
    keys, times = batch.column(columns.key_column), batch.column(columns.time_column)
    if file.keys:
        floors = {entry.key: entry.min_time for entry in file.keys}
        mask = pc.fill_null(pc.greater_equal(times, _by_key(keys, floors)), False)
    else:
        low, high = pa.scalar(file.min_routing_key, pa.uint64()), pa.scalar(file.max_routing_key, pa.uint64())
        mask = pc.and_(pc.greater_equal(keys, low), pc.less_equal(keys, high))
        mask = pc.and_(mask, pc.greater_equal(times, pa.scalar(file.min_time, pa.int64())))
    return _filtered(batch, _without_dead(mask, keys, times, cutoffs))


def drop_dead(
    columns: Columns, batch: pa.RecordBatch, *, min_time: int = MIN_TIME, cutoffs: Mapping[int, int]
) -> pa.RecordBatch:
    """Return the rows of a batch in memory that are not expired and that no cutoff has ended."""
    if (min_time == MIN_TIME and not cutoffs) or not batch.num_rows:
        return batch
    keys, times = batch.column(columns.key_column), batch.column(columns.time_column)
    found = pc.min_max(keys).as_py()
    if found["min"] == found["max"]:
        # The rule for pending rows, of which there are thousands of batches: no look-up of each row's key.
        floor = max(min_time, cutoffs.get(found["min"], MIN_TIME))
        return batch.slice(0, 0) if floor == MAX_TIME else _filtered(batch, pc.greater_equal(times, floor))
    mask = pc.greater_equal(times, pa.scalar(min_time, pa.int64()))
    return _filtered(batch, _without_dead(mask, keys, times, cutoffs))


def _without_dead(mask: pa.Array, keys: pa.Array, times: pa.Array, cutoffs: Mapping[int, int]) -> pa.Array:
    if not cutoffs:
        return mask
    floors = _by_key(keys, cutoffs)
    dead = pc.or_(pc.less(times, floors), pc.equal(floors, pa.scalar(MAX_TIME, pa.int64())))
    return pc.and_(mask, pc.invert(pc.fill_null(dead, False)))


def _by_key(keys: pa.Array, values: Mapping[int, int]) -> pa.Array:
    """Return for each row the value of its key, or null."""
    index = pc.index_in(keys, value_set=pa.array(values.keys(), pa.uint64()))
    return pa.array(values.values(), pa.int64()).take(index)


def _filtered(batch: pa.RecordBatch, mask: pa.Array) -> pa.RecordBatch:
    return batch if pc.all(mask, min_count=0).as_py() else batch.filter(mask)


def by_schema(batches: Iterable[pa.RecordBatch]) -> list[list[pa.RecordBatch]]:
    """Return the batches that are not empty, those of equal schemas together: a file has one schema."""
    groups: list[list[pa.RecordBatch]] = []
    for batch in batches:
        if not batch.num_rows:
            continue
        for group in groups:
            if group[0].schema.equals(batch.schema, check_metadata=True):
                group.append(batch)
                break
        else:
            groups.append([batch])
    return groups
