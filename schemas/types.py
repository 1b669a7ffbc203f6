"""The one table of types: what Spark calls them, how Arrow carries them, how Iceberg stores them.

First stage of a row's way: the driver reads the stream's schema here, before any data moves.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import pyarrow as pa

from icefloe.errors import SchemaError

UTC = "UTC"
FIELD_ID_KEY = b"PARQUET:field_id"
LIST_ELEMENT = "element"
MAP_KEY = "key"
MAP_VALUE = "value"


@dataclass(frozen=True, slots=True)
class TypeRow:
    """One line of the table. ``spark`` is None for a type that only Iceberg tables have."""

    spark: str | None
    arrow: pa.DataType
    iceberg: str


# Iceberg has no 8 and 16 bit integers: they are stored as `int`. Looking a row up by its Iceberg name takes the first
# match, so `int` is listed with its own Arrow type before the narrower ones.
TYPE_TABLE: tuple[TypeRow, ...] = (
    TypeRow("boolean", pa.bool_(), "boolean"),
    TypeRow("integer", pa.int32(), "int"),
    TypeRow("byte", pa.int8(), "int"),
    TypeRow("short", pa.int16(), "int"),
    TypeRow("long", pa.int64(), "long"),
    TypeRow("float", pa.float32(), "float"),
    TypeRow("double", pa.float64(), "double"),
    TypeRow("date", pa.date32(), "date"),
    TypeRow("time(6)", pa.time64("us"), "time"),
    TypeRow("timestamp", pa.timestamp("us", UTC), "timestamptz"),
    TypeRow("timestamp_ntz", pa.timestamp("us"), "timestamp"),
    TypeRow("string", pa.string(), "string"),
    TypeRow("binary", pa.binary(), "binary"),
    TypeRow(None, pa.uuid(), "uuid"),
    TypeRow(None, pa.timestamp("ns", UTC), "timestamptz_ns"),
    TypeRow(None, pa.timestamp("ns"), "timestamp_ns"),
)

_BY_SPARK = {row.spark: row.arrow for row in TYPE_TABLE if row.spark}
_BY_ICEBERG = {row.iceberg: row.arrow for row in reversed(TYPE_TABLE)}
_BY_ARROW = {row.arrow: row.iceberg for row in TYPE_TABLE} | {
    pa.large_string(): "string",
    pa.string_view(): "string",
    pa.large_binary(): "binary",
    pa.binary_view(): "binary",
}

_DECIMAL = re.compile(r"^decimal\(\s*(\d+)\s*,\s*(-?\d+)\s*\)$")
_FIXED = re.compile(r"^fixed\[(\d+)\]$")
# Length limits and collations change how Spark compares text, not how it is stored.
_SPARK_TEXT = re.compile(r"^(string( collate .+)?|(var)?char\(\d+\))$")
_SPARK_TIME = re.compile(r"^time(\([0-6]\))?$")
_MAX_DECIMAL_PRECISION = 38


def arrow_schema_from_spark(schema_json: str) -> pa.Schema:
    """Read the text of ``StructType.json()`` as an Arrow schema; no PySpark is imported.

    Nullability is kept at every level, timestamps with a zone are in UTC, list elements are called ``element``.

    Raises:
        SchemaError: ICEFLOE_TYPE_UNSUPPORTED with the path of the column, ICEFLOE_COLUMN_DUPLICATE for two columns
            of one name, ICEFLOE_SCHEMA_INVALID for text that is not the JSON of a struct.
    """
    try:
        spec = json.loads(schema_json)
    except ValueError as error:
        raise SchemaError("ICEFLOE_SCHEMA_INVALID", f"The stream's schema is not JSON: {error}.") from error
    if not isinstance(spec, dict) or spec.get("type") != "struct":
        raise SchemaError("ICEFLOE_SCHEMA_INVALID", "The stream's schema is not the JSON of a Spark StructType.")
    return pa.schema(_spark_fields(spec, ""))


def arrow_type_from_iceberg(name: str, path: str) -> pa.DataType:
    """The Arrow type of a primitive Iceberg type given by its name in the spec, such as ``decimal(9,2)``.

    Raises:
        SchemaError: ICEFLOE_TYPE_UNSUPPORTED with ``path``, for a type that Arrow cannot carry.
    """
    if name in _BY_ICEBERG:
        return _BY_ICEBERG[name]
    if decimal := _DECIMAL.match(name):
        return _decimal(int(decimal[1]), int(decimal[2]), path)
    if fixed := _FIXED.match(name):
        return pa.binary(int(fixed[1]))
    raise unsupported(path, f"Iceberg type {name!r}")


def iceberg_type_json(arrow_type: pa.DataType, *, path: str = "", ids: Iterator[int] | None = None) -> Any:
    """The Iceberg type of an Arrow type, as the spec's JSON: text for a primitive type, a dict for a nested one.

    Fields that carry no id take the next one from ``ids`` (1, 2, 3, ... by default), all fields of one level before
    those of the next.

    Raises:
        SchemaError: ICEFLOE_TYPE_UNSUPPORTED with the path of the column.
    """
    ids = count(1) if ids is None else ids
    if pa.types.is_dictionary(arrow_type):
        return iceberg_type_json(arrow_type.value_type, path=path, ids=ids)
    if pa.types.is_struct(arrow_type):
        return {"type": "struct", "fields": _iceberg_fields(list(arrow_type), path, ids)}
    if is_list(arrow_type):
        element = arrow_type.value_field
        element_id = _field_id(element, ids)
        return {
            "type": "list",
            "element-id": element_id,
            "element-required": not element.nullable,
            "element": iceberg_type_json(element.type, path=join_path(path, LIST_ELEMENT), ids=ids),
        }
    if pa.types.is_map(arrow_type):
        return _iceberg_map(arrow_type, path, ids)
    return _iceberg_primitive(arrow_type, path)


def iceberg_schema_json(schema: pa.Schema, *, schema_id: int = 0) -> dict[str, Any]:
    """The Iceberg schema of an Arrow schema, as the spec's JSON; ids as ``iceberg_type_json`` gives them."""
    fields = _iceberg_fields(list(schema), "", count(1))
    return {"type": "struct", "schema-id": schema_id, "fields": fields}


def is_list(arrow_type: pa.DataType) -> bool:
    """Whether this is a list, large list or fixed-size list, all of which Iceberg calls ``list``.

    List views are not: PyArrow 26 casts one with a null in it to a list with too few offsets, and Spark sends none.
    """
    return bool(
        pa.types.is_list(arrow_type) or pa.types.is_large_list(arrow_type) or pa.types.is_fixed_size_list(arrow_type)
    )


def join_path(parent: str, name: str) -> str:
    """The path of a nested column as messages and Iceberg spell it: ``address.street``."""
    return f"{parent}.{name}" if parent else name


def unsupported(path: str, what: str) -> SchemaError:
    """The error for a type that no Iceberg table or Parquet file of ours can hold."""
    where = f"Column {path!r}" if path else "The schema"
    return SchemaError(
        "ICEFLOE_TYPE_UNSUPPORTED", f"{where} has {what}, which cannot be written: cast or drop it before the sink."
    )


def _spark_fields(spec: Mapping[str, Any], path: str) -> list[pa.Field]:
    fields = []
    seen: set[str] = set()
    for field in spec["fields"]:
        name = field["name"]
        if name in seen:
            raise SchemaError(
                "ICEFLOE_COLUMN_DUPLICATE",
                f"Column {join_path(path, name)!r} is there twice in the stream: rename or drop one of the two.",
            )
        seen.add(name)
        arrow_type = _spark_type(field["type"], join_path(path, name))
        fields.append(pa.field(name, arrow_type, nullable=bool(field.get("nullable", True))))
    return fields


def _spark_type(spec: Any, path: str) -> pa.DataType:
    if isinstance(spec, str):
        return _spark_primitive(spec, path)
    kind = spec.get("type")
    if kind == "struct":
        return pa.struct(_spark_fields(spec, path))
    if kind == "array":
        element = _spark_type(spec["elementType"], join_path(path, LIST_ELEMENT))
        return pa.list_(pa.field(LIST_ELEMENT, element, nullable=bool(spec["containsNull"])))
    if kind == "map":
        key = _spark_type(spec["keyType"], join_path(path, MAP_KEY))
        value = _spark_type(spec["valueType"], join_path(path, MAP_VALUE))
        nullable = bool(spec["valueContainsNull"])
        return pa.map_(pa.field(MAP_KEY, key, nullable=False), pa.field(MAP_VALUE, value, nullable=nullable))
    raise unsupported(path, f"Spark type {kind!r}")


def _spark_primitive(name: str, path: str) -> pa.DataType:
    if name in _BY_SPARK:
        return _BY_SPARK[name]
    if _SPARK_TEXT.match(name):
        return pa.string()
    if _SPARK_TIME.match(name):
        return pa.time64("us")
    if name == "timestamp_ltz":
        return pa.timestamp("us", UTC)
    if name == "decimal":
        return pa.decimal128(10, 0)
    if decimal := _DECIMAL.match(name):
        return _decimal(int(decimal[1]), int(decimal[2]), path)
    raise unsupported(path, f"Spark type {name!r}")


def _decimal(precision: int, scale: int, path: str) -> pa.DataType:
    if not (1 <= precision <= _MAX_DECIMAL_PRECISION and 0 <= scale <= precision):
        raise unsupported(path, f"type decimal({precision},{scale})")
    return pa.decimal128(precision, scale)


def _iceberg_primitive(arrow_type: pa.DataType, path: str) -> str:
    if arrow_type in _BY_ARROW:
        return _BY_ARROW[arrow_type]
    if pa.types.is_decimal(arrow_type):
        _decimal(arrow_type.precision, arrow_type.scale, path)
        return f"decimal({arrow_type.precision}, {arrow_type.scale})"
    if pa.types.is_fixed_size_binary(arrow_type):
        return f"fixed[{arrow_type.byte_width}]"
    if pa.types.is_timestamp(arrow_type) and arrow_type.unit != "ns":
        return "timestamp" if arrow_type.tz is None else "timestamptz"
    raise unsupported(path, f"Arrow type {arrow_type}")


def _iceberg_fields(fields: Sequence[pa.Field], path: str, ids: Iterator[int]) -> list[dict[str, Any]]:
    numbered = [(_field_id(field, ids), field) for field in fields]
    return [
        {
            "id": field_id,
            "name": field.name,
            "required": not field.nullable,
            "type": iceberg_type_json(field.type, path=join_path(path, field.name), ids=ids),
        }
        for field_id, field in numbered
    ]


def _iceberg_map(arrow_type: pa.MapType, path: str, ids: Iterator[int]) -> dict[str, Any]:
    key_id = _field_id(arrow_type.key_field, ids)
    value_id = _field_id(arrow_type.item_field, ids)
    return {
        "type": "map",
        "key-id": key_id,
        "key": iceberg_type_json(arrow_type.key_type, path=join_path(path, MAP_KEY), ids=ids),
        "value-id": value_id,
        "value-required": not arrow_type.item_field.nullable,
        "value": iceberg_type_json(arrow_type.item_type, path=join_path(path, MAP_VALUE), ids=ids),
    }


def _field_id(field: pa.Field, ids: Iterator[int]) -> int:
    metadata = field.metadata or {}
    return int(metadata[FIELD_ID_KEY]) if FIELD_ID_KEY in metadata else next(ids)
