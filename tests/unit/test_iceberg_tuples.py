"""Partition tuples: typed by the spec, in its order, nulls included, never guessed."""

from __future__ import annotations

import uuid
from decimal import Decimal

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    TruncateTransform,
    VoidTransform,
)
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    TimestamptzType,
    UUIDType,
)

from icefloe.connector.iceberg_commit import partition_record
from icefloe.errors import SchemaError
from icefloe.proto import sink_pb2

ID = uuid.UUID("12345678-1234-5678-1234-567812345678")
WIDEST = 12345678901234567890123456789012345678


def one_field(kind: PrimitiveType) -> tuple[PartitionSpec, Schema]:
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "c"))
    return spec, Schema(NestedField(1, "c", kind))


def file_with(*values: sink_pb2.PartitionValue) -> sink_pb2.DataFile:
    return sink_pb2.DataFile(location="file:///f", partition=sink_pb2.PartitionKey(values=values))


def unscaled(value: int) -> bytes:
    return value.to_bytes(16, "big", signed=True)


@pytest.mark.parametrize(
    ("kind", "given", "expected"),
    [
        (BooleanType(), {"boolean": False}, False),
        (LongType(), {"integer": -(2**63)}, -(2**63)),
        (LongType(), {"integer": 0}, 0),
        (DateType(), {"integer": -719162}, -719162),
        (TimestamptzType(), {"integer": -1}, -1),
        (FloatType(), {"floating": 0.5}, 0.5),
        (DoubleType(), {"floating": float("-inf")}, float("-inf")),
        (StringType(), {"text": "naïve 漢"}, "naïve 漢"),
        (StringType(), {"text": ""}, ""),
        (BinaryType(), {"binary": b"\x00\xff"}, b"\x00\xff"),
        (FixedType(2), {"binary": b"ab"}, b"ab"),
        (UUIDType(), {"binary": ID.bytes}, ID.bytes),
        (DecimalType(9, 2), {"decimal": (-1234).to_bytes(2, "big", signed=True)}, Decimal("-12.34")),
        (DecimalType(38, 10), {"decimal": unscaled(-WIDEST)}, Decimal("-1234567890123456789012345678.9012345678")),
        (DecimalType(4, 0), {"decimal": b"\x00"}, Decimal(0)),
        (StringType(), {}, None),
        (LongType(), {}, None),
    ],
)
def test_value_has_the_type_that_iceberg_gives_it(
    kind: PrimitiveType, given: dict[str, object], expected: object
) -> None:
    value = sink_pb2.PartitionValue(field_id=1000, name="c", **given)  # type: ignore[arg-type]
    (found,) = (partition_record(*one_field(kind), file_with(value))[0],)
    assert found == expected
    assert type(found) is type(expected)


def test_values_are_placed_by_field_id_whatever_their_order() -> None:
    schema = Schema(
        NestedField(1, "ts", TimestamptzType()),
        NestedField(2, "user", LongType()),
        NestedField(3, "name", StringType()),
    )
    spec = PartitionSpec(
        PartitionField(1, 1000, DayTransform(), "ts_day"),
        PartitionField(2, 1003, BucketTransform(8), "user_bucket"),
        PartitionField(3, 1001, TruncateTransform(2), "name_trunc"),
        PartitionField(1, 1002, HourTransform(), "ts_hour"),
    )
    values = [
        sink_pb2.PartitionValue(field_id=1002, integer=-5),
        sink_pb2.PartitionValue(field_id=1001, text="ab"),
        sink_pb2.PartitionValue(field_id=1000),
        sink_pb2.PartitionValue(field_id=1003, integer=7),
    ]
    record = partition_record(spec, schema, file_with(*values))
    assert [record[i] for i in range(4)] == [None, 7, "ab", -5]


def test_void_field_is_null_without_a_value_and_any_other_gap_is_refused() -> None:
    schema = Schema(NestedField(1, "c", LongType()))
    void = PartitionSpec(PartitionField(1, 1000, VoidTransform(), "c_void"))
    assert partition_record(void, schema, file_with())[0] is None
    with pytest.raises(SchemaError, match=r"^ICEFLOE_PARTITION_TUPLE: .*file:///f.*field c"):
        partition_record(*one_field(LongType()), file_with())
