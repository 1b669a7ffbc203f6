"""One data file from segments and a rest: which bytes make which part, and the copying."""

from __future__ import annotations

import mmap
import os
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from icefloe.connector.durable_disk import segment_gone, segment_short
from icefloe.connector.multipart import FileStore, Part, Upload
from icefloe.errors import CorruptStateError, NotFoundError
from icefloe.proto import sink_pb2
from icefloe.state.crash_points import crash_point
from icefloe.state.durable_folders import make_folder, sync_folder
from icefloe.state.storage import StorageProvider

Bytes = bytes | memoryview
# The largest range that S3 copies as one part; local disks do not mind.
MAX_COPY_BYTES = 5 * 1024 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Span:
    """A range of one of the sources."""

    source: int
    start: int
    length_bytes: int


@dataclass(frozen=True, slots=True)
class PlannedPart:
    """One part: a single span that the store copies by itself, or spans that go through this process."""

    spans: tuple[Span, ...]
    is_copy: bool

    @property
    def length_bytes(self) -> int:
        return sum(span.length_bytes for span in self.spans)


def plan_parts(
    lengths: Sequence[int],
    copyable: Sequence[bool],
    *,
    min_part_bytes: int,
    max_part_bytes: int = MAX_COPY_BYTES,
    stream_part_bytes: int = 64 * 1024 * 1024,
) -> list[PlannedPart]:
    """Cut the sources into parts of at least ``min_part_bytes`` (but for the last), copied wherever possible.

    All bytes come once and in order. A short piece before a long one is filled up from the long one's beginning.
    """
    parts: list[PlannedPart] = []
    stream: list[Span] = []

    def streamed() -> int:
        return sum(span.length_bytes for span in stream)

    def flush() -> None:
        if stream:
            parts.append(PlannedPart(tuple(stream), is_copy=False))
            stream.clear()

    for source, (length, can_copy) in enumerate(zip(lengths, copyable, strict=True)):
        start = 0
        while start < length:
            left = length - start
            if 0 < streamed() < min_part_bytes:
                take = min(left, min_part_bytes - streamed())
            elif can_copy and left >= min_part_bytes:
                flush()
                # Never leave an end that is too short to be copied itself.
                take = left if left <= max_part_bytes else min(max_part_bytes, left - min_part_bytes)
                parts.append(PlannedPart((Span(source, start, take),), is_copy=True))
                start += take
                continue
            else:
                if streamed() >= stream_part_bytes or (can_copy and streamed() >= min_part_bytes):
                    flush()
                take = min(left, max(min_part_bytes, stream_part_bytes) - streamed())
            stream.append(Span(source, start, take))
            start += take
    flush()
    return parts


def compose(
    files: FileStore,
    upload: Upload,
    *,
    state: StorageProvider,
    segments: Sequence[sink_pb2.Segment],
    rest: Sequence[Bytes] = (),
) -> list[Part]:
    """Put the segments, then ``rest``, into ``upload`` and return its parts. Segments are only read.

    Raises ``CorruptStateError`` naming a segment that is gone, cut or changed. One that S3 copies by itself is not read
    here: S3 keeps checksums of its own.
    """
    for segment in segments:
        _check_local(state, segment)
    lengths = [segment.length_bytes for segment in segments] + [len(piece) for piece in rest]
    copies = [files.copies_from(state)] * len(segments) + [False] * len(rest)
    plan = plan_parts(lengths, copies, min_part_bytes=files.min_part_bytes)
    parts: list[Part] = []
    offset = 0
    for number, planned in enumerate(plan, start=1):
        if planned.is_copy:
            span = planned.spans[0]
            name = segments[span.source].name
            part = files.copy_part(upload, number, offset, state, name, span.start, span.length_bytes)
        else:
            data = [_read(state, segments, rest, span) for span in planned.spans]
            part = files.put_part(upload, number, offset, data)
        parts.append(part)
        offset += planned.length_bytes
        crash_point("file.part-composed")
    return parts


def put_segment(state: StorageProvider, name: str, data: Sequence[Bytes]) -> sink_pb2.Segment:
    """Store bytes as a segment under a name of the attempt's own and return what the state keeps of it."""
    whole = data[0] if len(data) == 1 else b"".join(data)
    state.put(name, whole)
    crash_point("file.segment-put")
    return sink_pb2.Segment(name=name, length_bytes=len(whole), crc32=zlib.crc32(whole))


def segments_from_file(
    state: StorageProvider, path: Path, ends: Sequence[int], next_name: Callable[[], str]
) -> list[sink_pb2.Segment]:
    """Make segments of a local file of this attempt, durable already; ``ends`` says where its row groups end.

    Where the state is on the same disk the file becomes one segment by a link, at no cost; elsewhere each row group is
    stored as one. The file itself stays.
    """
    if not ends:
        return []
    with (
        open(path, "rb") as file,
        mmap.mmap(file.fileno(), ends[-1], access=mmap.ACCESS_READ) as mapped,
        memoryview(mapped) as view,
    ):
        linked = _link_segment(state, next_name(), path, view)
        if linked is not None:
            return [linked]
        starts = [0, *ends[:-1]]
        return [put_segment(state, next_name(), [view[a:b]]) for a, b in zip(starts, ends, strict=True)]


def _link_segment(state: StorageProvider, name: str, path: Path, data: memoryview) -> sink_pb2.Segment | None:
    local_path = getattr(state, "local_path", None)
    if local_path is None:
        return None
    target: Path = local_path(name)
    try:
        make_folder(target.parent)
        os.link(path, target)
        sync_folder(target.parent)
    except OSError:
        # Another disk, a file system without links, a folder that a clean-up took away: storing it always works.
        return None
    crash_point("file.segment-linked")
    return sink_pb2.Segment(name=name, length_bytes=len(data), crc32=zlib.crc32(data))


def _read(state: StorageProvider, segments: Sequence[sink_pb2.Segment], rest: Sequence[Bytes], span: Span) -> Bytes:
    if span.source >= len(segments):
        return memoryview(rest[span.source - len(segments)])[span.start : span.start + span.length_bytes]
    segment = segments[span.source]
    try:
        data = state.get_range(segment.name, span.start, span.length_bytes)
    except NotFoundError as error:
        raise segment_gone(state, segment.name) from error
    if len(data) != span.length_bytes:
        raise segment_short(state, segment.name, span.start + span.length_bytes, span.start + len(data))
    if len(data) == segment.length_bytes:
        _check_crc(state, segment, data)
    return data


def _check_local(state: StorageProvider, segment: sink_pb2.Segment) -> None:
    """Read a segment on a local disk, which the kernel will copy without looking; length and absence show later."""
    local_path = getattr(state, "local_path", None)
    path: Path | None = local_path(segment.name) if local_path is not None else None
    if path is None or not path.exists() or path.stat().st_size < segment.length_bytes or not segment.length_bytes:
        return
    with (
        open(path, "rb") as file,
        mmap.mmap(file.fileno(), segment.length_bytes, access=mmap.ACCESS_READ) as mapped,
        memoryview(mapped) as view,
    ):
        _check_crc(state, segment, view)


def _check_crc(state: StorageProvider, segment: sink_pb2.Segment, data: Bytes) -> None:
    if zlib.crc32(data) != segment.crc32:
        raise CorruptStateError(
            "ICEFLOE_SEGMENT_CHANGED",
            f"segment {segment.name!r} in {state.url} does not have the checksum it was written with: it is damaged",
        )
