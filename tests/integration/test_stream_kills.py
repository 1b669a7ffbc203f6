"""The driver's JVM is killed at random moments, and every row is in the target once."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import icefloe
from support.query_runs import QueryPlan
from support.stream_process import application, kill_jvm
from support.streams import EventFiles, run, until
from support.verifier import verify

BATCHES = 30


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("target", "visibility", "kills"),
    [
        ("table", "roll", 1),
        pytest.param("path", "batch", 5, marks=pytest.mark.faults),
        pytest.param("path", "roll", 5, marks=pytest.mark.faults),
        pytest.param("table", "batch", 5, marks=pytest.mark.faults),
        pytest.param("table", "roll", 5, marks=pytest.mark.faults),
    ],
)
def test_a_jvm_killed_at_random_moments_loses_and_doubles_nothing(
    target: str, visibility: str, kills: int, spark: SparkSession, tmp_path: Path
) -> None:
    plan = QueryPlan(
        target=target,  # type: ignore[arg-type]
        visibility=visibility,  # type: ignore[arg-type]
        root=str(tmp_path),
        location=str(tmp_path / "lake"),
        batches=BATCHES,
        widened_from=BATCHES,
    )
    options = {**plan.options(), "checkpointLocation": str(plan.checkpoint)}
    source = EventFiles(tmp_path / "source", plan.rows).add(BATCHES)
    for kill in range(kills):
        batch = (kill + 1) * (BATCHES // (kills + 1))
        with application(tmp_path / "application", source.folder, options, tasks=1 + kill % 3) as process:
            _kill_at(process, plan.checkpoint / "offsets" / str(batch), random.uniform(0, 1.0))
    run(source.read(spark).repartition(2), options)
    icefloe.finish(plan.state, options=plan.catalog())
    verify(plan)


def _kill_at(process: subprocess.Popen[bytes], batch: Path, seconds: float) -> None:
    """Kill the JVM so many seconds after a batch was begun, in whatever it is then."""
    until(lambda: batch.exists() or process.poll() is not None)
    assert batch.exists(), "the application ended before the batch"
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        kill_jvm(process)
