"""``df.write.format("icefloe").mode("append")``: one write without state, all or nothing for a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from icefloe.connector.driver import open_target, plan_target
from icefloe.connector.file_store import open_file_store
from icefloe.connector.messages import OPERATOR_ID, Base
from icefloe.connector.operator_state import pre_commits
from icefloe.connector.options import SinkOptions
from icefloe.connector.planning import stream_schema
from icefloe.connector.subtask_writer import SubtaskWriter
from icefloe.connector.targets import Publication
from icefloe.connector.write_plan import WritePlan
from icefloe.proto import sink_pb2 as sink
from icefloe.state.memory_storage import MemoryStorage
from icefloe.state.task_info import TaskInfo


def plan_batch_write(options: SinkOptions, schema_json: str) -> WritePlan:
    """Return the plan of a batch write: every file is finished by its task."""
    return plan_target(options, stream_schema(options, schema_json))


def run_batch_task(plan: WritePlan, job_id: str, subtask: int, batches: Iterator[pa.RecordBatch]) -> list[bytes]:
    """Write the rows of one task and return its finished files; nothing is visible yet."""
    files = open_file_store(plan.files_url, plan.files_options, job_id=job_id)
    info = TaskInfo(job_id, OPERATOR_ID, subtask)
    with SubtaskWriter(info, Base.of(job_id, None, None), plan, state=MemoryStorage(job_id), files=files) as writer:
        for batch in batches:
            writer.write(batch)
        return [file.SerializeToString() for file in pre_commits(writer.checkpoint())]


def commit_batch_write(options: SinkOptions, job_id: str, files: Sequence[bytes]) -> None:
    """Make the files of all tasks visible: in one snapshot of a table, one after the other in a directory."""
    found = [sink.DataFile.FromString(data) for data in files]
    if not found:
        return
    target = open_target(options, MemoryStorage(job_id), job_id, ())
    target.publish(
        Publication(job_id=job_id, epoch=0, digest="", batch_id=0, expected_ledger="", files=found, source_offsets="")
    )
