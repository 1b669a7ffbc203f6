"""One task of a micro-batch, without Spark: from its input and the epoch's settings to its report."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from icefloe.connector.committer import check_batch_id
from icefloe.connector.driver import EpochSettings, find_base, this_machine
from icefloe.connector.file_store import open_file_store
from icefloe.connector.logs import set_context
from icefloe.connector.messages import Base, TaskReport
from icefloe.connector.subtask_writer import SubtaskWriter
from icefloe.connector.writer_stats import now_us
from icefloe.errors import ConflictError, OptionError
from icefloe.state.crash_points import crash_point
from icefloe.state.opening import open_storage
from icefloe.state.records import RecordLog
from icefloe.state.task_info import TaskInfo


def run_task(settings: EpochSettings, info: TaskInfo, batch_id: int, batches: Iterator[pa.RecordBatch]) -> TaskReport:
    """Write the rows of one task and return its report. Reads its input to the end, whatever happens to the rows.

    Raises before the first row is taken where Spark's batch does not follow the state (R2).
    """
    state = open_storage(settings.state_url, settings.state_options)
    base = settings.base
    if base is None:
        # The driver cannot read the checkpoint, so only the task knows the job.
        base = find_base(state, info.job_id, RecordLog(state, info.job_id).head())
    set_context(job=info.job_id, epoch=base.epoch + 1, subtask=info.subtask_index)
    _check_epoch(settings, base, info, batch_id)
    recorded = check_batch_id(
        batch_id, head_batch_id=base.batch_id, first_batch_id=base.first_batch_id, job_id=info.job_id
    )
    if recorded:
        # R6. Leaving input unread would break stateful operators in front of the sink for ever.
        return _report(info, base, batch_id, rows=sum(batch.num_rows for batch in batches))
    files = open_file_store(settings.plan.files_url, settings.plan.files_options, job_id=info.job_id)
    with SubtaskWriter(
        info,
        base,
        settings.plan,
        state=state,
        files=files,
        watermark_us=settings.watermark_us,
        cache_key=(settings.state_url, frozenset(settings.state_options.items())),
    ) as writer:
        read_us = 0
        while True:
            began = now_us()
            batch = next(batches, None)
            read_us += now_us() - began
            if batch is None:
                break
            writer.write(batch)
        crash_point("task.input-read")
        began = now_us()
        metadata = writer.checkpoint()
        crash_point("task.checkpointed")
        metrics = writer.metrics()
        metrics.read_us, metrics.state_us = read_us, now_us() - began
        return _report(
            info,
            base,
            batch_id,
            rows=writer.input_rows,
            operator_metadata=metadata.SerializeToString(deterministic=True),
            metrics=metrics.SerializeToString(),
        )


def _check_epoch(settings: EpochSettings, base: Base, info: TaskInfo, batch_id: int) -> None:
    if base.job_id != info.job_id:
        raise ConflictError(
            "ICEFLOE_CHECKPOINT_MIXED",
            f"Spark runs job {info.job_id}, but checkpointLocation is that of job {base.job_id}: give the sink the "
            "checkpointLocation that the query itself uses",
        )
    if settings.plan.roll.by_watermark and settings.batch_id != batch_id:
        raise OptionError(
            "ICEFLOE_WATERMARK_UNREADABLE",
            f"Spark runs batch {batch_id}, but the newest entry of its offset log is {settings.batch_id}, so the "
            "watermark is not known: leave rollWatermark out",
        )
    if settings.machine is not None and settings.machine != this_machine():
        raise OptionError(
            "ICEFLOE_DISK_NOT_SHARED",
            f"the target {settings.plan.files_url} is on a local disk, and this task runs on another machine than the "
            "driver: write to S3, or set sharedDisk=true where every machine has the same disk there",
        )


def _report(
    info: TaskInfo,
    base: Base,
    batch_id: int,
    *,
    rows: int,
    operator_metadata: bytes | None = None,
    metrics: bytes = b"",
) -> TaskReport:
    return TaskReport(
        job_id=info.job_id,
        batch_id=batch_id,
        base_epoch=base.epoch,
        base_digest=base.digest,
        subtask=info.subtask_index,
        attempt_id=info.attempt_id,
        input_rows=rows,
        operator_metadata=operator_metadata,
        metrics=metrics,
    )
