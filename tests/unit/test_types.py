"""The one table of types: Spark to Arrow to Iceberg, and what it refuses."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyspark.sql import types as spark

from icefloe.errors import SchemaError
from icefloe.schemas.iceberg_schema import arrow_schema_from_iceberg
from icefloe.schemas.types import arrow_schema_from_spark, iceberg_schema_json, iceberg_type_json
from support.wide_schema import wide_schema_json

EVERY_SPARK_TYPE = [
    (spark.BooleanType(), pa.bool_(), "boolean"),
    (spark.ByteType(), pa.int8(), "int"),
    (spark.ShortType(), pa.int16(), "int"),
    (spark.IntegerType(), pa.int32(), "int"),
    (spark.LongType(), pa.int64(), "long"),
    (spark.FloatType(), pa.float32(), "float"),
    (spark.DoubleType(), pa.float64(), "double"),
    (spark.DateType(), pa.date32(), "date"),
    (spark.TimestampType(), pa.timestamp("us", "UTC"), "timestamptz"),
    (spark.TimestampNTZType(), pa.timestamp("us"), "timestamp"),
    (spark.StringType(), pa.string(), "string"),
    (spark.StringType("UTF8_LCASE"), pa.string(), "string"),
    (spark.VarcharType(5), pa.string(), "string"),
    (spark.CharType(5), pa.string(), "string"),
    (spark.BinaryType(), pa.binary(), "binary"),
    (spark.DecimalType(38, 18), pa.decimal128(38, 18), "decimal(38, 18)"),
    (spark.TimeType(6), pa.time64("us"), "time"),
]


@pytest.mark.parametrize(("spark_type", "arrow_type", "iceberg"), EVERY_SPARK_TYPE)
def test_every_primitive_spark_type_has_its_arrow_and_iceberg_type(
    spark_type: spark.DataType, arrow_type: pa.DataType, iceberg: str
) -> None:
    schema = arrow_schema_from_spark(spark.StructType().add("c", spark_type, nullable=False).json())
    assert schema == pa.schema([pa.field("c", arrow_type, nullable=False)])
    assert iceberg_type_json(arrow_type) == iceberg


def test_nested_types_keep_nullability_at_every_level() -> None:
    inner = spark.StructType().add("x", spark.IntegerType(), nullable=False).add("y", spark.StringType())
    outer = spark.StructType().add("m", spark.MapType(spark.StringType(), spark.ArrayType(inner, False), False))
    element = pa.struct([pa.field("x", pa.int32(), nullable=False), pa.field("y", pa.string())])
    value = pa.field("value", pa.list_(pa.field("element", element, nullable=False)), nullable=False)
    assert arrow_schema_from_spark(outer.json()).field("m").type == pa.map_(pa.string(), value)


@pytest.mark.parametrize(
    "spark_type",
    [
        spark.NullType(),
        spark.VariantType(),
        spark.CalendarIntervalType(),
        spark.DayTimeIntervalType(),
        spark.YearMonthIntervalType(),
    ],
)
def test_a_type_that_cannot_be_stored_is_refused_with_the_path_of_the_column(spark_type: spark.DataType) -> None:
    schema = spark.StructType().add("a", spark.ArrayType(spark.StructType().add("b", spark_type)))
    with pytest.raises(SchemaError, match=r"^ICEFLOE_TYPE_UNSUPPORTED: Column 'a\.element\.b'"):
        arrow_schema_from_spark(schema.json())


def test_a_user_defined_type_is_refused() -> None:
    field = {"name": "v", "type": {"type": "udt", "class": "x.Vector"}, "nullable": True, "metadata": {}}
    with pytest.raises(SchemaError, match="Column 'v' has Spark type 'udt'"):
        arrow_schema_from_spark(json.dumps({"type": "struct", "fields": [field]}))


def test_two_columns_of_one_name_are_refused() -> None:
    schema = spark.StructType().add("a", spark.LongType()).add("a", spark.StringType())
    with pytest.raises(SchemaError, match="ICEFLOE_COLUMN_DUPLICATE"):
        arrow_schema_from_spark(schema.json())


@pytest.mark.parametrize("text", ["", "{", "[]", '{"type": "array"}', '"string"'])
def test_text_that_is_not_a_struct_is_refused(text: str) -> None:
    with pytest.raises(SchemaError, match="ICEFLOE_SCHEMA_INVALID"):
        arrow_schema_from_spark(text)


@pytest.mark.parametrize("arrow_type", [pa.uint64(), pa.float16(), pa.null(), pa.duration("us"), pa.decimal256(50, 2)])
def test_an_arrow_type_without_an_iceberg_type_is_refused(arrow_type: pa.DataType) -> None:
    with pytest.raises(SchemaError, match=r"ICEFLOE_TYPE_UNSUPPORTED: Column 'm\.value'"):
        iceberg_type_json(pa.map_(pa.string(), arrow_type), path="m")


def test_large_view_and_dictionary_types_are_the_plain_ones_to_iceberg() -> None:
    for arrow_type in (pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())):
        assert iceberg_type_json(arrow_type) == "string"
    assert iceberg_type_json(pa.large_binary()) == "binary"
    assert iceberg_type_json(pa.timestamp("ms", "Europe/Berlin")) == "timestamptz"


def test_fresh_ids_number_a_level_before_the_one_below_it() -> None:
    struct = pa.struct([("x", pa.int32()), ("y", pa.int32())])
    spec = iceberg_schema_json(pa.schema([("a", struct), ("b", pa.list_(pa.int32()))]))
    assert [field["id"] for field in spec["fields"]] == [1, 2]
    assert [field["id"] for field in spec["fields"][0]["type"]["fields"]] == [3, 4]
    assert spec["fields"][1]["type"]["element-id"] == 5


def test_a_schema_with_ids_goes_through_arrow_unchanged() -> None:
    spec = wide_schema_json()
    through = iceberg_schema_json(arrow_schema_from_iceberg(spec), schema_id=7)
    assert Schema.model_validate(through) == Schema.model_validate(spec)
