"""Chaos for a given time: ``python tests/fault/soak.py --minutes 30 [--seed N]``. Prints its seed, and what it did.

Each round takes one of three from the dice: a query killed again and again at random crash points until it is done, a
hundred random schedules of the model, a twin at a random point. The first thing that is wrong ends it with code 1 and
everything that is needed to repeat it. ``make soak`` kills real Spark before it.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.child_process import run_in_child
from support.crashing import Crash
from support.matrix import LOCAL_SCENARIOS, Scenario, dry_run, scratch
from support.model import play_schedules
from support.query_runs import run_query
from support.twins import Intruder, points_of_a_batch, run_disturbed
from support.verifier import verify

_MAX_KILLS = 12


def killed_query(dice: random.Random, done: Counter[str]) -> str:
    """Kill one query at random points until it gets to its end."""
    scenario = dice.choice(LOCAL_SCENARIOS)
    crashes = [crash for found in dry_run(scenario).values() for crash in found]
    with scratch() as root:
        plan = scenario.plan(root)
        story = []
        for restart in range(_MAX_KILLS):
            crash: Crash = dice.choice(crashes)
            story.append(str(crash))
            ended = run_in_child(run_query, plan, restart=restart, crash=crash)
            done["kills"] += ended.killed
            if ended.error:
                return f"{scenario} {story}: {ended.error}"
            if not ended.killed:
                break
        ended = run_in_child(run_query, plan, restart=_MAX_KILLS)
        checked = run_in_child(verify, plan)
        done["epochs"] += plan.batches
        done["rows compared"] += plan.batches * plan.rows
    return f"{scenario} {story}: {ended.error or checked.error}" if ended.error or checked.error else ""


def schedules(dice: random.Random, done: Counter[str]) -> str:
    """Play a hundred schedules."""
    seed = dice.randrange(10**9)
    with scratch() as root:
        ended = run_in_child(play_schedules, list(range(seed, seed + 100)), str(root))
    done["schedules"] += 100
    return ended.error or (f"schedules {ended.value}" if ended.value else "")


def twins(dice: random.Random, done: Counter[str]) -> str:
    """Put another process between two random steps."""
    scenario: Scenario = dice.choice(LOCAL_SCENARIOS)
    intruder = dice.choice(list(Intruder))
    with scratch() as root:
        points = run_in_child(points_of_a_batch, scenario.plan(root))
    if points.error:
        return points.error
    point = dice.choice(points.value)
    with scratch() as root:
        plan = scenario.plan(root)
        ended = run_in_child(run_disturbed, plan, point, intruder)
    done["twins"] += 1
    done["epochs"] += plan.batches
    done["rows compared"] += plan.batches * plan.rows
    return f"{scenario} {point} {intruder}: {ended.error}" if ended.error else ""


def main() -> int:
    """Run until the time is over or something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=random.randrange(1, 10**9))
    given = parser.parse_args()
    print(f"soak of {given.minutes:g} minutes, --seed {given.seed}", flush=True)
    dice, done = random.Random(given.seed), Counter[str]()
    end, told = time.monotonic() + given.minutes * 60, time.monotonic()
    while time.monotonic() < end:
        wrong = dice.choices([killed_query, schedules, twins], [6, 1, 3])[0](dice, done)
        done["rounds"] += 1
        if wrong:
            print(f"WRONG after {dict(done)}, --seed {given.seed}: {wrong}", flush=True)
            return 1
        if time.monotonic() - told > 60:
            told = time.monotonic()
            print(f"  {dict(done)}", flush=True)
    print(f"nothing lost, nothing doubled: {dict(done)}, --seed {given.seed}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
