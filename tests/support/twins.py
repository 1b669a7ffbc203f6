"""A second process that acts between two steps of the first: a twin driver, one that is far ahead, or ``finish``."""

from __future__ import annotations

from enum import StrEnum

from icefloe.connector.finish import finish
from icefloe.errors import IcefloeError
from icefloe.state import crash_points
from support.query_runs import QueryPlan, run_batch, run_query
from support.verifier import verify

_DISTURBED = 1


class Intruder(StrEnum):
    """Who comes between two steps of a batch."""

    TWIN = "a twin driver runs the same batch to its end"
    AHEAD = "a newer driver runs all batches; the first one wakes as a zombie"
    FINISH = "finish makes everything visible"


def points_of_a_batch(plan: QueryPlan) -> list[str]:
    """Return the crash points that the disturbed batch passes, each once, in order."""
    passed: list[str] = []
    run_batch(plan, 0, 0)
    crash_points.arm(passed.append)
    run_batch(plan, _DISTURBED, 0)
    crash_points.arm(None)
    return list(dict.fromkeys(passed))


def run_disturbed(plan: QueryPlan, point: str, intruder: Intruder) -> str:
    """Run a batch with an intruder at its first passage of a point, then the rest, and verify everything.

    Returns how the disturbed batch ended: an empty text, or the code of the error that it was refused with. Any other
    error than Icefloe's own is raised.
    """
    run_batch(plan, 0, 0)
    acted: list[str] = []

    def act(name: str) -> None:
        if name == point and not acted:
            acted.append(name)
            crash_points.arm(None)
            _intrude(plan, intruder)

    crash_points.arm(act)
    outcome = ""
    try:
        run_batch(plan, _DISTURBED, 0)
    except IcefloeError as error:
        outcome = error.code
    finally:
        crash_points.arm(None)
    assert acted, f"{point} was not passed"
    run_query(plan, restart=1)
    verify(plan)
    return outcome


def _intrude(plan: QueryPlan, intruder: Intruder) -> None:
    if intruder is Intruder.TWIN:
        run_batch(plan, _DISTURBED, 1)
    elif intruder is Intruder.AHEAD:
        run_query(plan, restart=1)
    else:
        finish(plan.state, options={**plan.s3, **plan.catalog()})
