"""Kill a stream twice, wipe its checkpoint, and still have every acknowledged row in the table, once.

    python examples/recover_after_crash.py [folder]

1. a stream keeps its files in flight (``visibility=roll``) and is killed in the middle: kill -9, no goodbye
2. it is started again and goes on; then it is killed once more
3. Spark's checkpoint is deleted: the stream cannot go on, but its rows are in the state
4. ``icefloe status``, ``verify`` and ``finish`` make them visible without Spark
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import load_catalog

from icefloe.connector.cli import main as icefloe_command

FILES = 20
ROWS = 2_000
TABLE = "demo.events"


def main(folder: Path) -> None:
    make_events(folder / "events")
    state = str(folder / "state")

    print("== the stream runs, and is killed after 4 epochs")
    run_until(folder, epoch=3)
    icefloe_command(["status", state])

    print("\n== it is started again, goes on, and is killed after 7")
    run_until(folder, epoch=6)

    print("\n== the checkpoint is lost; the state is not")
    acknowledged = len(list((folder / "checkpoint" / "commits").glob("[0-9]*")))
    shutil.rmtree(folder / "checkpoint")
    icefloe_command(["status", state])
    icefloe_command(["verify", state])
    icefloe_command(["finish", state])

    ids = sorted(read_table(folder)["id"].to_pylist())
    print(f"\nSpark acknowledged {acknowledged} batches of {ROWS:,} rows; the table has {len(ids):,} rows")
    assert ids == list(range(len(ids))), "a row is missing or doubled"
    assert len(ids) >= acknowledged * ROWS, "an acknowledged row is missing"
    print("every one of them is there, once")


def make_events(folder: Path) -> None:
    """Write the source: one small file for each micro-batch, oldest first."""
    folder.mkdir(parents=True)
    for number in range(FILES):
        ids = range(number * ROWS, (number + 1) * ROWS)
        path = folder / f"{number:03d}.parquet"
        pq.write_table(pa.table({"id": pa.array(ids, pa.int64()), "text": [f"event {i}" for i in ids]}), path)
        # The file source takes the oldest first.
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))


def run_until(folder: Path, *, epoch: int) -> None:
    """Run the stream in a process of its own and kill it, with its JVM, once an epoch is recorded."""
    stream = subprocess.Popen(
        [sys.executable, __file__, "--stream", str(folder)], start_new_session=True, stderr=subprocess.DEVNULL
    )
    try:
        while not list((folder / "state").glob(f"*/checkpoints/{epoch:010d}/checkpoint.metadata")):
            if stream.poll() is not None:
                raise SystemExit(f"the stream ended by itself with {stream.returncode}")
            time.sleep(0.05)
    finally:
        os.killpg(stream.pid, signal.SIGKILL)
        stream.wait()
    print("killed")


def stream_forever(folder: Path) -> None:
    """The streaming query: what you would write yourself."""
    from pyspark.sql import SparkSession

    import icefloe

    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    icefloe.register(spark)
    events = spark.readStream.schema("id LONG, text STRING").option("maxFilesPerTrigger", 1)
    query = (
        events.parquet(str(folder / "events"))
        .writeStream.format("icefloe")
        .option("table", TABLE)
        .option("warehouse", str(folder / "lake"))
        .option("visibility", "roll")
        .option("stateLocation", str(folder / "state"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .start()
    )
    parent = os.getppid()
    while os.getppid() == parent:
        query.awaitTermination(1)


def read_table(folder: Path) -> pa.Table:
    """Read the table as any Iceberg reader would."""
    catalog = load_catalog("icefloe", type="sql", uri=f"sqlite:///{folder}/lake/catalog.db")
    table = catalog.load_table(TABLE).scan().to_arrow()
    catalog.close()
    return table


if __name__ == "__main__":
    if sys.argv[1:2] == ["--stream"]:
        stream_forever(Path(sys.argv[2]))
    elif len(sys.argv) > 1:
        main(Path(sys.argv[1]).resolve())
    else:
        with tempfile.TemporaryDirectory(prefix="icefloe-") as temporary:
            main(Path(temporary))
