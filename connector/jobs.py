"""Jobs as their state describes them: found by location, opened with the options that their last record kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from icefloe.connector.committer import CommitSettings, Committer, check_target, read_job
from icefloe.connector.driver import job_ids, open_target
from icefloe.connector.messages import sink_record
from icefloe.connector.options import SinkOptions, absolute_url, parse_options
from icefloe.connector.targets import Target
from icefloe.errors import NotFoundError, StateError
from icefloe.proto import sink_pb2 as sink
from icefloe.state.opening import open_storage
from icefloe.state.records import Record, RecordLog
from icefloe.state.storage import StorageProvider


@dataclass(frozen=True, slots=True)
class Job:
    """One job found in a state location. ``head`` is None where it was begun and never recorded."""

    job_id: str
    metadata: sink.JobMetadata
    head: Record | None
    state: StorageProvider
    options: SinkOptions

    def target(self) -> Target:
        """Open the target and make sure that it is the job's own."""
        columns = list(self.metadata.target.partition_columns)
        target = open_target(self.options, self.state, self.job_id, columns)
        check_target(self.metadata, target.identity())
        return target

    def committer(self, target: Target) -> Committer:
        """Return the committer of this job."""
        settings = CommitSettings(keep_epochs=self.options.keep_epochs, public_options=self.options.public)
        return Committer(job_id=self.job_id, state=self.state, target=target, settings=settings)


def open_job(state_location: str, *, job: str | None = None, options: Mapping[str, str] | None = None) -> Job:
    """Open the one job in a state location, or the one that is named (an unambiguous beginning will do).

    ``options`` are added to those that the last record kept: secrets are never in state.
    Raises ``StateError`` where there is no such job, or more than one.
    """
    given = {key.lower(): value for key, value in (options or {}).items()}
    state, found = find_jobs(state_location, given)
    job_id = _choose(found, job, state.url)
    head = RecordLog(state, job_id).head()
    metadata = _read_job(state, job_id, head)
    kept = dict(sink_record(head).options) if head is not None else _target_options(metadata)
    merged = {**{key.lower(): value for key, value in kept.items()}, **given, "statelocation": state_location}
    return Job(job_id, metadata, head, state, parse_options(merged))


def find_jobs(state_location: str, options: Mapping[str, str]) -> tuple[StorageProvider, list[str]]:
    """Return the state at a location and the jobs in it; the checkpointLocation that holds the state will do, too."""
    storage_options = {key.lower(): value for key, value in options.items() if key.lower().startswith("s3.")}
    given = open_storage(absolute_url(state_location), storage_options)
    if found := job_ids(given):
        return given, found
    inside = open_storage(absolute_url(state_location) + "/icefloe", storage_options)
    found = job_ids(inside)
    return (inside, found) if found else (given, [])


def _read_job(state: StorageProvider, job_id: str, head: Record | None) -> sink.JobMetadata:
    try:
        return read_job(state, job_id)
    except NotFoundError as error:
        if head is None:
            raise StateError(
                "ICEFLOE_STATE_EMPTY",
                f"job {job_id} in {state.url} has written and not recorded anything: its first batch runs, or failed; "
                "no row was acknowledged, start the query (again)",
            ) from error
        raise StateError(
            "ICEFLOE_STATE_INCOMPLETE",
            f"job {job_id} has records in {state.url} but no job.metadata: part of the state is missing; put it back",
        ) from error


def _target_options(metadata: sink.JobMetadata) -> dict[str, str]:
    return {"table": metadata.target.table} if metadata.target.table else {"path": metadata.target.path}


def _choose(found: list[str], asked: str | None, url: str) -> str:
    matching = [job_id for job_id in found if asked is None or job_id.startswith(asked)]
    if len(matching) == 1:
        return matching[0]
    if not found:
        raise StateError(
            "ICEFLOE_STATE_NOT_FOUND",
            f"there is no state of icefloe at {url}: give the stateLocation of the query, which is "
            "<checkpointLocation>/icefloe unless it was set",
        )
    what = f"no job there begins with {asked!r}" if not matching else "there is more than one job there"
    raise StateError("ICEFLOE_JOB_AMBIGUOUS", f"{url}: {what}; name one of {', '.join(found)} with --job")
