"""Partition transforms: what ``partitionBy`` says, and the values it gives for an Arrow array.

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

from icefloe.errors import OptionError, SchemaError


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


_WITH_PARAMETER = frozenset({TransformKind.BUCKET, TransformKind.TRUNCATE})
_NAME_SUFFIX = {TransformKind.IDENTITY: "", TransformKind.TRUNCATE: "_trunc", TransformKind.VOID: "_null"}
_MAX_PARAMETER = 2**31 - 1
# The spellings that Spark's own DDL has beside the spec's.
_ALIASES = {f"{kind.value}s": kind for kind in (TransformKind.YEAR, TransformKind.MONTH, TransformKind.DAY)} | {
    "hours": TransformKind.HOUR,
    "date": TransformKind.DAY,
    "date_hour": TransformKind.HOUR,
}
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
        if (kind in _WITH_PARAMETER) != (match[2] is not None) or match[2] == "0":
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
        if self.kind is TransformKind.TRUNCATE and _is_integer(arrow_type) and arrow_type.bit_width < 32:
            return pa.int32()
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


def parse_partition_by(text: str) -> tuple[PartitionField, ...]:
    """Read the ``partitionBy`` option: ``day(ts), bucket(16, user_id), truncate(4, name), region``.

    A column whose name holds blanks, commas, parentheses or backquotes stands in backquotes, doubled inside. The two
    arguments of bucket and truncate may come in either order. Empty text is no partitioning.

    Raises:
        OptionError: ICEFLOE_PARTITION_BY with the position of what was not understood, or the name given twice.
    """
    fields = _PartitionByParser(text).parse() if text.strip() else ()
    seen: set[str] = set()
    for field in fields:
        if field.name in seen:
            raise OptionError(
                "ICEFLOE_PARTITION_BY", f"partitionBy={text!r} names partition field {field.name!r} twice: drop one."
            )
        seen.add(field.name)
    return fields


_TOKEN = re.compile(r"\s*(?:(?P<quoted>`(?:[^`]|``)+`)|(?P<word>[^\s`(),]+)|(?P<mark>[(),]))")


class _PartitionByParser:
    """A reader of one option text, token by token, that knows where each of them stands."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._start = 0

    def parse(self) -> tuple[PartitionField, ...]:
        fields = [self._field()]
        while self._text[self._at :].strip():
            self._expect(",")
            fields.append(self._field())
        return tuple(fields)

    def _field(self) -> PartitionField:
        name, quoted = self._word("a column or a transform")
        if quoted or not self._follows("("):
            transform = Transform(TransformKind.IDENTITY)
            return PartitionField(name, transform, transform.default_name(name))
        kind = self._kind(name)
        self._expect("(")
        arguments = [self._argument()]
        while self._follows(","):
            self._expect(",")
            arguments.append(self._argument())
        transform, source = self._arguments(kind, arguments)
        self._expect(")")
        return PartitionField(source, transform, transform.default_name(source))

    def _kind(self, name: str) -> TransformKind:
        lowered = name.lower()
        if lowered in _ALIASES:
            return _ALIASES[lowered]
        if lowered not in set(TransformKind) or lowered == TransformKind.VOID:
            known = ", ".join(kind for kind in TransformKind if kind is not TransformKind.VOID)
            raise self._error(f"{name!r} is not a transform (known: {known})")
        return TransformKind(lowered)

    def _argument(self) -> tuple[str, bool]:
        return self._word("a column or a number")

    def _arguments(self, kind: TransformKind, arguments: list[tuple[str, bool]]) -> tuple[Transform, str]:
        numbers = [word for word, quoted in arguments if not quoted and word.isascii() and word.isdigit()]
        columns = [word for word, quoted in arguments if quoted or not (word.isascii() and word.isdigit())]
        wanted = 1 if kind in _WITH_PARAMETER else 0
        if len(columns) != 1 or len(numbers) != wanted:
            usage = f"{kind}(n, column)" if wanted else f"{kind}(column)"
            raise self._error(f"{kind} is written {usage}")
        if not wanted:
            return Transform(kind), columns[0]
        if not 1 <= int(numbers[0]) <= _MAX_PARAMETER:
            raise self._error(f"{kind} takes a number from 1 to {_MAX_PARAMETER}, not {numbers[0]}")
        return Transform(kind, int(numbers[0])), columns[0]

    def _word(self, what: str) -> tuple[str, bool]:
        token = self._next()
        if token is None or token["mark"] is not None:
            raise self._error(f"{what} is expected")
        if token["quoted"] is not None:
            return token["quoted"][1:-1].replace("``", "`"), True
        return token["word"], False

    def _expect(self, mark: str) -> None:
        token = self._next()
        if token is None or token["mark"] != mark:
            raise self._error(f"{mark!r} is expected")

    def _follows(self, mark: str) -> bool:
        return self._text[self._at :].lstrip().startswith(mark)

    def _next(self) -> re.Match[str] | None:
        rest = self._text[self._at :]
        self._start = self._at + len(rest) - len(rest.lstrip())
        token = _TOKEN.match(self._text, self._at)
        if token is not None:
            self._at = token.end()
        return token

    def _error(self, what: str) -> OptionError:
        return OptionError("ICEFLOE_PARTITION_BY", f"partitionBy={self._text!r}, position {self._start + 1}: {what}.")


def _unknown_transform(text: str) -> SchemaError:
    return SchemaError(
        "ICEFLOE_TRANSFORM_UNKNOWN", f"Partition transform {text!r} of the table is not one that this release writes."
    )


def _for_core(array: pa.Array, kind: TransformKind) -> pa.Array:
    """The array in a type that ``pyiceberg_core`` takes, with the same values."""
    arrow_type = array.type
    if pa.types.is_timestamp(arrow_type):
        return _in_utc(array)
    if pa.types.is_integer(arrow_type) and arrow_type.bit_width < 32:
        return array.cast(pa.int32())
    if arrow_type == pa.string_view():
        return array.cast(pa.string())
    if arrow_type in (pa.large_binary(), pa.binary_view()) and kind is TransformKind.TRUNCATE:
        return array.cast(pa.binary())
    return array


def _in_utc(array: pa.Array) -> pa.Array:
    """Timestamps as microseconds in UTC: year and month would else be those of the zone's own calendar."""
    zone = array.type.tz and "UTC"
    array = array.cast(pa.timestamp(array.type.unit, zone))
    if array.type.unit == "ns":
        # Down, also before 1970: pyiceberg_core would cut towards zero for bucket, and takes none for hour.
        array = pc.floor_temporal(array, unit="microsecond")
    return array.cast(pa.timestamp("us", zone))


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
