"""What the state of a job says, for people: read only, from any process, beside a query that runs or without it."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from icefloe.connector.committer import ledger_after
from icefloe.connector.jobs import Job, open_job
from icefloe.connector.messages import OPERATOR_ID, Base, sink_record
from icefloe.connector.operator_state import pre_commits
from icefloe.connector.partition_key import PartitionKey
from icefloe.connector.planning import plan_in_flight
from icefloe.connector.roll_policy import RollPolicy, RollReason
from icefloe.connector.subtask_state import StoredFile, SubtaskState
from icefloe.errors import IcefloeError, NotFoundError, StateError
from icefloe.proto import sink_pb2 as sink
from icefloe.state.object_names import publish_log_name
from icefloe.state.records import Record, RecordLog
from icefloe.state.sealing import unseal
from icefloe.state.task_info import TaskInfo

T = TypeVar("T")

# A query that runs may remove what was just read about; each repeat starts from a newer head.
_TRIES = 5
# What is assumed of rows that nothing was encoded of yet, as the writers do.
_BLIND_RATIO = 0.3


class Publication(StrEnum):
    """Whether readers see the last record, derived from the ledger and never stored."""

    NOTHING = "nothing recorded"
    PUBLISHED = "published"
    WAITING = "waiting"
    CONFLICT = "conflict"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerView:
    """What the target's ledger says about the head. ``reason`` explains a conflict or an unknown."""

    publication: Publication
    found: str
    expected: str
    last_commit_us: int | None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class InFlightView:
    """One file in flight, as the head has it. ``size_bytes`` counts pending rows as they will be once encoded."""

    file_id: str
    subtask: int
    partition: str
    rows: int
    pending_rows: int
    size_bytes: int
    row_groups: int
    began_us: int
    last_write_us: int
    max_event_time_us: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedView:
    """A finished file of a record that is kept."""

    name: str
    epoch: int
    batch_id: int
    partition: str
    rows: int
    size_bytes: int
    row_groups: int
    published: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochView:
    """One record of the timeline. Times per phase are sums over the tasks, except ``publish_us``."""

    epoch: int
    batch_id: int
    kind: str
    recorded_us: int
    published_us: int | None
    rows: int
    encoded_bytes: int
    files: int
    file_rows: int
    file_bytes: int
    files_in_flight: int
    rows_in_flight: int
    tasks: int
    read_us: int
    encode_us: int
    upload_us: int
    state_us: int
    publish_us: int | None


def read_steadily(open_one: Callable[[], Job], read: Callable[[Job], T]) -> T:
    """Return ``read(job)``; where it fails and the head has moved on in the meantime, start again from the new head."""
    job = open_one()
    for _ in range(_TRIES):
        try:
            return read(job)
        except (StateError, NotFoundError):
            newer = open_one()
            if (newer.head and newer.head.epoch) == (job.head and job.head.epoch):
                raise
            job = newer
    return read(job)


def opener(location: str, job: str | None, options: Mapping[str, str]) -> Callable[[], Job]:
    """Return what opens a job anew at every call."""
    return lambda: open_job(location, job=job, options=options)


def chain_of(job: Job) -> list[Record]:
    """Return the records that are kept, newest first; none where nothing was recorded."""
    return RecordLog(job.state, job.job_id).chain(job.head) if job.head is not None else []


def look_at_ledger(job: Job) -> LedgerView:
    """Compare the target's ledger with the head. Never raises: a target that cannot be reached is ``UNKNOWN``."""
    expected = ledger_after(job.head)
    if job.head is None:
        return LedgerView(publication=Publication.NOTHING, found="", expected="", last_commit_us=None)
    try:
        ledger = job.target().ledger_state(job.job_id)
    except IcefloeError as error:
        return LedgerView(
            publication=Publication.UNKNOWN, found="", expected=expected, last_commit_us=None, reason=str(error)
        )
    found = ledger.value
    if found == expected:
        publication, reason = (Publication.PUBLISHED if ledger.complete else Publication.WAITING), ""
    elif found == sink_record(job.head).expected_ledger:
        publication, reason = Publication.WAITING, ""
    else:
        publication = Publication.CONFLICT
        reason = f"the ledger is at {found or 'nothing'}, record {job.head.epoch} stands for {expected or 'nothing'}"
    return LedgerView(
        publication=publication, found=found, expected=expected, last_commit_us=ledger.committed_us, reason=reason
    )


def in_flight(job: Job) -> list[InFlightView]:
    """Return the files that the head has in flight, oldest first. Reads the recovery tables and no pending rows."""
    views = [_view(owner, stored) for owner, _, files in stored_files(job) for stored in files]
    return sorted(views, key=lambda view: (view.began_us, view.file_id))


def stored_files(job: Job) -> list[tuple[int, SubtaskState, list[StoredFile]]]:
    """Return what the head gives to each subtask: its number, its restored state, its files."""
    if job.head is None:
        return []
    base = Base.of(job.job_id, job.head, None)
    owners = sorted({operator.operator_metadata.owner_subtask for operator in job.head.metadata.operators})
    found = []
    for owner in owners:
        state = SubtaskState(
            TaskInfo(job.job_id, OPERATOR_ID, owner),
            job.state,
            epoch=job.head.epoch + 1,
            restore_from=base.owned_by(owner),
            data_schema=pa.schema([]),
        )
        found.append((owner, state, state.files()))
    return found


def roll_policy(job: Job) -> RollPolicy:
    """Return when files of this job are finished; a table that cannot be reached is taken to have no size of its own.

    Never raises.
    """
    try:
        return plan_in_flight(job.options).roll
    except IcefloeError:
        return RollPolicy(
            file_size_bytes=job.options.roll_file_size or 512 << 20,
            interval=job.options.roll_interval,
            inactivity=job.options.roll_inactivity,
            by_watermark=job.options.roll_watermark,
            every_batch=job.options.rolls_each_batch,
        )


def progress(policy: RollPolicy, file: InFlightView, now_us: int) -> tuple[float, RollReason | None]:
    """Return how near a file is to being finished (1 is due), and why it is due if it is."""
    reason = policy.due(file, now_us=now_us, watermark_us=None)
    if reason is not None:
        return 1.0, reason
    shares = (
        file.size_bytes / policy.file_size_bytes,
        (now_us - file.began_us) / (policy.interval.total_seconds() * 1_000_000),
        (now_us - file.last_write_us) / (policy.inactivity.total_seconds() * 1_000_000),
    )
    return max(shares), None


def finished(chain: list[Record], ledger: LedgerView) -> list[FinishedView]:
    """Return the finished files of the records that are kept, newest first."""
    return [
        FinishedView(
            name=file.name,
            epoch=record.epoch,
            batch_id=sink_record(record).batch_id,
            partition=_partition(file.partition),
            rows=file.rows,
            size_bytes=file.length_bytes,
            row_groups=file.row_groups,
            # All records below the head were published before the next one was made.
            published=place > 0 or ledger.publication is Publication.PUBLISHED,
        )
        for place, record in enumerate(chain)
        for operator in record.metadata.operators
        for file in pre_commits(operator)
    ]


def timeline(job: Job, chain: list[Record]) -> list[EpochView]:
    """Return the records that are kept, newest first, with what was measured about each."""
    return [_epoch(record, publish_log(job, record)) for record in chain]


def publish_log(job: Job, record: Record) -> sink.PublishLog | None:
    """Return the log of publishing a record, None where there is none: nothing depends on it."""
    name = publish_log_name(job.job_id, record.epoch)
    try:
        return unseal(job.state.get(name), sink.PublishLog, name)
    except (NotFoundError, StateError):
        return None


def _epoch(record: Record, log: sink.PublishLog | None) -> EpochView:
    payload = sink_record(record)
    files = [file for operator in record.metadata.operators for file in pre_commits(operator)]
    return EpochView(
        epoch=record.epoch,
        batch_id=payload.batch_id,
        kind="finish" if payload.kind == sink.RECORD_KIND_FINISH else "batch",
        recorded_us=record.metadata.finish_time,
        published_us=log.published_us if log else None,
        rows=payload.input_rows,
        encoded_bytes=payload.metrics.encoded_bytes,
        files=len(files),
        file_rows=sum(file.rows for file in files),
        file_bytes=sum(file.length_bytes for file in files),
        files_in_flight=payload.metrics.files_in_flight,
        rows_in_flight=payload.metrics.rows_in_flight,
        tasks=payload.metrics.tasks,
        read_us=payload.metrics.read_us,
        encode_us=payload.metrics.encode_us,
        upload_us=payload.metrics.upload_us,
        state_us=payload.metrics.state_us,
        publish_us=log.catalog_us if log else None,
    )


def _view(owner: int, stored: StoredFile) -> InFlightView:
    message = stored.message
    known = message.encoded_arrow_bytes
    ratio = message.position_bytes / known if known else _BLIND_RATIO
    groups = pq.read_metadata(io.BytesIO(stored.footer)).num_row_groups if stored.footer else 0
    return InFlightView(
        file_id=message.file_id,
        subtask=owner,
        partition=_partition(message.partition),
        rows=message.encoded_rows + message.pending_rows,
        pending_rows=message.pending_rows,
        size_bytes=message.position_bytes + int(message.pending_arrow_bytes * ratio),
        row_groups=groups,
        began_us=message.began_us,
        last_write_us=message.last_write_us,
        max_event_time_us=message.max_event_time_us if message.HasField("max_event_time_us") else None,
    )


def _partition(message: sink.PartitionKey) -> str:
    return PartitionKey.from_proto(message).hive_path()
