"""Real Spark, killed with SIGKILL at armed crash points and started again until everything is read."""

from __future__ import annotations

import os
import random
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from icefloe.connector.finish import finish
from support.child_process import run_in_child
from support.matrix import LOCAL_SCENARIOS, CaseResult, Scenario, dry_run, report, scratch
from support.query_runs import QueryPlan
from support.stream_process import application
from support.streams import EventFiles
from support.verifier import verify

_ARMED = Path(__file__).parents[1] / "support" / "armed"
_FILES_PER_RUN = 2
_RUN_SECONDS = 180
# What one scenario may take; points that are left are printed, and come with another seed.
SECONDS = float(os.environ.get("ICEFLOE_SPARK_SECONDS", "150"))


def points_for(scenario: Scenario, seed: int) -> list[str]:
    """Deal every point that any scenario passes to one of those that do; another seed deals otherwise."""
    dice = random.Random(seed)
    passing: dict[str, list[str]] = {}
    for each in LOCAL_SCENARIOS:
        for point in dry_run(each):
            if not point.startswith("finish."):
                passing.setdefault(point, []).append(str(each))
    dealt = {point: dice.choice(names) for point, names in sorted(passing.items())}
    mine = [point for point, name in dealt.items() if name == str(scenario)]
    dice.shuffle(mine)
    return mine


@pytest.mark.faults
@pytest.mark.timeout(900)
@pytest.mark.parametrize("scenario", LOCAL_SCENARIOS, ids=str)
def test_spark_killed_at_crash_points_and_restarted_loses_and_doubles_nothing(scenario: Scenario) -> None:
    seed = int(os.environ.get("ICEFLOE_SEED", "0")) or random.randrange(1, 10**6)
    points = points_for(scenario, seed)
    print(f"ICEFLOE_SEED={seed} {scenario}: {points}")
    give_up_at = time.monotonic() + SECONDS
    with scratch() as root:
        plan = replace(scenario.plan(root), batches=0, widened_from=10**6)
        source = EventFiles(root / "source", plan.rows)
        killed = []
        for number, point in enumerate(points):
            if time.monotonic() > give_up_at:
                print(f"no time for {points[number:]}")
                break
            source.add(_FILES_PER_RUN)
            if run_until_killed(plan, source, root, tasks=1 + number % 3, point=point):
                killed.append(point)
        source.add()
        assert not run_until_killed(plan, source, root, tasks=2, point=None)
        finish(plan.state, options=plan.catalog())
        done = replace(plan, batches=source.files)
        checked = run_in_child(verify, done)
        for point in killed:
            report(CaseResult(f"spark {scenario}", f"{point}#1", True, checked.error))
        assert not checked.error, f"ICEFLOE_SEED={seed}, killed at {killed}: {checked.error}"
    print(f"{scenario}: {len(killed)} kills at {killed}, {source.files} batches, {source.files * plan.rows} rows")
    assert killed


def run_until_killed(plan: QueryPlan, source: EventFiles, root: Path, *, tasks: int, point: str | None) -> bool:
    """Run the application over what the source has; returns whether it was killed at the point."""
    mark = root / "mark"
    mark.mkdir(exist_ok=True)
    (mark / "crashed").unlink(missing_ok=True)
    paths = os.pathsep.join([str(_ARMED), str(_ARMED.parents[1]), os.environ.get("PYTHONPATH", "")])
    env = {"PYTHONPATH": paths, **({"ICEFLOE_TEST_CRASH": f"{point}|{mark}"} if point else {})}
    options = {**plan.options(), "checkpointLocation": str(plan.checkpoint)}
    with application(root / "application", source.folder, options, tasks=tasks, env=env) as process:
        try:
            code = process.wait(_RUN_SECONDS)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after a kill at {point}: {_log(root)}") from None
    crashed = (mark / "crashed").exists()
    assert crashed or code == 0, f"the application failed by itself (armed: {point}): {_log(root)}"
    return crashed


def _log(root: Path) -> str:
    return (root / "application" / "log.txt").read_text(errors="replace")[-3000:]
