"""Our partitioner and PyIceberg's own partitioned append put the same rows into the same partitions and folders."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.partitioning import PartitionField as JudgeField
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import parse_transform

from icefloe.connector.partitioner import Partitioner
from icefloe.schemas.iceberg_schema import arrow_schema_from_iceberg
from icefloe.schemas.normalize import normalize_batch_to_schema
from icefloe.schemas.transforms import PartitionField, Transform

UTC = datetime.UTC
TYPES = {
    "ts": "timestamptz",
    "day": "date",
    "user": "long",
    "name": "string",
    "region": "string",
    "amount": "decimal(9, 2)",
}
TRANSFORMS = {
    "ts": "hour",
    "day": "month",
    "user": "bucket[4]",
    "name": "truncate[2]",
    "region": "identity",
    "amount": "truncate[50]",
}
TIMES = [
    datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC),
    datetime.datetime(1970, 1, 1, tzinfo=UTC),
    datetime.datetime(2024, 2, 29, 12, 30, tzinfo=UTC),
    None,
]
NAMES = ["日本語", "日本", "äö", "a/b=c", "", None]


def rows() -> list[dict[str, Any]]:
    return [
        {
            "ts": TIMES[number % 4],
            "day": None if number % 7 == 0 else datetime.date(1969, 11 + number % 2, 30),
            "user": None if number % 5 == 0 else number * 31 - 40,
            "name": NAMES[number % 6],
            "region": [None, "eu west", "us+east", "null"][number // 10 % 4],
            "amount": None if number % 9 == 0 else number - 20,
        }
        for number in range(60)
    ]


def test_rows_and_folders_equal_those_of_pyicebergs_partitioned_append(tmp_path: Path) -> None:
    fields = [{"id": i, "name": n, "required": False, "type": t} for i, (n, t) in enumerate(TYPES.items(), start=1)]
    schema_json = {"type": "struct", "schema-id": 0, "fields": fields}
    judge_schema = Schema.model_validate(schema_json)
    spec = PartitionSpec(
        *(
            JudgeField(source_id=i, field_id=999 + i, transform=parse_transform(text), name=f"p_{name}")
            for i, (name, text) in enumerate(TRANSFORMS.items(), start=1)
        )
    )
    catalog = SqlCatalog("judge", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}")
    try:
        catalog.create_namespace("ns")
        table = catalog.create_table("ns.t", judge_schema, partition_spec=spec)
        data = pa.Table.from_pylist(rows(), schema=schema_to_pyarrow(judge_schema))
        table.append(data)
        theirs = {
            tuple(task.file.partition): (task.file.record_count, Path(task.file.file_path).parent)
            for task in table.scan().plan_files()
        }
    finally:
        catalog.close()

    batch = normalize_batch_to_schema(data.to_batches()[0], arrow_schema_from_iceberg(schema_json))
    ours_fields = [
        PartitionField(name, Transform.from_spec(text), f"p_{name}", 999 + i, i)
        for i, (name, text) in enumerate(TRANSFORMS.items(), start=1)
    ]
    parts = Partitioner(ours_fields, batch.schema).split(batch)
    assert len(parts) > 30
    assert {key.values: part.num_rows for key, part in parts} == {key: count for key, (count, _) in theirs.items()}
    for key, _ in parts:
        assert str(theirs[key.values][1]).endswith(f"/data/{key.iceberg_path()}")
