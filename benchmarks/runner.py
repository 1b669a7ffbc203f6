"""Runs the arms of a benchmark interleaved and reports medians, spread and ratios as JSON.

Arms take turns in every round, in an order that rotates, so that a machine that slows down or warms up slows down all
of them alike. The median and the interquartile range are reported, never the best run.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

NOTED_PACKAGES = ("icefloe", "pyspark", "pyarrow", "pyiceberg", "protobuf", "fsspec", "s3fs")

Arm = Callable[[], object]
Timer = Callable[[], float]


@dataclass(frozen=True, slots=True)
class ArmResult:
    """The seconds of one arm. ``ratio`` is its median divided by the reference arm's: below 1 is faster."""

    name: str
    seconds: tuple[float, ...]
    median_seconds: float
    iqr_seconds: float
    ratio: float


@dataclass(frozen=True, slots=True)
class Report:
    """One benchmark: what ran, on what, and how long it took."""

    benchmark: str
    reference: str
    rounds: int
    arms: tuple[ArmResult, ...]
    versions: Mapping[str, str]
    machine: Mapping[str, str | int | None]

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2, sort_keys=True)

    def to_text(self) -> str:
        """A table for people, one line per arm."""
        lines = [f"{self.benchmark}: median of {self.rounds} rounds, ratio to {self.reference}"]
        lines += [
            f"  {arm.name:<24} {arm.median_seconds:9.4f} s  IQR {arm.iqr_seconds:8.4f} s  x{arm.ratio:.3f}"
            for arm in self.arms
        ]
        return "\n".join(lines)

    def save(self, path: Path) -> None:
        path.write_text(self.to_json() + "\n")


def run(
    benchmark: str,
    arms: Mapping[str, Arm],
    *,
    reference: str,
    rounds: int = 7,
    warm_ups: int = 1,
    timer: Timer = time.perf_counter,
    own_clock: bool = False,
) -> Report:
    """Time each arm once per round; ``warm_ups`` rounds come first and are not counted.

    With ``own_clock`` an arm returns the seconds that count, measured by itself.

    Raises ``ValueError`` when ``reference`` is not an arm or ``rounds`` is too small for a spread (3).
    An error in an arm is not caught: half a comparison is none.
    """
    if reference not in arms:
        raise ValueError(f"reference {reference!r} is not an arm; the arms are {sorted(arms)}")
    if rounds < 3:
        raise ValueError(f"rounds={rounds} gives no spread; use 3 or more")
    seconds: dict[str, list[float]] = {name: [] for name in arms}
    for number in range(warm_ups + rounds):
        for name in _rotated(list(arms), number):
            begin = timer()
            returned = arms[name]()
            elapsed = float(returned) if own_clock else timer() - begin  # type: ignore[arg-type]
            if number >= warm_ups:
                seconds[name].append(elapsed)
    base = statistics.median(seconds[reference])
    results = tuple(_result(name, taken, base) for name, taken in seconds.items())
    return Report(benchmark, reference, rounds, results, installed_versions(), machine())


def _rotated(names: Sequence[str], by: int) -> list[str]:
    turn = by % len(names)
    return [*names[turn:], *names[:turn]]


def _result(name: str, seconds: Sequence[float], base: float) -> ArmResult:
    low, _, high = statistics.quantiles(seconds, n=4, method="inclusive")
    median = statistics.median(seconds)
    ratio = median / base if base > 0 else float("nan")
    return ArmResult(name, tuple(seconds), median, high - low, ratio)


def installed_versions() -> dict[str, str]:
    """The versions that a result depends on; a package that is not installed is left out."""
    found = {"python": platform.python_version()}
    for package in NOTED_PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def machine() -> dict[str, str | int | None]:
    """What the machine is, without its name."""
    return {"system": platform.system(), "architecture": platform.machine(), "cpus": os.cpu_count()}
