"""What is lost when a file that cannot be published is given up: shown to a person before ``finish`` leaves it out."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from icefloe.connector.inspection import in_flight
from icefloe.connector.jobs import Job
from icefloe.connector.operator_state import pre_commits
from icefloe.connector.partition_key import PartitionKey
from icefloe.errors import OptionError


@dataclass(frozen=True, slots=True)
class HeldFile:
    """A file that the head holds: finished and named, or in flight and known by its id."""

    name: str
    finished: bool
    partition: str
    rows: int
    size_bytes: int


def held_files(job: Job) -> list[HeldFile]:
    """Return every file that the head holds, finished ones first. Raises where the files in flight cannot be read."""
    if job.head is None:
        return []
    finished = [
        HeldFile(file.name, True, PartitionKey.from_proto(file.partition).hive_path(), file.rows, file.length_bytes)
        for operator in job.head.metadata.operators
        for file in pre_commits(operator)
    ]
    flying = [HeldFile(f.file_id, False, f.partition, f.rows, f.size_bytes) for f in in_flight(job)]
    return finished + flying


def chosen_files(job: Job, names: Collection[str]) -> list[HeldFile]:
    """Return the files that ``--give-up`` names. Raises ``OptionError`` for a name that the head does not hold."""
    held = {file.name: file for file in held_files(job)} if names else {}
    for name in names:
        if name not in held:
            raise OptionError(
                "ICEFLOE_FILE_UNKNOWN",
                f"job {job.job_id}: no file {name!r} is waiting or in flight, so it cannot be given up; there are "
                f"{', '.join(held) or 'none'}",
            )
    return [held[name] for name in names]
