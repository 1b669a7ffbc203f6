"""Driver only: how the stream's schema becomes the table's, and how far the table may be changed to fit it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from pyiceberg.exceptions import ValidationError
from pyiceberg.io.pyarrow import _pyarrow_to_schema_without_ids
from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec, validate_partition_name
from pyiceberg.schema import Schema, assign_fresh_schema_ids
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

Path = tuple[str, ...]

_TERM = re.compile(r"^(?P<name>\w+)\s*\(\s*(?:(?P<width>\d+)\s*,\s*)?(?P<column>[^,()]+?)\s*\)$")
_PLAIN = {"identity", "year", "month", "day", "hour"}
_WITH_WIDTH = {"bucket": "bucket", "truncate": "trunc"}


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
    for column in schema:
        try:
            _pyarrow_to_schema_without_ids(pa.schema([_in_utc(column)]))
        except (TypeError, ValueError) as e:
            raise SchemaError(
                "ICEFLOE_SCHEMA_TYPE",
                f"column {column.name} has type {column.type}, which an Iceberg table of version 2 cannot hold; "
                "cast it in the query",
            ) from e
    return assign_fresh_schema_ids(_pyarrow_to_schema_without_ids(pa.schema([_in_utc(column) for column in schema])))


def _in_utc(column: pa.Field) -> pa.Field:
    return pa.field(column.name, _type_in_utc(column.type), nullable=True)


def _type_in_utc(kind: pa.DataType) -> pa.DataType:
    # Spark labels timestamps with the session's zone; the values are UTC, and Iceberg knows only UTC.
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp("us", "UTC")
    if pa.types.is_struct(kind):
        return pa.struct([_in_utc(kind.field(i)) for i in range(kind.num_fields)])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return pa.list_(_in_utc(kind.value_field))
    if pa.types.is_map(kind):
        return pa.map_(pa.field("key", _type_in_utc(kind.key_type), nullable=False), _in_utc(kind.item_field))
    if pa.types.is_dictionary(kind):
        return _type_in_utc(kind.value_type)
    return kind


def partition_spec_of(text: str | None, schema: Schema) -> PartitionSpec:
    """Return the spec that ``partitionBy`` describes, such as ``day(ts), bucket(16, user_id), region``.

    Raises ``OptionError`` for a term that is not understood, a column that is not there, or a type that the transform
    does not take.
    """
    fields: list[PartitionField] = []
    for term in _terms(text or ""):
        transform, column, suffix = _parse_term(term)
        source = _find(schema.fields, column) if "." not in column else None
        try:
            source = source or schema.find_field(column, case_sensitive=False)
            name = (schema.find_column_name(source.field_id) or column).replace(".", "_") + suffix
            spec_field = PartitionField(
                source_id=source.field_id,
                field_id=PARTITION_FIELD_ID_START + len(fields),
                transform=parse_transform(transform),
                name=name,
            )
            validate_partition_name(name, spec_field.transform, source.field_id, schema, {f.name for f in fields})
            fields.append(spec_field)
            PartitionSpec(*fields).check_compatible(schema)
        except (ValueError, ValidationError) as e:
            raise OptionError(
                "ICEFLOE_OPTION_PARTITION_BY",
                f"partitionBy={text}: {term} does not fit the columns {', '.join(f.name for f in schema.fields)}: {e}",
            ) from e
    return PartitionSpec(*fields)


def _terms(text: str) -> Iterator[str]:
    for term in re.split(r",(?![^(]*\))", text):
        if term.strip():
            yield term.strip()


def _parse_term(term: str) -> tuple[str, str, str]:
    """Return transform, column and the suffix of the partition field's name, as Iceberg names them."""
    match = _TERM.match(term)
    if match is None:
        if "(" in term or ")" in term:
            raise _bad_term(term)
        return "identity", term, ""
    name, width, column = match["name"].lower(), match["width"], match["column"]
    singular = name.removesuffix("s")
    if width is None and singular in _PLAIN:
        return singular, column, "" if singular == "identity" else f"_{singular}"
    if width is not None and name in _WITH_WIDTH:
        if int(width) < 1:
            raise _bad_term(term)
        return f"{name}[{int(width)}]", column, f"_{_WITH_WIDTH[name]}"
    raise _bad_term(term)


def _bad_term(term: str) -> OptionError:
    return OptionError(
        "ICEFLOE_OPTION_PARTITION_BY",
        f"partitionBy: {term} is not understood; write a column, year(c), month(c), day(c), hour(c), bucket(n, c) or "
        "truncate(n, c), separated by commas",
    )


def difference(stream: Schema, table: Schema) -> Difference:
    """Return what keeps ``stream`` from being written to ``table``; falsy when it fits."""
    found = Difference()
    _compare_structs(stream.fields, table.fields, (), found)
    return found


def _compare_structs(
    stream: Sequence[NestedField], table: Sequence[NestedField], path: Path, found: Difference
) -> None:
    matched: dict[int, str] = {}
    for column in stream:
        try:
            target = _find(table, column.name)
        except ValueError as e:
            found.misfits.append(str(e))
            continue
        if target is None:
            found.missing.append(((*path, column.name), column.field_type))
        elif target.field_id in matched:
            found.misfits.append(
                f"{matched[target.field_id]} and {column.name} are both column "
                f"{'.'.join((*path, target.name))} of the table"
            )
        else:
            matched[target.field_id] = column.name
            _compare_types(column.field_type, target.field_type, (*path, target.name), found)
    found.misfits.extend(
        f"column {'.'.join((*path, target.name))} is required in the table and missing in the stream"
        for target in table
        if target.required and target.field_id not in matched
    )


def _find(fields: Sequence[NestedField], name: str) -> NestedField | None:
    """Return the field of this exact name, else the only one that differs in case; ValueError where several do."""
    exact = [f for f in fields if f.name == name]
    close = exact or [f for f in fields if f.name.casefold() == name.casefold()]
    if len(close) > 1:
        raise ValueError(f"column {name} fits several columns of the table: {', '.join(f.name for f in close)}")
    return close[0] if close else None


def _compare_types(stream: IcebergType, table: IcebergType, path: Path, found: Difference) -> None:
    if isinstance(stream, StructType) and isinstance(table, StructType):
        _compare_structs(stream.fields, table.fields, path, found)
    elif isinstance(stream, ListType) and isinstance(table, ListType):
        _compare_types(stream.element_type, table.element_type, (*path, "element"), found)
    elif isinstance(stream, MapType) and isinstance(table, MapType):
        _compare_types(stream.key_type, table.key_type, (*path, "key"), found)
        _compare_types(stream.value_type, table.value_type, (*path, "value"), found)
    elif stream == table or widens(stream, table):
        return
    elif widens(table, stream):
        found.narrower.append((path, table, stream))
    else:
        found.misfits.append(f"column {'.'.join(path)} is {table} in the table and {stream} in the stream")


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
