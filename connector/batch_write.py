"""``df.write.format("icefloe").mode("append")``: one write without state, all or nothing for a table."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import pyarrow as pa

from icefloe.connector.driver import open_and_plan, open_target
from icefloe.connector.file_store import open_file_store, publish_file
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
    """Return the plan of a batch write: every file is finished by its task, whatever ``visibility`` says."""
    each_batch = dataclasses.replace(options, visibility="batch")
    return open_and_plan(each_batch, stream_schema(options, schema_json), MemoryStorage("batch-write"), "")[1]


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
    if options.path is not None:
        store = open_file_store(options.path, options.s3_options, job_id=job_id)
        for file in found:
            publish_file(store, MemoryStorage(job_id), file)
        return
    target = open_target(options, MemoryStorage(job_id), job_id, ())
    target.publish(
        Publication(job_id=job_id, epoch=0, digest="", batch_id=0, expected_ledger="", files=found, keeps_ledger=False)
    )
