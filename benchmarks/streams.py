"""Streams through real Spark: large and small micro-batches, side by side with the sinks that people use instead.

python benchmarks/streams.py large|small|first|s3 [--rounds 3] [--save folder]
"""

from __future__ import annotations

import argparse
import itertools
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path

from iceberg_sink import running_iceberg_sink
from runner import Report, run
from spark_arms import Start, dropping, foreach_batch, icefloe_path, icefloe_table, session, spark_parquet
from spark_source import median_batch_seconds, source

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.seaweed import running_seaweed

LARGE_ROWS = 2_000_000
SMALL_ROWS = 1_000
LARGE_BATCHES, SMALL_BATCHES = 4, 25


def interleaved(
    benchmark: str, arms: Mapping[str, Start], *, rows: int, batches: int, skip: int, rounds: int, iceberg: bool
) -> Report:
    """Run each arm as a query of its own, again and again in turns, and compare their median micro-batches.

    The first arm is the reference. With ``iceberg``, Iceberg's own sink is one more arm where it is installed.
    """
    with (
        tempfile.TemporaryDirectory(prefix="icefloe-bench-") as temporary,
        running_iceberg_sink(Path(temporary) / "peer") if iceberg else nullcontext() as peer,
    ):
        folder = Path(temporary)
        spark = session(folder)
        numbers = itertools.count()

        def arm(start: Start) -> Callable[[], float]:
            def once() -> float:
                place = folder / str(next(numbers))
                place.mkdir()
                try:
                    return median_batch_seconds(start(source(spark, rows), place), batches, skip=skip)
                finally:
                    shutil.rmtree(place, ignore_errors=True)

            return once

        def icebergs_own() -> float:
            assert peer is not None
            place = folder / str(next(numbers))
            return statistics.median(peer.stream(place, rows=rows, batches=batches, skip=skip)["seconds"])

        own = {name: arm(start) for name, start in arms.items()}
        reference = next(iter(own))
        if peer is not None:
            own["iceberg-spark"] = icebergs_own
        try:
            return run(benchmark, own, reference=reference, rounds=rounds, own_clock=True)
        finally:
            spark.stop()


def large(rounds: int) -> Report:
    """One million rows per task and micro-batch."""
    arms: dict[str, Start] = {
        "spark-parquet": spark_parquet,
        "floor": dropping,
        "icefloe-batch": icefloe_table("batch"),
        "icefloe-roll": icefloe_table("roll"),
        "foreachBatch-pyiceberg": foreach_batch,
    }
    return interleaved("large", arms, rows=LARGE_ROWS, batches=LARGE_BATCHES, skip=1, rounds=rounds, iceberg=True)


def small(rounds: int) -> Report:
    """A thousand rows per micro-batch."""
    arms: dict[str, Start] = {
        "spark-parquet": spark_parquet,
        "floor": dropping,
        "icefloe-batch": icefloe_table("batch"),
        "icefloe-roll": icefloe_table("roll"),
        "foreachBatch-pyiceberg": foreach_batch,
    }
    return interleaved("small", arms, rows=SMALL_ROWS, batches=SMALL_BATCHES, skip=5, rounds=rounds, iceberg=True)


def s3(rounds: int) -> Report:
    """Large micro-batches into a plain directory: data and state on the local disk, and both on S3."""
    with running_seaweed() as service:
        bucket = service.s3.new_bucket()
        arms: dict[str, Start] = {
            "local": icefloe_path(lambda f: str(f / "data"), lambda f: str(f / "state")),
            "s3": icefloe_path(
                lambda f: f"{bucket.url}/{f.name}/data", lambda f: f"{bucket.url}/{f.name}/state", **service.s3.options
            ),
        }
        return interleaved("s3", arms, rows=LARGE_ROWS, batches=LARGE_BATCHES, skip=1, rounds=rounds, iceberg=False)


def first_batch(name: str) -> float:
    """Return the time of the first micro-batch in a Spark that has just started."""
    starts: dict[str, Start] = {
        "floor": dropping,
        "icefloe-batch": icefloe_table("batch"),
        "icefloe-roll": icefloe_table("roll"),
        "spark-parquet": spark_parquet,
    }
    with tempfile.TemporaryDirectory(prefix="icefloe-bench-") as temporary:
        folder = Path(temporary)
        spark = session(folder)
        # Spark's own classes are loaded by a batch job, so that the sinks' start-up is what is left.
        spark.range(1000).selectExpr("count(*)").collect()
        (folder / "run").mkdir()
        return median_batch_seconds(starts[name](source(spark, SMALL_ROWS), folder / "run"), 1, skip=0)


def first(rounds: int) -> Report:
    """The first micro-batch of a query in a fresh Spark, in a process of its own."""

    def arm(name: str) -> Callable[[], float]:
        command = [sys.executable, __file__, "first-of", name]
        return lambda: float(subprocess.run(command, capture_output=True, check=True, text=True).stdout.split()[-1])

    names = ("floor", "icefloe-batch", "icefloe-roll", "spark-parquet")
    return run("first", {n: arm(n) for n in names}, reference="floor", rounds=rounds, warm_ups=0, own_clock=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["large", "small", "first", "s3", "first-of"])
    parser.add_argument("name", nargs="?", default="")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--save", type=Path)
    given = parser.parse_args()
    if given.what == "first-of":
        print(first_batch(given.name))
        return
    report = {"large": large, "small": small, "first": first, "s3": s3}[given.what](given.rounds)
    print(report.to_text())
    if given.save is not None:
        given.save.mkdir(parents=True, exist_ok=True)
        report.save(given.save / f"{report.benchmark}.json")


if __name__ == "__main__":
    main()
