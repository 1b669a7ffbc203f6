"""State tables' Parquet objects: written under the attempt's own names, read whole or in ranges, always checked."""

from __future__ import annotations

import base64
import io
import zlib
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from icefloe.errors import ConflictError, CorruptStateError, NotFoundError
from icefloe.state.object_names import table_checkpoint_path
from icefloe.state.parquet_metadata import CheckpointParquetMetadata
from icefloe.state.storage import StorageProvider
from icefloe.state.task_info import TaskInfo

# Up to this size one request for the whole object is cheaper than several for its parts.
WHOLE_FILE_BYTES = 256 << 10


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """An object that this attempt has just stored."""

    name: str
    size_bytes: int
    crc32: int


def encode_parquet(
    groups: Iterable[pa.Table], schema: pa.Schema, *, state_version: int, statistics: list[str], dictionary: bool
) -> bytes:
    """Return a Parquet file with one row group for each of ``groups``. The same input gives the same bytes."""
    return bytes(_encode(groups, schema, state_version, write_statistics=statistics, use_dictionary=dictionary))


def encode_parquet_rows(
    groups: Iterable[pa.Table], schema: pa.Schema, *, state_version: int, counters: list[str]
) -> memoryview:
    """As ``encode_parquet``, for rows that are read back once or twice: in half the time, and in one copy of memory.

    ``counters`` are columns of integers that hardly change from row to row; only they get statistics.
    """
    encodings = dict.fromkeys(counters, "DELTA_BINARY_PACKED")
    return _encode(
        groups,
        schema,
        state_version,
        write_statistics=counters,
        # Measured: building dictionaries takes as long as all the rest, and zstd finds what they would have found.
        use_dictionary=False,
        column_encoding=encodings,
    )


def _encode(groups: Iterable[pa.Table], schema: pa.Schema, state_version: int, **options: Any) -> memoryview:
    own = CheckpointParquetMetadata(state_version).to_key_values()
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(
        sink,
        schema.with_metadata({**(schema.metadata or {}), **own}),
        compression="zstd",
        compression_level=1,
        write_page_checksum=True,
        # List items keep their own name: what is read back has the schema that was written.
        use_compliant_nested_type=False,
        **options,
    ) as writer:
        for group in groups:
            writer.write_table(group, row_group_size=max(group.num_rows, 1))
    return memoryview(sink.getvalue())


class TableFileWriter:
    """Stores the files of one table and one attempt, each under a name of its own that is used once."""

    def __init__(self, storage: StorageProvider, task_info: TaskInfo, table: str) -> None:
        self._storage = storage
        self._task_info = task_info
        self._table = table
        self._used: dict[int, int] = {}

    def store(self, epoch: int, data: bytes | memoryview) -> WrittenFile:
        """Store ``data`` durably for ``epoch``. Raises ``ConflictError`` when another writer uses this attempt's id."""
        n = self._used.get(epoch, 0)
        # Counted before the write: a name whose write failed may exist all the same and is not used again.
        self._used[epoch] = n + 1
        task = self._task_info
        name = table_checkpoint_path(
            task.job_id, epoch, self._table, task.subtask_index, task.attempt_id, n=n if n else None
        )
        if not self._storage.put_if_absent(name, data):
            raise ConflictError(
                "ICEFLOE_STATE_TWO_MANAGERS",
                f"{name} exists with other content: two table managers write as attempt {task.attempt_id}. Open each "
                "manager with an attempt id of its own",
            )
        return WrittenFile(name, len(data), zlib.crc32(data))


def read_checked(storage: StorageProvider, name: str, *, size_bytes: int, crc32: int) -> bytes:
    """Return the whole object. Raises ``CorruptStateError`` when it is gone or is not what the metadata says."""
    try:
        data = storage.get(name)
    except NotFoundError as error:
        raise missing_file(name) from error
    if len(data) != size_bytes or zlib.crc32(data) != crc32:
        raise CorruptStateError(
            "ICEFLOE_STATE_FILE_CORRUPT",
            f"{name} has {len(data)} bytes with CRC-32 {zlib.crc32(data):08x}, its metadata says {size_bytes} bytes "
            f"with {crc32:08x}. Restore the object from a backup, or restart from an earlier epoch",
        )
    return data


def missing_file(name: str) -> CorruptStateError:
    """Return the error for a file that metadata names and storage does not have."""
    return CorruptStateError(
        "ICEFLOE_STATE_FILE_MISSING",
        f"{name} is named by the checkpoint's metadata and is not in storage. Restore the object from a backup; "
        "nothing is started afresh without it",
    )


def open_parquet(source: Any, name: str, metadata: pq.FileMetaData | None = None) -> pq.ParquetFile:
    """Open a Parquet file or raise ``CorruptStateError`` naming it."""
    try:
        return pq.ParquetFile(source, metadata=metadata, pre_buffer=True, page_checksum_verification=True)
    except (pa.ArrowException, OSError) as error:
        raise unreadable_file(name, error) from error


def written_schema(parquet: pq.ParquetFile) -> pa.Schema:
    """Return the Arrow schema that the rows had when they were written: Parquet itself has no seconds, for one."""
    stored = (parquet.metadata.metadata or {}).get(b"ARROW:schema")
    return parquet.schema_arrow if stored is None else pa.ipc.read_schema(pa.py_buffer(base64.b64decode(stored)))


def unreadable_file(name: str, error: Exception) -> CorruptStateError:
    """Return the error for a file whose Parquet does not parse."""
    return CorruptStateError(
        "ICEFLOE_STATE_FILE_CORRUPT",
        f"{name} cannot be read as Parquet: {error}. Restore it from a backup, or restart from an earlier epoch",
    )


class RangeReader(io.RawIOBase):
    """A stored object as a seekable file: only the ranges that are read are fetched."""

    def __init__(self, storage: StorageProvider, name: str, size_bytes: int) -> None:
        super().__init__()
        self._storage = storage
        self._name = name
        self._size_bytes = size_bytes
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size_bytes}[whence]
        self._position = start + offset
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        """Return ``size`` bytes. Raises ``CorruptStateError`` when the object is gone or shorter than it was."""
        rest = max(self._size_bytes - self._position, 0)
        length = rest if size is None or size < 0 else min(size, rest)
        if not length:
            return b""
        try:
            data = self._storage.get_range(self._name, self._position, length)
        except NotFoundError as error:
            raise missing_file(self._name) from error
        if len(data) != length:
            raise unreadable_file(self._name, ValueError(f"it ends before byte {self._position + length}"))
        self._position += length
        return data


class ParquetSource:
    """Opens the files of one table for reading and remembers footers and small recent files within a fixed bound."""

    def __init__(self, storage: StorageProvider, *, cache_bytes: int = 4 << 20, footers: int = 128) -> None:
        self._storage = storage
        self._cache_bytes = cache_bytes
        self._footer_limit = footers
        self._small: OrderedDict[str, bytes] = OrderedDict()
        self._small_bytes = 0
        self._footers: OrderedDict[str, pq.FileMetaData] = OrderedDict()

    def remember(self, name: str, data: bytes | memoryview) -> None:
        """Keep a small file that was just written or read: merging the last epochs then needs no request."""
        if len(data) > WHOLE_FILE_BYTES or name in self._small:
            return
        self._small[name] = bytes(data)
        self._small_bytes += len(data)
        while self._small_bytes > self._cache_bytes:
            self._small_bytes -= len(self._small.popitem(last=False)[1])

    def keep_only(self, names: set[str]) -> None:
        """Forget files that the table does not name any more."""
        for name in [name for name in self._small if name not in names]:
            self._small_bytes -= len(self._small.pop(name))
        for name in [name for name in self._footers if name not in names]:
            del self._footers[name]

    def check_length(self, name: str, size_bytes: int) -> None:
        """Raise ``CorruptStateError`` when the file is gone or has another length. Reads no content."""
        try:
            found = self._storage.size(name)
        except NotFoundError as error:
            raise missing_file(name) from error
        if found != size_bytes:
            raise unreadable_file(name, ValueError(f"it has {found} bytes, its metadata says {size_bytes}"))

    def open(self, name: str, *, size_bytes: int, crc32: int) -> pq.ParquetFile:
        """Open a file. A small one is fetched whole and its checksum compared; of a larger one only the footer is.

        Raises ``CorruptStateError`` when it is gone or garbled; pages carry checksums of their own.
        """
        if size_bytes <= WHOLE_FILE_BYTES:
            data = self._small.get(name)
            if data is None:
                data = read_checked(self._storage, name, size_bytes=size_bytes, crc32=crc32)
                self.remember(name, data)
            return open_parquet(pa.BufferReader(data), name)
        reader = pa.PythonFile(RangeReader(self._storage, name, size_bytes), mode="r")
        opened = open_parquet(reader, name, self._footers.get(name))
        self._footers[name] = opened.metadata
        while len(self._footers) > self._footer_limit:
            self._footers.popitem(last=False)
        return opened
