"""An Iceberg schema as executors see it: read from the spec's JSON, without PyIceberg.

The driver takes the JSON from the catalog and ships it by value; the writer's Arrow schema is made from it here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from icefloe.errors import SchemaError
from icefloe.schemas.types import FIELD_ID_KEY, LIST_ELEMENT, MAP_KEY, MAP_VALUE, arrow_type_from_iceberg, join_path


@dataclass(frozen=True, slots=True)
class IcebergField:
    """A column, or a part of one: struct field, list element, map key or map value.

    ``type_name`` is a primitive type as the spec spells it, or ``struct``, ``list``, ``map``; ``children`` are the
    fields below it, in the spec's order.
    """

    field_id: int
    name: str
    required: bool
    type_name: str
    children: tuple[IcebergField, ...] = ()

    @property
    def is_nested(self) -> bool:
        return self.type_name in ("struct", "list", "map")

    def arrow_type(self, path: str) -> pa.DataType:
        """The Arrow type with field ids on every nested field. ``path`` names the column in errors."""
        if not self.is_nested:
            return arrow_type_from_iceberg(self.type_name, path)
        fields = [child.arrow_field(join_path(path, child.name)) for child in self.children]
        if self.type_name == "struct":
            return pa.struct(fields)
        if self.type_name == "list":
            return pa.list_(fields[0])
        return pa.map_(fields[0], fields[1])

    def arrow_field(self, path: str) -> pa.Field:
        metadata = {FIELD_ID_KEY: str(self.field_id).encode()}
        return pa.field(self.name, self.arrow_type(path), nullable=not self.required, metadata=metadata)


@dataclass(frozen=True, slots=True)
class IcebergSchema:
    """A schema of a table: its id and its columns. Hashable and picklable."""

    schema_id: int
    fields: tuple[IcebergField, ...]

    @classmethod
    def from_json(cls, schema_json: Mapping[str, Any] | str) -> IcebergSchema:
        """Read the spec's JSON of a schema, parsed or as text.

        Raises:
            SchemaError: ICEFLOE_SCHEMA_INVALID when a part that the spec demands is missing or of a wrong kind.
        """
        try:
            spec = json.loads(schema_json) if isinstance(schema_json, str) else schema_json
            return cls(int(spec.get("schema-id", 0)), tuple(_field_from_json(field) for field in spec["fields"]))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise SchemaError(
                "ICEFLOE_SCHEMA_INVALID", f"The table's schema is not as the Iceberg spec has it: {error!r}."
            ) from error

    def arrow_schema(self) -> pa.Schema:
        """The schema of the files: field ids on every field, required fields not null, UTC for zoned times.

        Raises:
            SchemaError: ICEFLOE_TYPE_UNSUPPORTED with the path of the column.
        """
        return pa.schema([field.arrow_field(field.name) for field in self.fields])

    def walk(self) -> Iterator[tuple[str, IcebergField]]:
        """Every field of every level with its path, parents first."""
        for field in self.fields:
            yield from _walk(field, field.name)

    def path_of(self, field_id: int) -> str | None:
        """The path of the field with this id, or None when the schema has no such field."""
        return next((path for path, field in self.walk() if field.field_id == field_id), None)


def arrow_schema_from_iceberg(schema_json: Mapping[str, Any] | str) -> pa.Schema:
    """The writer's Arrow schema for a table whose schema is given as the spec's JSON.

    Raises:
        SchemaError: ICEFLOE_SCHEMA_INVALID or ICEFLOE_TYPE_UNSUPPORTED, as the two steps it consists of.
    """
    return IcebergSchema.from_json(schema_json).arrow_schema()


def _walk(field: IcebergField, path: str) -> Iterator[tuple[str, IcebergField]]:
    yield path, field
    for child in field.children:
        yield from _walk(child, join_path(path, child.name))


def _field_from_json(spec: Mapping[str, Any]) -> IcebergField:
    return _field(int(spec["id"]), str(spec["name"]), bool(spec["required"]), spec["type"])


def _field(field_id: int, name: str, required: bool, type_json: Any) -> IcebergField:
    if isinstance(type_json, str):
        return IcebergField(field_id, name, required, type_json)
    kind = str(type_json["type"])
    children = _CHILDREN[kind](type_json)
    return IcebergField(field_id, name, required, kind, children)


def _struct_children(spec: Mapping[str, Any]) -> tuple[IcebergField, ...]:
    return tuple(_field_from_json(field) for field in spec["fields"])


def _list_children(spec: Mapping[str, Any]) -> tuple[IcebergField, ...]:
    return (_field(int(spec["element-id"]), LIST_ELEMENT, bool(spec["element-required"]), spec["element"]),)


def _map_children(spec: Mapping[str, Any]) -> tuple[IcebergField, ...]:
    key = _field(int(spec["key-id"]), MAP_KEY, True, spec["key"])
    value = _field(int(spec["value-id"]), MAP_VALUE, bool(spec["value-required"]), spec["value"])
    return (key, value)


_CHILDREN = {"struct": _struct_children, "list": _list_children, "map": _map_children}
