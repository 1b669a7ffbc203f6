"""The sinks that stream benchmarks compare, each as one query over the same generated source."""

from __future__ import annotations

import os
import sys
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
from spark_source import settings

import icefloe


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
    spark = SparkSession.builder.master("local[2]").config(map=settings(folder)).getOrCreate()
    icefloe.register(spark)
    spark.dataSource.register(DroppingSource)
    return spark


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


def icefloe_path(data: Callable[[Path], str], state: Callable[[Path], str], **options: str) -> Start:
    """Icefloe into a plain directory, with data and state where the functions say for a run's folder."""

    def start(df: DataFrame, folder: Path) -> StreamingQuery:
        writer = df.writeStream.format("icefloe").option("path", data(folder)).options(**options)
        return started(writer.option("stateLocation", state(folder)), folder)

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
