"""Where an in-flight file's finished row groups go while it is written: segments of the state, or upload parts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol, TypeVar

from icefloe.connector.compose import put_segment
from icefloe.connector.multipart import FileStore, Part, Upload
from icefloe.connector.shared_buffer import SharedBuffer
from icefloe.connector.writer_stats import FsEventLogger
from icefloe.proto import sink_pb2
from icefloe.state.crash_points import crash_point
from icefloe.state.storage import StorageProvider

Result = TypeVar("Result")


class UploadPool:
    """A few threads that move bytes while the task reads and encodes. At most ``limit`` pieces are held at once."""

    def __init__(self, *, limit: int = 4) -> None:
        self._room = threading.BoundedSemaphore(limit)
        self._pool = ThreadPoolExecutor(max_workers=limit, thread_name_prefix="icefloe-upload")

    def submit(self, job: Callable[[], Result]) -> Future[Result]:
        """Run ``job`` in a thread; blocks while ``limit`` jobs are not done."""
        self._room.acquire()
        try:
            future = self._pool.submit(job)
        except BaseException:
            self._room.release()
            raise
        future.add_done_callback(lambda _: self._room.release())
        return future

    def close(self) -> None:
        """Wait until the threads have ended; what waits is dropped. May be repeated."""
        self._pool.shutdown(wait=True, cancel_futures=True)


class Outlet(Protocol):
    """Takes finished bytes out of a writer's buffer. ``drain`` runs in the encoding thread, the rest in the task's."""

    def drain(self, buffer: SharedBuffer) -> None:
        """Take what is worth taking."""
        ...

    def relieve(self, buffer: SharedBuffer) -> None:
        """Take as much as possible: memory is needed."""
        ...

    def settle(self) -> None:
        """Wait until everything taken is durable; raises what went wrong with it."""
        ...


class SegmentOutlet:
    """Row groups become immutable segments under names of the attempt's own; one is on its way at a time."""

    def __init__(
        self,
        state: StorageProvider,
        *,
        next_name: Callable[[], str],
        uploads: UploadPool,
        events: FsEventLogger,
        segments: Sequence[sink_pb2.Segment] = (),
    ) -> None:
        self._state = state
        self._next_name = next_name
        self._uploads = uploads
        self._events = events
        self._under_way: Future[sink_pb2.Segment] | None = None
        self._rolling = False
        self.segments = list(segments)

    def hold(self) -> None:
        """Leave finished bytes in the buffer from now on: the file is about to be composed."""
        self._rolling = True

    def drain(self, buffer: SharedBuffer) -> None:
        if not self._rolling and len(buffer):
            self.settle()
            pieces = buffer.take(len(buffer))
            self._under_way = self._uploads.submit(lambda: self.put(pieces))

    def relieve(self, buffer: SharedBuffer) -> None:
        self.drain(buffer)

    def settle(self) -> None:
        if self._under_way is not None:
            # Raises again at every call after a failure: the bytes are nowhere else.
            self.segments.append(self._under_way.result())
            self._under_way = None

    def put(self, pieces: Sequence[bytes | memoryview]) -> sink_pb2.Segment:
        """Store a segment now, in this thread."""
        with self._events.timing("upload_us"):
            segment = put_segment(self._state, self._next_name(), pieces)
        self._events.log(segments=1)
        return segment


class PartOutlet:
    """Parts go to the file's own upload while it is written: for files that are never left in flight."""

    def __init__(
        self,
        files: FileStore,
        *,
        name: str,
        attempt_id: str,
        hidden: bool,
        part_size_bytes: int,
        uploads: UploadPool,
        events: FsEventLogger,
    ) -> None:
        self._files = files
        self._name = name
        self._attempt_id = attempt_id
        self._hidden = hidden
        self._part_size_bytes = max(part_size_bytes, files.min_part_bytes)
        self._uploads = uploads
        self._events = events
        self._under_way: list[Future[Part]] = []
        self._position_bytes = 0
        self.upload: Upload | None = None

    def drain(self, buffer: SharedBuffer) -> None:
        while len(buffer) >= self._part_size_bytes:
            self._put(buffer.take(self._part_size_bytes))

    def relieve(self, buffer: SharedBuffer) -> None:
        self.drain(buffer)
        if len(buffer) >= self._files.min_part_bytes:
            self._put(buffer.take(len(buffer)))

    def settle(self) -> None:
        for future in self._under_way:
            future.result()

    def finish(self, rest: Sequence[bytes | memoryview]) -> tuple[Upload | None, list[Part]]:
        """Store the rest and complete the file, or leave that to whoever publishes it (``hidden``).

        Returns the upload and its parts; no upload where the whole file was small enough for one request.
        """
        length = sum(len(piece) for piece in rest)
        if self.upload is None and not self._hidden and length <= 2 * self._part_size_bytes:
            with self._events.timing("upload_us"):
                self._files.put(self._name, self._attempt_id, rest)
            self._events.log(parts=1)
            return None, [Part(1, length)]
        ending = SharedBuffer()
        for piece in rest:
            ending.write(piece)
        # The last part may be short or up to twice the size: never one more request for a few bytes.
        while len(ending) > 2 * self._part_size_bytes:
            self._put(ending.take(self._part_size_bytes))
        if len(ending):
            self._put(ending.take(len(ending)))
        parts = [future.result() for future in self._under_way]
        assert self.upload is not None
        crash_point("file.parts-put")
        if self._hidden:
            self._files.seal(self.upload, self._position_bytes)
        else:
            self._files.complete(self.upload, parts)
        return self.upload, parts

    def _put(self, pieces: list[memoryview]) -> None:
        if self.upload is None:
            self.upload = self._files.begin(self._name, self._attempt_id, hidden=self._hidden)
        upload, number, offset = self.upload, len(self._under_way) + 1, self._position_bytes
        self._position_bytes += sum(len(piece) for piece in pieces)

        def put() -> Part:
            with self._events.timing("upload_us"):
                part = self._files.put_part(upload, number, offset, pieces)
            self._events.log(parts=1)
            return part

        self._under_way.append(self._uploads.submit(put))
