"""A data file that is begun and not yet visible: any process can go on with it, and any process can finish it."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from icefloe.connector.compose import compose, segments_from_file
from icefloe.connector.data_names import in_progress_name
from icefloe.connector.durable_disk import call_local
from icefloe.connector.file_context import FileContext
from icefloe.connector.file_outlets import PartOutlet, SegmentOutlet
from icefloe.connector.file_phase import Phase, Step, advance
from icefloe.connector.file_store import publish_file
from icefloe.connector.local_file_store import LocalFileStore
from icefloe.connector.local_writer import ParquetLocalWriter
from icefloe.connector.multipart import Part, Upload
from icefloe.connector.pending_rows import LoadPending, PendingRows
from icefloe.connector.row_group_assembler import EncodedSoFar
from icefloe.connector.row_group_encoder import closing_bytes, parse_footer, serialize_footer
from icefloe.connector.writer_routing import open_buffering_writer, open_local_writer, open_outlet
from icefloe.errors import CorruptStateError
from icefloe.proto import sink_pb2
from icefloe.schemas.timestamps import representative_timestamp
from icefloe.state.crash_points import crash_point

__all__ = ["FileContext", "InFlightFile", "Suspended", "publish_file"]

FORMAT_VERSION = 1


@dataclass(frozen=True, slots=True)
class Suspended:
    """An in-flight file as its task leaves it; all encoded row groups are in segments."""

    message: sink_pb2.InFlightFile
    # ``PAR1`` + footer; None when it has not changed since the file was resumed.
    footer: bytes | None
    # Rows that must be added to the pending table, behind those that are there.
    new_pending: list[pa.RecordBatch]
    # How many of the rows that the pending table held for this file (spilled ones included), in sequence order, are in
    # row groups now. ``message.pending_rows`` counts the others and ``new_pending``.
    consumed_pending_rows: int


class InFlightFile:
    """Rows of one partition on their way into one data file. One thread uses it.

    Delivery: exactly-once if what ``roll`` or ``suspend`` returns goes into the record of the context's epoch. Until
    then all that exists is under names of this attempt (R1); what earlier attempts wrote is only read.
    """

    def __init__(
        self,
        ctx: FileContext,
        message: sink_pb2.InFlightFile,
        *,
        name: str,
        partition: Any,
        encoded: EncodedSoFar,
        load_pending: LoadPending | None,
        straight: bool,
    ) -> None:
        self._ctx = ctx
        self._message = message
        self.name = name
        self.partition = partition
        self._phase = Phase.SEGMENTS if encoded.position_bytes else Phase.BEGUN
        self._resumed_at_bytes = encoded.position_bytes
        self._local: ParquetLocalWriter | None = None
        self._outlet: SegmentOutlet | PartOutlet | None = None
        pending = PendingRows(
            ctx.schema.arrow,
            owner=message.file_id,
            stored_rows=message.pending_rows,
            stored_arrow_bytes=message.pending_arrow_bytes,
            load=load_pending,
        )
        if isinstance(ctx.files, LocalFileStore) and encoded.position_bytes == 0:
            # Nothing is in a segment yet: a file that rolls in this task never is, and one that does not becomes one.
            self._local = open_local_writer(ctx, ctx.files, name, pending)
            self._writer = self._local.writer
        else:
            self._outlet = open_outlet(ctx, name, message.segments, straight=straight)
            self._writer = open_buffering_writer(ctx, encoded, pending, self._outlet)
        if message.measured_arrow_bytes:
            self._writer.ratio.learn(message.measured_arrow_bytes, message.measured_encoded_bytes)

    @classmethod
    def begin(
        cls,
        ctx: FileContext,
        *,
        file_id: str,
        name: str,
        partition: Any,
        pending_key: int,
        load_pending: LoadPending | None = None,
    ) -> InFlightFile:
        """Begin a file. ``partition`` is a ``PartitionKey`` or its message; ``load_pending`` is needed to spill it."""
        now = ctx.clock()
        message = sink_pb2.InFlightFile(
            format_version=FORMAT_VERSION,
            file_id=file_id,
            partition=_partition_message(partition),
            fingerprint=ctx.fingerprint,
            pending_key=pending_key,
            began_us=now,
            last_write_us=now,
        )
        return cls(
            ctx,
            message,
            name=name,
            partition=partition,
            encoded=EncodedSoFar(),
            load_pending=load_pending,
            straight=ctx.straight,
        )

    @classmethod
    def resume(
        cls,
        ctx: FileContext,
        message: sink_pb2.InFlightFile,
        footer: bytes | None,
        load_pending: LoadPending,
        *,
        name: str,
        partition: Any = None,
    ) -> InFlightFile:
        """Go on with a file that an earlier epoch left. ``message`` is not changed.

        ``load_pending`` returns the rows that state held for the file in ``message``, then all that ``spill`` gave out
        since. Raises ``CorruptStateError`` naming the file when message and footer do not belong together.
        """
        own = sink_pb2.InFlightFile()
        own.CopyFrom(message)
        return cls(
            ctx,
            own,
            name=name,
            partition=own.partition if partition is None else partition,
            encoded=_encoded_from(own, footer),
            load_pending=load_pending,
            straight=False,
        )

    @property
    def file_id(self) -> str:
        return self._message.file_id

    @property
    def pending_key(self) -> int:
        return self._message.pending_key

    @property
    def began_us(self) -> int:
        return self._message.began_us

    @property
    def last_write_us(self) -> int:
        return self._message.last_write_us

    @property
    def max_event_time_us(self) -> int | None:
        return self._message.max_event_time_us if self._message.HasField("max_event_time_us") else None

    @property
    def rows(self) -> int:
        """Rows of the file: encoded, pending in state and in memory. Never waits."""
        return self._writer.rows

    @property
    def size_bytes(self) -> int:
        """Estimated length of the file if it were rolled now. Never waits."""
        return self._writer.size_bytes

    def measure(self) -> None:
        """Make sure that ``size_bytes`` is no guess; costs an encoding where too little is known of the writer."""
        self._writer.measure()

    @property
    def buffered_bytes(self) -> int:
        """Arrow bytes held in memory."""
        return self._writer.arrow_memory_bytes

    def append(self, batch: pa.RecordBatch) -> None:
        """Take rows; a full row group is encoded in the background.

        Raises ``SchemaError`` naming the column that does not fit, or what went wrong in the background before.
        """
        self._phase = advance(self._phase, Step.APPEND, file_id=self.file_id)
        if self._local is not None:
            self._local.write_batch(batch)
        else:
            self._writer.add_batch_data(batch)
        if batch.num_rows:
            self._message.last_write_us = self._ctx.clock()
            self._note_event_time(batch)

    def settle(self) -> None:
        """Wait for the row group that is being encoded, if there is one: its rows leave memory."""
        self._writer.settle()

    def flush_row_group(self) -> None:
        """Encode what is buffered now, however small, and wait for it: memory is needed."""
        self._phase = advance(self._phase, Step.ENCODE, file_id=self.file_id)
        self._writer.flush_row_group()
        self._writer.settle()
        if self._outlet is not None:
            self._outlet.relieve(self._writer.buffer)

    def spill(self) -> list[pa.RecordBatch]:
        """Hand out the rows in memory; the caller makes them pending rows, and they come back by ``load_pending``."""
        self._writer.settle()
        return self._writer.pending.spill()

    def suspend(self) -> Suspended:
        """Leave the file as it is, for a later epoch; only for files that are not written straight."""
        self._phase = advance(self._phase, Step.SUSPEND, file_id=self.file_id)
        segments = self._finish_segments()
        crash_point("file.segments-durable")
        encoded, pending = self._writer.encoded, self._writer.pending
        message = sink_pb2.InFlightFile()
        message.CopyFrom(self._message)
        footer = serialize_footer(encoded.footer) if encoded.footer is not None else None
        del message.segments[:]
        message.segments.extend(segments)
        message.position_bytes = encoded.position_bytes
        message.encoded_rows = encoded.rows
        message.encoded_arrow_bytes = encoded.arrow_bytes
        message.pending_rows = pending.rows
        message.pending_arrow_bytes = pending.arrow_bytes
        message.nan_counts.clear()
        message.nan_counts.update(encoded.nan_counts)
        message.measured_arrow_bytes, message.measured_encoded_bytes = self._writer.ratio.evidence()
        changed = encoded.position_bytes != self._resumed_at_bytes
        if changed:
            # An unchanged footer stays as it is stored: another PyArrow may write the same one with other bytes.
            message.footer_crc32 = zlib.crc32(footer) if footer is not None else 0
        return Suspended(message, footer if changed else None, pending.spill(), pending.consumed_rows)

    def roll(self) -> sink_pb2.DataFile:
        """Finish the file under ``name`` and return its pre-commit.

        1. encode the rows that are left
        2. put the bytes together: straight, or composed from the segments, the rest and the footer
        3. tables: the file is complete; paths: it waits to be published
        """
        self._phase = advance(self._phase, Step.ROLL, file_id=self.file_id)
        if isinstance(self._outlet, SegmentOutlet):
            self._outlet.hold()
        footer = self._writer.finish()
        crash_point("file.encoded")
        result = self._describe(footer.num_row_groups)
        if self._local is not None:
            result.length_bytes = self._local.close().length_bytes
            if self._ctx.publish_later:
                self._name_in_progress(result, in_progress_name(self._ctx.info.job_id, self.name))
        else:
            assert self._outlet is not None
            rest: list[bytes | memoryview] = [*self._writer.buffer.take(self._writer.buffered_bytes)]
            rest.append(closing_bytes(footer))
            if isinstance(self._outlet, PartOutlet):
                self._note_upload(result, *self._outlet.finish(rest))
            else:
                self._compose(result, self._outlet, rest)
            self._ctx.events.log(files=1)
        self._phase = advance(self._phase, Step.CLOSE, file_id=self.file_id)
        crash_point("file.rolled")
        return result

    def _finish_segments(self) -> Sequence[sink_pb2.Segment]:
        self._writer.settle()
        if self._local is None:
            assert isinstance(self._outlet, SegmentOutlet), "an upload that was begun is finished, never suspended"
            self._outlet.settle()
            return self._outlet.segments
        self._local.sync()
        path = self._local.tmp_path
        with self._ctx.events.timing("upload_us"):
            segments = call_local(
                f"keeping {self.file_id} as a segment",
                lambda: segments_from_file(self._ctx.state, path, self._local_ends(), self._ctx.next_segment_name),
            )
        if segments:
            # This attempt made the name and told nobody: only the segment is the file now.
            call_local(f"removing {path}", path.unlink)
        return segments

    def _local_ends(self) -> list[int]:
        assert self._local is not None
        return self._local.ends

    def _compose(self, result: sink_pb2.DataFile, outlet: SegmentOutlet, rest: Sequence[bytes | memoryview]) -> None:
        ctx = self._ctx
        outlet.settle()
        segments = list(outlet.segments)
        if not segments and not ctx.publish_later:
            ctx.files.put(self.name, ctx.info.attempt_id, rest)
            self._note_upload(result, None, [Part(1, sum(len(piece) for piece in rest))])
            return
        if ctx.publish_later and ctx.files.uploads_expire:
            # The upload may be gone when the record is published: what it is made of must be durable by itself.
            stored = outlet.put(rest)
            result.sources.extend([*segments, stored])
            if stored.length_bytes >= ctx.files.min_part_bytes and ctx.files.copies_from(ctx.state):
                # It is there: copying it is cheaper than sending it twice.
                segments, rest = [*segments, stored], ()
        upload = ctx.files.begin(self.name, ctx.info.attempt_id, hidden=ctx.publish_later)
        with ctx.events.timing("upload_us"):
            parts = compose(ctx.files, upload, state=ctx.state, segments=segments, rest=rest)
            crash_point("file.composed")
            if ctx.publish_later:
                ctx.files.seal(upload, sum(part.length_bytes for part in parts))
            else:
                ctx.files.complete(upload, parts)
        ctx.events.log(parts=len(parts))
        self._note_upload(result, upload, parts)

    def _note_upload(self, result: sink_pb2.DataFile, upload: Upload | None, parts: Sequence[Part]) -> None:
        result.length_bytes = sum(part.length_bytes for part in parts)
        if upload is None or not self._ctx.publish_later:
            return
        if isinstance(self._ctx.files, LocalFileStore):
            self._name_in_progress(result, upload.upload_id)
            return
        result.upload_id = upload.upload_id
        for part in parts:
            result.parts.add(number=part.number, etag=part.etag, length_bytes=part.length_bytes)

    def _name_in_progress(self, result: sink_pb2.DataFile, hidden_name: str) -> None:
        result.in_progress = hidden_name
        result.parts.add(number=1, length_bytes=result.length_bytes)

    def _describe(self, row_groups: int) -> sink_pb2.DataFile:
        ctx, message = self._ctx, self._message
        result = sink_pb2.DataFile(
            name=self.name,
            rows=self._writer.encoded.rows,
            attempt_id=ctx.info.attempt_id,
            partition=message.partition,
            fingerprint=message.fingerprint,
            row_groups=row_groups,
            began_us=message.began_us,
            location=f"{ctx.files.url}/{self.name}",
        )
        metadata = self._writer.metadata()
        if metadata is not None:
            result.metadata.CopyFrom(metadata)
        return result

    def _note_event_time(self, batch: pa.RecordBatch) -> None:
        index = self._ctx.schema.timestamp_index
        if index is None:
            return
        latest = pc.max(batch.column(index))
        if not latest.is_valid:
            return
        message = self._message
        latest_us = representative_timestamp(pa.array([latest], type=latest.type))
        known = self.max_event_time_us
        message.max_event_time_us = latest_us if known is None else max(latest_us, known)
        if not message.HasField("representative_timestamp_us") and batch.column(index)[0].is_valid:
            message.representative_timestamp_us = representative_timestamp(batch.column(index))


def _partition_message(partition: Any) -> sink_pb2.PartitionKey:
    if isinstance(partition, sink_pb2.PartitionKey):
        return partition
    message: sink_pb2.PartitionKey = partition.to_proto()
    return message


def _encoded_from(message: sink_pb2.InFlightFile, footer: bytes | None) -> EncodedSoFar:
    if message.position_bytes == 0:
        return EncodedSoFar()
    name = f"the footer of in-flight file {message.file_id}"
    if footer is None or zlib.crc32(footer) != message.footer_crc32:
        found = "missing" if footer is None else f"of checksum {zlib.crc32(footer):08x}"
        raise CorruptStateError(
            "ICEFLOE_FOOTER_MISMATCH", f"{name} is {found}, and the file's entry names {message.footer_crc32:08x}"
        )
    held = sum(segment.length_bytes for segment in message.segments)
    if held != message.position_bytes:
        raise CorruptStateError(
            "ICEFLOE_SEGMENTS_MISMATCH",
            f"in-flight file {message.file_id} is {message.position_bytes} bytes long and its segments hold {held}",
        )
    return EncodedSoFar(
        position_bytes=message.position_bytes,
        footer=parse_footer(footer, object_name=name),
        rows=message.encoded_rows,
        arrow_bytes=message.encoded_arrow_bytes,
        nan_counts=dict(message.nan_counts),
    )
