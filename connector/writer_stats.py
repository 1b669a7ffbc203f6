"""What writers measure: per file (``MultiPartWriterStats``) and per task (``FsEventLogger``)."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace

from icefloe.proto import sink_pb2


def now_us() -> int:
    """Return the time in microseconds since the Unix epoch."""
    return time.time_ns() // 1000


@dataclass(slots=True)
class MultiPartWriterStats:
    """One file while it is written. Times are microseconds since the Unix epoch."""

    bytes_written: int = 0
    parts_written: int = 0
    first_write_us: int | None = None
    last_write_us: int | None = None
    representative_timestamp_us: int | None = None

    def wrote(self, *, now_us: int) -> None:
        """Note that rows arrived."""
        if self.first_write_us is None:
            self.first_write_us = now_us
        self.last_write_us = now_us

    def flushed(self, length_bytes: int) -> None:
        """Note a part (or a piece of a local file) that left the writer."""
        self.bytes_written += length_bytes
        self.parts_written += 1


@dataclass(frozen=True, slots=True)
class FsEvents:
    """A snapshot of what a task's writers did."""

    rows: int = 0
    uncompressed_bytes: int = 0
    encoded_bytes: int = 0
    row_groups: int = 0
    files: int = 0
    parts: int = 0
    segments: int = 0
    failures: int = 0
    encode_us: int = 0
    upload_us: int = 0


class FsEventLogger:
    """Counts events of all writers of a task. Safe from any thread; reading gives a consistent snapshot."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._events = FsEvents()

    def log(self, **increments: int) -> None:
        """Add to counters named as the fields of ``FsEvents``."""
        with self._lock:
            now = {name: getattr(self._events, name) + value for name, value in increments.items()}
            self._events = replace(self._events, **now)

    @contextmanager
    def timing(self, counter: str) -> Iterator[None]:
        """Add the time the block takes to ``counter``; a block that raises counts as a failure, too."""
        started = time.perf_counter_ns()
        try:
            yield
        except BaseException:
            self.log(failures=1)
            raise
        finally:
            self.log(**{counter: (time.perf_counter_ns() - started) // 1000})

    def snapshot(self) -> FsEvents:
        """Return the counts so far."""
        with self._lock:
            return self._events

    def epoch_metrics(self) -> sink_pb2.EpochMetrics:
        """Return the counts as far as a record keeps them."""
        events = self.snapshot()
        return sink_pb2.EpochMetrics(
            rows=events.rows,
            arrow_bytes=events.uncompressed_bytes,
            encoded_bytes=events.encoded_bytes,
            files_rolled=events.files,
            parts=events.parts,
            row_groups=events.row_groups,
            encode_us=events.encode_us,
            upload_us=events.upload_us,
        )

    def as_dict(self) -> dict[str, int]:
        """Return the counts by name, for logs and metrics."""
        events = self.snapshot()
        return {entry.name: getattr(events, entry.name) for entry in fields(events)}
