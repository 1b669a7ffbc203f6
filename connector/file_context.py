"""What the files of one subtask share: identity, stores, format, threads."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import TracebackType

from icefloe.connector.encoding_lane import EncodingLane
from icefloe.connector.file_outlets import UploadPool
from icefloe.connector.multipart import FileStore
from icefloe.connector.parquet_format import ParquetFormat
from icefloe.connector.writer_stats import FsEventLogger, now_us
from icefloe.proto import sink_pb2
from icefloe.schemas.sink_schema import SinkSchema
from icefloe.state.object_names import segment_name
from icefloe.state.storage import StorageProvider
from icefloe.state.task_info import TaskInfo

DEFAULT_PART_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class FileContext:
    """Everything that a file of this subtask needs and that is not its own. ``close`` ends its threads.

    Contexts of one attempt (another writer's files have one of their own) must share ``segment_numbers``, or two
    segments would get one name: make further ones with ``dataclasses.replace``.
    """

    info: TaskInfo
    epoch: int
    state: StorageProvider
    files: FileStore
    format: ParquetFormat
    # With field ids (tables); less the partition columns (paths).
    schema: SinkSchema
    fingerprint: sink_pb2.Fingerprint
    # visibility=batch: no file is ever left in flight, so bytes go straight to where they stay.
    straight: bool
    # Paths: the driver completes the upload or links the file. Tables: the task does.
    publish_later: bool
    metrics_config: Mapping[str, str] = field(default_factory=dict)
    part_size_bytes: int = DEFAULT_PART_BYTES
    clock: Callable[[], int] = now_us
    events: FsEventLogger = field(default_factory=FsEventLogger)
    lane: EncodingLane = field(default_factory=EncodingLane, repr=False)
    uploads: UploadPool = field(default_factory=UploadPool, repr=False)
    segment_numbers: Iterator[int] = field(default_factory=itertools.count, repr=False)

    def next_segment_name(self) -> str:
        """Return a segment name that this attempt has not used. Safe from any thread."""
        info = self.info
        return segment_name(info.job_id, self.epoch, info.subtask_index, info.attempt_id, next(self.segment_numbers))

    def close(self) -> None:
        """Wait until the context's threads have ended. May be repeated; files are of no use afterwards."""
        self.lane.close()
        self.uploads.close()

    def __enter__(self) -> FileContext:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
