"""Transforms equal PyIceberg's own row by row, and folders are named as PyIceberg names them."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.partitioning import PartitionField as JudgeField
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import parse_transform
from pyiceberg.typedef import Record

from icefloe.connector.partitioner import Partitioner, PartitionKey
from icefloe.schemas.iceberg_schema import arrow_schema_from_iceberg
from icefloe.schemas.transforms import PartitionField, Transform
from support.wide_schema import PRIMITIVES, values_of

TEXTS = ["identity", "bucket[1]", "bucket[16]", "truncate[1]", "truncate[7]", "year", "month", "day", "hour", "void"]


def schema_json_of(type_name: str) -> dict[str, Any]:
    fields = [
        {"id": 1, "name": "row", "required": True, "type": "long"},
        {"id": 2, "name": "a b/ä", "required": False, "type": type_name},
    ]
    return {"type": "struct", "schema-id": 0, "fields": fields}


def pairs() -> list[Any]:
    found = []
    for type_name in PRIMITIVES:
        iceberg_type = Schema.model_validate(schema_json_of(type_name)).fields[1].field_type
        found += [(type_name, text) for text in TEXTS if parse_transform(text).can_transform(iceberg_type)]
    return [pytest.param(*pair, id="-".join(pair)) for pair in found]


def same(left: Any, right: Any) -> bool:
    if isinstance(left, float) and isinstance(right, float) and math.isnan(left):
        return math.isnan(right)
    return bool(left == right and (left is None) == (right is None))


def test_a_transform_takes_exactly_the_types_that_pyiceberg_lets_it_take() -> None:
    for type_name in PRIMITIVES:
        schema_json = schema_json_of(type_name)
        judge_type = Schema.model_validate(schema_json).fields[1].field_type
        arrow_type = arrow_schema_from_iceberg(schema_json).field(1).type
        for text in TEXTS:
            assert Transform.from_spec(text).accepts(arrow_type) == parse_transform(text).can_transform(judge_type)


@pytest.mark.parametrize(("type_name", "text"), pairs())
@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_every_row_transforms_to_the_tuple_and_folder_that_pyiceberg_gives_it(
    type_name: str, text: str, data: st.DataObject
) -> None:
    schema_json = schema_json_of(type_name)
    schema = arrow_schema_from_iceberg(schema_json)
    values = data.draw(st.lists(st.none() | values_of(schema.field(1).type), max_size=12))
    batch = pa.RecordBatch.from_arrays(
        [pa.array(range(len(values)), pa.int64()), pa.array(values, schema.field(1).type)], schema=schema
    )
    field = PartitionField("a b/ä", Transform.from_spec(text), "p=ä/1", field_id=1000, source_id=2)
    parts = Partitioner([field], schema, "table").split(batch)

    judge_schema = Schema.model_validate(schema_json)
    transform = parse_transform(text)
    spec = PartitionSpec(JudgeField(source_id=2, field_id=1000, transform=transform, name="p=ä/1"))
    judge_values = transform.transform(judge_schema.fields[1].field_type)
    assert sorted(row for _, part in parts for row in part.column(0).to_pylist()) == list(range(len(values)))
    assert len({key for key, _ in parts}) == len(parts)
    for key, part in parts:
        rows = part.column(0).to_pylist()
        assert rows == sorted(rows)
        for row in rows:
            assert same(key.values[0], wrapped(judge_values(values[row]), type_name, text))
        if not (isinstance(key.values[0], float) and key.values[0] == 0.0):
            assert key.iceberg_path() == spec.partition_to_path(Record(*key.values), judge_schema)
        assert PartitionKey.from_proto(key.to_proto()) == key
        assert PartitionKey.from_proto(key.to_proto()).iceberg_path() == key.iceberg_path()


def wrapped(value: Any, type_name: str, text: str) -> Any:
    """Python's integers have no end; Iceberg's wrap around, as Java's do, when truncation passes the least one."""
    if not text.startswith("truncate") or not isinstance(value, int):
        return value
    bits = 32 if type_name == "int" else 64
    return (value + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1)
