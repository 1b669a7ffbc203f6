"""What the file layout is worth: many small micro-batches, then files counted and scanned, and compaction paid for.

    python benchmarks/layout.py [--epochs 200] [--save folder]

Icefloe keeps files in flight until they have 64 MB. The peers write a file per task and micro-batch, and reach the same
layout only by compacting afterwards, which is timed as part of their cost: Iceberg's own sink by its own procedure.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from iceberg_sink import running_iceberg_sink
from pyspark.sql import SparkSession
from spark_arms import Start, foreach_batch, icefloe_table, session, spark_parquet
from spark_source import batch_seconds, source

import icefloe

FILE_BYTES = 64 << 20
# About 1 MB of Parquet in each micro-batch.
ROWS = 125_000


def data_files(folder: Path) -> list[Path]:
    """Return the data files of an arm: those of a table's data folder, or of a plain directory."""
    return sorted(p for place in ("lake", "data") for p in (folder / place).rglob("*.parquet"))


def compact(files: list[Path], out: Path) -> None:
    """Rewrite small files into files of the target size, as a compaction job would: read everything, write it again."""
    out.mkdir()
    rows = ds.dataset([str(f) for f in files])
    total = sum(f.stat().st_size for f in files)
    per_file = max(1, rows.count_rows() * FILE_BYTES // max(total, 1))
    ds.write_dataset(
        rows.scanner(batch_size=1 << 17),
        out,
        format="parquet",
        max_rows_per_file=per_file,
        max_rows_per_group=per_file,
        min_rows_per_group=min(per_file, 1 << 20),
        file_options=ds.ParquetFileFormat().make_write_options(compression="zstd"),
    )


def median_seconds(scan: Callable[[], object]) -> float:
    """Return the median time of a scan."""

    def once() -> float:
        began = time.perf_counter()
        scan()
        return time.perf_counter() - began

    once()
    return statistics.median(once() for _ in range(5))


def scans(spark: SparkSession, paths: list[str]) -> dict[str, float]:
    """Read all columns, and one column, with PyArrow and with Spark."""
    found: dict[str, float] = {}
    for name, columns in (("full", None), ("one_column", ["user_id"])):
        rows = spark.read.parquet(*paths).select(*(columns or ["*"]))
        found[f"{name}_scan_s"] = median_seconds(lambda chosen=columns: ds.dataset(paths).to_table(columns=chosen))
        found[f"{name}_spark_scan_s"] = median_seconds(rows.write.format("noop").mode("overwrite").save)
    return found


def measure(spark: SparkSession, folder: Path, stream_s: float, *, in_flight: bool) -> dict[str, float]:
    """Describe what an arm left behind and what it cost to get there."""
    began = time.perf_counter()
    if in_flight:
        icefloe.finish(str(folder / "checkpoint" / "icefloe"))
    finish_s = time.perf_counter() - began
    files = data_files(folder)
    sizes = sorted((f.stat().st_size for f in files), reverse=True)
    groups = [pq.read_metadata(f).num_row_groups for f in files]
    compaction_s = 0.0
    if statistics.median(sizes) < FILE_BYTES / 2:
        began = time.perf_counter()
        compact(files, folder / "_compacted")
        compaction_s = time.perf_counter() - began
    return {
        "files": len(files),
        "row_groups": sum(groups),
        "median_file_mb": statistics.median(sizes) / (1 << 20),
        # The last file of each of the two tasks is whatever was left.
        "smallest_full_file_share": min(sizes[:-2], default=sizes[0]) / FILE_BYTES,
        "stream_s": stream_s + finish_s,
        "compaction_s": compaction_s,
        "total_s": stream_s + finish_s + compaction_s,
        **scans(spark, [str(f) for f in files]),
    }


def iceberg_sink(scratch: Path, epochs: int) -> dict[str, float] | None:
    """Stream and compact with Iceberg's own sink; None where it is not installed."""
    with running_iceberg_sink(scratch) as peer:
        if peer is None:
            return None
        answer = peer.stream(scratch, rows=ROWS, batches=epochs, skip=1, compact=True)
    stream_s = sum(answer["seconds"])
    return {
        "files": answer["files"],
        "stream_s": stream_s,
        "compaction_s": answer["compaction_s"],
        "total_s": stream_s + answer["compaction_s"],
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--save", type=Path)
    given = parser.parse_args()
    options = {"rollFileSize": "64MB", "rollInterval": "1d", "rollInactivity": "1d", "rowGroupSize": "64MB"}
    arms: dict[str, Start] = {
        "icefloe-roll": icefloe_table("roll", **options),
        "spark-parquet": spark_parquet,
        "foreachBatch-pyiceberg": foreach_batch,
    }
    results = {}
    with tempfile.TemporaryDirectory(prefix="icefloe-bench-") as temporary:
        spark = session(Path(temporary))
        for name, start in arms.items():
            folder = Path(temporary) / name
            folder.mkdir()
            query = start(source(spark, ROWS), folder)
            stream_s = sum(batch_seconds(query, given.epochs, skip=1))
            results[name] = measure(spark, folder, stream_s, in_flight=name == "icefloe-roll")
            print(name, {key: round(value, 2) for key, value in results[name].items()}, flush=True)
            shutil.rmtree(folder)
        spark.stop()
        peer = iceberg_sink(Path(temporary) / "peer", given.epochs)
        if peer is not None:
            results["iceberg-spark"] = peer
            print("iceberg-spark", {key: round(value, 2) for key, value in peer.items()})
    if given.save is not None:
        given.save.mkdir(parents=True, exist_ok=True)
        (given.save / "layout.json").write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    pa.set_cpu_count(2)
    main()
