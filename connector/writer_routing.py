"""Which writer a file gets: the local one for ``file:`` targets, the buffering one for object stores; no third path.

One exception is a local file that earlier tasks left: what they encoded is in segments, so its new row groups go there
too (through the buffering writer) until it is composed.
"""

from __future__ import annotations

from collections.abc import Sequence

from icefloe.connector.batch_buffering_writer import ParquetBatchBufferingWriter
from icefloe.connector.data_names import in_progress_name
from icefloe.connector.file_context import FileContext
from icefloe.connector.file_outlets import PartOutlet, SegmentOutlet
from icefloe.connector.local_file_store import LocalFileStore
from icefloe.connector.local_writer import ParquetLocalWriter
from icefloe.connector.pending_rows import PendingRows
from icefloe.connector.row_group_assembler import EncodedSoFar
from icefloe.proto import sink_pb2


def open_local_writer(ctx: FileContext, files: LocalFileStore, name: str, pending: PendingRows) -> ParquetLocalWriter:
    """Return the writer of a local file: hidden where readers list the location, else under its own name at once."""
    hidden = in_progress_name(ctx.info.job_id, name) if ctx.publish_later else name
    return ParquetLocalWriter(
        files.path(hidden),
        files.path(name),
        ctx.format,
        ctx.schema,
        None,
        ctx.events,
        metrics_config=ctx.metrics_config,
        lane=ctx.lane,
        pending=pending,
        clock=ctx.clock,
    )


def open_outlet(
    ctx: FileContext, name: str, segments: Sequence[sink_pb2.Segment], *, straight: bool
) -> SegmentOutlet | PartOutlet:
    """Return where finished row groups go: to the file's own upload if it is never left in flight, else to segments."""
    if not straight:
        return SegmentOutlet(
            ctx.state, next_name=ctx.next_segment_name, uploads=ctx.uploads, events=ctx.events, segments=segments
        )
    return PartOutlet(
        ctx.files,
        name=name,
        attempt_id=ctx.info.attempt_id,
        hidden=ctx.publish_later,
        part_size_bytes=ctx.part_size_bytes,
        uploads=ctx.uploads,
        events=ctx.events,
    )


def open_buffering_writer(
    ctx: FileContext, encoded: EncodedSoFar, pending: PendingRows, outlet: SegmentOutlet | PartOutlet
) -> ParquetBatchBufferingWriter:
    """Return a writer that goes on behind ``encoded`` and gives its row groups to ``outlet``."""
    return ParquetBatchBufferingWriter(
        ctx.format,
        ctx.schema,
        None,
        ctx.events,
        metrics_config=ctx.metrics_config,
        lane=ctx.lane,
        encoded=encoded,
        pending=pending,
        on_row_group=outlet.drain,
    )
