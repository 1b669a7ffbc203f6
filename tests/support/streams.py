"""Streaming queries over a replayable source: files of rows, read one by one in the order in which they were added."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that every Spark user knows
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import LongType

from support.harness import event_rows

EVENTS_DDL = "id BIGINT, region STRING, ts TIMESTAMP, amount DOUBLE"
_FIRST_FILE_TIME = 1_700_000_000
_PATIENCE_SECONDS = 240


@dataclass
class EventFiles:
    """A folder of Parquet files that Spark reads one by one: file n makes micro-batch n, at every replay the same."""

    folder: Path
    rows_per_file: int = 24
    files: int = 0

    def add(self, files: int = 1) -> EventFiles:
        """Add files with the rows that follow; a running query takes them up, oldest first."""
        for _ in range(files):
            self.put(event_rows(self.files * self.rows_per_file, self.rows_per_file))
        return self

    def put(self, rows: pa.RecordBatch) -> None:
        """Add one file with these rows."""
        self.folder.mkdir(parents=True, exist_ok=True)
        hidden = self.folder / f".{self.files:06d}"
        pq.write_table(pa.Table.from_batches([rows]), hidden)
        # Spark takes files by their time; whole seconds are what every file system keeps.
        os.utime(hidden, (_FIRST_FILE_TIME + self.files,) * 2)
        hidden.rename(self.folder / f"{self.files:06d}.parquet")
        self.files += 1

    def rows(self) -> Iterator[pa.RecordBatch]:
        """Yield all rows of all files."""
        for path in sorted(self.folder.glob("*.parquet")):
            yield from pq.ParquetFile(path).iter_batches()

    def ids(self) -> list[int]:
        """Return the ids of all rows."""
        return [value for batch in self.rows() for value in batch["id"].to_pylist()]

    def read(self, spark: SparkSession, *, schema: str = EVENTS_DDL) -> DataFrame:
        """Return the stream, one file in each micro-batch."""
        return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(self.folder))


def start(df: DataFrame, options: Mapping[str, str], *, mode: str = "append", forever: bool = False) -> StreamingQuery:
    """Start a query into the sink; it ends when the source is read, or (``forever``) waits for more files."""
    writer = df.writeStream.format("icefloe").outputMode(mode).options(**options)
    return (writer.trigger(processingTime="0 seconds") if forever else writer.trigger(availableNow=True)).start()


def run(df: DataFrame, options: Mapping[str, str], *, mode: str = "append") -> None:
    """Run a query until it has read everything there is; raises what it raised."""
    query = start(df, options, mode=mode)
    try:
        assert query.awaitTermination(_PATIENCE_SECONDS), "the query is still running"
    finally:
        query.stop()


def refusal(df: DataFrame, options: Mapping[str, str], *, mode: str = "append") -> str:
    """Run a query that must fail and return the text of its error."""
    try:
        run(df, options, mode=mode)
    except StreamingQueryException as error:
        return str(error)
    raise AssertionError("the query was not refused")


@contextmanager
def running(df: DataFrame, options: Mapping[str, str]) -> Iterator[StreamingQuery]:
    """A query that waits for more files; stopped at the end, whatever it is doing then."""
    query = start(df, options, forever=True)
    try:
        yield query
    finally:
        query.stop()


def delete_commit(checkpoint: Path) -> int:
    """Delete the last entry of Spark's commit log, so that a restart runs that batch again; returns the batch."""
    last = max(int(path.name) for path in (checkpoint / "commits").iterdir() if path.name.isdecimal())
    for name in (str(last), f".{last}.crc"):
        (checkpoint / "commits" / name).unlink(missing_ok=True)
    return last


@dataclass(frozen=True)
class Gate:
    """Holds a batch in its tasks until it is opened."""

    folder: Path

    def across(self, df: DataFrame) -> DataFrame:
        """Return the rows of ``df``, which pass only while the gate is open."""
        entered, opened = self.folder / "entered", self.folder / "open"

        @F.arrow_udf(LongType())
        def passed(ids: pa.Array) -> pa.Array:
            entered.touch()
            until(opened.exists)
            return ids

        return df.withColumn("id", passed("id"))

    def close(self) -> Gate:
        """Let the next batch wait."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for name in ("open", "entered"):
            (self.folder / name).unlink(missing_ok=True)
        return self

    def open(self) -> Gate:
        """Let everything through."""
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "open").touch()
        return self

    def wait_for_a_task(self) -> None:
        """Return when a task waits at the gate: the query is in the middle of a batch."""
        until((self.folder / "entered").exists)


def until(condition: Callable[[], bool]) -> None:
    """Return as soon as the condition holds; raises ``AssertionError`` when it does not in minutes."""
    give_up_at = time.monotonic() + _PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < give_up_at, "it did not come to pass"
        time.sleep(0.02)
