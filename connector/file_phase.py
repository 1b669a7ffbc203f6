"""The life of an in-flight file as a table: which step may follow which."""

from __future__ import annotations

from enum import StrEnum
from types import MappingProxyType

from icefloe.errors import StateError


class Phase(StrEnum):
    """Where a file is."""

    BEGUN = "begun"
    SEGMENTS = "segments"
    ROLLING = "rolling"
    CLOSED = "closed"
    SUSPENDED = "suspended"


class Step(StrEnum):
    """What can be done with it."""

    APPEND = "append"
    ENCODE = "encode"
    ROLL = "roll"
    CLOSE = "close"
    SUSPEND = "suspend"


TRANSITIONS = MappingProxyType(
    {
        (Phase.BEGUN, Step.APPEND): Phase.BEGUN,
        (Phase.BEGUN, Step.ENCODE): Phase.SEGMENTS,
        (Phase.BEGUN, Step.ROLL): Phase.ROLLING,
        (Phase.BEGUN, Step.SUSPEND): Phase.SUSPENDED,
        (Phase.SEGMENTS, Step.APPEND): Phase.SEGMENTS,
        (Phase.SEGMENTS, Step.ENCODE): Phase.SEGMENTS,
        (Phase.SEGMENTS, Step.ROLL): Phase.ROLLING,
        (Phase.SEGMENTS, Step.SUSPEND): Phase.SUSPENDED,
        (Phase.ROLLING, Step.CLOSE): Phase.CLOSED,
    }
)


def advance(phase: Phase, step: Step, *, file_id: str) -> Phase:
    """Return the phase after ``step``. Raises ``StateError`` naming the file where the step is not possible."""
    following = TRANSITIONS.get((phase, step))
    if following is None:
        raise StateError("ICEFLOE_FILE_PHASE", f"in-flight file {file_id} is {phase}: it cannot {step}")
    return following
