"""Brings every batch of the stream to the writer's schema, before rows are partitioned.

The plan is made once per pair of schemas; a batch that already fits is passed on without touching a value.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa

from icefloe.errors import SchemaError
from icefloe.schemas.column_matching import match_columns, name_with_hint, unmatched_sources
from icefloe.schemas.conversions import Conversion, Fit, compile_conversion, fit, refusal
from icefloe.schemas.nested_values import child_fields, child_values
from icefloe.schemas.types import LIST_ELEMENT, MAP_KEY, MAP_VALUE, is_list, join_path


@dataclass(frozen=True, slots=True)
class _ColumnPlan:
    """How one target column is filled: from ``source`` (None: with nulls) by ``conversion`` (None: as it is)."""

    field: pa.Field
    source: int | None
    conversion: Conversion | None
    check_nulls: bool


class BatchNormalizer:
    """Casts and re-nests batches of ``source_schema`` to ``target_schema``. Holds no rows; safe to share.

    Zones become UTC (same instant), large and view types plain ones, dictionaries are decoded, missing optional
    columns filled with nulls, columns put in the target's order. Columns named in ``drop`` are left out; any other
    column without a target is refused.

    Raises:
        SchemaError: ICEFLOE_COLUMN_UNKNOWN, ICEFLOE_COLUMN_MISSING or ICEFLOE_COLUMN_AMBIGUOUS, when made.
    """

    def __init__(
        self, source_schema: pa.Schema, target_schema: pa.Schema, *, drop: Collection[str] = frozenset()
    ) -> None:
        self.source_schema = source_schema
        self.target_schema = target_schema
        self._plans = _plan_columns(source_schema, target_schema, frozenset(drop))
        self._is_identity = source_schema.equals(target_schema, check_metadata=True)

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch in the target's schema; columns that need no change share their buffers with the input.

        Raises:
            SchemaError: ICEFLOE_NULL_IN_REQUIRED with column and row count, ICEFLOE_TYPE_NARROWING or
                ICEFLOE_TYPE_MISMATCH with column, both types and a value, ICEFLOE_BATCH_SCHEMA for a batch whose
                schema is not the one the plan was made for.
        """
        if not batch.schema.equals(self.source_schema):
            raise SchemaError(
                "ICEFLOE_BATCH_SCHEMA",
                f"A batch came with schema [{_one_line(batch.schema)}], but the stream began with "
                f"[{_one_line(self.source_schema)}]: restart the query.",
            )
        arrays = [_fill(plan, batch) for plan in self._plans]
        for plan, array in zip(self._plans, arrays, strict=True):
            if plan.check_nulls:
                _refuse_nulls(array, plan.field, plan.field.name)
        if self._is_identity:
            return batch
        if not arrays:
            return batch.select([])
        return pa.RecordBatch.from_arrays(arrays, schema=self.target_schema)


def normalize_batch_to_schema(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch cast and re-nested to ``schema``; as ``BatchNormalizer``, with the plan kept between calls."""
    return _cached_normalizer(_ByIdentity(batch.schema), _ByIdentity(schema)).apply(batch)


def check_schemas_fit(
    source_schema: pa.Schema, target_schema: pa.Schema, *, drop: Collection[str] = frozenset()
) -> None:
    """Refuse, before any data moves, what every batch would be refused for. Values are not looked at.

    Raises:
        SchemaError: as ``BatchNormalizer`` and its ``apply``, without an example value.
    """
    for plan in _plan_columns(source_schema, target_schema, frozenset(drop)):
        if plan.source is not None:
            _check_types_fit(source_schema.field(plan.source).type, plan.field.type, plan.field.name)


class _ByIdentity:
    """A schema as a cache key, equal only with equal metadata: field ids must not be lost to a look-alike."""

    __slots__ = ("schema",)

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema

    def __hash__(self) -> int:
        return hash(tuple(self.schema.names))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ByIdentity) and bool(self.schema.equals(other.schema, check_metadata=True))


@lru_cache(maxsize=64)
def _cached_normalizer(source: _ByIdentity, target: _ByIdentity) -> BatchNormalizer:
    return BatchNormalizer(source.schema, target.schema)


def _plan_columns(source: pa.Schema, target: pa.Schema, drop: frozenset[str]) -> list[_ColumnPlan]:
    matched = match_columns(source.names, target.names)
    unknown = [name for name in unmatched_sources(source.names, matched) if name not in drop]
    if unknown:
        listed = ", ".join(name_with_hint(name, target.names) for name in unknown)
        raise SchemaError(
            "ICEFLOE_COLUMN_UNKNOWN", f"The target has no column for {listed}: drop or rename it in the stream."
        )
    missing = [f for f, index in zip(target, matched, strict=True) if index is None and not f.nullable]
    if missing:
        listed = ", ".join(name_with_hint(field.name, source.names) for field in missing)
        raise SchemaError("ICEFLOE_COLUMN_MISSING", f"The target requires {listed}: add it to the stream.")
    return [_plan_column(source, field, index) for field, index in zip(target, matched, strict=True)]


def _plan_column(source: pa.Schema, field: pa.Field, index: int | None) -> _ColumnPlan:
    if index is None:
        return _ColumnPlan(field, None, None, check_nulls=False)
    conversion = compile_conversion(source.field(index).type, field.type, field.name)
    return _ColumnPlan(field, index, conversion, check_nulls=_has_required(field))


def _fill(plan: _ColumnPlan, batch: pa.RecordBatch) -> pa.Array:
    if plan.source is None:
        return pa.nulls(batch.num_rows, plan.field.type)
    array = batch.column(plan.source)
    return array if plan.conversion is None else plan.conversion(array)


def _has_required(field: pa.Field) -> bool:
    below = enumerate(child_fields(field.type))
    return not field.nullable or any(_has_required(c) for i, (_, c) in below if not _is_map_key(field.type, i))


def _refuse_nulls(array: pa.Array, field: pa.Field, path: str) -> None:
    if not field.nullable and array.null_count:
        raise SchemaError(
            "ICEFLOE_NULL_IN_REQUIRED",
            f"Column {path!r} is required, and {array.null_count} of {len(array)} values in a batch are null: "
            "filter them out before the sink, or make the column optional.",
        )
    below = [
        (position, name, child)
        for position, (name, child) in enumerate(child_fields(field.type))
        if _has_required(child) and not _is_map_key(field.type, position)
    ]
    if not below:
        return
    # A null parent has no children, whatever stands in their slots.
    present = array.drop_null() if array.null_count else array
    for position, name, child in below:
        _refuse_nulls(child_values(present, position), child, join_path(path, name))


def _is_map_key(arrow_type: pa.DataType, position: int) -> bool:
    """Arrow itself refuses null keys, and they are always required: not worth a look."""
    return bool(pa.types.is_map(arrow_type)) and position == 0


def _check_types_fit(source: pa.DataType, target: pa.DataType, path: str) -> None:
    if pa.types.is_null(source):
        return
    if pa.types.is_dictionary(source):
        source = source.value_type
    nested = _nested_kind(source)
    if nested != _nested_kind(target):
        raise refusal(None, target, source=source, path=path)
    if nested == "struct":
        matched = match_columns([f.name for f in source], [f.name for f in target], path=path)
        for field, index in zip(target, matched, strict=True):
            if index is not None:
                _check_types_fit(source[index].type, field.type, join_path(path, field.name))
    elif nested == "list":
        _check_types_fit(source.value_type, target.value_type, join_path(path, LIST_ELEMENT))
    elif nested == "map":
        _check_types_fit(source.key_type, target.key_type, join_path(path, MAP_KEY))
        _check_types_fit(source.item_type, target.item_type, join_path(path, MAP_VALUE))
    elif fit(source, target) in (Fit.NARROWS, Fit.UNRELATED):
        raise refusal(None, target, source=source, path=path)


def _nested_kind(arrow_type: pa.DataType) -> str:
    if pa.types.is_struct(arrow_type):
        return "struct"
    if pa.types.is_map(arrow_type):
        return "map"
    return "list" if is_list(arrow_type) else "primitive"


def _one_line(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in schema)
