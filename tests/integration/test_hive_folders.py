"""Folders of a path target are called as Spark itself calls them, and Spark sends the types that our table says."""

from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from icefloe.connector.partitioner import Partitioner
from icefloe.schemas.normalize import normalize_batch_to_schema
from icefloe.schemas.transforms import parse_partition_by
from icefloe.schemas.types import arrow_schema_from_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UTC = datetime.UTC
COLUMNS: dict[str, tuple[str, list[Any]]] = {
    "text": ("string", ["a/b=c%", "", None, "ä 日本", "\"#'*:?\\{[]^}", "tab\tline\nend\x7f", "+a b", "__x"]),
    "double": ("double", [0.0, 1.5, 1e7, -1.25e-4, 123456.789, 1e300, float("nan"), float("-inf"), None]),
    "float": ("float", [0.1, 1e10, 3.4e38, 0.001, 9999999.0]),
    "money": ("decimal(20,4)", [Decimal("-0.0100"), Decimal("1000000000000.5"), None]),
    "small": ("tinyint", [-128, 7, None]),
    "flag": ("boolean", [True, False, None]),
    "day": ("date", [datetime.date(1969, 12, 31), datetime.date(2024, 2, 29), None]),
    "moment": (
        "timestamp",
        [datetime.datetime(1969, 12, 31, 23, 59, 59, 999_990, UTC), datetime.datetime(2024, 1, 1, tzinfo=UTC)],
    ),
    "local": ("timestamp_ntz", [datetime.datetime(2024, 1, 1, 12, 0, 0, 500_000), None]),
}


def test_partition_folders_are_called_as_spark_calls_them(spark: SparkSession, tmp_path: Path) -> None:
    # One job for all types: as many rows as the longest list has values.
    rows = [tuple(values[n % len(values)] for _, values in COLUMNS.values()) for n in range(9)]
    ddl = ", ".join(f"`{name}=x` {type_name}" for name, (type_name, _) in COLUMNS.items())
    frame = spark.createDataFrame([(*row, n) for n, row in enumerate(rows)], f"{ddl}, n int").coalesce(1)
    columns = frame.columns[:-1]
    frame.write.partitionBy(*columns).parquet(str(tmp_path / "theirs"))
    theirs = {str(file.parent.relative_to(tmp_path / "theirs")) for file in tmp_path.rglob("*.parquet")}

    schema = arrow_schema_from_spark(frame.schema.json())
    partitioner = Partitioner(parse_partition_by(", ".join(f"`{column}`" for column in columns)), schema, "path")
    ours = set()
    for batch in frame.toArrow().to_batches():
        ours |= {key.hive_path() for key, _ in partitioner.split(normalize_batch_to_schema(batch, schema))}
    assert len(theirs) == len(rows)
    assert ours == theirs
