"""Checks that a job can go on: every reference resolves, checksums match, uploads live, the ledger agrees."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from icefloe.connector.file_store import open_file_store
from icefloe.connector.inspection import LedgerView, Publication, chain_of, look_at_ledger, stored_files
from icefloe.connector.jobs import Job
from icefloe.connector.messages import sink_record
from icefloe.connector.operator_state import pre_commits
from icefloe.connector.s3_lifecycle import expiry_days, upload_expiry_days
from icefloe.connector.subtask_state import ParkedRows
from icefloe.connector.writer_stats import now_us
from icefloe.errors import CorruptStateError, IcefloeError, NotFoundError
from icefloe.proto import sink_pb2 as sink
from icefloe.proto import state_pb2 as pb
from icefloe.state.clean_up import referenced_names
from icefloe.state.object_names import ObjectKind, checkpoints_prefix, parse
from icefloe.state.records import Record

_DAY_US = 86_400_000_000
# Copies of what the record holds, and a log: nothing is lost with them.
_SPARE = (ObjectKind.OPERATOR_METADATA, ObjectKind.PUBLISH_LOG)
_TABLE_MESSAGES: dict[
    int, type[pb.GlobalKeyedTableSubtaskCheckpointMetadata | pb.ExpiringKeyedTimeSubtaskCheckpointMetadata]
]
_TABLE_MESSAGES = {
    pb.GLOBAL_KEY_VALUE: pb.GlobalKeyedTableSubtaskCheckpointMetadata,
    pb.EXPIRING_KEYED_TIME_TABLE: pb.ExpiringKeyedTimeSubtaskCheckpointMetadata,
}


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not as it should be. An error stops the job or loses rows; a warning may do so later."""

    level: Literal["error", "warning"]
    object_name: str
    text: str


@dataclass(slots=True)
class Verification:
    """What was looked at, and what was found."""

    job_id: str
    epoch: int | None
    quick: bool
    records: int = 0
    state_objects: int = 0
    in_flight_files: int = 0
    finished_files: int = 0
    publication: str = ""
    findings: list[Finding] = field(default_factory=list)

    @property
    def is_sound(self) -> bool:
        """Whether nothing was found that stops the job or loses rows."""
        return not any(finding.level == "error" for finding in self.findings)

    def error(self, object_name: str, text: str) -> None:
        """Note damage."""
        self.findings.append(Finding("error", object_name, text))

    def warn(self, object_name: str, text: str) -> None:
        """Note what may become damage."""
        self.findings.append(Finding("warning", object_name, text))


def verify_steadily(open_one: Callable[[], Job], *, quick: bool) -> Verification:
    """Verify a job; where something is missing and the head has moved on meanwhile, look again from the new head."""
    result = _verify(open_one(), quick=quick)
    for _ in range(3):
        if result.is_sound:
            break
        job = open_one()
        if (job.head.epoch if job.head else None) == result.epoch:
            break
        result = _verify(job, quick=quick)
    return result


def _verify(job: Job, *, quick: bool) -> Verification:
    """Look at everything that a restart or ``finish`` would need:

    1. the records that are kept, linked by digest
    2. the objects that they name: there, and of the right length and checksum
    3. files in flight: footers and pending rows restore
    4. the ledger of the target
    5. finished files of the head: there, or to be completed from an upload that is alive
    6. rules of the bucket that would delete any of it
    """
    result = Verification(job.job_id, job.head.epoch if job.head else None, quick)
    if job.head is None:
        return result
    try:
        chain = chain_of(job)  # 1
    except CorruptStateError as error:
        result.error("records", str(error))
        return result
    result.records = len(chain)
    _check_objects(job, chain, result)  # 2
    _check_in_flight(job, result)  # 3
    ledger = look_at_ledger(job)
    _check_ledger(ledger, result)  # 4
    _check_finished(job, chain, ledger, result)  # 5
    _check_rules(job, result)  # 6
    return result


def _check_objects(job: Job, chain: list[Record], result: Verification) -> None:
    there = {info.key: info.size_bytes for info in job.state.list(checkpoints_prefix(job.job_id))}
    needed = referenced_names(chain[:1])

    def found(name: str, text: str) -> None:
        # The job goes on from the head alone; older records only serve to look back.
        note = result.error if name in needed else result.warn
        note(name, text if name in needed else f"{text}; only older records name it")

    for name in sorted(referenced_names(chain)):
        kind = parse(name)
        if kind is not None and kind.kind in _SPARE:
            continue
        result.state_objects += 1
        if name not in there:
            found(name, "is named by a record and not there")
    facts = {name: fact for record in chain for name, *fact in _facts(record)}
    for name, (length, crc32) in sorted(facts.items()):
        if name not in there:
            continue
        if there[name] != length:
            found(name, f"has {there[name]} bytes, its record says {length}")
        elif not result.quick and zlib.crc32(job.state.get(name)) != crc32:
            found(name, "does not have the checksum it was written with")


def _facts(record: Record) -> Iterator[tuple[str, int, int]]:
    """Yield name, length and CRC-32 of the objects that a record itself describes."""
    for operator in record.metadata.operators:
        for table in operator.subtask.table_metadata.values():
            message_type = _TABLE_MESSAGES.get(table.table_type)
            if message_type is not None:
                yield from ((file.file, file.bytes, file.crc32) for file in message_type.FromString(table.data).files)
        for file in pre_commits(operator):
            yield from ((segment.name, segment.length_bytes, segment.crc32) for segment in file.sources)


def _check_in_flight(job: Job, result: Verification) -> None:
    try:
        stored = stored_files(job)
    except (CorruptStateError, NotFoundError) as error:
        result.error("files in flight", str(error))
        return
    for _, state, files in stored:
        for file in files:
            result.in_flight_files += 1
            message = file.message
            for segment in message.segments:
                _check_segment(job, segment, result)
            if message.encoded_rows and (file.footer is None or zlib.crc32(file.footer) != message.footer_crc32):
                result.error(message.file_id, "its footer is missing or does not have the checksum of its entry")
            if result.quick:
                continue
            try:
                found = sum(batch.num_rows for batch in state.parked(ParkedRows.of(message)))
            except IcefloeError as error:
                result.error(message.file_id, f"its pending rows cannot be read: {error}")
                continue
            if found != message.pending_rows:
                result.error(message.file_id, f"{found} pending rows are there, its entry says {message.pending_rows}")


def _check_segment(job: Job, segment: sink.Segment, result: Verification) -> None:
    try:
        if result.quick:
            length, crc32 = job.state.size(segment.name), segment.crc32
        else:
            data = job.state.get(segment.name)
            length, crc32 = len(data), zlib.crc32(data)
    except NotFoundError:
        return  # Reported with the objects that records name.
    if (length, crc32) != (segment.length_bytes, segment.crc32):
        result.error(segment.name, f"holds {length} bytes that are not the {segment.length_bytes} it was written with")


def _check_ledger(ledger: LedgerView, result: Verification) -> None:
    result.publication = str(ledger.publication)
    if ledger.publication in (Publication.CONFLICT, Publication.UNKNOWN):
        result.error("ledger", ledger.reason)
    elif ledger.publication is Publication.WAITING:
        result.warn("ledger", f"epoch {result.epoch} is recorded and not published: restart the query, or run finish")


def _check_finished(job: Job, chain: list[Record], ledger: LedgerView, result: Verification) -> None:
    for place, record in enumerate(chain):
        waiting = place == 0 and ledger.publication is not Publication.PUBLISHED
        for operator in record.metadata.operators:
            for file in pre_commits(operator):
                result.finished_files += 1
                try:
                    _check_file(job, file, result, waiting=waiting)
                except IcefloeError as error:
                    result.error(file.name, f"could not be looked at: {error}")


def _check_file(job: Job, file: sink.DataFile, result: Verification, *, waiting: bool) -> None:
    if job.options.path is not None:
        url, name = job.options.path, file.name
    else:
        url, _, name = file.location.rpartition("/")
    files = open_file_store(url, job.options.s3_options, job_id=job.job_id)
    length = files.exists(name)
    if length == file.length_bytes:
        return
    if length is not None:
        result.error(file.name, f"has {length} bytes, its record says {file.length_bytes}")
    elif not waiting:
        result.warn(file.name, "was published and is not there any more: compacted, expired or deleted by somebody")
    elif not file.upload_id and not file.in_progress:
        result.error(file.name, f"({file.rows} rows) is finished, not published, and not there")
    elif any(upload.name == file.name for upload in files.list_unfinished()):
        _check_upload_age(job, file, result)
    elif file.sources:
        result.warn(file.name, "its upload is gone; publishing will compose it again from its segments")
    else:
        result.error(file.name, f"({file.rows} rows): its upload is gone, and nothing is left to compose it from")


def _check_upload_age(job: Job, file: sink.DataFile, result: Verification) -> None:
    assert job.options.path is not None
    days = upload_expiry_days(job.options.path, job.options.s3_options)
    age_days = (now_us() - file.began_us) / _DAY_US
    if days is not None and age_days > days / 2:
        text = f"its upload is {age_days:.1f} days old, and the bucket ends uploads after {days}: publish it soon"
        result.warn(file.name, text)


def _check_rules(job: Job, result: Verification) -> None:
    days = expiry_days(job.state.url, job.options.s3_options)
    if days is not None:
        text = f"a lifecycle rule of the bucket deletes objects here after {days} days, rows in flight among them"
        result.warn(job.state.url, text)
    assert job.head is not None
    if job.options.path is not None and sink_record(job.head).options.get("visibility") == "roll":
        days = upload_expiry_days(job.options.path, job.options.s3_options)
        if days is not None and days < 7:
            result.warn(job.options.path, f"the bucket ends unfinished uploads after {days} days: use 7 or more")
