"""One data file from segments and a rest: which bytes make which part, and the copying."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from icefloe.connector.durable_disk import segment_gone, segment_short
from icefloe.connector.multipart import FileStore, Part, Upload
from icefloe.errors import CorruptStateError, NotFoundError
from icefloe.proto import sink_pb2
from icefloe.state.crash_points import crash_point
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

    Raises ``CorruptStateError`` naming a segment that is gone, cut or (where it passes through here) changed.
    """
    tail = b"".join(rest) if len(rest) != 1 else rest[0]
    lengths = [segment.length_bytes for segment in segments] + [len(tail)]
    copies = [files.copies_from(state)] * len(segments) + [False]
    plan = plan_parts(lengths, copies, min_part_bytes=files.min_part_bytes)
    parts: list[Part] = []
    offset = 0
    for number, planned in enumerate(plan, start=1):
        if planned.is_copy:
            span = planned.spans[0]
            name = segments[span.source].name
            part = files.copy_part(upload, number, offset, state, name, span.start, span.length_bytes)
        else:
            data = [_read(state, segments, tail, span) for span in planned.spans]
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


def _read(state: StorageProvider, segments: Sequence[sink_pb2.Segment], tail: Bytes, span: Span) -> Bytes:
    if span.source == len(segments):
        return memoryview(tail)[span.start : span.start + span.length_bytes]
    segment = segments[span.source]
    try:
        data = state.get_range(segment.name, span.start, span.length_bytes)
    except NotFoundError as error:
        raise segment_gone(state, segment.name) from error
    if len(data) != span.length_bytes:
        raise segment_short(state, segment.name, span.start + span.length_bytes, span.start + len(data))
    if len(data) == segment.length_bytes and zlib.crc32(data) != segment.crc32:
        raise CorruptStateError(
            "ICEFLOE_SEGMENT_CHANGED",
            f"segment {segment.name!r} in {state.url} does not have the checksum it was written with: it is damaged",
        )
    return data
