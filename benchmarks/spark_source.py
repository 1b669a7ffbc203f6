"""The rows that all stream benchmarks share, and the time of their micro-batches. Needs PySpark and nothing else."""

from __future__ import annotations

import statistics
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

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


def settings(folder: Path) -> dict[str, str]:
    """What the Spark sessions of all arms have in common."""
    return {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "4g",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.parquet.compression.codec": "zstd",
        "spark.sql.warehouse.dir": str(folder / "spark"),
        "spark.sql.streaming.numRecentProgressUpdates": "1000",
        "spark.log.level": "ERROR",
    }


def source(spark: SparkSession, rows_per_batch: int, tasks: int = 2) -> DataFrame:
    """Return a stream of ``rows_per_batch`` rows per micro-batch, the same rows in every run."""
    stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows_per_batch)
    return stream.option("numPartitions", tasks).load().selectExpr(*COLUMNS)


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
