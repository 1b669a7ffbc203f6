"""Two processes on one job: twins of drivers, a driver that wakes long after another went on, and ``finish``."""

from __future__ import annotations

import os
import random
from concurrent.futures import ThreadPoolExecutor

import pytest

from icefloe.connector.finish import finish
from icefloe.connector.messages import OPERATOR_ID
from icefloe.connector.task import run_task
from icefloe.errors import ConflictError, FencedError
from icefloe.state.task_info import TaskInfo
from support.child_process import Ended, run_in_child
from support.harness import event_rows
from support.matrix import LOCAL_SCENARIOS, Scenario, scratch
from support.query_runs import run_query
from support.twins import Intruder, points_of_a_batch, run_disturbed
from support.verifier import verify

# Where one process has looked and not yet acted: always tried. Of the others, some are drawn.
CRITICAL = ("catalog.", "path.ledger", "commit.base", "commit.record")
CASES = int(os.environ.get("ICEFLOE_TWIN_CASES", "3"))


@pytest.mark.parametrize("intruder", Intruder, ids=lambda intruder: intruder.name.lower())
@pytest.mark.parametrize("scenario", LOCAL_SCENARIOS, ids=str)
def test_another_process_between_any_two_steps_of_a_batch_neither_loses_nor_doubles(
    scenario: Scenario, intruder: Intruder
) -> None:
    seed = int(os.environ.get("ICEFLOE_SEED", "0")) or random.randrange(1, 10**6)
    print(f"ICEFLOE_SEED={seed} ICEFLOE_TWIN_CASES={CASES}")
    with scratch() as root:
        points = run_in_child(points_of_a_batch, scenario.plan(root))
    assert not points.error, points.error
    others = [point for point in points.value if not point.startswith(CRITICAL)]
    chosen = [point for point in points.value if point.startswith(CRITICAL)]
    chosen += random.Random(seed).sample(others, min(CASES, len(others)))

    def case(point: str) -> tuple[str, Ended]:
        with scratch() as root:
            return point, run_in_child(run_disturbed, scenario.plan(root), point, intruder)

    with ThreadPoolExecutor(2) as pool:
        wrong = {point: ended.error for point, ended in pool.map(case, chosen) if ended.error}
    assert not wrong, f"ICEFLOE_SEED={seed}: {list(wrong)}\n{next(iter(wrong.values()))}"


def test_a_task_that_wakes_after_its_twin_has_committed_leaves_nothing_that_a_reader_sees() -> None:
    with scratch() as root:
        plan = Scenario("path", "roll").plan(root)
        query = plan.harness(0)
        query.begin(0, offsets='{"rows": 24}')
        settings = query.driver().prepare()
        run_query(plan, restart=0)
        run_task(settings, TaskInfo(query.job_id, OPERATOR_ID, 0), 0, iter([event_rows(0, 24)]))
        run_in_child(finish, plan.state)
        verify_rows(plan)


def test_reports_of_two_bases_are_refused_and_nothing_is_written() -> None:
    with scratch() as root:
        plan = Scenario("path", "roll").plan(root)
        query = plan.harness(0)
        query.run(0, [[event_rows(0, 10)]])
        query.begin(1)
        early = query.tasks(1, [[event_rows(10, 10)]])
        finish(plan.state)
        late = query.tasks(1, [[event_rows(10, 5)], [event_rows(15, 5)]])
        with pytest.raises(ConflictError, match="ICEFLOE_TASKS_DISAGREE"):
            query.driver().commit([early[0], late[1]], 1)
        with pytest.raises(FencedError, match="ICEFLOE_"):
            query.driver().commit(list(early), 1)
        query.driver().commit(list(late), 1)


def test_two_queries_write_one_table_and_neither_sees_the_other_s_ledger() -> None:
    with scratch() as root:
        (root / "a").mkdir()
        first = Scenario("table", "batch").plan(root / "a")
        ended = run_in_child(run_query, first, restart=0)
        assert not ended.error, ended.error
        other = first.harness(0)
        options = {**first.options(), "stateLocation": f"{root}/b-state"}
        second = type(other)(root / "b", options, schema=other.schema)
        second.run(0, [[event_rows(10_000, 24)]])
        assert second.job_id != other.job_id
        assert first.harness(2).driver().prepare().base is not None


def verify_rows(plan: object) -> None:
    """Verify in a child, which has no state of this process."""
    ended = run_in_child(verify, plan)
    assert not ended.error, ended.error
