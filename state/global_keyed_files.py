"""The Parquet files of a global table: deltas with tombstones, and how their rows combine into one truth."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import pyarrow as pa

from icefloe.errors import CorruptStateError
from icefloe.proto import state_pb2 as pb
from icefloe.state.encoding import KeyedCodecs
from icefloe.state.migration import check_version
from icefloe.state.parquet_files import encode_parquet, open_parquet, read_checked, unreadable_file
from icefloe.state.parquet_metadata import CheckpointParquetMetadata
from icefloe.state.storage import StorageProvider

# A null value is a tombstone: the key was removed.
GLOBAL_KEY_VALUE_SCHEMA: Final = pa.schema(
    [pa.field("key", pa.binary(), nullable=False), pa.field("value", pa.binary())]
)
# A merge of one subtask's files beside those of others keeps, for each row, the write that it comes from.
STAMPED_SCHEMA: Final = pa.schema(
    [*GLOBAL_KEY_VALUE_SCHEMA, pa.field("epoch", pa.uint64()), pa.field("subtask_index", pa.uint32())]
)
_ROW_GROUP_ROWS: Final = 1 << 18
_READ_ROWS: Final = 1 << 16

# The place of a write in the order of all writes: the highest (epoch, subtask) wins.
Stamp: TypeAlias = tuple[int, int]


@dataclass(frozen=True, slots=True)
class KeyedRows:
    """The content of one file. ``stamps`` is None where the whole file is one write."""

    file: pb.GlobalKeyedFile
    state_version: int
    keys: list[bytes]
    values: list[bytes | None]
    stamps: list[Stamp] | None

    def stamped(self) -> Iterable[tuple[bytes, bytes | None, Stamp]]:
        """Yield key, value and stamp of each row."""
        stamps = self.stamps or [stamp_of(self.file)] * len(self.keys)
        return zip(self.keys, self.values, stamps, strict=True)


def stamp_of(file: pb.GlobalKeyedFile) -> Stamp:
    """Return the file's place in the order in which changes apply."""
    return file.epoch, file.subtask_index


def encode_changes(changes: Mapping[bytes, bytes | None], state_version: int) -> bytes:
    """Return the file of a delta: values by key, null for a removed key."""
    table = pa.table(
        [pa.array(changes.keys(), pa.binary()), pa.array(changes.values(), pa.binary())], schema=GLOBAL_KEY_VALUE_SCHEMA
    )
    return _encode(table, state_version)


def encode_stamped(rows: Mapping[bytes, tuple[Stamp, bytes | None]], state_version: int) -> bytes:
    """Return the file of a merge whose rows keep their stamps."""
    columns = [
        pa.array(rows.keys(), pa.binary()),
        pa.array((value for _, value in rows.values()), pa.binary()),
        pa.array((stamp[0] for stamp, _ in rows.values()), pa.uint64()),
        pa.array((stamp[1] for stamp, _ in rows.values()), pa.uint32()),
    ]
    return _encode(pa.table(columns, schema=STAMPED_SCHEMA), state_version)


def read_rows(storage: StorageProvider, file: pb.GlobalKeyedFile) -> KeyedRows:
    """Read a file whole. Raises ``CorruptStateError`` when it is gone, garbled or not a global table's."""
    data = read_checked(storage, file.file, size_bytes=file.bytes, crc32=file.crc32)
    parquet = open_parquet(pa.BufferReader(data), file.file)
    columns = parquet.schema_arrow.names
    version = CheckpointParquetMetadata.from_key_values(parquet.schema_arrow.metadata, object_name=file.file)
    if columns not in (GLOBAL_KEY_VALUE_SCHEMA.names, STAMPED_SCHEMA.names):
        raise CorruptStateError(
            "ICEFLOE_STATE_FILE_FOREIGN",
            f"{file.file} has the columns {columns}: it is not a global keyed table's file",
        )
    keys: list[bytes] = []
    values: list[bytes | None] = []
    stamps: list[Stamp] | None = [] if columns == STAMPED_SCHEMA.names else None
    try:
        for batch in parquet.iter_batches(batch_size=_READ_ROWS):
            keys += batch.column(0).to_pylist()
            values += batch.column(1).to_pylist()
            if stamps is not None:
                stamps += zip(batch.column(2).to_pylist(), batch.column(3).to_pylist(), strict=True)
    except (pa.ArrowException, OSError) as error:
        raise unreadable_file(file.file, error) from error
    return KeyedRows(file, version.state_version, keys, values, stamps)


def upgraded(rows: KeyedRows, codecs: KeyedCodecs) -> KeyedRows:
    """Return the rows in the version of ``codecs``. Raises ``StateVersionError`` for one that cannot be read."""
    version = codecs.version
    check_version(rows.state_version, oldest=codecs.oldest_version, supported=version, object_name=rows.file.file)
    if rows.state_version == version:
        return rows
    try:
        pairs = [codecs.upgrade(k, v, rows.state_version) for k, v in zip(rows.keys, rows.values, strict=True)]
    except CorruptStateError as error:
        raise CorruptStateError(error.code, f"{rows.file.file}: {error.message}") from error
    keys, values = [key for key, _ in pairs], [value for _, value in pairs]
    return KeyedRows(rows.file, version, keys, values, rows.stamps)


def live_values(files: Sequence[KeyedRows]) -> dict[bytes, bytes]:
    """Return the value of each key that was not removed. ``files`` stand in the order in which they apply."""
    if any(rows.stamps is not None for rows in files):
        return {key: value for key, (_, value) in newest(files).items() if value is not None}
    live: dict[bytes, bytes] = {}
    for rows in files:
        if None not in rows.values:
            live.update(zip(rows.keys, rows.values, strict=True))  # type: ignore[arg-type]
            continue
        for key, value in zip(rows.keys, rows.values, strict=True):
            if value is None:
                live.pop(key, None)
            else:
                live[key] = value
    return live


def newest(files: Sequence[KeyedRows]) -> dict[bytes, tuple[Stamp, bytes | None]]:
    """Return the last write of each key with its stamp, tombstones included."""
    latest: dict[bytes, tuple[Stamp, bytes | None]] = {}
    for rows in files:
        for key, value, stamp in rows.stamped():
            known = latest.get(key)
            if known is None or known[0] <= stamp:
                latest[key] = (stamp, value)
    return latest


def _encode(table: pa.Table, state_version: int) -> bytes:
    groups = [table.slice(start, _ROW_GROUP_ROWS) for start in range(0, table.num_rows, _ROW_GROUP_ROWS)]
    return encode_parquet(groups, table.schema, state_version=state_version, statistics=[], dictionary=False)
