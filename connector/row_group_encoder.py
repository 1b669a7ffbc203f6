"""One row group at any offset of a file that is not there: the step that lets a Parquet file change processes.

PyArrow's writer cannot pause, but a row group can be encoded by a writer of its own whose output starts at the file's
current length, and the footers of such pieces can be merged. What is between the magic and the footer of each piece,
put one behind the other and followed by the merged footer, is what one plain writer would have made.
"""

from __future__ import annotations

import fcntl
import io
import mmap
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from icefloe.connector.parquet_format import ParquetFormat
from icefloe.errors import CorruptStateError, SchemaError

MAGIC = b"PAR1"
# PyArrow starts a second row group above this many rows, whatever is asked for.
MAX_ROW_GROUP_ROWS = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class EncodedRowGroup:
    """The bytes that stand in the file from ``position_bytes`` on (with the magic if that is 0), and their footer."""

    position_bytes: int
    data: memoryview
    footer: pq.FileMetaData
    rows: int
    arrow_bytes: int


@dataclass(frozen=True, slots=True)
class PlacedRowGroup:
    """A row group whose bytes are where they belong."""

    length_bytes: int
    footer: pq.FileMetaData
    rows: int
    arrow_bytes: int


def encode_row_group(
    table: pa.Table, *, position_bytes: int, schema: pa.Schema, format: ParquetFormat
) -> EncodedRowGroup:
    """Encode ``table`` as the row group that starts at ``position_bytes`` of a file with ``schema``.

    Page indexes and bloom filters are part of the bytes. Nothing durable is written. Safe from any thread.
    Raises ``SchemaError`` naming what does not fit when Arrow refuses the rows.
    """
    descriptor = _scratch_file()
    try:
        with _refusals(table), pa.OSFile(f"/dev/fd/{descriptor}", "wb") as sink:
            footer = _write_at(sink, table, position_bytes, schema, format)
        end = _footer_start(descriptor)
        # The magic belongs to the file's first row group; later pieces have it far before their offset.
        data = _map_range(descriptor, position_bytes, end)
    finally:
        os.close(descriptor)
    return EncodedRowGroup(position_bytes, data, footer, table.num_rows, table.nbytes)


def append_row_group(
    path: Path, table: pa.Table, *, position_bytes: int, schema: pa.Schema, format: ParquetFormat
) -> PlacedRowGroup:
    """Encode ``table`` into a local file of ``position_bytes``, which ends behind the new row group afterwards.

    The encoded bytes are never in this process' memory as a whole. Not durable, and not atomic: only for a file that
    nobody else knows. Raises ``OSError`` (a full disk), or ``SchemaError`` as ``encode_row_group``.
    """
    # Opened for appending because Arrow would cut the file otherwise; where it writes is chosen here all the same.
    with _refusals(table), pa.OSFile(str(path), "ab") as sink:
        descriptor = sink.fileno()
        fcntl.fcntl(descriptor, fcntl.F_SETFL, fcntl.fcntl(descriptor, fcntl.F_GETFL) & ~os.O_APPEND)
        if os.fstat(descriptor).st_size > position_bytes:
            # What a failed try left behind the last row group must not be taken for a footer.
            os.ftruncate(descriptor, position_bytes)
        os.lseek(descriptor, 0, os.SEEK_SET)
        footer = _write_at(sink, table, position_bytes, schema, format)
        with open(path, "rb", buffering=0) as written:
            end = _footer_start(written.fileno())
        os.ftruncate(descriptor, end)
    return PlacedRowGroup(end - position_bytes, footer, table.num_rows, table.nbytes)


def merge_footers(footers: Sequence[pq.FileMetaData]) -> pq.FileMetaData:
    """Return one footer for the row groups of all, in order. The arguments are not changed."""
    merged = parse_footer(serialize_footer(footers[0]))
    for footer in footers[1:]:
        merged.append_row_groups(footer)
    return merged


def serialize_footer(footer: pq.FileMetaData) -> bytes:
    """Return ``PAR1`` + footer, which is what state keeps of it."""
    sink = io.BytesIO()
    footer.write_metadata_file(sink)
    return sink.getvalue()


def closing_bytes(footer: pq.FileMetaData) -> bytes:
    """Return what has to follow the last row group to make a valid file."""
    return serialize_footer(footer)[len(MAGIC) :]


def parse_footer(data: bytes, *, object_name: str = "a footer") -> pq.FileMetaData:
    """Read back what ``serialize_footer`` made. Raises ``CorruptStateError`` naming the object it came from."""
    try:
        return pq.read_metadata(pa.BufferReader(data))
    except (pa.ArrowInvalid, OSError) as error:
        raise CorruptStateError(
            "ICEFLOE_FOOTER_CORRUPT", f"{object_name} ({len(data)} bytes) is not a Parquet footer: {error}"
        ) from error


def empty_footer(schema: pa.Schema, format: ParquetFormat) -> pq.FileMetaData:
    """Return the footer of a file with this schema and no row group."""
    sink = io.BytesIO()
    writer = pq.ParquetWriter(sink, schema, **format.writer_options(schema))
    writer.close()
    return writer.writer.metadata


@contextmanager
def _refusals(table: pa.Table) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, ValueError) as error:
        raise SchemaError(
            "ICEFLOE_ENCODE_REFUSED",
            f"{table.num_rows} rows cannot be encoded as Parquet with the schema of their file: {error}",
        ) from error


def _write_at(
    sink: pa.OSFile, table: pa.Table, position_bytes: int, schema: pa.Schema, format: ParquetFormat
) -> pq.FileMetaData:
    writer = pq.ParquetWriter(sink, schema, **format.writer_options(schema))
    if position_bytes > 0:
        # A scratch file is sparse: moving the descriptor costs nothing, and all offsets come out right.
        os.lseek(sink.fileno(), position_bytes, os.SEEK_SET)
    writer.write_table(table, row_group_size=max(1, min(table.num_rows, MAX_ROW_GROUP_ROWS)))
    writer.close()
    return writer.writer.metadata


def _footer_start(descriptor: int) -> int:
    size = os.fstat(descriptor).st_size
    length = int.from_bytes(os.pread(descriptor, 4, size - 8), "little")
    return size - 8 - length


def _map_range(descriptor: int, start: int, end: int) -> memoryview:
    # A mapping instead of a read: the encoded bytes are in memory once, and leave it with the last view of them.
    aligned = start - start % mmap.ALLOCATIONGRANULARITY
    mapped = mmap.mmap(descriptor, end - aligned, access=mmap.ACCESS_READ, offset=aligned)
    return memoryview(mapped)[start - aligned :]


def _scratch_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("icefloe-row-group", os.MFD_CLOEXEC)
    descriptor, path = tempfile.mkstemp(prefix="icefloe-row-group-")
    os.unlink(path)
    return descriptor
