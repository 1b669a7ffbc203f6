"""One failing storage call at a time, anywhere in a query: before its effect, after it, and again for a while."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from icefloe.connector.finish import finish
from icefloe.errors import IcefloeError, StorageError
from icefloe.state.memory_storage import forget_memory_storage
from support.memory_files import MemoryWorld
from support.model import History, Schedule, ids_in, in_memory
from support.rows import assert_no_row_lost_or_doubled

_MAX_RESTARTS = 8


class FailingCall(StrEnum):
    """How a call fails."""

    BEFORE = "nothing happened"
    AFTER = "it happened, and the caller does not know"
    OUTAGE = "it and the four calls after it fail"


@dataclass
class FailingWorld:
    """Counts calls, and lets those from ``number`` on fail as planned."""

    kind: FailingCall
    number: int
    calls: int = 0
    failed: int = 0

    def before(self, what: str) -> None:
        self.calls += 1
        length = 5 if self.kind is FailingCall.OUTAGE else 1
        if self.kind is not FailingCall.AFTER and self.number <= self.calls < self.number + length:
            self._fail(what)

    def after(self, what: str) -> None:
        if self.kind is FailingCall.AFTER and self.calls >= self.number and not self.failed:
            self._fail(what)

    def _fail(self, what: str) -> None:
        self.failed += 1
        raise StorageError("ICEFLOE_STORAGE_FAILED", f"planned for a test: {what} ({self.kind})")


def run_with_failing_call(kind: FailingCall, number: int, root: str, *, table: bool, visibility: str) -> int:
    """Run a query of three batches whose ``number``-th storage call fails, restart it as Spark would, verify its rows.

    Returns how many calls it made. Any error that is not one of Icefloe's is raised.
    """
    name = f"failing-{kind.name}-{number}-{table}-{visibility}"
    world, failing = MemoryWorld(), FailingWorld(kind, number)
    schedule = Schedule(number, Path(root) / name, world=world)
    schedule.visibility, schedule.batches, schedule.rows, schedule.keep_epochs = visibility, 3, 5, 2
    history = History(schedule.root / "checkpoint", f"memory://{name}")
    try:
        with in_memory(
            world, failing.before, after=failing.after, ledgers=f"{name}-out", table=table, uploads_expire=True
        ):
            _run_until_done(schedule, history)
            names = sorted(world.visible) if not table else [n for _, named in world.snapshots for n in named]
            found = [i for each in names for i in ids_in(world.visible[each][1])]
            assert_no_row_lost_or_doubled(found, range(schedule.batches * schedule.rows))
    finally:
        shutil.rmtree(schedule.root, ignore_errors=True)
        forget_memory_storage(name)
        forget_memory_storage(f"{name}-out")
    return failing.calls


def _run_until_done(schedule: Schedule, history: History) -> None:
    for _ in range(_MAX_RESTARTS):
        try:
            for batch_id in range(schedule.batches):
                if not (history.checkpoint / "commits" / str(batch_id)).exists():
                    schedule.harness(history).run(batch_id, schedule.rows_of(batch_id, 1 + batch_id % 2))
            finish(history.state)
            return
        except IcefloeError:
            continue
    raise AssertionError("the query does not get over one fault")


def run_all_failing_calls(kind: FailingCall, root: str, table: bool, visibility: str) -> int:
    """Let every call of the query fail, one query for each. Returns how many there were."""
    calls = run_with_failing_call(kind, 10**9, root, table=table, visibility=visibility)
    for number in range(1, calls + 1):
        try:
            run_with_failing_call(kind, number, root, table=table, visibility=visibility)
        except Exception as error:
            raise AssertionError(f"{kind.name} at call {number} of {calls}: {type(error).__name__}: {error}") from error
    return calls
