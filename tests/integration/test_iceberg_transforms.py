"""Rows split by the partitioner and committed with its tuples make the table that PyIceberg's own append makes."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from icefloe.connector.iceberg_table import IcebergTarget, TableSettings
from icefloe.connector.partitioner import Partitioner
from icefloe.schemas.iceberg_schema import arrow_schema_from_iceberg
from icefloe.schemas.transforms import PartitionField, Transform
from support.iceberg_files import write_data_file

DAYS = [(1969, 12, 31), (1970, 1, 1), (1583, 1, 1), None, (2024, 2, 29), (1968, 2, 29), (1970, 1, 2), (9999, 12, 31)]
ROWS: dict[str, list[Any]] = {
    "n": [0, 1, -1, 34, 2**62, -(2**63), None, 34],
    "i": [0, 7, -7, 2**31 - 1, -(2**31), None, 10, -10],
    "text": ["", "naïve", "naïveté", "漢字かな", "iceberg", None, "ice", "🧊🧊🧊"],
    "raw": [b"", b"\x00\x01", b"\xff" * 5, None, b"abcdef", b"abc", b"\x00", b"abcdefg"],
    "flag": [True, False, None, True, False, None, True, True],
    "price": [Decimal(p) if p else None for p in ("0.00", "14.20", "-14.20", "10.65", "-10.65", None, "99.99", "0.01")],
    "day": [date(*d) if d else None for d in DAYS],
    "ts": [
        datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
        datetime(1970, 1, 1, tzinfo=UTC),
        datetime(1901, 7, 4, 1, tzinfo=UTC),
        datetime(2024, 2, 29, 23, 30, tzinfo=UTC),
        None,
        datetime(1969, 1, 1, tzinfo=UTC),
        datetime(2038, 1, 19, 3, 14, 8, tzinfo=UTC),
        datetime(1970, 1, 1, 0, 59, tzinfo=UTC),
    ],
}
STREAM = pa.schema(
    [
        ("n", pa.int64()),
        ("i", pa.int32()),
        ("text", pa.string()),
        ("raw", pa.binary()),
        ("flag", pa.bool_()),
        ("price", pa.decimal128(9, 2)),
        ("day", pa.date32()),
        ("ts", pa.timestamp("us", "UTC")),
    ]
)


def by_partition(target: IcebergTarget) -> list[tuple[str, int]]:
    files = target.table.refresh().inspect.files().to_pylist()
    return sorted((repr(file["partition"]), file["record_count"]) for file in files)


@pytest.mark.parametrize(
    "partition_by",
    [
        "n, i, text, raw, flag, price, day, ts",
        "bucket(5, n), bucket(3, text)",
        "bucket(4, i), bucket(7, raw), bucket(6, price)",
        "bucket(9, day)",
        "bucket(9, ts)",
        "truncate(10, n), truncate(3, text), truncate(50, price)",
        "truncate(3, i), truncate(2, raw)",
        "year(day), hour(ts)",
        "month(day), day(ts)",
        "year(ts)",
        "month(ts), day(day)",
    ],
)
def test_tuples_and_rows_equal_pyicebergs_own_partitioned_append(tmp_path: Path, partition_by: str) -> None:
    ours = TableSettings("db.ours", warehouse=str(tmp_path / "warehouse"), partition_by=partition_by)
    rows = pa.table(ROWS, schema=STREAM)
    with (
        IcebergTarget.open(ours, STREAM) as target,
        IcebergTarget.open(replace(ours, identifier="db.theirs"), STREAM) as judge,
    ):
        plan = target.plan(STREAM)
        schema = arrow_schema_from_iceberg(plan.iceberg_schema_json)
        fields = [
            PartitionField(f.source_name, Transform.from_spec(f.transform), f.name, f.field_id, f.source_id)
            for f in plan.partition_fields
        ]
        batch = pa.RecordBatch.from_arrays(rows.combine_chunks().to_batches()[0].columns, schema=schema)
        parts = Partitioner(fields, schema).split(batch)
        files = [write_data_file(plan, part.to_pydict(), key=key.to_proto()) for key, part in parts]
        target.publish("job", 0, "d", "", 0, files)
        judge.table.append(rows)
        assert by_partition(target) == by_partition(judge)
        both = [
            t.table.refresh().scan().to_arrow().sort_by([("n", "ascending"), ("i", "ascending")])
            for t in (target, judge)
        ]
        assert both[0].to_pylist() == both[1].to_pylist()
