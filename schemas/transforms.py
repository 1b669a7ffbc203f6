"""Partition transforms: what a table may be partitioned by, and the values it gives for an Arrow array.

Values come from ``pyiceberg_core``, the implementation that PyIceberg itself uses, so that files land where a reader
of the table looks for them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg_core import transform as core

from icefloe.errors import SchemaError


class TransformKind(StrEnum):
    """The transforms of the Iceberg spec. ``void`` stands for a field that was dropped from a spec: always null."""

    IDENTITY = "identity"
    BUCKET = "bucket"
    TRUNCATE = "truncate"
    YEAR = "year"
    MONTH = "month"
    DAY = "day"
    HOUR = "hour"
    VOID = "void"


WITH_PARAMETER = frozenset({TransformKind.BUCKET, TransformKind.TRUNCATE})
_NAME_SUFFIX = {TransformKind.IDENTITY: "", TransformKind.TRUNCATE: "_trunc", TransformKind.VOID: "_null"}
_SPEC_TEXT = re.compile(r"^(\w+)(?:\[(\d+)\])?$")


@dataclass(frozen=True, slots=True)
class Transform:
    """A transform and its number of buckets or width, where it has one. ``str()`` is the spelling of Iceberg's spec."""

    kind: TransformKind
    parameter: int | None = None

    @classmethod
    def from_spec(cls, text: str) -> Transform:
        """Read the spec's spelling, such as ``day`` or ``bucket[16]``.

        Raises:
            SchemaError: ICEFLOE_TRANSFORM_UNKNOWN.
        """
        match = _SPEC_TEXT.match(text)
        if match is None or match[1] not in set(TransformKind):
            raise _unknown_transform(text)
        kind = TransformKind(match[1])
        if (kind in WITH_PARAMETER) != (match[2] is not None) or match[2] == "0":
            raise _unknown_transform(text)
        return cls(kind, int(match[2]) if match[2] else None)

    def __str__(self) -> str:
        return self.kind.value if self.parameter is None else f"{self.kind.value}[{self.parameter}]"

    def default_name(self, source: str) -> str:
        """The partition field's name as Iceberg gives it: ``ts_day``, ``id_bucket``, ``name_trunc``, ``region``."""
        return source.replace(".", "_") + _NAME_SUFFIX.get(self.kind, f"_{self.kind.value}")

    def accepts(self, arrow_type: pa.DataType) -> bool:
        """Whether the spec allows this transform for columns of this type."""
        return _ACCEPTS[self.kind](arrow_type)

    def result_type(self, arrow_type: pa.DataType) -> pa.DataType:
        """The Arrow type of the values that ``apply`` gives for a column of this type."""
        if self.kind in (TransformKind.IDENTITY, TransformKind.TRUNCATE, TransformKind.VOID):
            return arrow_type
        return pa.date32() if self.kind is TransformKind.DAY else pa.int32()

    def apply(self, array: pa.Array) -> pa.Array:
        """The transformed values, null for null. Zoned timestamps are taken in UTC.

        Raises:
            SchemaError: ICEFLOE_TRANSFORM_TYPE when the transform does not take this type.
        """
        if not self.accepts(array.type):
            raise SchemaError("ICEFLOE_TRANSFORM_TYPE", f"Transform {self} does not take values of type {array.type}.")
        if self.kind is TransformKind.IDENTITY:
            return array
        if self.kind is TransformKind.VOID:
            return pa.nulls(len(array), array.type)
        result = self._evaluate(_for_core(array, self.kind))
        wanted = self.result_type(array.type)
        return result if result.type == wanted else result.cast(wanted)

    def _evaluate(self, array: pa.Array) -> pa.Array:
        function = getattr(core, self.kind.value)
        return function(array) if self.parameter is None else function(array, self.parameter)


@dataclass(frozen=True, slots=True)
class PartitionField:
    """One field of a partitioning. ``source`` is the column's path; the ids are 0 where no table gave them."""

    source: str
    transform: Transform
    name: str
    field_id: int = 0
    source_id: int = 0


def _unknown_transform(text: str) -> SchemaError:
    return SchemaError(
        "ICEFLOE_TRANSFORM_UNKNOWN", f"Partition transform {text!r} of the table is not one that this release writes."
    )


def _for_core(array: pa.Array, kind: TransformKind) -> pa.Array:
    """The array in a type that ``pyiceberg_core`` takes, with the same values."""
    arrow_type = array.type
    if pa.types.is_timestamp(arrow_type) and (arrow_type.tz not in (None, "UTC") or arrow_type.unit in ("s", "ms")):
        # Year and month would otherwise be those of the zone's own calendar.
        return array.cast(pa.timestamp("us" if arrow_type.unit != "ns" else "ns", arrow_type.tz and "UTC"))
    if pa.types.is_timestamp(arrow_type) and arrow_type.unit == "ns" and kind is TransformKind.HOUR:
        return _floor_to_us(array)
    if pa.types.is_integer(arrow_type) and arrow_type.bit_width < 32:
        return array.cast(pa.int32())
    if arrow_type == pa.string_view():
        return array.cast(pa.string())
    if arrow_type in (pa.large_binary(), pa.binary_view()) and kind is TransformKind.TRUNCATE:
        return array.cast(pa.binary())
    return array


def _floor_to_us(array: pa.Array) -> pa.Array:
    flooring = pc.floor_temporal(array, unit="microsecond")
    return flooring.cast(pa.timestamp("us", array.type.tz))


def _is_primitive(arrow_type: pa.DataType) -> bool:
    return not (pa.types.is_nested(arrow_type) or pa.types.is_null(arrow_type) or pa.types.is_dictionary(arrow_type))


def _is_integer(arrow_type: pa.DataType) -> bool:
    return bool(pa.types.is_signed_integer(arrow_type))


def _is_truncatable(arrow_type: pa.DataType) -> bool:
    return _is_integer(arrow_type) or pa.types.is_decimal128(arrow_type) or _is_variable(arrow_type)


def _is_variable(arrow_type: pa.DataType) -> bool:
    plain = (pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary_view())
    return arrow_type in plain


def _is_bucketable(arrow_type: pa.DataType) -> bool:
    is_fixed = pa.types.is_fixed_size_binary(arrow_type) or arrow_type == pa.uuid()
    return _is_truncatable(arrow_type) or is_fixed or _is_dated(arrow_type) or arrow_type == pa.time64("us")


def _is_dated(arrow_type: pa.DataType) -> bool:
    return bool(pa.types.is_date32(arrow_type) or pa.types.is_timestamp(arrow_type))


_ACCEPTS: dict[TransformKind, Callable[[pa.DataType], bool]] = {
    TransformKind.IDENTITY: _is_primitive,
    TransformKind.BUCKET: _is_bucketable,
    TransformKind.TRUNCATE: _is_truncatable,
    TransformKind.YEAR: _is_dated,
    TransformKind.MONTH: _is_dated,
    TransformKind.DAY: _is_dated,
    TransformKind.HOUR: lambda arrow_type: bool(pa.types.is_timestamp(arrow_type)),
    TransformKind.VOID: lambda arrow_type: True,
}
