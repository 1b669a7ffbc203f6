"""The crash matrix: for each crash a fresh query that is killed there, restarted until done, and verified."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from support.child_process import run_in_child
from support.crashing import Crash, crashes_for
from support.query_runs import QueryPlan, record_passages, run_query
from support.s3_service import S3Service
from support.verifier import verify

# Killed processes need no disk: what they wrote survives them in memory too, and syncing costs nothing there.
_FAST_DISK = Path("/dev/shm")
_AT_ONCE = 2
_results_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class Scenario:
    """One kind of query: every crash is tried on each."""

    target: Literal["path", "table"]
    visibility: Literal["batch", "roll"]
    service: S3Service | None = None

    def __str__(self) -> str:
        return f"{self.target}-{self.visibility}-{'s3' if self.service else 'local'}"

    def plan(self, root: Path) -> QueryPlan:
        """Return a new query in a folder of its own (and a bucket of its own)."""
        if self.service is None:
            return QueryPlan(target=self.target, visibility=self.visibility, root=str(root), location=str(root))
        bucket = self.service.new_bucket()
        return QueryPlan(
            target=self.target, visibility=self.visibility, root=str(root), location=bucket.url, s3=bucket.options
        )


LOCAL_SCENARIOS = [Scenario(t, v) for t in ("path", "table") for v in ("batch", "roll")]  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class CaseResult:
    """What became of one case; ``wrong`` is empty where everything held."""

    scenario: str
    fault: str
    killed: bool
    wrong: str = ""


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder on the fastest disk there is, gone when the block ends."""
    folder = Path(tempfile.mkdtemp(prefix="icefloe-fault-", dir=_FAST_DISK if _FAST_DISK.is_dir() else None))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@cache
def dry_run(scenario: Scenario) -> dict[str, list[Crash]]:
    """Run the query once without a crash, verify it, and return the crashes to try."""
    with scratch() as root:
        plan = scenario.plan(root)
        ended = run_in_child(record_passages, plan)
        assert not ended.error, ended.error
        checked = run_in_child(verify, plan)
        assert not checked.error, f"{scenario} is wrong without any crash: {checked.error}"
        return crashes_for(ended.value)


def run_case(scenario: Scenario, crash: Crash) -> CaseResult:
    """Kill a fresh query at the crash, restart it as Spark would, and verify what is there in the end."""
    with scratch() as root:
        plan = scenario.plan(root)
        first = run_in_child(run_query, plan, restart=0, crash=crash)
        # Which threads pass a point in which order may vary, so a late passage may not come: then nothing was killed.
        wrong = first.error
        if not wrong:
            wrong = run_in_child(run_again, plan).error
        result = CaseResult(str(scenario), str(crash), first.killed, wrong)
    report(result)
    return result


def run_again(plan: QueryPlan) -> None:
    """The restart after a crash, and the verification."""
    run_query(plan, restart=1)
    verify(plan)


def run_cases(scenario: Scenario, crashes: Sequence[Crash]) -> list[CaseResult]:
    """Run cases, two at a time."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(lambda crash: run_case(scenario, crash), crashes))


def assert_all_right(results: Sequence[CaseResult]) -> None:
    """Name every case that went wrong, the shortest account first."""
    wrong = [result for result in results if result.wrong]
    told = "\n\n".join(f"{r.scenario} killed at {r.fault}:\n{r.wrong}" for r in wrong[:3])
    assert not wrong, f"{len(wrong)} of {len(results)} cases: {[f'{r.scenario} {r.fault}' for r in wrong]}\n{told}"


def report(result: CaseResult) -> None:
    """Append to the file that ``make faults`` makes its table from, where one is asked for."""
    path = os.environ.get("ICEFLOE_FAULT_RESULTS")
    if path:
        with _results_lock, open(path, "a") as file:
            file.write(json.dumps(asdict(result)) + "\n")
