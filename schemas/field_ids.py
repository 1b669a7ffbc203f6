"""Puts a table's field ids on the stream's Arrow schema, so that files say which column is which after a rename."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from icefloe.errors import SchemaError
from icefloe.schemas.column_matching import match_columns, name_with_hint, unmatched_sources
from icefloe.schemas.iceberg_schema import IcebergField, IcebergSchema
from icefloe.schemas.types import FIELD_ID_KEY, is_list, join_path


def update_field_ids_to_iceberg(arrow_schema: pa.Schema, iceberg_schema_json: Mapping[str, Any] | str) -> pa.Schema:
    """Set the catalog's field id on every field of ``arrow_schema``: structs, lists and maps nested in each other.

    Types, order and nullability stay as they are; a column that matches only without regard to case takes the
    table's spelling. Optional columns of the table that the stream lacks are left out.

    Raises:
        SchemaError: ICEFLOE_COLUMN_UNKNOWN lists columns that the table does not have, ICEFLOE_COLUMN_MISSING
            required ones that the stream does not have, ICEFLOE_COLUMN_AMBIGUOUS, ICEFLOE_TYPE_MISMATCH where one
            side is nested and the other is not.
    """
    table = IcebergSchema.from_json(iceberg_schema_json)
    return pa.schema(_with_ids(list(arrow_schema), table.fields, ""), metadata=arrow_schema.metadata)


def field_id(field: pa.Field) -> int:
    """The id that a field carries.

    Raises:
        SchemaError: ICEFLOE_FIELD_ID_MISSING when it carries none.
    """
    metadata = field.metadata or {}
    if FIELD_ID_KEY not in metadata:
        raise SchemaError("ICEFLOE_FIELD_ID_MISSING", f"Field {field.name!r} of the writer's schema has no field id.")
    return int(metadata[FIELD_ID_KEY])


def _with_ids(fields: Sequence[pa.Field], columns: Sequence[IcebergField], path: str) -> list[pa.Field]:
    names = [field.name for field in fields]
    column_names = [column.name for column in columns]
    matched = match_columns(names, column_names, path=path)
    _refuse_unknown(unmatched_sources(names, matched), column_names, path)
    _refuse_missing([c for c, index in zip(columns, matched, strict=True) if index is None and c.required], names, path)
    column_of = {index: column for column, index in zip(columns, matched, strict=True) if index is not None}
    return [_with_id(field, column_of[index], path) for index, field in enumerate(fields)]


def _with_id(field: pa.Field, column: IcebergField, parent: str) -> pa.Field:
    path = join_path(parent, column.name)
    metadata = {**(field.metadata or {}), FIELD_ID_KEY: str(column.field_id).encode()}
    arrow_type = _type_with_ids(field.type, column, path)
    return pa.field(column.name, arrow_type, nullable=field.nullable, metadata=metadata)


def _type_with_ids(arrow_type: pa.DataType, column: IcebergField, path: str) -> pa.DataType:
    kind = _kind(arrow_type)
    if kind != (column.type_name if column.is_nested else "primitive"):
        raise SchemaError(
            "ICEFLOE_TYPE_MISMATCH",
            f"Column {path!r} is {arrow_type} in the stream and {column.type_name} in the table: cast one of the two.",
        )
    if kind == "struct":
        return pa.struct(_with_ids(list(arrow_type), column.children, path))
    if kind == "list":
        element = _with_id(arrow_type.value_field, column.children[0], path)
        return pa.large_list(element) if pa.types.is_large_list(arrow_type) else pa.list_(element)
    if kind == "map":
        key = _with_id(arrow_type.key_field, column.children[0], path)
        return pa.map_(key, _with_id(arrow_type.item_field, column.children[1], path))
    return arrow_type


def _kind(arrow_type: pa.DataType) -> str:
    if pa.types.is_struct(arrow_type):
        return "struct"
    if pa.types.is_map(arrow_type):
        return "map"
    return "list" if is_list(arrow_type) else "primitive"


def _refuse_unknown(unknown: Sequence[str], known: Sequence[str], path: str) -> None:
    if unknown:
        listed = ", ".join(name_with_hint(name, known, path=path) for name in unknown)
        raise SchemaError(
            "ICEFLOE_COLUMN_UNKNOWN",
            f"The table has no column for {listed}: drop or rename it in the stream, or add it with mergeSchema=true.",
        )


def _refuse_missing(missing: Sequence[IcebergField], names: Sequence[str], path: str) -> None:
    if missing:
        listed = ", ".join(name_with_hint(column.name, names, path=path) for column in missing)
        raise SchemaError(
            "ICEFLOE_COLUMN_MISSING", f"The table requires {listed}, which the stream does not have: add it there."
        )
