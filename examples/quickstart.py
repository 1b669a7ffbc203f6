"""Stream events into an Iceberg table on this machine, and look at what is there afterwards.

    python examples/quickstart.py [folder]

Two streams read the same events, one file per micro-batch. The first shows its rows after every micro-batch. The second
keeps its files in flight until they have their size, and shows the rest when it is told to finish.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

from pyiceberg.catalog import load_catalog
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console
from rich.table import Table

import icefloe

BATCHES = 8
ROWS = 400_000
console = Console()


def main(folder: Path) -> None:
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("icefloe quickstart")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(folder / "spark"))
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    icefloe.register(spark)
    console.print(f"[bold]icefloe {icefloe.__version__}[/bold] on Spark {spark.version}; everything is in {folder}\n")
    make_events(spark, folder / "events")

    console.rule("visibility=batch: rows are readable after every micro-batch")
    stream(spark, folder, table="demo.events_batch", visibility="batch")
    show(folder, "demo.events_batch")

    console.rule("visibility=roll: files stay in flight until they have their size")
    stream(spark, folder, table="demo.events_roll", visibility="roll")
    show(folder, "demo.events_roll")
    result = icefloe.finish(str(folder / "checkpoints" / "demo.events_roll" / "icefloe"))
    console.print(f"[bold]icefloe finish[/bold] made {result.rows:,} rows visible in {len(result.files)} files\n")
    show(folder, "demo.events_roll")
    spark.stop()


def make_events(spark: SparkSession, folder: Path) -> None:
    """Write the source: one file for each micro-batch to come."""
    events = spark.range(0, ROWS, 1, BATCHES).selectExpr(
        "id",
        "concat('user-', id * 7919 % 5000) AS user_id",
        "element_at(array('view', 'click', 'cart', 'order'), int(id % 4) + 1) AS kind",
        "round(rand(42) * 100, 2) AS amount",
        f"timestamp_seconds(1767225600 + id * 2 * 86400 div {ROWS}) AS ts",
    )
    events.write.parquet(str(folder))


def stream(spark: SparkSession, folder: Path, *, table: str, visibility: str) -> None:
    """Run one streaming query over the source, and report every micro-batch."""
    query = (
        read_events(spark, folder / "events")
        .writeStream.format("icefloe")
        .option("table", table)
        .option("warehouse", str(folder / "lake"))
        .option("partitionBy", "day(ts)")
        .option("visibility", visibility)
        .option("checkpointLocation", str(folder / "checkpoints" / table))
        .trigger(availableNow=True)
        .start()
    )
    shown = -1
    while query.isActive or query.lastProgress is not None:
        done = query.awaitTermination(1)
        for progress in query.recentProgress:
            if progress.batchId > shown:
                shown = progress.batchId
                console.print(f"  batch {shown}: {progress.numInputRows:,} rows in {progress.batchDuration} ms")
        if done:
            break
    console.print()


def read_events(spark: SparkSession, folder: Path) -> DataFrame:
    """Return the source as a stream that takes one file at a time."""
    schema = spark.read.parquet(str(folder)).schema
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder))


def show(folder: Path, name: str) -> None:
    """Print snapshots, files, partitions and rows, as any Iceberg reader sees them."""
    catalog = load_catalog("icefloe", type="sql", uri=f"sqlite:///{folder}/lake/catalog.db", warehouse=f"{folder}/lake")
    table = catalog.load_table(name)
    files = table.inspect.files().to_pylist()
    rows = table.scan().to_arrow().num_rows
    console.print(f"[bold]{name}[/bold]: {rows:,} rows, {len(files)} files, {len(table.snapshots())} snapshots")
    if not files:
        console.print("  nothing is visible yet: the rows are durable, in flight\n")
        return
    shown = Table("partition", "files", "rows", "bytes", box=None, pad_edge=False)
    for partition in sorted({str(file["partition"]["ts_day"]) for file in files}):
        mine = [file for file in files if str(file["partition"]["ts_day"]) == partition]
        total = sum(file["record_count"] for file in mine)
        size = sum(file["file_size_in_bytes"] for file in mine)
        shown.add_row(partition, str(len(mine)), f"{total:,}", f"{size:,}")
    console.print(shown)
    console.print()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]).resolve())
    else:
        with tempfile.TemporaryDirectory(prefix="icefloe-") as temporary:
            main(Path(temporary))
