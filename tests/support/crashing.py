"""Kills a process at a named crash point, counts how often each is passed, and finds every point in the source."""

from __future__ import annotations

import ast
import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from icefloe.state import crash_points

ROOT = Path(__file__).parents[2]
FOLDERS = ("connector", "state", "schemas")


@dataclass(frozen=True, slots=True)
class Crash:
    """Where a process ends: at the ``passage``-th time (from 1) that it passes a point."""

    point: str
    passage: int

    def __str__(self) -> str:
        return f"{self.point}#{self.passage}"


def arm(crash: Crash) -> None:
    """From now on this process is killed at the crash, in whatever thread passes it: no handler runs, nothing ends."""
    passed = 0
    lock = threading.Lock()

    def kill(name: str) -> None:
        nonlocal passed
        if name != crash.point:
            return
        with lock:
            passed += 1
            if passed == crash.passage:
                os.kill(os.getpid(), signal.SIGKILL)

    crash_points.arm(kill)


@contextmanager
def passages() -> Iterator[list[str]]:
    """Collect the crash points that this process passes, in order."""
    passed: list[str] = []
    crash_points.arm(passed.append)
    try:
        yield passed
    finally:
        crash_points.arm(None)


def crashes_for(passed: list[str]) -> dict[str, list[Crash]]:
    """Return for each point that a dry run passed its first, second and last passage, as far as there are so many."""
    counts = Counter(passed)
    return {
        point: [Crash(point, number) for number in sorted({1, min(2, count), count})]
        for point, count in sorted(counts.items())
    }


@dataclass(frozen=True, slots=True)
class PointInSource:
    """One call of ``crash_point`` as it stands in the source."""

    name: str
    file: str
    line: int


def points_in_source(root: Path = ROOT) -> list[PointInSource]:
    """Return every crash point, by reading the source. Raises ``AssertionError`` for a name that is not a literal."""
    found = []
    for folder in FOLDERS:
        for path in sorted((root / folder).glob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "crash_point":
                    (argument,) = node.args
                    assert isinstance(argument, ast.Constant), f"{path}:{node.lineno}: the name must be a literal"
                    found.append(PointInSource(str(argument.value), f"{folder}/{path.name}", node.lineno))
    return found
