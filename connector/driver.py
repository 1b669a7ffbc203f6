"""The driver's side of one writer, without Spark: check, plan, find the base, commit."""

from __future__ import annotations

import logging
import socket
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, runtime_checkable
from urllib.parse import urlsplit

from icefloe.connector.checkpoint_log import CheckpointLog
from icefloe.connector.committer import CommitSettings, Committer, check_ledger, check_target, read_job
from icefloe.connector.file_store import open_file_store
from icefloe.connector.messages import Base, TaskReport
from icefloe.connector.options import SinkOptions
from icefloe.connector.path_target import PathTarget
from icefloe.connector.planning import path_partitions, plan_path, plan_table, stream_schema, written_schema
from icefloe.connector.targets import Target
from icefloe.connector.write_plan import WritePlan
from icefloe.errors import ConflictError, NotFoundError, OptionError, StateError
from icefloe.proto import sink_pb2 as sink
from icefloe.schemas.sink_schema import SinkSchema
from icefloe.state.object_names import parse
from icefloe.state.opening import open_storage
from icefloe.state.records import Record, RecordLog
from icefloe.state.storage import StorageProvider

logger = logging.getLogger("icefloe.driver")


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochSettings:
    """What every task of an epoch gets by value. ``base`` is None where the driver cannot know the job."""

    plan: WritePlan
    base: Base | None
    state_url: str
    state_options: Mapping[str, str] = field(repr=False)
    # What Spark's offset log says is running, where the driver can read it.
    batch_id: int | None
    watermark_us: int | None
    # The driver's machine, where the target is a disk that other machines need not have; None: any will do.
    machine: str | None = None


@runtime_checkable
class _Leaves(Protocol):
    """A target with connections that the next epoch can use."""

    def leave(self) -> None: ...


class Driver:
    """Prepares and commits the epochs of one query. Cheap to make: Spark makes a new one for every call."""

    def __init__(self, options: SinkOptions, schema_json: str) -> None:
        assert options.state_location is not None
        self._options = options
        self._schema = stream_schema(options, schema_json)
        self._checkpoint = CheckpointLog(options.checkpoint_location)
        self._state = open_storage(options.state_location, options.s3_options)

    def check_trigger(self) -> None:
        """Refuse a continuous trigger, where Spark's checkpoint tells it from a micro-batch.

        The commit refuses it too, but Spark only logs what a commit raises in continuous mode, and would go on for ever
        with nothing written.
        """
        if self._checkpoint.runs_a_micro_batch() is False:
            raise OptionError(
                "ICEFLOE_TRIGGER_UNSUPPORTED",
                f"no micro-batch is begun in {self._options.checkpoint_location}. A continuous trigger never lets a "
                "Python sink write: use a micro-batch trigger such as processingTime or availableNow",
            )

    def prepare(self) -> EpochSettings:
        """Check everything that can be checked before data moves, and return what the tasks need (step 0).

        Raises whatever is wrong with options, schema, target or state; nothing has been written then but the table
        itself, where it was to be created or widened.
        """
        job_id = self._checkpoint.job_id()
        head = RecordLog(self._state, job_id).head() if job_id is not None else None
        base = find_base(self._state, job_id, head) if job_id is not None else None
        entry = self._checkpoint.latest()
        if self._options.roll_watermark and entry is None:
            raise OptionError(
                "ICEFLOE_WATERMARK_UNREADABLE",
                f"rollWatermark reads the watermark from {self._options.checkpoint_location}/offsets, which this "
                "process "
                "cannot read: keep the checkpoint on a disk that the driver can read, or leave rollWatermark out",
            )
        target, plan = open_and_plan(self._options, self._schema, self._state, job_id or "")
        if base is not None:
            self._check_history(base, head, target)
        _leave(target)
        assert self._options.state_location is not None
        return EpochSettings(
            plan=plan,
            base=base,
            state_url=self._options.state_location,
            state_options=self._options.s3_options,
            batch_id=entry.batch_id if entry else None,
            watermark_us=entry.watermark_ms * 1000 if entry else None,
            machine=None if self._options.shared_disk or _is_remote(plan.files_url) else this_machine(),
        )

    def _check_history(self, base: Base, head: Record | None, target: Target) -> None:
        """Refuse a state that belongs to another target, or that the target has gone past, before data moves."""
        if base.first_batch_id is None:
            self._check_new(base.job_id, target)
            return
        check_target(read_job(self._state, base.job_id), target.identity())
        if head is not None:
            check_ledger(base.job_id, head, target.ledger(base.job_id))

    def _check_new(self, job_id: str, target: Target) -> None:
        """Refuse a job without state that the target knows, and warn of what only looks like one that lost it."""
        ledger = target.ledger(job_id)
        if ledger:
            raise ConflictError(
                "ICEFLOE_STATE_LOST",
                f"job {job_id} has published up to {ledger!r}, and there is no state of it at {self._state.url}: put "
                "the "
                "state back, give its stateLocation, or start a new job with a new checkpointLocation",
            )
        entry = self._checkpoint.latest()
        if entry is not None and self._checkpoint.is_committed(entry.batch_id - 1):
            logger.warning(
                "Spark has committed batch %d of job %s, and there is no state of it at %s: if this checkpoint was "
                "used "
                "with icefloe before, rows that were in flight are gone with the state; put it back",
                entry.batch_id - 1,
                job_id,
                self._state.url,
            )
        self._report_other_jobs(job_id)

    def _report_other_jobs(self, job_id: str) -> None:
        """A new job in a place where others have state: a wiped checkpoint may have left rows in flight."""
        others = [other for other in job_ids(self._state) if other != job_id]
        if others:
            logger.warning(
                "job %s is new, and %s has state of %s: if a checkpoint was wiped, see what is in flight with "
                "`icefloe status %s` and make it visible with `icefloe finish`",
                job_id,
                self._state.url,
                ", ".join(others),
                self._state.url,
            )

    def check(self) -> None:
        """Raise what the first epoch would refuse, and change nothing."""
        written = written_schema(self._options, self._schema)
        if self._options.path is not None:
            self.prepare()
            return
        from icefloe.connector.iceberg_table import check_table
        from icefloe.connector.table_target import table_settings

        check_table(table_settings(self._options), written.arrow)

    def commit(self, reports: Sequence[TaskReport | None], batch_id: int) -> Record:
        """Commit a micro-batch from the reports of its tasks."""
        job_id = next((report.job_id for report in reports if report is not None), "")
        target = open_target(self._options, self._state, job_id, self._schema_partitions())
        committer = Committer(
            job_id=job_id,
            state=self._state,
            target=target,
            settings=CommitSettings(keep_epochs=self._options.keep_epochs, public_options=self._options.public),
        )
        record = committer.commit(reports, batch_id, self._checkpoint.entry(batch_id))
        _leave(target)
        return record

    def _schema_partitions(self) -> list[str]:
        if self._options.path is None:
            return []
        written = written_schema(self._options, self._schema)
        return [field.source for field in path_partitions(self._options, written)]


def open_and_plan(
    options: SinkOptions, schema: SinkSchema, state: StorageProvider, job_id: str
) -> tuple[Target, WritePlan]:
    """Open the target, creating or widening a table where the options allow it, and return it with the tasks' plan."""
    written = written_schema(options, schema)
    if options.path is not None:
        columns = [field.source for field in path_partitions(options, written)]
        return open_target(options, state, job_id, columns), plan_path(options, schema)
    from icefloe.connector.iceberg_table import IcebergTarget
    from icefloe.connector.table_target import TableTarget, table_settings

    settings = table_settings(options)
    table = IcebergTarget.open(settings, written.arrow)
    return TableTarget(settings, table), plan_table(options, schema, table.plan(written.arrow))


def open_target(options: SinkOptions, state: StorageProvider, job_id: str, partition_columns: Sequence[str]) -> Target:
    """Return the target that the options name, for publishing; a table must exist."""
    if options.path is not None:
        return PathTarget(
            files=open_file_store(options.path, options.s3_options, job_id=job_id),
            ledgers=open_storage(options.path, options.s3_options),
            state=state,
            partition_columns=partition_columns,
        )
    from icefloe.connector.table_target import TableTarget, table_settings

    return TableTarget(table_settings(options))


def find_base(state: StorageProvider, job_id: str, head: Record | None) -> Base:
    """Return the base that the head of a job makes, with the batch that its very first record was begun for."""
    job = _job_or_none(state, job_id)
    if job is None and head is not None:
        raise StateError(
            "ICEFLOE_STATE_INCOMPLETE",
            f"job {job_id} has records in {state.url} but no job.metadata: part of the state is missing; put it back",
        )
    return Base.of(job_id, head, job.first_batch_id if job is not None else None)


def this_machine() -> str:
    """Return what tells this machine (or container) from another one."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    return f"{socket.gethostname()}/{boot.read_text().strip() if boot.exists() else uuid.getnode()}"


def _leave(target: Target) -> None:
    """Let the next epoch have the target's connections. A target that failed keeps them, and they end with it."""
    if isinstance(target, _Leaves):
        target.leave()


def _is_remote(url: str) -> bool:
    return urlsplit(url).scheme not in ("", "file")


def job_ids(state: StorageProvider) -> list[str]:
    """Return the jobs that have state here, in the order of their ids."""
    found = (parse(info.key) for info in state.list())
    return sorted({name.job for name in found if name is not None})


def _job_or_none(state: StorageProvider, job_id: str) -> sink.JobMetadata | None:
    try:
        return read_job(state, job_id)
    except NotFoundError:
        return None
