"""Driver only: how the stream's schema becomes the table's, and how far the table may be changed to fit it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyiceberg.exceptions import ValidationError
from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec, validate_partition_name
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import parse_transform
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StructType,
)

from icefloe.errors import OptionError, SchemaError
from icefloe.schemas.column_matching import match_columns
from icefloe.schemas.conversions import Fit, fit
from icefloe.schemas.transforms import parse_partition_by
from icefloe.schemas.types import arrow_type_from_iceberg, iceberg_schema_json

Path = tuple[str, ...]

_REQUIRED_KEYS = {"required", "element-required", "value-required"}


@dataclass(slots=True)
class Difference:
    """What keeps a stream's schema from being written to a table as it is."""

    # Columns of the stream that the table lacks, and columns of the table with a narrower type.
    missing: list[tuple[Path, IcebergType]] = field(default_factory=list)
    narrower: list[tuple[Path, IcebergType, IcebergType]] = field(default_factory=list)
    # What no evolution mends, as text.
    misfits: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.missing or self.narrower or self.misfits)


def stream_to_iceberg(schema: pa.Schema) -> Schema:
    """Return the Iceberg schema of a new table for this stream: fresh field ids, every column optional.

    Columns are optional whatever Spark says: its nullability changes with the query plan, a table's may not.
    Raises ``SchemaError`` with the column for a type that Iceberg does not have.
    """
    described = iceberg_schema_json(schema)
    _make_optional(described)
    return Schema.model_validate(described)


def _make_optional(described: Any) -> None:
    if isinstance(described, dict):
        for key in _REQUIRED_KEYS & described.keys():
            described[key] = False
        for value in described.values():
            _make_optional(value)
    elif isinstance(described, list):
        for value in described:
            _make_optional(value)


def partition_spec_of(text: str | None, schema: Schema) -> PartitionSpec:
    """Return the spec that ``partitionBy`` describes, such as ``day(ts), bucket(16, user_id), region``.

    Raises ``OptionError`` for a term that is not understood, a column that is not there, or a type that the transform
    does not take.
    """
    fields: list[PartitionField] = []
    for wanted in parse_partition_by(text or ""):
        try:
            source = _source(schema, wanted.source)
            # By the column's own name: the option may spell it in another case.
            name = wanted.transform.default_name(schema.find_column_name(source.field_id) or wanted.source)
            transform = parse_transform(str(wanted.transform))
            validate_partition_name(name, transform, source.field_id, schema, {f.name for f in fields})
            fields.append(PartitionField(source.field_id, PARTITION_FIELD_ID_START + len(fields), transform, name))
            PartitionSpec(*fields).check_compatible(schema)
        except (ValueError, ValidationError) as e:
            raise OptionError(
                "ICEFLOE_PARTITION_BY",
                f"partitionBy={text}: {wanted.transform} of {wanted.source} does not fit the columns "
                f"{', '.join(f.name for f in schema.fields)}: {e}",
            ) from e
    return PartitionSpec(*fields)


def _source(schema: Schema, column: str) -> NestedField:
    try:
        return schema.find_field(column)
    except ValueError:
        return schema.find_field(column, case_sensitive=False)


def difference(stream: Schema, table: Schema) -> Difference:
    """Return what keeps ``stream`` from being written to ``table``; falsy when it fits."""
    found = Difference()
    _compare_structs(stream.fields, table.fields, (), found)
    return found


def _compare_structs(
    stream: Sequence[NestedField], table: Sequence[NestedField], path: Path, found: Difference
) -> None:
    names = [column.name for column in stream]
    matched = match_columns(names, [target.name for target in table], path=".".join(path))
    for target, index in zip(table, matched, strict=True):
        if index is not None:
            _compare_types(stream[index].field_type, target.field_type, (*path, target.name), found)
        elif target.required:
            full_name = ".".join((*path, target.name))
            found.misfits.append(f"column {full_name} is required in the table and missing in the stream")
    taken = set(matched)
    found.missing.extend(((*path, c.name), c.field_type) for i, c in enumerate(stream) if i not in taken)


def _compare_types(stream: IcebergType, table: IcebergType, path: Path, found: Difference) -> None:
    if isinstance(stream, StructType) and isinstance(table, StructType):
        _compare_structs(stream.fields, table.fields, path, found)
    elif isinstance(stream, ListType) and isinstance(table, ListType):
        _compare_types(stream.element_type, table.element_type, (*path, "element"), found)
    elif isinstance(stream, MapType) and isinstance(table, MapType):
        _compare_types(stream.key_type, table.key_type, (*path, "key"), found)
        _compare_types(stream.value_type, table.value_type, (*path, "value"), found)
    elif stream == table or _is_writable(stream, table, ".".join(path)):
        return
    elif widens(table, stream):
        found.narrower.append((path, table, stream))
    else:
        found.misfits.append(f"column {'.'.join(path)} is {table} in the table and {stream} in the stream")


def _is_writable(stream: IcebergType, table: IcebergType, path: str) -> bool:
    """Whether tasks can bring values of the stream's type to the table's without losing any."""
    if not (stream.is_primitive and table.is_primitive):
        return False
    arrow = (arrow_type_from_iceberg(str(stream), path), arrow_type_from_iceberg(str(table), path))
    return fit(*arrow) in (Fit.ALWAYS, Fit.IF_VALUES_DO)


def widens(narrow: IcebergType, wide: IcebergType) -> bool:
    """Whether Iceberg promotes ``narrow`` to ``wide``: int to long, float to double, a decimal to more digits."""
    if isinstance(narrow, DecimalType) and isinstance(wide, DecimalType):
        return narrow.scale == wide.scale and narrow.precision < wide.precision
    pairs = ((IntegerType, LongType), (FloatType, DoubleType))
    return any(isinstance(narrow, a) and isinstance(wide, b) for a, b in pairs)


def require_fit(found: Difference, identifier: str, *, merge: bool) -> None:
    """Raise ``SchemaError`` that lists every column in the way, unless evolution may and can mend all of them."""
    problems = list(found.misfits)
    if not merge:
        problems += [f"column {'.'.join(path)} ({kind}) is not in the table" for path, kind in found.missing]
        problems += [
            f"column {'.'.join(path)} is {a} in the table and {b} in the stream" for path, a, b in found.narrower
        ]
    problems += [
        f"column {'.'.join(path)} is a map key and cannot change" for path, *_ in found.narrower if path[-1] == "key"
    ]
    if not problems:
        return
    mendable = not merge and not found.misfits
    advice = (
        "set mergeSchema=true to change the table, or change the query" if mendable else "change the query or the table"
    )
    raise SchemaError(
        "ICEFLOE_SCHEMA_MISMATCH", f"the stream does not fit the table {identifier}: {'; '.join(problems)}; {advice}"
    )


def evolve(table: Table, found: Difference) -> None:
    """Add the missing columns as optional ones and widen types, in one commit of its own that adds no snapshot.

    Additive only, and repeatable: the caller reloads the table and compares again after any failure. Raises what the
    catalog raises; ``CommitFailedException`` where another writer changed the schema first.
    """
    transaction = table.transaction()
    with transaction.update_schema() as update:
        for path, kind in found.missing:
            update.add_column(path, kind)
        for path, _, wide in found.narrower:
            update.update_column(path, field_type=wide)
    transaction.commit_transaction()
