"""What users call on a Spark session before ``.start()``: register the sink, check options, distribute rows."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that every Spark user knows
from pyspark.sql.types import DateType, IntegerType, StringType, StructType, TimestampNTZType

from icefloe.connector.data_source import ARROW_BYTES_KEY, FAST_ARROW_BYTES, IcefloeDataSource
from icefloe.connector.driver import Driver
from icefloe.connector.options import parse_options
from icefloe.schemas.transforms import PartitionField, Transform, TransformKind, parse_partition_by

_TIME_UNITS = {
    TransformKind.YEAR: "year",
    TransformKind.MONTH: "month",
    TransformKind.DAY: "day",
    TransformKind.HOUR: "hour",
}


def register(spark: SparkSession) -> None:
    """Make ``format("icefloe")`` known to a session, and let rows reach it at full speed.

    Sets ``spark.sql.execution.arrow.maxBytesPerBatch`` to 2147483647 where you have not set it: below that, Spark
    measures its whole Arrow batch after every row. Repeatable.
    """
    spark.dataSource.register(IcefloeDataSource)
    if ARROW_BYTES_KEY not in spark.conf.getAll:
        spark.conf.set(ARROW_BYTES_KEY, FAST_ARROW_BYTES)


def check(schema: StructType, options: Mapping[str, str]) -> None:
    """Raise now what the first epoch would refuse: options, schema, table, state. Changes nothing.

    Spark asks a sink only when the first data arrives, so this is how to fail before ``.start()`` returns.
    """
    Driver(parse_options(options), schema.json()).check()


def distribute(df: DataFrame, partition_by: str, tasks: int | None = None) -> DataFrame:
    """Return the rows shuffled so that all rows of one partition reach one task: fewer, larger files.

    ``partition_by`` is what the option of that name takes. A Python sink cannot ask Spark for this by itself.
    """
    columns = [_transformed(df, field) for field in parse_partition_by(partition_by)]
    return df.repartition(tasks, *columns) if tasks is not None else df.repartition(*columns)


def _transformed(df: DataFrame, field: PartitionField) -> Column:
    column = df[field.source]
    kind = field.transform.kind
    if kind is TransformKind.IDENTITY:
        return column
    if kind in _TIME_UNITS:
        # date_trunc counts in the session's zone. A date or a time without zone stands in it as it is; an instant has
        # to be moved, so that it stands there as it does in UTC.
        moment = column.cast("timestamp")
        without_zone = isinstance(df.select(column).schema[0].dataType, DateType | TimestampNTZType)
        local = moment if without_zone else F.to_utc_timestamp(moment, F.current_timezone())
        return F.date_trunc(_TIME_UNITS[kind], local)
    return _by_arrow(field.transform, column)


def _by_arrow(transform: Transform, column: Column) -> Column:
    """Evaluate a transform as the sink itself does: Spark's own hash is not Iceberg's."""
    returns = IntegerType() if transform.kind is TransformKind.BUCKET else StringType()

    @F.arrow_udf(returns)  # type: ignore[attr-defined,untyped-decorator]
    def evaluate(values: pa.Array) -> pa.Array:
        result = transform.apply(values)
        return result if transform.kind is TransformKind.BUCKET else result.cast(pa.string())

    return evaluate(column)  # type: ignore[no-any-return]
