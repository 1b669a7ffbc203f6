"""Who is writing: the identity that everything below the Spark boundary takes instead of asking Spark."""

from __future__ import annotations

import os
from dataclasses import dataclass, field


def new_attempt_id() -> str:
    """Return 128 fresh random bits as hex. Spark's own attempt numbers repeat after a restart and are never used."""
    return os.urandom(16).hex()


@dataclass(frozen=True, slots=True)
class TaskInfo:
    """One attempt of one subtask of one operator of a job."""

    job_id: str
    operator_id: str
    subtask_index: int
    attempt_id: str = field(default_factory=new_attempt_id)
    # How many subtasks share the key space; 0 where the owner of the state decides who restores what (the sink).
    parallelism: int = 0
