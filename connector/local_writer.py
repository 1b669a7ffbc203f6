"""Parquet written straight to a local file: what ``file:`` targets use."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from icefloe.connector.batch_buffering_writer import ParquetBatchBufferingWriter
from icefloe.connector.durable_disk import call_local, sync_file, write_all
from icefloe.connector.encoding_lane import Lane
from icefloe.connector.parquet_format import ParquetFormat
from icefloe.connector.pending_rows import PendingRows
from icefloe.connector.row_group_encoder import PlacedRowGroup, append_row_group, closing_bytes
from icefloe.connector.writer_stats import FsEventLogger, MultiPartWriterStats, now_us
from icefloe.errors import CorruptStateError, NotFoundError
from icefloe.schemas.sink_schema import SinkSchema
from icefloe.schemas.timestamps import representative_timestamp
from icefloe.state.crash_points import crash_point
from icefloe.state.durable_folders import make_folder, sync_folder


@dataclass(frozen=True, slots=True)
class FilePreCommit:
    """A finished file that waits to be linked to its final name (or has it already, where both are the same)."""

    tmp_path: Path
    final_path: Path
    length_bytes: int


@dataclass(frozen=True, slots=True)
class CurrentFileRecovery:
    """Enough to finish a local file as it was at a checkpoint: its first bytes, and what has to follow them."""

    tmp_path: Path
    position_bytes: int
    trailing_bytes: bytes
    final_path: Path


class LocalWriter(Protocol):
    """A writer that owns one local file."""

    def file_suffix(self) -> str:
        """Return the file name's ending, without a dot."""
        ...

    def write_batch(self, batch: pa.RecordBatch) -> int:
        """Take a batch and return its rows."""
        ...

    def sync(self) -> int:
        """Make the finished row groups durable and return their length."""
        ...

    def close(self) -> FilePreCommit:
        """Finish the file under its temporary name, durable."""
        ...

    def checkpoint(self) -> CurrentFileRecovery | None:
        """Return what finishes the file with every row so far, or None when there is none."""
        ...

    def stats(self) -> MultiPartWriterStats | None:
        """Return what was measured, or None before the first batch."""
        ...


class ParquetLocalWriter:
    """The ``LocalWriter`` for Parquet. ``tmp_path`` is this writer's alone; it is made when there is something in it.

    Row groups are encoded straight into the file, in the lane's thread. A full disk, or a ``tmp_path`` that exists,
    raises ``StorageError``. ``pending`` continues a file of which nothing is encoded yet.
    """

    def __init__(
        self,
        tmp_path: Path,
        final_path: Path,
        format: ParquetFormat,
        schema: SinkSchema,
        iceberg_schema: Mapping[str, Any] | None = None,
        event_logger: FsEventLogger | None = None,
        *,
        metrics_config: Mapping[str, str] | None = None,
        lane: Lane | None = None,
        pending: PendingRows | None = None,
        clock: Callable[[], int] = now_us,
    ) -> None:
        self.tmp_path = tmp_path
        self.final_path = final_path
        self._schema = schema
        self._clock = clock
        self._events = event_logger or FsEventLogger()
        self._stats = MultiPartWriterStats()
        self._file_length_bytes = 0
        self._pre_commit: FilePreCommit | None = None
        self.writer = ParquetBatchBufferingWriter(
            format,
            schema,
            iceberg_schema,
            self._events,
            metrics_config=metrics_config or {},
            lane=lane,
            pending=pending,
            place=self._append_row_group,
        )
        # Where each piece that was written ends: row groups, then the footer.
        self.ends: list[int] = []

    def file_suffix(self) -> str:
        return self.writer.suffix()

    def write_batch(self, batch: pa.RecordBatch) -> int:
        self.writer.add_batch_data(batch)
        if batch.num_rows:
            self._stats.wrote(now_us=self._clock())
            index = self._schema.timestamp_index
            known = self._stats.representative_timestamp_us is not None
            if index is not None and not known and batch.column(index)[0].is_valid:
                self._stats.representative_timestamp_us = representative_timestamp(batch.column(index))
        return int(batch.num_rows)

    def sync(self) -> int:
        self.writer.settle()
        if not self.ends:
            return 0
        call_local(f"syncing {self.tmp_path}", lambda: sync_file(self.tmp_path, self._file_length_bytes))
        return self._file_length_bytes

    def close(self) -> FilePreCommit:
        if self._pre_commit is None:
            footer = self.writer.finish()
            # The buffer holds nothing but the magic of a file without rows.
            with self._events.timing("upload_us"):
                self._append_bytes([*self.writer.buffer.take(self.writer.buffered_bytes), closing_bytes(footer)])
            crash_point("file.footer-written")
            self._pre_commit = FilePreCommit(self.tmp_path, self.final_path, self.sync())
            self._events.log(files=1)
            crash_point("file.sealed")
        return self._pre_commit

    def checkpoint(self) -> CurrentFileRecovery | None:
        if self._pre_commit is None and self.writer.rows == 0:
            return None
        position = self.sync()
        trailing = b"" if self._pre_commit else self.writer.get_trailing_bytes_for_checkpoint()[0]
        return CurrentFileRecovery(self.tmp_path, position, trailing, self.final_path)

    def stats(self) -> MultiPartWriterStats | None:
        return self._stats if self._stats.first_write_us is not None else None

    def _create(self) -> None:
        make_folder(self.tmp_path.parent)
        os.close(os.open(self.tmp_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))

    def _append_row_group(self, table: pa.Table, position_bytes: int) -> PlacedRowGroup:
        self._create_once()
        writer = self.writer
        # Opened anew each time: an idle file costs no descriptor, however many are open.
        placed = call_local(
            f"writing {self.tmp_path}",
            lambda: append_row_group(
                self.tmp_path, table, position_bytes=position_bytes, schema=writer.schema, format=writer.format
            ),
        )
        self._wrote(placed.length_bytes)
        return placed

    def _append_bytes(self, pieces: Sequence[bytes | memoryview]) -> None:
        self._create_once()

        def append() -> int:
            with open(self.tmp_path, "r+b", buffering=0) as file:
                file.seek(self._file_length_bytes)
                return write_all(file.fileno(), pieces)

        self._wrote(call_local(f"writing {self.tmp_path}", append))

    def _create_once(self) -> None:
        if not self.ends:
            call_local(f"beginning {self.final_path}", self._create)

    def _wrote(self, length_bytes: int) -> None:
        self._file_length_bytes += length_bytes
        self.ends.append(self._file_length_bytes)
        self._stats.flushed(length_bytes)
        self._events.log(parts=1)


def recover_local_file(recovery: CurrentFileRecovery, tmp_path: Path) -> FilePreCommit:
    """Finish a file as it was at its checkpoint, in a new file; rows written after the checkpoint are not in it.

    The old file is read and never changed, so this may be repeated, also while its writer is still awake.
    Raises ``CorruptStateError`` when the old file is gone or shorter than its checkpoint.
    """

    def compose() -> int:
        head = _read_head(recovery)
        if len(head) != recovery.position_bytes:
            raise CorruptStateError(
                "ICEFLOE_FILE_SHORT",
                f"{recovery.tmp_path} has {len(head)} bytes, and {recovery.position_bytes} were durable at its "
                "checkpoint: it was cut or replaced",
            )
        make_folder(tmp_path.parent)
        with open(tmp_path, "xb", buffering=0) as new:
            return write_all(new.fileno(), [head, recovery.trailing_bytes])

    try:
        length = call_local(f"recovering {recovery.final_path}", compose)
    except NotFoundError as error:
        raise CorruptStateError(
            "ICEFLOE_FILE_GONE", f"{recovery.tmp_path} is gone, and {recovery.position_bytes} of its bytes are needed"
        ) from error
    call_local(f"syncing {tmp_path}", lambda: sync_file(tmp_path, length))
    return FilePreCommit(tmp_path, recovery.final_path, length)


def _read_head(recovery: CurrentFileRecovery) -> bytes:
    if recovery.position_bytes == 0:
        return b""
    with open(recovery.tmp_path, "rb") as old:
        return old.read(recovery.position_bytes)


def publish_pre_commit(pre_commit: FilePreCommit) -> None:
    """Make a finished file visible under its final name. Repeatable; a file that is there already is left alone."""

    def link() -> None:
        if pre_commit.tmp_path == pre_commit.final_path:
            return
        make_folder(pre_commit.final_path.parent)
        if not pre_commit.final_path.exists():
            with suppress(FileExistsError):
                os.link(pre_commit.tmp_path, pre_commit.final_path)
        sync_folder(pre_commit.final_path.parent)
        with suppress(FileNotFoundError):
            pre_commit.tmp_path.unlink()

    call_local(f"publishing {pre_commit.final_path}", link)
