"""The benchmark runner compares fairly and reports what it measured."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest


def load_runner() -> ModuleType:
    path = Path(__file__).parents[2] / "benchmarks" / "runner.py"
    spec = importlib.util.spec_from_file_location("benchmark_runner_under_test", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


runner = load_runner()


class ScriptedClock:
    """A timer that each arm moves forward by a known amount."""

    def __init__(self) -> None:
        self.now = 0.0
        self.calls: list[str] = []

    def __call__(self) -> float:
        return self.now

    def arm(self, name: str, seconds: list[float]) -> Callable[[], None]:
        remaining = iter(seconds)

        def body() -> None:
            self.calls.append(name)
            self.now += next(remaining)

        return body


def test_arms_take_turns_in_a_rotating_order() -> None:
    clock = ScriptedClock()
    arms = {name: clock.arm(name, [1.0] * 3) for name in ("a", "b", "c")}
    runner.run("turns", arms, reference="a", rounds=3, warm_ups=0, timer=clock)
    assert "".join(clock.calls) == "abcbcacab"


def test_median_and_spread_and_ratio_are_those_of_the_counted_rounds() -> None:
    clock = ScriptedClock()
    arms = {"slow": clock.arm("slow", [99.0, 4.0, 8.0, 6.0]), "fast": clock.arm("fast", [99.0, 3.0, 3.0, 3.0])}
    report = runner.run("numbers", arms, reference="slow", rounds=3, warm_ups=1, timer=clock)
    slow, fast = report.arms
    assert (slow.median_seconds, slow.iqr_seconds, slow.ratio) == (6.0, 2.0, 1.0)
    assert (fast.median_seconds, fast.iqr_seconds, fast.ratio) == (3.0, 0.0, 0.5)


def test_the_saved_report_is_json_with_versions_and_machine(tmp_path: Path) -> None:
    report = runner.run("saved", {"only": lambda: None}, reference="only", rounds=3)
    report.save(tmp_path / "report.json")
    loaded = json.loads((tmp_path / "report.json").read_text())
    assert loaded["versions"]["pyarrow"]
    assert loaded["machine"]["cpus"]
    assert len(loaded["arms"][0]["seconds"]) == 3
    assert "only" in report.to_text()


def test_a_reference_that_is_no_arm_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="'nobody' is not an arm"):
        runner.run("wrong", {"a": lambda: None}, reference="nobody")


def test_too_few_rounds_for_a_spread_are_refused() -> None:
    with pytest.raises(ValueError, match="rounds=2"):
        runner.run("few", {"a": lambda: None}, reference="a", rounds=2)
