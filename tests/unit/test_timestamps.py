"""The representative timestamp and the sink's schema."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest
from pyspark.sql import types as spark

from icefloe.errors import OptionError, SchemaError
from icefloe.schemas.sink_schema import SinkSchema, watermark_column
from icefloe.schemas.timestamps import representative_timestamp

SPARK_SCHEMA = (
    spark.StructType()
    .add("id", spark.LongType())
    .add("ts", spark.TimestampType(), metadata={"spark.watermarkDelayMs": 1000})
    .add("Other", spark.TimestampNTZType())
)


@pytest.mark.parametrize(
    ("arrow_type", "value", "expected"),
    [
        (pa.timestamp("s"), 2, 2_000_000),
        (pa.timestamp("ms", "Asia/Tokyo"), -2, -2_000),
        (pa.timestamp("us", "UTC"), 2**60, 2**60),
        (pa.timestamp("ns", "Europe/Berlin"), -1, -1),
        (pa.timestamp("ns"), 1_999, 1),
        (pa.date32(), -1, -86_400_000_000),
        (pa.date64(), 86_400_000, 86_400_000_000),
    ],
)
def test_the_first_value_counts_in_microseconds_of_utc_whatever_unit_and_zone(
    arrow_type: pa.DataType, value: int, expected: int
) -> None:
    column = pa.array([value, None, 0], pa.int64() if arrow_type.bit_width == 64 else pa.int32()).view(arrow_type)
    assert representative_timestamp(column) == expected
    assert representative_timestamp(pa.chunked_array([column])) == expected


def test_a_slice_begins_at_its_own_first_value() -> None:
    assert representative_timestamp(pa.array([None, 7], pa.timestamp("us")).slice(1)) == 7


def test_an_empty_column_a_null_and_a_type_that_is_no_time_are_typed_errors() -> None:
    with pytest.raises(SchemaError, match="ICEFLOE_EVENT_TIME_EMPTY"):
        representative_timestamp(pa.array([], pa.timestamp("us")))
    with pytest.raises(SchemaError, match="ICEFLOE_EVENT_TIME_NULL"):
        representative_timestamp(pa.array([None, 1], pa.timestamp("us")))
    with pytest.raises(SchemaError, match="ICEFLOE_EVENT_TIME_TYPE"):
        representative_timestamp(pa.array([1]))


def test_the_event_time_is_the_column_with_a_watermark_unless_another_is_named() -> None:
    assert watermark_column(SPARK_SCHEMA.json()) == "ts"
    assert SinkSchema.from_spark(SPARK_SCHEMA.json()).timestamp_name == "ts"
    named = SinkSchema.from_spark(SPARK_SCHEMA.json(), event_time_column="other")
    assert (named.timestamp_index, named.timestamp_name) == (2, "Other")
    assert SinkSchema.from_spark(spark.StructType().add("a", spark.LongType()).json()).timestamp_name is None


def test_an_event_time_that_is_not_there_or_not_a_time_is_refused() -> None:
    with pytest.raises(OptionError, match=r"ICEFLOE_EVENT_TIME_COLUMN: eventTimeColumn='tss' \(is it 'ts'\?\)"):
        SinkSchema.from_spark(SPARK_SCHEMA.json(), event_time_column="tss")
    with pytest.raises(SchemaError, match="ICEFLOE_EVENT_TIME_TYPE: Event-time column 'id'"):
        SinkSchema.from_spark(SPARK_SCHEMA.json(), event_time_column="id")
    with pytest.raises(SchemaError, match="ICEFLOE_EVENT_TIME_COLUMN"):
        SinkSchema(pa.schema([("a", pa.int64())]), 1)


def test_the_fingerprint_is_the_same_in_every_process_and_release() -> None:
    schema = pa.schema([pa.field("m", pa.map_(pa.string(), pa.list_(pa.int32()))), ("t", pa.timestamp("us", "UTC"))])
    fingerprint = SinkSchema(schema, 1).fingerprint()
    assert fingerprint == "00233ff0316e613790ed8a90a5dc0e00dcd0248fc4f1a85e5927f71eb54fa611"
    assert pickle.loads(pickle.dumps(SinkSchema(schema, 1))).fingerprint() == fingerprint


def test_the_fingerprint_sees_every_difference() -> None:
    def nested(inner: pa.Field) -> pa.Schema:
        return pa.schema([pa.field("s", pa.struct([inner]))])

    schemas = [
        nested(pa.field("x", pa.int32())),
        nested(pa.field("x", pa.int32(), nullable=False)),
        nested(pa.field("x", pa.int64())),
        nested(pa.field("y", pa.int32())),
        nested(pa.field("x", pa.int32(), metadata={b"PARQUET:field_id": b"1"})),
        nested(pa.field("x", pa.int32(), metadata={b"PARQUET:field_id": b"2"})),
        pa.schema([pa.field("s", pa.list_(pa.field("x", pa.int32())))]),
    ]
    found = {SinkSchema(schema).fingerprint() for schema in schemas} | {SinkSchema(schemas[0], 0).fingerprint()}
    assert len(found) == len(schemas) + 1
