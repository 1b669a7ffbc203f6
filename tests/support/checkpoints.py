"""Short ways to make records and operator metadata in tests."""

from __future__ import annotations

from collections.abc import Sequence

from icefloe.proto import state_pb2 as pb
from icefloe.state.object_names import segment_name, table_checkpoint_path
from icefloe.state.records import Record, RecordLog

JOB = "0b6d62f5-7f2c-4d3e-9a55-1c2f6d1f7a10"


def attempt(number: int) -> str:
    """Return an attempt id that a test can tell from others."""
    return f"{number:032x}"


def operator(
    epoch: int, *, subtask: int = 0, files: Sequence[str] = (), segments: Sequence[str] = (), job: str = JOB
) -> pb.OperatorCheckpointMetadata:
    """Return the metadata of a subtask that wrote at ``epoch`` and needs ``files`` (global table) and ``segments``."""
    table = pb.GlobalKeyedTableSubtaskCheckpointMetadata(
        subtask_index=subtask, files=[pb.GlobalKeyedFile(file=file, epoch=epoch) for file in files]
    )
    erased = pb.TableSubtaskCheckpointMetadata(
        subtask_index=subtask, table_type=pb.GLOBAL_KEY_VALUE, data=table.SerializeToString()
    )
    return pb.OperatorCheckpointMetadata(
        format_version=1,
        operator_metadata=pb.OperatorMetadata(job_id=job, operator_id="sink", epoch=epoch, subtask_index=subtask),
        subtask=pb.SubtaskCheckpointMetadata(subtask_index=subtask, table_metadata={"recovery": erased}),
        referenced_names=segments,
    )


def metadata(
    epoch: int,
    base: Record | None,
    *,
    min_epoch: int = 0,
    operators: Sequence[pb.OperatorCheckpointMetadata] = (),
    job: str = JOB,
) -> pb.CheckpointMetadata:
    """Return what is to be put as the record of ``epoch`` above ``base``."""
    return pb.CheckpointMetadata(
        job_id=job,
        epoch=epoch,
        min_epoch=min_epoch,
        base_digest=base.digest if base else "",
        operator_ids=["sink"],
        operators=operators,
    )


def put_chain(log: RecordLog, epochs: int, *, keep: int = 1_000_000, job: str = JOB) -> list[Record]:
    """Put records 0 to ``epochs`` - 1, each keeping ``keep`` epochs; returns them, lowest first."""
    records: list[Record] = []
    for epoch in range(epochs):
        base = records[-1] if records else None
        record = log.put(metadata(epoch, base, min_epoch=max(0, epoch + 1 - keep), job=job))
        log.ensure_head(record)
        records.append(record)
    return records


def file_name(epoch: int, number: int = 0, *, table: str = "recovery", subtask: int = 0) -> str:
    """Return the name of a table file of attempt ``number`` for ``epoch``."""
    return table_checkpoint_path(JOB, epoch, table, subtask, attempt(number))


def segment(epoch: int, number: int = 0, *, subtask: int = 0, n: int = 0) -> str:
    """Return the name of a segment of attempt ``number`` for ``epoch``."""
    return segment_name(JOB, epoch, subtask, attempt(number), n)
