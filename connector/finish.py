"""Make everything that a job has in flight visible, from any process, whether its query runs, sleeps or is gone."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from icefloe.connector.committer import ledger_after
from icefloe.connector.driver import find_base
from icefloe.connector.file_store import open_file_store
from icefloe.connector.giving_up import chosen_files
from icefloe.connector.jobs import Job, open_job
from icefloe.connector.messages import OPERATOR_ID, sink_record
from icefloe.connector.operator_state import pre_commits
from icefloe.connector.planning import plan_in_flight
from icefloe.connector.subtask_writer import SubtaskWriter
from icefloe.errors import ConflictError, FencedError
from icefloe.proto import sink_pb2 as sink
from icefloe.proto import state_pb2 as pb
from icefloe.state.crash_points import crash_point
from icefloe.state.records import Record
from icefloe.state.task_info import TaskInfo

logger = logging.getLogger("icefloe.finish")


@dataclass(frozen=True, slots=True)
class FinishResult:
    """What ``finish`` did: the record it ended with, and the files that it made visible."""

    job_id: str
    epoch: int | None
    files: tuple[str, ...]
    rows: int


def finish(
    state_location: str,
    *,
    job: str | None = None,
    options: Mapping[str, str] | None = None,
    due_only: bool = False,
    give_up: Collection[str] = (),
) -> FinishResult:
    """Make what is in flight visible (R10); ``due_only`` takes only files that their policy says are due.

    ``give_up`` names files that cannot be published, by name (finished) or id (in flight): their rows are lost, the
    rest becomes visible.

    1. publish the head
    2. roll everything that it has in flight
    3. put the next record, of kind finish: a query in the middle of a batch is fenced by it and goes on after a restart
    4. publish that record

    Repeatable: killed anywhere, the next call or the query itself goes on from the last record.
    Delivery: exactly-once if the state location is the job's own.
    Raises ``FencedError`` where the query recorded a batch in the meantime (call it again).
    """
    opened = open_job(state_location, job=job, options=options)
    if opened.head is None:
        return FinishResult(opened.job_id, None, (), 0)
    target = opened.target()
    committer = opened.committer(target)
    head = opened.head
    for lost in chosen_files(opened, give_up):
        logger.warning("job %s: %s is given up with %d rows", opened.job_id, lost.name, lost.rows)
    committer.complete(head, give_up=give_up)  # 1
    crash_point("finish.head-published")
    operators = _roll(opened, head, due_only=due_only, give_up=give_up)  # 2
    crash_point("finish.rolled")
    files = [file for operator in operators for file in pre_commits(operator)]
    if not files and not give_up:
        return FinishResult(opened.job_id, head.epoch, (), 0)
    payload = sink.SinkRecord(kind=sink.RECORD_KIND_FINISH, batch_id=sink_record(head).batch_id)
    tasks = 1 + max(operator.operator_metadata.owner_subtask for operator in operators)
    try:
        record = committer.put_record(head, operators, payload, tasks=tasks)  # 3
    except FencedError:
        raise
    except ConflictError as error:
        raise FencedError(
            "ICEFLOE_FINISH_RACED",
            f"job {opened.job_id}: the query recorded epoch {head.epoch + 1} while finish was at work; nothing was "
            "changed, run finish again",
        ) from error
    crash_point("finish.recorded")
    committer.complete(record)  # 4
    return FinishResult(opened.job_id, record.epoch, tuple(f.name for f in files), sum(f.rows for f in files))


def _roll(
    opened: Job, head: Record, *, due_only: bool, give_up: Collection[str]
) -> list[pb.OperatorCheckpointMetadata]:
    base = find_base(opened.state, opened.job_id, head)
    plan = plan_in_flight(opened.options)
    files = open_file_store(plan.files_url, plan.files_options, job_id=opened.job_id)
    operators = []
    for owner in sorted({operator.operator_metadata.owner_subtask for operator in head.metadata.operators}):
        info = TaskInfo(opened.job_id, OPERATOR_ID, owner)
        with SubtaskWriter(info, base, plan, state=opened.state, files=files, give_up=give_up) as writer:
            operators.append(writer.finish(due_only=due_only))
    return operators


def is_published(opened: Job, record: Record) -> bool:
    """Whether a record's rows are visible: the ledger stands at it, or it has none."""
    return opened.target().ledger(opened.job_id) == ledger_after(record)
