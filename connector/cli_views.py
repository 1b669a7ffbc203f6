"""The commands that only look: ``status``, ``files`` and ``epochs``."""

from __future__ import annotations

import argparse
from dataclasses import asdict, dataclass
from typing import Any

from icefloe.connector.cli_output import (
    iso_time,
    print_fields,
    print_json,
    print_line,
    print_table,
    show_bytes,
    show_seconds,
    show_time,
    show_us,
)
from icefloe.connector.committer import describe_target
from icefloe.connector.inspection import (
    InFlightView,
    LedgerView,
    Publication,
    chain_of,
    finished,
    in_flight,
    look_at_ledger,
    opener,
    progress,
    publish_log,
    read_steadily,
    roll_policy,
    timeline,
)
from icefloe.connector.jobs import Job, find_jobs
from icefloe.connector.messages import sink_record
from icefloe.connector.option_values import parse_duration
from icefloe.connector.writer_stats import now_us
from icefloe.errors import IcefloeError
from icefloe.proto import sink_pb2 as sink

OK = 0
REFUSED = 1
FOUND = 2


@dataclass(frozen=True, slots=True)
class Status:
    """What ``icefloe status`` says about one job."""

    job: Job
    ledger: LedgerView
    files: list[InFlightView]
    last_commit_us: int | None
    now_us: int

    @property
    def oldest_us(self) -> int | None:
        """When the oldest row that is in flight arrived, at the earliest."""
        return min((file.began_us for file in self.files), default=None)


def options_of(parsed: argparse.Namespace) -> dict[str, str]:
    """Return the ``--option`` arguments as options of the sink."""
    return dict(text.partition("=")[::2] for text in parsed.option)


def run_status(parsed: argparse.Namespace) -> int:
    """Show every job of the location, or the one asked for; exit code 2 when one is older than ``--max-age``."""
    max_age = parse_duration("--max-age", parsed.max_age).total_seconds() if parsed.max_age else None
    options = options_of(parsed)
    # None: let opening say that there is nothing.
    wanted: list[str | None] = [parsed.job] if parsed.job else [*find_jobs(parsed.state, options)[1]] or [None]
    code, documents = OK, []
    for place, job_id in enumerate(wanted):
        try:
            status = read_steadily(opener(parsed.state, job_id, options), _status)
        except IcefloeError as error:
            # One job that cannot be read must not hide the others.
            if len(wanted) == 1:
                raise
            code = REFUSED
            documents.append({"job": job_id, "error": str(error)})
            if not parsed.json:
                print_line(f"job {job_id}: {error}", style="red")
            continue
        late = _too_old(status, max_age)
        code = code or (FOUND if late else OK)
        documents.append(_status_document(status, late))
        if not parsed.json:
            if place:
                print()
            _print_status(status, late)
    if parsed.json:
        print_json({"jobs": documents})
    return code


def _status(job: Job) -> Status:
    ledger = look_at_ledger(job)
    return Status(job, ledger, in_flight(job), _last_commit(job, ledger), now_us())


def _last_commit(job: Job, ledger: LedgerView) -> int | None:
    if ledger.last_commit_us is not None:
        return ledger.last_commit_us
    logs = (publish_log(job, record) for record in chain_of(job))
    return next((log.published_us for log in logs if log is not None), None)


def _too_old(status: Status, max_age: float | None) -> list[str]:
    """Return what is older than ``max_age``: rows that wait, a record that is not published, the last commit."""
    if max_age is None or status.job.head is None:
        return []
    waiting = status.ledger.publication is not Publication.PUBLISHED
    times = {
        "the oldest row in flight": status.oldest_us,
        "the last record, which is not published": status.job.head.metadata.finish_time if waiting else None,
        "the last commit": status.last_commit_us,
    }
    ages = {what: (status.now_us - at) / 1_000_000 for what, at in times.items() if at is not None}
    return [f"{what} is {show_seconds(age)} old" for what, age in ages.items() if age > max_age]


def _on_restart(status: Status) -> str:
    head = status.job.head
    if head is None:
        return "starts with the first batch"
    batch = sink_record(head).batch_id
    answers = {
        Publication.PUBLISHED: f"goes on with batch {batch + 1}; a repeated batch {batch} is recognised and not "
        "written again",
        Publication.WAITING: f"publishes epoch {head.epoch} first, then goes on; `icefloe finish` does it, too",
        Publication.CONFLICT: "is refused: target and state are of different histories (see docs/operations.md)",
    }
    return answers.get(status.ledger.publication, "depends on the ledger, which could not be read")


def _status_document(status: Status, late: list[str]) -> dict[str, Any]:
    head, now = status.job.head, status.now_us
    return {
        "job": status.job.job_id,
        "target": describe_target(status.job.metadata.target),
        "state": status.job.state.url,
        "visibility": status.job.options.visibility,
        "epoch": head.epoch if head else None,
        "batch_id": sink_record(head).batch_id if head else None,
        "kind": _kind(status.job),
        "recorded_at": iso_time(head.metadata.finish_time) if head else None,
        "publication": str(status.ledger.publication),
        "publication_reason": status.ledger.reason,
        "ledger": status.ledger.found,
        "files_in_flight": len(status.files),
        "rows_in_flight": sum(file.rows for file in status.files),
        "bytes_in_flight": sum(file.size_bytes for file in status.files),
        "oldest_row_age_seconds": _age(now, status.oldest_us),
        "last_commit_at": iso_time(status.last_commit_us),
        "last_commit_age_seconds": _age(now, status.last_commit_us),
        "on_restart": _on_restart(status),
        "too_old": late,
    }


def _kind(job: Job) -> str | None:
    if job.head is None:
        return None
    return "finish" if sink_record(job.head).kind == sink.RECORD_KIND_FINISH else "batch"


def _age(now: int, then: int | None) -> float | None:
    return None if then is None else round(max(0, now - then) / 1_000_000, 3)


def _ago(now: int, then: int | None) -> str:
    return "-" if then is None else f"{show_time(then)} UTC, {show_seconds(max(0, now - then) / 1_000_000)} ago"


def _print_status(status: Status, late: list[str]) -> None:
    head, ledger = status.job.head, status.ledger
    print_line(f"job {status.job.job_id}", style="bold")
    fields = {"target": describe_target(status.job.metadata.target), "state": status.job.state.url}
    if head is not None:
        reason = f" ({ledger.reason})" if ledger.reason else ""
        rows, size = sum(file.rows for file in status.files), sum(file.size_bytes for file in status.files)
        fields |= {
            "last epoch": f"{head.epoch} ({_kind(status.job)}, batch {sink_record(head).batch_id}), recorded "
            + _ago(status.now_us, head.metadata.finish_time),
            "publication": f"{ledger.publication}{reason}",
            "last commit": _ago(status.now_us, status.last_commit_us),
            "in flight": f"{rows:,} rows in {len(status.files)} files, about {show_bytes(size)}",
            "oldest row": _ago(status.now_us, status.oldest_us),
        }
    print_fields({**fields, "a restart": _on_restart(status)})
    for text in late:
        print_line(f"too old: {text}", style="bold red")


def run_files(parsed: argparse.Namespace) -> int:
    """Show what is in flight and what the records that are kept have finished."""
    return read_steadily(opener(parsed.state, parsed.job, options_of(parsed)), lambda job: _files(job, parsed))


def _files(job: Job, parsed: argparse.Namespace) -> int:
    flying, policy, now = in_flight(job), roll_policy(job), now_us()
    done = finished(chain_of(job), look_at_ledger(job))
    shares = {file.file_id: progress(policy, file, now) for file in flying}
    if parsed.json:
        documents = [
            {**asdict(file), "progress": round(shares[file.file_id][0], 4), "due": shares[file.file_id][1]}
            for file in flying
        ]
        print_json({"job": job.job_id, "in_flight": documents, "finished": [asdict(file) for file in done]})
        return OK
    print_line(f"in flight: {len(flying)} files of job {job.job_id}", style="bold")
    rows = [
        [
            file.file_id,
            file.partition or "-",
            f"{file.rows:,}",
            f"{file.pending_rows:,}",
            show_bytes(file.size_bytes),
            str(file.row_groups),
            show_seconds(max(0, now - file.began_us) / 1_000_000),
            f"due: {reason}" if (reason := shares[file.file_id][1]) else f"{shares[file.file_id][0]:.0%}",
        ]
        for file in flying
    ]
    if rows:
        headers = ["file", "partition", "rows", "pending", "size", "row groups", "age", "roll"]
        print_table(headers, rows, numbers=headers[2:])
    print_line(f"\nfinished in the last epochs: {len(done)} files", style="bold")
    ended = [
        [
            str(file.epoch),
            "published" if file.published else "waiting",
            f"{file.rows:,}",
            show_bytes(file.size_bytes),
            str(file.row_groups),
            file.name,
        ]
        for file in done
    ]
    if ended:
        headers = ["epoch", "state", "rows", "size", "row groups", "name"]
        print_table(headers, ended, numbers=["epoch", "rows", "size", "row groups"])
    return OK


def run_epochs(parsed: argparse.Namespace) -> int:
    """Show the timeline of the records that are kept."""
    job, views = read_steadily(
        opener(parsed.state, parsed.job, options_of(parsed)), lambda job: (job, timeline(job, chain_of(job)))
    )
    if parsed.json:
        print_json({"job": job.job_id, "epochs": [asdict(view) for view in views]})
        return OK
    print_line(f"epochs of job {job.job_id}, newest first (read to state: sums over tasks)", style="bold")
    headers = ["epoch", "batch", "kind", "recorded (UTC)", "rows", "files", "file bytes", "in flight"]
    headers += ["read", "encode", "upload", "state", "publish"]
    rows = [
        [
            str(view.epoch),
            str(view.batch_id),
            view.kind,
            show_time(view.recorded_us),
            f"{view.rows:,}",
            str(view.files),
            show_bytes(view.file_bytes),
            str(view.files_in_flight),
            *(show_us(us) for us in (view.read_us, view.encode_us, view.upload_us, view.state_us, view.publish_us)),
        ]
        for view in views
    ]
    print_table(headers, rows, numbers=[name for name in headers if name not in ("kind", "recorded (UTC)")])
    return OK
