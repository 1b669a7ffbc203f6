"""When an in-flight file is finished: at a size, an age, a silence, or when the watermark has passed it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Protocol

_MICROSECOND = timedelta(microseconds=1)


class RollReason(StrEnum):
    """Why a file was finished."""

    BATCH = "batch"
    SIZE = "size"
    INTERVAL = "interval"
    INACTIVITY = "inactivity"
    WATERMARK = "watermark"
    FINGERPRINT = "fingerprint"
    MAX_OPEN_FILES = "maxOpenFiles"
    FINISH = "finish"


class RollingFile(Protocol):
    """What a policy looks at."""

    @property
    def size_bytes(self) -> int: ...
    @property
    def began_us(self) -> int: ...
    @property
    def last_write_us(self) -> int: ...
    @property
    def max_event_time_us(self) -> int | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RollPolicy:
    """The user's choice. Looked at for every file of a subtask in every micro-batch, whether it got rows or not."""

    file_size_bytes: int
    interval: timedelta
    inactivity: timedelta
    by_watermark: bool
    every_batch: bool

    def is_full(self, file: RollingFile) -> bool:
        """Whether the file has reached its size, counting what is still buffered."""
        return file.size_bytes >= self.file_size_bytes

    def due(self, file: RollingFile, *, now_us: int, watermark_us: int | None) -> RollReason | None:
        """Return why the file must be finished now, or None."""
        if self.every_batch:
            return RollReason.BATCH
        if self.is_full(file):
            return RollReason.SIZE
        if now_us - file.began_us >= self.interval // _MICROSECOND:
            return RollReason.INTERVAL
        if now_us - file.last_write_us >= self.inactivity // _MICROSECOND:
            return RollReason.INACTIVITY
        latest = file.max_event_time_us
        if self.by_watermark and watermark_us is not None and latest is not None and watermark_us > latest:
            return RollReason.WATERMARK
        return None
