"""Writes docs/benchmarks.md from the results in benchmarks/results: every row of the plan, reached or not.

python benchmarks/page.py
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
NOT_RUN = ("not measured", "")


def load(name: str) -> Any:
    """Return a result, or None where that benchmark was not run."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def seconds(report: Any, arm: str) -> float:
    """Return the median of an arm; not a number where that arm did not run."""
    return float(next((a["median_seconds"] for a in report["arms"] if a["name"] == arm), "nan"))


def at_most(value: float, limit: float | None) -> tuple[str, str]:
    """Show a ratio that must not be above its limit, if it has one."""
    if math.isnan(value):
        return NOT_RUN
    return f"{value:.2f}", "reported" if limit is None else "yes" if value <= limit else "**no**"


def at_least(value: float, limit: float | None) -> tuple[str, str]:
    """Show a ratio that must not be below its limit, if it has one."""
    if math.isnan(value):
        return NOT_RUN
    return f"{value:.2f}", "reported" if limit is None else "yes" if value >= limit else "**no**"


def speed(name: str, arm: str, peer: str, limit: float | None = None) -> tuple[str, str]:
    """How many times as fast as a peer."""
    report = load(name)
    return NOT_RUN if report is None else at_least(seconds(report, peer) / seconds(report, arm), limit)


def cost(name: str, arm: str, peer: str, limit: float | None = None) -> tuple[str, str]:
    """How many times as long as a peer."""
    report = load(name)
    return NOT_RUN if report is None else at_most(seconds(report, arm) / seconds(report, peer), limit)


def growth(mode: str) -> tuple[str, str]:
    result = load("growth")
    return NOT_RUN if result is None else at_most(result[mode]["ratio"], 1.3)


def memory(mode: str) -> tuple[str, str]:
    result = load("memory")
    if result is None:
        return NOT_RUN
    return f"{result[mode]['peak_mb']} MB", "yes" if result[mode]["peak_mb"] <= result[mode]["limit_mb"] else "**no**"


def layout(show: Callable[[Any], tuple[str, str]]) -> tuple[str, str]:
    result = load("layout")
    try:
        return NOT_RUN if result is None else show(result)
    except KeyError:  # a peer that was not there
        return NOT_RUN


def total(peer: str) -> tuple[str, str]:
    return layout(lambda r: at_most(r["icefloe-roll"]["total_s"] / r[peer]["total_s"], 0.7))


def scan(key: str) -> tuple[str, str]:
    return layout(lambda r: (f"{r['icefloe-roll'][key] / r['spark-parquet'][key]:.2f}", "reported"))


def counts(arm: str) -> tuple[str, str]:
    return layout(lambda r: (f"{r[arm]['files']} files, {r[arm].get('row_groups', '?')} row groups", "reported"))


def rows() -> list[tuple[str, str, tuple[str, str]]]:
    """Return what is measured, its target, and what came out."""
    return [
        (
            "large epochs, `batch`: times as fast as Spark's Parquet sink",
            "1.25 or more",
            speed("large", "icefloe-batch", "spark-parquet", 1.25),
        ),
        (
            "large epochs, `batch`: of the speed of a sink that drops everything",
            "0.65 or more",
            speed("large", "icefloe-batch", "floor", 0.65),
        ),
        (
            "large epochs, `roll`: times as fast as Spark's Parquet sink",
            "1.15 or more",
            speed("large", "icefloe-roll", "spark-parquet", 1.15),
        ),
        (
            "large epochs, `batch`: times as fast as `foreachBatch` + PyIceberg",
            "",
            speed("large", "icefloe-batch", "foreachBatch-pyiceberg"),
        ),
        (
            "large epochs, `batch`: times as fast as Iceberg's own Spark sink",
            "",
            speed("large", "icefloe-batch", "iceberg-spark"),
        ),
        (
            "small epochs, `roll`: trigger time against Spark's Parquet sink",
            "1.3 or less",
            cost("small", "icefloe-roll", "spark-parquet", 1.3),
        ),
        (
            "small epochs, `batch`: trigger time against Spark's Parquet sink",
            "2 or less",
            cost("small", "icefloe-batch", "spark-parquet", 2),
        ),
        (
            "small epochs, `batch`: trigger time against `foreachBatch` + PyIceberg",
            "1 or less",
            cost("small", "icefloe-batch", "foreachBatch-pyiceberg", 1),
        ),
        (
            "small epochs, `batch`: trigger time against Iceberg's own Spark sink",
            "",
            cost("small", "icefloe-batch", "iceberg-spark"),
        ),
        (
            "first epoch in a fresh Spark, `batch`: against a sink that drops everything",
            "1.5 or less",
            cost("first", "icefloe-batch", "floor", 1.5),
        ),
        (
            "first epoch in a fresh Spark, `roll`: against a sink that drops everything",
            "1.5 or less",
            cost("first", "icefloe-roll", "floor", 1.5),
        ),
        (
            "layout, `roll`, 64 MB files: smallest file but the last of each task, of its target",
            "0.9 or more",
            layout(lambda r: at_least(r["icefloe-roll"]["smallest_full_file_share"], 0.9)),
        ),
        ("layout: Icefloe", "", counts("icefloe-roll")),
        ("layout: Spark's Parquet sink", "", counts("spark-parquet")),
        ("layout: `foreachBatch` + PyIceberg", "", counts("foreachBatch-pyiceberg")),
        ("layout: Iceberg's own Spark sink, before its compaction", "", counts("iceberg-spark")),
        ("full scan by PyArrow, against the files of Spark's sink", "", scan("full_scan_s")),
        ("scan of one column by PyArrow, against the files of Spark's sink", "", scan("one_column_scan_s")),
        ("full scan by Spark, against the files of Spark's sink", "", scan("full_spark_scan_s")),
        ("scan of one column by Spark, against the files of Spark's sink", "", scan("one_column_spark_scan_s")),
        (
            "stream alone, against Spark's Parquet sink with compaction after it",
            "0.7 or less",
            total("spark-parquet"),
        ),
        (
            "stream alone, against `foreachBatch` with compaction after it",
            "0.7 or less",
            total("foreachBatch-pyiceberg"),
        ),
        (
            "stream alone, against Iceberg's own Spark sink with `rewrite_data_files` after it",
            "0.7 or less",
            total("iceberg-spark"),
        ),
        ("epoch 1,000 against epoch 50, `roll`", "1.3 or less", growth("roll")),
        ("epoch 1,000 against epoch 50, `batch`, `keepSnapshots=100`", "1.3 or less", growth("batch")),
        ("worker's peak, 500 open partitions, `memoryBudget=256MB`, `batch`", "606 MB or less", memory("batch")),
        ("worker's peak, 500 open partitions, `memoryBudget=256MB`, `roll`", "606 MB or less", memory("roll")),
        ("large epochs, data and state on S3, against the local disk", "1.5 or less", cost("s3", "s3", "local", 1.5)),
    ]


def page() -> str:
    """Return the page."""
    noted = next((r for name in ("large", "small", "first") if (r := load(name)) is not None), None)
    lines = [
        "# Benchmarks",
        "",
        "Written by `make bench` from `benchmarks/results`. Each figure is a ratio between arms that took turns in one",
        "run, of medians over several rounds; a ratio travels from machine to machine better than a time. Peers write",
        "the same rows with the same codec. The notes below the table say what limits a target that is not reached.",
        "",
        "| what | target | measured | reached |",
        "|---|---|---|---|",
    ]
    lines += [f"| {what} | {target} | {shown} | {reached} |" for what, target, (shown, reached) in rows()]
    if noted is not None:
        machine, versions = noted["machine"], noted["versions"]
        lines += [
            "",
            f"Measured on {machine['system']} ({machine['architecture']}), {machine['cpus']} cores, with "
            + ", ".join(f"{name} {number}" for name, number in sorted(versions.items()))
            + ".",
        ]
    notes = ROOT / "benchmarks" / "notes.md"
    return "\n".join(lines) + "\n\n" + notes.read_text()


if __name__ == "__main__":
    (ROOT / "docs" / "benchmarks.md").write_text(page())
