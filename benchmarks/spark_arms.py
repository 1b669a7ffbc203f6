"""The sinks that stream benchmarks compare, each as one query over the same generated source."""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
# Spark's Python processes must find this module, since the dropping sink lives in it.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(Path(__file__).parent), os.environ.get("PYTHONPATH")]))

import pyarrow as pa
from pyiceberg.catalog import load_catalog
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

import icefloe

# Nine columns: numbers, text of low and high cardinality, times, a decimal, a flag.
COLUMNS = (
    "value AS id",
    "value * 7919 % 100003 AS user_id",
    "concat('user-', value * 31 % 50000) AS name",
    "element_at(array('view', 'click', 'cart', 'order'), int(value % 4) + 1) AS kind",
    "timestamp_micros(1767225600000000 + value * 1000) AS ts",
    "date_from_unix_date(int(20454 + value % 7)) AS day",
    "CAST(value % 10007 AS DOUBLE) / 7 AS amount",
    "CAST(value % 1000 AS DECIMAL(10, 2)) AS price",
    "value % 3 = 0 AS flag",
)


class DroppingSource(DataSource):
    """A Python sink that takes every batch and keeps nothing: the floor under any Python sink."""

    @classmethod
    def name(cls) -> str:
        return "dropping"

    def streamWriter(self, schema: Any, overwrite: bool) -> DroppingWriter:  # noqa: N802 - Spark's name
        return DroppingWriter()


class DroppingWriter(DataSourceStreamArrowWriter):
    """Reads to the end."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()

    def commit(self, messages: Any, batchId: int) -> None:  # noqa: N803 - Spark's name
        pass

    def abort(self, messages: Any, batchId: int) -> None:  # noqa: N803 - Spark's name
        pass


def session(folder: Path) -> SparkSession:
    """Start Spark as the docs advise."""
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "4g")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.parquet.compression.codec", "zstd")
        .config("spark.sql.warehouse.dir", str(folder / "spark"))
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    icefloe.register(spark)
    spark.dataSource.register(DroppingSource)
    return spark


def source(spark: SparkSession, rows_per_batch: int, tasks: int = 2) -> DataFrame:
    """Return a stream of ``rows_per_batch`` rows per micro-batch, the same rows in every run."""
    stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows_per_batch)
    return stream.option("numPartitions", tasks).load().selectExpr(*COLUMNS)


Start = Callable[[DataFrame, Path], StreamingQuery]


def started(writer: DataStreamWriter, folder: Path) -> StreamingQuery:
    """Start a query with its checkpoint in ``folder``."""
    return writer.option("checkpointLocation", str(folder / "checkpoint")).start()


def icefloe_table(visibility: str, **options: str) -> Start:
    """Icefloe into an Iceberg table on the embedded catalog."""

    def start(df: DataFrame, folder: Path) -> StreamingQuery:
        writer = df.writeStream.format("icefloe").option("table", "bench.events").options(**options)
        return started(writer.option("warehouse", str(folder / "lake")).option("visibility", visibility), folder)

    return start


def spark_parquet(df: DataFrame, folder: Path) -> StreamingQuery:
    """Spark's own file sink, in the JVM."""
    return started(df.writeStream.format("parquet").option("path", str(folder / "data")), folder)


def dropping(df: DataFrame, folder: Path) -> StreamingQuery:
    """The floor."""
    return started(df.writeStream.format("dropping"), folder)


def foreach_batch(df: DataFrame, folder: Path) -> StreamingQuery:
    """What pip-only users write today: collect each micro-batch and append it with PyIceberg."""
    lake = folder / "lake"
    lake.mkdir(parents=True)
    catalog = load_catalog("bench", type="sql", uri=f"sqlite:///{lake}/catalog.db", warehouse=str(lake))
    catalog.create_namespace("bench")

    def append(batch: DataFrame, batch_id: int) -> None:
        rows = batch.toArrow()
        catalog.create_table_if_not_exists("bench.events", rows.schema).append(rows)

    return started(df.writeStream.foreachBatch(append), folder)


def batch_seconds(query: StreamingQuery, batches: int, *, skip: int) -> list[float]:
    """Let the query run for so many micro-batches, stop it, and return the time of each but the first ``skip``."""
    while query.lastProgress is None or query.lastProgress.batchId < batches - 1:
        if query.exception() is not None:
            raise query.exception()  # type: ignore[misc]
        time.sleep(0.02)
    query.stop()
    done = [p for p in query.recentProgress if p.numInputRows > 0 and skip <= p.batchId < batches]
    return [p.durationMs["triggerExecution"] / 1000 for p in done]


def median_batch_seconds(query: StreamingQuery, batches: int, *, skip: int) -> float:
    """Return the median time of a micro-batch."""
    return statistics.median(batch_seconds(query, batches, skip=skip))
