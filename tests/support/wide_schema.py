"""A schema with every type that files can hold, nested in each other, and rows for it that Hypothesis makes."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

MICROS_0001 = -62_135_596_800_000_000
MICROS_9999 = 253_402_300_799_999_999

PRIMITIVES: tuple[str, ...] = (
    "boolean",
    "int",
    "long",
    "float",
    "double",
    "date",
    "time",
    "timestamp",
    "timestamptz",
    "string",
    "binary",
    "uuid",
    "fixed[5]",
    "decimal(9, 2)",
    "decimal(18, 4)",
    "decimal(38, 10)",
)


def wide_schema_json(*, required: bool = False) -> dict[str, Any]:
    """The Iceberg JSON of a table with a column of every primitive type, and structs, lists and maps around them."""
    fields: list[dict[str, Any]] = [
        {"id": number, "name": f"c_{type_name.partition('(')[0].partition('[')[0]}_{number}", "required": required}
        | {"type": type_name}
        for number, type_name in enumerate(PRIMITIVES, start=1)
    ]
    struct = {
        "type": "struct",
        "fields": [
            {"id": 101, "name": "x", "required": True, "type": "double"},
            {"id": 102, "name": "name", "required": False, "type": "string"},
            {"id": 103, "name": "amounts", "required": False, "type": _list(104, "decimal(9, 2)")},
        ],
    }
    map_type = {"type": "map", "key-id": 202, "key": "string", "value-id": 203, "value-required": False}
    fields += [
        {"id": 100, "name": "place", "required": False, "type": struct},
        {"id": 200, "name": "floats", "required": False, "type": _list(201, "float")},
        {"id": 210, "name": "tags", "required": False, "type": {**map_type, "value": _list(204, "double")}},
        {"id": 220, "name": "rows", "required": False, "type": _list(221, _pair(222))},
    ]
    return {"type": "struct", "schema-id": 7, "fields": fields}


def values_of(arrow_type: pa.DataType) -> st.SearchStrategy[Any]:
    """Values of an Arrow type, with the corners that matter: NaN, infinities, zeros of both signs, non-ASCII text."""
    if pa.types.is_struct(arrow_type):
        return st.fixed_dictionaries({field.name: _maybe_null(field) for field in arrow_type})
    if pa.types.is_map(arrow_type):
        pairs = st.tuples(values_of(arrow_type.key_type), _maybe_null(arrow_type.item_field))
        return st.lists(pairs, max_size=3)
    if pa.types.is_list(arrow_type):
        return st.lists(_maybe_null(arrow_type.value_field), max_size=3)
    return _primitive_values(arrow_type)


def rows_of(schema: pa.Schema, *, min_size: int = 0, max_size: int = 12) -> st.SearchStrategy[list[dict[str, Any]]]:
    """Lists of rows for ``schema``; nullable fields are null now and then."""
    row = st.fixed_dictionaries({field.name: _maybe_null(field) for field in schema})
    return st.lists(row, min_size=min_size, max_size=max_size)


def _list(element_id: int, element: Any) -> dict[str, Any]:
    return {"type": "list", "element-id": element_id, "element-required": False, "element": element}


def _pair(first_id: int) -> dict[str, Any]:
    left = {"id": first_id, "name": "left", "required": False, "type": "float"}
    right = {"id": first_id + 1, "name": "right", "required": True, "type": "long"}
    return {"type": "struct", "fields": [left, right]}


def _maybe_null(field: pa.Field) -> st.SearchStrategy[Any]:
    values = values_of(field.type)
    return st.none() | values if field.nullable else values


def _primitive_values(arrow_type: pa.DataType) -> st.SearchStrategy[Any]:
    if pa.types.is_decimal(arrow_type):
        largest = 10**arrow_type.precision - 1
        scale = -arrow_type.scale
        return st.integers(-largest, largest).map(
            lambda n: Decimal((int(n < 0), tuple(map(int, str(abs(n)))), scale)),
        )
    if pa.types.is_fixed_size_binary(arrow_type):
        return st.binary(min_size=arrow_type.byte_width, max_size=arrow_type.byte_width)
    if pa.types.is_timestamp(arrow_type):
        return st.integers(MICROS_0001, MICROS_9999)
    return _BY_TYPE[arrow_type]


_BY_TYPE: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.bool_(): st.booleans(),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float32(): st.floats(width=32),
    pa.float64(): st.floats(),
    pa.date32(): st.integers(-719_162, 2_932_896),
    pa.time64("us"): st.integers(0, 86_400_000_000 - 1),
    pa.string(): st.text(max_size=20),
    pa.binary(): st.binary(max_size=20),
    pa.uuid(): st.binary(min_size=16, max_size=16),
}
