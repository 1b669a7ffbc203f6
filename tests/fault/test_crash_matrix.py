"""A process is killed at every crash point, first, second and last passage; the restart must leave every row once."""

from __future__ import annotations

import itertools
import os
import random
import re

import pytest

from support.child_process import run_in_child
from support.crashing import ROOT, Crash, points_in_source
from support.matrix import LOCAL_SCENARIOS, Scenario, assert_all_right, dry_run, run_cases, scratch
from support.query_runs import record_mutations
from support.s3_service import S3Service

GROUPS = ("task", "file", "state", "commit", "path", "catalog", "finish")
# Steps of the state library alone, which the sink does not take: tests of the state layer pass them.
STATE_LAYER_ONLY = {"state.record-put", "state.operator_metadata_written"}
# Only where an upload ended under a recorded file, which no scenario makes happen: test_s3_proxy.py does.
NEEDS_A_FAULT = {"file.upload-gone"}
# Changes that several threads of one process make at the same time, and one that is made inside another.
AT_ONCE = ("+put segment-", "+put operator-")
NESTED = {("+complete N-N-N-N-N.parquet", "+seal N-N-N-N-N.parquet")}
S3_CASES = 6
ALL_PASSAGES = os.environ.get("ICEFLOE_ALL_PASSAGES") == "1"


def seed() -> int:
    """Return the seed of this run; printed with a failure, so that it can be played again."""
    chosen = int(os.environ.get("ICEFLOE_SEED", "0")) or random.randrange(1, 10**6)
    print(f"ICEFLOE_SEED={chosen}")
    return chosen


def scenarios_with(group: str) -> list[Scenario]:
    """Leave out what the other kind of target never passes."""
    return [s for s in LOCAL_SCENARIOS if group not in ("path", "catalog") or (group == "path") == (s.target == "path")]


@pytest.mark.parametrize(
    ("scenario", "group"), [(s, g) for g in GROUPS for s in scenarios_with(g)], ids=lambda value: str(value)
)
def test_no_row_is_lost_or_doubled_by_a_kill_at(scenario: Scenario, group: str) -> None:
    passages = {point: found for point, found in dry_run(scenario).items() if point.startswith(f"{group}.")}
    assert passages
    # First, second and last passage of every point in `make faults`; in `make test` one of them, by the printed seed.
    chosen = random.Random(seed())
    crashes = [crash for found in passages.values() for crash in (found if ALL_PASSAGES else [chosen.choice(found)])]
    results = run_cases(scenario, crashes)
    assert_all_right(results)
    assert sum(result.killed for result in results) >= len(results) * 0.8, "most crashes must happen"


@pytest.mark.parametrize(("target", "visibility"), [("path", "batch"), ("path", "roll"), ("table", "roll")])
def test_no_row_is_lost_or_doubled_by_a_kill_on_s3(target: str, visibility: str, moto_service: S3Service) -> None:
    scenario = Scenario(target, visibility, moto_service)  # type: ignore[arg-type]
    crashes: list[Crash] = [crash for found in dry_run(scenario).values() for crash in found]
    assert_all_right(run_cases(scenario, random.Random(seed()).sample(crashes, S3_CASES)))


def test_every_crash_point_in_the_source_is_passed_by_a_scenario(moto_service: S3Service) -> None:
    scenarios = [*LOCAL_SCENARIOS, *(Scenario(t, v, moto_service) for t, v in [("path", "batch"), ("table", "batch")])]  # type: ignore[arg-type]
    passed = {point for scenario in scenarios for point in dry_run(scenario)}
    exempt = STATE_LAYER_ONLY | NEEDS_A_FAULT
    assert {point.name for point in points_in_source()} - exempt == passed


def test_every_numbered_step_of_the_protocol_is_followed_by_a_crash_point() -> None:
    step = re.compile(r"#\s*\d+(\s*,\s*\d+)*$")
    for name in ("committer", "finish", "iceberg_publish"):
        lines = (ROOT / "connector" / f"{name}.py").read_text().splitlines()
        steps = [n for n, line in enumerate(lines) if step.search(line) and not line.strip().startswith("#")]
        for this, following in itertools.pairwise(steps):
            between = "\n".join(lines[this:following])
            ends = "return" in between or "def " in between
            assert "crash_point(" in between or ends, (
                f"connector/{name}.py:{this + 1} and {following + 1}: none between"
            )


@pytest.mark.parametrize("scenario", LOCAL_SCENARIOS, ids=str)
def test_between_two_changes_of_the_storage_is_a_crash_point(scenario: Scenario) -> None:
    with scratch() as root:
        ended = run_in_child(record_mutations, scenario.plan(root))
    assert not ended.error, ended.error
    bare = {
        (kind(before), kind(after))
        for before, after in itertools.pairwise(ended.value)
        if before.startswith("+") and after.startswith("+")
    }
    # Done by several threads at once: a kill between them is a kill in one of them.
    assert {pair for pair in bare if pair[0] != pair[1] or not pair[0].startswith(AT_ONCE)} == NESTED & bare


def kind(change: str) -> str:
    """Return a change without what differs from run to run: ids, epochs, numbers."""
    operation, _, key = change.partition(" ")
    last = re.sub(r"[0-9a-f]{8,}|\d+", "N", key.rpartition("/")[2])
    return f"{operation} {last}"
