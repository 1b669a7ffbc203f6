"""The driver's side of the protocol: from the reports of the tasks to rows that readers see, exactly once.

Read this file first. Every step is one call, and between every two of them is a crash point. A step may be repeated
by anyone at any time: nothing that two attempts share is ever changed (docs/reliability.md has the argument).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from icefloe.connector.checkpoint_log import OffsetEntry
from icefloe.connector.logs import log_epoch, set_context
from icefloe.connector.messages import NO_EPOCH, OPERATOR_ID, TaskReport, sink_record
from icefloe.connector.operator_state import carried_to, pre_commits
from icefloe.connector.targets import Publication, PublishOutcome, Target, ledger_value
from icefloe.connector.writer_stats import now_us
from icefloe.errors import ConflictError, FencedError, NotFoundError, OptionError, StateError, StorageError
from icefloe.proto import sink_pb2 as sink
from icefloe.proto import state_pb2 as pb
from icefloe.state.clean_up import clean_up
from icefloe.state.crash_points import crash_point
from icefloe.state.object_names import job_metadata_name, publish_log_name
from icefloe.state.parquet_backend import ParquetBackend
from icefloe.state.records import Record, RecordLog, check_put_if_absent
from icefloe.state.sealing import FORMAT_VERSION, seal, unseal
from icefloe.state.storage import StorageProvider

logger = logging.getLogger("icefloe.committer")

# What clean-up may take of one commit; the rest waits for the next.
_CLEAN_UP_SECONDS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitSettings:
    """The options that matter to the committer."""

    keep_epochs: int
    public_options: Mapping[str, str]


class Committer:
    """Commits the epochs of one job to one target.

    Delivery: exactly-once if the state location is the only one of this job and the target keeps its ledger.
    """

    def __init__(
        self,
        *,
        job_id: str,
        state: StorageProvider,
        target: Target,
        settings: CommitSettings,
        clock: Callable[[], int] = now_us,
    ) -> None:
        self._job_id = job_id
        self._state = state
        self._target = target
        self._settings = settings
        self._clock = clock
        self._log = RecordLog(state, job_id)
        self._backend = ParquetBackend(state, job_id)

    def commit(self, reports: Sequence[TaskReport | None], batch_id: int, offsets: OffsetEntry | None) -> Record:
        """Commit one micro-batch; returns its record once every row of it is published.

        1. check the reports (R7)
        2. publish the base, if it is a finish record that nobody published
        3. put the record (R3, R4), then make sure that it is the head (R5)
        4. copy the operator metadata out of the record
        5. and 6. publish: complete or link the files of a path, append to a table with the ledger
        7. clean up (R9)

        A batch that has a record skips 2 and 3: its record is published, whoever wrote it (R6).
        """
        checked = check_reports(reports, self._job_id, batch_id)  # 1
        crash_point("commit.reports-checked")
        base = self._base(checked[0])
        if checked[0].recorded:
            record = self._recorded(checked, batch_id, offsets)
        else:
            self._publish_finish(base)  # 2
            crash_point("commit.base-published")
            record = self._put_batch_record(base, checked, batch_id, offsets)  # 3
        return self.complete(record, fresh=not checked[0].recorded)

    def complete(self, record: Record, *, fresh: bool = False, give_up: Collection[str] = ()) -> Record:
        """Do steps 4 to 7 for a record; repeatable. Files named in ``give_up`` stay out for ever (``finish`` only).

        ``fresh`` says that its files were written a moment ago; those of an older record are looked for first, since
        something else (a job that removes orphan files) may have deleted them while nothing was running.
        """
        set_context(job=self._job_id, epoch=record.epoch)
        began = self._clock()
        self._backend.write_operators(record)  # 4
        crash_point("commit.operators-written")
        outcome = self.publish(record, fresh=fresh, give_up=give_up)  # 5, 6
        crash_point("commit.published")
        published = self._clock()
        self._log_publication(record, outcome, began_us=began, published_us=published)
        crash_point("commit.publication-logged")
        self.clean_up(record)  # 7
        crash_point("commit.cleaned")
        cleaned = self._clock() - published
        log_epoch(record, published_us=published - began, cleaned_us=cleaned, already=outcome.already)
        return record

    # 1 is check_reports, below.

    def _base(self, report: TaskReport) -> Record | None:
        if report.base_epoch == NO_EPOCH:
            return None
        try:
            record = self._log.read(report.base_epoch)
        except NotFoundError as error:
            raise FencedError(
                "ICEFLOE_FENCED",
                f"job {self._job_id}: record {report.base_epoch}, from which the tasks started, was cleaned up in the "
                "meantime: a newer driver owns the job; stop this query",
            ) from error
        if record.digest != report.base_digest:
            raise ConflictError(
                "ICEFLOE_BASE_CHANGED",
                f"job {self._job_id}: the tasks started from record {report.base_epoch} with digest "
                f"{report.base_digest[:12]}, but the state at {self._state.url} has {record.digest[:12]}: "
                "the state was replaced while the query ran; restart the query",
            )
        return record

    # 2

    def _publish_finish(self, base: Record | None) -> None:
        if base is not None and sink_record(base).kind == sink.RECORD_KIND_FINISH:
            self.publish(base)

    # 3

    def _put_batch_record(
        self, base: Record | None, reports: Sequence[TaskReport], batch_id: int, offsets: OffsetEntry | None
    ) -> Record:
        operators = [_operator(report) for report in reports]
        payload = sink.SinkRecord(
            kind=sink.RECORD_KIND_BATCH,
            batch_id=batch_id,
            offsets_digest=offsets.digest if offsets else "",
            source_offsets=" ".join(offsets.offsets)[:4096] if offsets else "",
            input_rows=sum(report.input_rows for report in reports),
            metrics=_sum_metrics(reports),
        )
        if base is None:
            self._write_job(batch_id)
            crash_point("commit.job-metadata-written")
        try:
            return self.put_record(base, operators, payload, tasks=len(reports))
        except FencedError:
            raise
        except ConflictError:
            # R6: somebody recorded this epoch first. If it is the same batch, its record stands for ours.
            return self._recorded(reports, batch_id, offsets)

    def put_record(
        self,
        base: Record | None,
        operators: list[pb.OperatorCheckpointMetadata],
        payload: sink.SinkRecord,
        *,
        tasks: int,
    ) -> Record:
        """Put the record after ``base`` and make sure that it is the head; used by ``finish`` too.

        Raises ``ConflictError`` where the epoch has another record, ``FencedError`` where a higher one exists.
        """
        epoch = base.epoch + 1 if base else 0
        carried = [
            moved
            for operator in (base.metadata.operators if base else ())
            if operator.operator_metadata.owner_subtask >= tasks
            and (moved := carried_to(operator, operator.operator_metadata.owner_subtask % tasks)) is not None
        ]  # R8
        payload.expected_ledger = ledger_after(base)
        payload.options.update(self._settings.public_options)
        metadata = pb.CheckpointMetadata(
            format_version=FORMAT_VERSION,
            job_id=self._job_id,
            epoch=epoch,
            min_epoch=self._min_epoch(base, epoch, payload.kind),
            start_time=min((o.start_time for o in operators), default=self._clock()),
            finish_time=self._clock(),
            operator_ids=[OPERATOR_ID],
            operators=operators + carried,
            base_digest=base.digest if base else "",
            nonce=os.urandom(16),
            payload=payload.SerializeToString(deterministic=True),
            payload_version=1,
        )
        record = self._log.put(metadata)
        crash_point("commit.record-put")
        self._log.ensure_head(record)
        crash_point("commit.record-is-head")
        return record

    def _min_epoch(self, base: Record | None, epoch: int, kind: sink.RecordKind) -> int:
        before = base.metadata.min_epoch if base else 0
        # A finish voids nothing: Spark may run the last batch again, and only its record tells that it is the same.
        return before if kind == sink.RECORD_KIND_FINISH else max(before, epoch + 1 - self._settings.keep_epochs)

    def _write_job(self, batch_id: int) -> None:
        """Write ``job.metadata`` before the first record; one that is there already must name the same target."""
        mine = sink.JobMetadata(
            format_version=FORMAT_VERSION,
            job_id=self._job_id,
            target=self._target.identity(),
            nonce=os.urandom(16),
            first_batch_id=batch_id,
            created_us=self._clock(),
        )
        check_put_if_absent(self._state)
        if not self._state.put_if_absent(job_metadata_name(self._job_id), seal(mine)):
            check_target(read_job(self._state, self._job_id), mine.target)

    # R6

    def _recorded(self, reports: Sequence[TaskReport], batch_id: int, offsets: OffsetEntry | None) -> Record:
        """Return the head, after making sure that this batch is the one it records."""
        head = self._log.head()
        if head is None:
            raise StateError(
                "ICEFLOE_STATE_GONE",
                f"job {self._job_id}: batch {batch_id} was recorded when its tasks ran, and now {self._state.url} "
                "has no record: the state was removed under the running query; put it back",
            )
        batch = next((r for r in self._log.chain(head) if _is_batch(r, batch_id)), None)
        if batch is None or sink_record(head).batch_id != batch_id:
            raise FencedError(
                "ICEFLOE_FENCED",
                f"job {self._job_id}: batch {batch_id} cannot be recorded, since another driver has gone on to record "
                f"{head.epoch} (batch {sink_record(head).batch_id}): stop this query; the newer one owns the job",
            )
        self._check_identity(sink_record(batch), reports, offsets)
        return head

    def _check_identity(
        self, recorded: sink.SinkRecord, reports: Sequence[TaskReport], offsets: OffsetEntry | None
    ) -> None:
        rows = sum(report.input_rows for report in reports)
        if offsets is not None and recorded.offsets_digest:
            same = offsets.digest == recorded.offsets_digest
            theirs, ours = f"offsets {recorded.offsets_digest[:12]}", f"offsets {offsets.digest[:12]}"
        else:
            same = rows == recorded.input_rows
            theirs, ours = f"{recorded.input_rows} rows", f"{rows} rows"
        if not same:
            raise ConflictError(
                "ICEFLOE_REPLAY_DIFFERS",
                f"job {self._job_id}: batch {recorded.batch_id} was recorded with {theirs}, and is run again with "
                f"{ours}: the checkpoint or the state was restored from another time; restore both from the same one, "
                "or start a new job with a new checkpointLocation",
            )
        if rows != recorded.input_rows:
            logger.warning(
                "job %s: batch %d gave %d rows when it was recorded and %d now; the recorded rows stand",
                self._job_id,
                recorded.batch_id,
                recorded.input_rows,
                rows,
            )

    # 5, 6

    def publish(self, record: Record, *, fresh: bool = False, give_up: Collection[str] = ()) -> PublishOutcome:
        """Make the record's pre-commits visible; nothing happens when they are, or when it has none."""
        files = [file for operator in record.metadata.operators for file in pre_commits(operator)]
        if not files:
            return PublishOutcome(already=True)
        payload = sink_record(record)
        # A table that was dropped and made again under its name must not get the rows of the old one.
        check_target(read_job(self._state, self._job_id), self._target.identity())
        return self._target.publish(
            Publication(
                job_id=self._job_id,
                epoch=record.epoch,
                digest=record.digest,
                batch_id=payload.batch_id,
                expected_ledger=payload.expected_ledger,
                files=[file for file in files if file.name not in give_up],
                source_offsets=payload.source_offsets,
                fresh=fresh,
            )
        )

    def _log_publication(self, record: Record, outcome: PublishOutcome, *, began_us: int, published_us: int) -> None:
        files = [file for operator in record.metadata.operators for file in pre_commits(operator)]
        if outcome.already:
            return
        log = sink.PublishLog(
            format_version=FORMAT_VERSION,
            epoch=record.epoch,
            published_us=published_us,
            record_us=record.metadata.finish_time,
            catalog_us=published_us - began_us,
            conflicts=outcome.conflicts,
            retries=outcome.retries,
            files=len(files),
            rows=sum(file.rows for file in files),
            snapshot_id=outcome.snapshot_id or 0,
        )
        try:
            self._state.put(publish_log_name(self._job_id, record.epoch), seal(log))
        except StorageError as error:
            logger.warning("the log of publishing was not written; nothing depends on it: %s", error)

    # 7

    def clean_up(self, head: Record) -> None:
        """Remove what nothing names any more (R9), for a bounded time; what is left waits for the next epoch."""
        chain = self._log.chain(head)
        named = frozenset(file.name for o in head.metadata.operators for file in pre_commits(o))
        try:
            clean_up(self._state, self._job_id, chain, seconds=_CLEAN_UP_SECONDS)
            crash_point("commit.state-cleaned")
            # Copies of this state may share the target. Only who has just published holds the ledger, and with it the
            # proof that no other history will ever publish what it left unfinished there.
            if named:
                self._target.clean_up(self._job_id, head_epoch=head.epoch, named=named)
        except StorageError as error:
            logger.warning("clean-up was not finished, the next epoch goes on with it: %s", error)


def check_reports(reports: Sequence[TaskReport | None], job_id: str, batch_id: int) -> list[TaskReport]:
    """Return the reports in subtask order, if they belong together (R7).

    Raises ``OptionError`` for a trigger that never calls ``write``, ``ConflictError`` for a mixed set.
    """
    present = [report for report in reports if report is not None]
    if len(present) != len(reports) or not present:
        raise OptionError(
            "ICEFLOE_TRIGGER_UNSUPPORTED",
            f"batch {batch_id}: {len(reports) - len(present)} of {len(reports)} tasks sent nothing. A continuous "
            "trigger never lets a Python sink write: use a micro-batch trigger such as processingTime or availableNow",
        )
    first = present[0]
    for report in present:
        same = (report.job_id, report.base_epoch, report.base_digest, report.recorded)
        if same != (first.job_id, first.base_epoch, first.base_digest, first.recorded):
            raise ConflictError(
                "ICEFLOE_TASKS_DISAGREE",
                f"batch {batch_id}: subtask {first.subtask} started from record {first.base_epoch} of job "
                f"{first.job_id} "
                f"(recorded: {first.recorded}), subtask {report.subtask} from {report.base_epoch} of {report.job_id} "
                f"(recorded: {report.recorded}): the state changed under the query; restart it",
            )
        if report.job_id != job_id or report.batch_id != batch_id:
            raise ConflictError(
                "ICEFLOE_TASKS_DISAGREE",
                f"subtask {report.subtask} reports batch {report.batch_id} of job {report.job_id}, but Spark commits "
                f"batch {batch_id} of job {job_id}: restart the query",
            )
    return sorted(present, key=lambda report: report.subtask)


def check_batch_id(batch_id: int, *, head_batch_id: int | None, first_batch_id: int | None, job_id: str) -> bool:
    """Return whether the batch is recorded already (R2); raises where it neither follows the head nor repeats it."""
    if head_batch_id is None:
        if first_batch_id is not None and first_batch_id != batch_id:
            raise StateError(
                "ICEFLOE_STATE_LOST",
                f"job {job_id}: the state has no record, although batch {first_batch_id} was begun and Spark is at "
                "batch "
                f"{batch_id}: records were removed; put them back, or start a new job with a new checkpointLocation",
            )
        return False
    if batch_id < head_batch_id:
        raise ConflictError(
            "ICEFLOE_CHECKPOINT_OLDER",
            f"job {job_id}: Spark runs batch {batch_id}, but the state has recorded batch {head_batch_id}: the "
            "checkpoint "
            "is older than the state; restore the checkpoint that belongs to it",
        )
    if batch_id > head_batch_id + 1:
        raise ConflictError(
            "ICEFLOE_STATE_OLDER",
            f"job {job_id}: Spark runs batch {batch_id}, but the last one recorded in the state is {head_batch_id}: "
            "the "
            "state is older than the checkpoint; restore the state that belongs to it",
        )
    return batch_id == head_batch_id


def ledger_after(record: Record | None) -> str:
    """Return the ledger's value once a record is published: its own, or an older one if it commits nothing."""
    if record is None:
        return ""
    if any(pre_commits(operator) for operator in record.metadata.operators):
        return ledger_value(record.epoch, record.digest)
    return sink_record(record).expected_ledger


def check_ledger(job_id: str, head: Record, found: str) -> None:
    """Make sure that the target stands at the head, or at what the head expects while it is not published."""
    expected = sink_record(head).expected_ledger
    if found in (expected, ledger_after(head)):
        return
    raise ConflictError(
        "ICEFLOE_LEDGER_CONFLICT",
        f"job {job_id}: the state ends with record {head.epoch}, which leaves the target's ledger at "
        f"{ledger_after(head) or 'nothing'!r}, but it is at {found or 'nothing'!r}: checkpoint and state were restored "
        "or copied from another time; use the newer ones, or start a new job with a new checkpointLocation",
    )


def read_job(state: StorageProvider, job_id: str) -> sink.JobMetadata:
    """Return ``job.metadata``; raises ``NotFoundError`` where the job has no state."""
    name = job_metadata_name(job_id)
    return unseal(state.get(name), sink.JobMetadata, name)


def check_target(job: sink.JobMetadata, found: sink.Target) -> None:
    """Make sure that a job still writes to the target that it began with."""
    if job.target == found:
        return
    raise ConflictError(
        "ICEFLOE_TARGET_CHANGED",
        f"job {job.job_id} writes to {describe_target(job.target)}, and is now given {describe_target(found)}: "
        "a job keeps its target; use a new checkpointLocation for another one",
    )


def describe_target(target: sink.Target) -> str:
    """Return a target as a person would name it."""
    if target.table:
        return f"table {target.table} (uuid {target.table_uuid})"
    by = f" partitioned by {', '.join(target.partition_columns)}" if target.partition_columns else ""
    return f"path {target.path}{by}"


def _is_batch(record: Record, batch_id: int) -> bool:
    payload = sink_record(record)
    return payload.kind == sink.RECORD_KIND_BATCH and payload.batch_id == batch_id


def _operator(report: TaskReport) -> pb.OperatorCheckpointMetadata:
    assert report.operator_metadata is not None
    return pb.OperatorCheckpointMetadata.FromString(report.operator_metadata)


def _sum_metrics(reports: Sequence[TaskReport]) -> sink.EpochMetrics:
    total = sink.EpochMetrics(tasks=len(reports))
    for report in reports:
        metrics = sink.EpochMetrics.FromString(report.metrics)
        for field, value in metrics.ListFields():
            setattr(total, field.name, getattr(total, field.name) + value)
    return total
