"""Random interleavings of drivers, tasks, ``finish`` and clean-up: whatever the order, every row once."""

from __future__ import annotations

import os
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from support.child_process import run_in_child
from support.matrix import scratch
from support.model import play_schedules

SCHEDULES = int(os.environ.get("ICEFLOE_SCHEDULES", "1000"))
_PER_CHILD = 100


def test_no_schedule_loses_or_doubles_a_row() -> None:
    seed = int(os.environ.get("ICEFLOE_SEED", "0")) or random.randrange(1, 10**9)
    print(f"ICEFLOE_SEED={seed} ICEFLOE_SCHEDULES={SCHEDULES}")
    with scratch() as root:
        wrong = play(seed, SCHEDULES, root)
    told = "\n\n".join(f"schedule {number}: {text}" for number, text in sorted(wrong.items())[:2])
    assert not wrong, f"ICEFLOE_SEED={seed}: {len(wrong)} of {SCHEDULES} schedules are wrong: {sorted(wrong)}\n{told}"


def play(seed: int, count: int, root: Path) -> dict[int, str]:
    """Play ``count`` schedules in children, two at a time; schedule n of a seed is always the same."""
    starts = range(seed, seed + count, _PER_CHILD)
    pieces = [list(range(start, min(start + _PER_CHILD, seed + count))) for start in starts]
    with ThreadPoolExecutor(2) as pool:
        ended = list(pool.map(lambda piece: run_in_child(play_schedules, piece, str(root)), pieces))
    for each in ended:
        assert not each.error, each.error
        assert not each.killed
    return {number: text for each in ended for number, text in each.value.items()}
