"""Stream a Kafka topic, or any other source of Spark, into an Iceberg table. Restart it and it goes on.

    python examples/kafka_to_iceberg.py --source rate --folder demo --batches 10
    spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.0 examples/kafka_to_iceberg.py \\
        --source kafka --servers broker:9092 --topic events --folder /data/events

Icefloe itself needs no JAR, but Spark's Kafka source does: give the version of your Spark to --packages. The default
source, ``rate``, makes rows of its own, so that the rest can be tried without a broker.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, decode

import icefloe


def main(given: argparse.Namespace) -> None:
    spark = SparkSession.builder.appName("kafka to iceberg").config("spark.ui.enabled", "false").getOrCreate()
    icefloe.register(spark)
    events = read_kafka(spark, given) if given.source == "kafka" else read_rate(spark)
    folder = given.folder.resolve()
    options = {
        "table": "demo.events",
        "warehouse": str(folder / "lake"),
        "partitionBy": "hour(ts)",
        # Files reach 128 MB, or are shown after 5 minutes, whichever comes first; commits are few, files are large.
        "visibility": "roll",
        "rollFileSize": "128MB",
        "rollInterval": "5m",
        "checkpointLocation": str(folder / "checkpoint"),
        "stateLocation": str(folder / "state"),
    }
    # Says now what the first micro-batch would refuse.
    icefloe.check(events.schema, options)
    query = events.writeStream.format("icefloe").options(**options).trigger(processingTime="5 seconds").start()
    while not query.awaitTermination(1):
        if given.batches and query.lastProgress and query.lastProgress.batchId + 1 >= given.batches:
            query.stop()
    spark.stop()
    result = icefloe.finish(options["stateLocation"])
    print(f"{result.rows:,} more rows were in flight and are visible now; look around: icefloe status {folder}/state")


def read_kafka(spark: SparkSession, given: argparse.Namespace) -> DataFrame:
    """Return the topic's records with where they stand in it."""
    stream = spark.readStream.format("kafka").option("kafka.bootstrap.servers", given.servers)
    records = stream.option("subscribe", given.topic).option("startingOffsets", "earliest").load()
    return records.select(
        decode(col("key"), "UTF-8").alias("key"),
        decode(col("value"), "UTF-8").alias("value"),
        col("topic"),
        col("partition"),
        col("offset"),
        col("timestamp").alias("ts"),
    )


def read_rate(spark: SparkSession) -> DataFrame:
    """Return rows of the same kind from Spark's own generator."""
    rows = spark.readStream.format("rate").option("rowsPerSecond", 1000).load()
    return rows.selectExpr(
        "string(value % 100) AS key",
        "concat('event ', value) AS value",
        "'rate' AS topic",
        "0 AS partition",
        "value AS offset",
        "timestamp AS ts",
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Stream a Kafka topic, or generated rows, into an Iceberg table.")
    parser.add_argument("--source", choices=["kafka", "rate"], default="rate")
    parser.add_argument("--servers", default="localhost:9092")
    parser.add_argument("--topic", default="events")
    parser.add_argument("--folder", type=Path, default=Path("demo"))
    parser.add_argument("--batches", type=int, help="stop after so many micro-batches; without it, never")
    main(parser.parse_args())
