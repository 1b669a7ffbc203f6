"""The partition that a row belongs to: what files are grouped by, and how their folders are called."""

from __future__ import annotations

import base64
import math
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from urllib.parse import quote_plus

import pyarrow as pa

from icefloe.proto import sink_pb2
from icefloe.schemas.transforms import Transform, TransformKind

PartitionValue = bool | int | float | str | bytes | Decimal | None

HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
_ICEBERG_NULL = "null"
# As Spark and Hive escape folder names, and the zero byte, which no file system takes.
_HIVE_ESCAPED = frozenset([*map(chr, range(0x20)), *"\"#%'*/:=?\\\x7f{[]^"])
_NAN = float("nan")
_EPOCH = datetime(1970, 1, 1)
_EPOCH_DATE = date(1970, 1, 1)
# Java writes a floating-point number with an exponent outside of this range.
_JAVA_PLAIN_FROM, _JAVA_PLAIN_TO = Decimal("1e-3"), Decimal("1e7")


@dataclass(frozen=True, slots=True)
class KeyField:
    """One field of a key. ``scale`` is that of a decimal, 0 for other types."""

    name: str
    field_id: int = 0
    scale: int = 0


@dataclass(frozen=True)
class PartitionKey:
    """The values of one partition, as Iceberg types them: days and microseconds are integers, a UUID is bytes.

    Hashable; equal keys are one partition, in every process (all NaNs are one value, and so are 0.0 and -0.0).
    ``shown`` is how folder names spell the values before escaping; it follows from the values.
    """

    values: tuple[PartitionValue, ...] = ()
    fields: tuple[KeyField, ...] = field(default=(), hash=False)
    shown: tuple[str, ...] = field(default=(), compare=False, repr=False)

    def __post_init__(self) -> None:
        if any(isinstance(value, float) for value in self.values):
            # One NaN object: Python compares a NaN in a tuple by identity.
            object.__setattr__(self, "values", tuple(_canonical(value) for value in self.values))

    def __reduce__(self) -> tuple[object, ...]:
        return (PartitionKey, (self.values, self.fields, self.shown))

    def to_proto(self) -> sink_pb2.PartitionKey:
        """The message that state keeps; ``from_proto`` gives an equal key back, with no schema at hand."""
        message = sink_pb2.PartitionKey()
        for value, key_field, shown in zip(self.values, self.fields, self.shown, strict=True):
            entry = message.values.add(name=key_field.name, field_id=key_field.field_id, scale=key_field.scale)
            if value is not None:
                entry.shown = shown
                _set_value(entry, value)
        return message

    @classmethod
    def from_proto(cls, message: sink_pb2.PartitionKey) -> PartitionKey:
        """The key that ``to_proto`` made the message from."""
        return cls(
            tuple(_get_value(entry) for entry in message.values),
            tuple(KeyField(entry.name, entry.field_id, entry.scale) for entry in message.values),
            tuple(entry.shown for entry in message.values),
        )

    def hive_path(self) -> str:
        """``name=value/name=value`` with Spark's escaping; empty for no partitioning.

        Null is ``__HIVE_DEFAULT_PARTITION__``, and so is the empty text, since a folder ``name=`` reads back as null.
        """
        return "/".join(
            f"{escape_hive(key_field.name)}={HIVE_NULL if value is None or not shown else escape_hive(shown)}"
            for value, key_field, shown in zip(self.values, self.fields, self.shown, strict=True)
        )

    def iceberg_path(self) -> str:
        """``name=value/name=value`` as PyIceberg and Iceberg's Java library name the folder; empty for none."""
        return "/".join(
            f"{quote_plus(key_field.name, safe='')}={quote_plus(_ICEBERG_NULL if value is None else shown, safe='')}"
            for value, key_field, shown in zip(self.values, self.fields, self.shown, strict=True)
        )


UNPARTITIONED = PartitionKey()


def escape_hive(text: str) -> str:
    """``text`` as part of a Hive-style folder name: ``%XX`` for the characters that Spark escapes."""
    return "".join(f"%{ord(char):02X}" if char in _HIVE_ESCAPED else char for char in text)


def show_for_hive(value: PartitionValue, arrow_type: pa.DataType) -> str:
    """A value as Spark's cast to string spells it, timestamps in UTC; empty for null."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, float):
        return _java_float(value, arrow_type)
    if pa.types.is_timestamp(arrow_type):
        text = _in_calendar(value, lambda us: (_EPOCH + timedelta(microseconds=us)).isoformat(" "))
        return text.rstrip("0") if "." in text else text
    return show_for_iceberg(value, arrow_type, Transform(TransformKind.IDENTITY))


def show_for_iceberg(value: PartitionValue, arrow_type: pa.DataType, transform: Transform) -> str:
    """A value as Iceberg's libraries spell it in folder names; empty for null. ``arrow_type`` is the result type."""
    if value is None:
        return ""
    if transform.kind in _SHOW_ORDINAL:
        return _in_calendar(value, _SHOW_ORDINAL[transform.kind])
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and transform.kind is TransformKind.IDENTITY:
        return _show_integer(value, arrow_type)
    return str(value)


def _show_integer(value: int, arrow_type: pa.DataType) -> str:
    if pa.types.is_date(arrow_type):
        return _in_calendar(value, _SHOW_ORDINAL[TransformKind.DAY])
    if pa.types.is_time(arrow_type):
        return _in_calendar(value, _show_time)
    if pa.types.is_timestamp(arrow_type) and arrow_type.unit == "us":
        epoch = _EPOCH if arrow_type.tz is None else _EPOCH.replace(tzinfo=UTC)
        return _in_calendar(value, lambda us: (epoch + timedelta(microseconds=us)).isoformat())
    return str(value)


def _show_year(years: int) -> str:
    return f"{_EPOCH.year + years:0=4d}"


def _show_month(months: int) -> str:
    return f"{_EPOCH.year + months // 12:0=4d}-{1 + months % 12:0=2d}"


def _show_day(days: int) -> str:
    return (_EPOCH_DATE + timedelta(days=days)).isoformat()


def _show_hour(hours: int) -> str:
    return (_EPOCH + timedelta(hours=hours)).isoformat("-", "hours")


def _show_time(us: int) -> str:
    moment = _EPOCH + timedelta(microseconds=us)
    return time(moment.hour, moment.minute, moment.second, moment.microsecond).isoformat()


_SHOW_ORDINAL = {
    TransformKind.YEAR: _show_year,
    TransformKind.MONTH: _show_month,
    TransformKind.DAY: _show_day,
    TransformKind.HOUR: _show_hour,
}


def _in_calendar(value: Any, show: Any) -> str:
    try:
        return str(show(value))
    except OverflowError:
        # Outside of the years 1 to 9999 that Python's calendar has: the plain number is a good folder name too.
        return str(value)


def _java_float(value: float, arrow_type: pa.DataType) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    # Arrow gives the shortest digits that read back as the same number of this width.
    number = Decimal(pa.scalar(value, arrow_type).cast(pa.string()).as_py())
    if number == 0 or _JAVA_PLAIN_FROM <= abs(number) < _JAVA_PLAIN_TO:
        text = format(number, "f")
        return text if "." in text else f"{text}.0"
    digits = "".join(map(str, number.as_tuple().digits)).rstrip("0")
    return f"{'-' if number < 0 else ''}{digits[0]}.{digits[1:] or '0'}E{number.adjusted()}"


def _canonical(value: PartitionValue) -> PartitionValue:
    if not isinstance(value, float):
        return value
    return _NAN if math.isnan(value) else value + 0.0


def _set_value(entry: sink_pb2.PartitionValue, value: PartitionValue) -> None:
    match value:
        case bool():
            entry.boolean = value
        case int():
            entry.integer = value
        case float():
            entry.floating = value
        case str():
            entry.text = value
        case bytes():
            entry.binary = value
        case Decimal():
            unscaled = _unscaled(value, entry.scale)
            entry.decimal = unscaled.to_bytes(unscaled.bit_length() // 8 + 1, "big", signed=True)


def _get_value(entry: sink_pb2.PartitionValue) -> PartitionValue:
    chosen = entry.WhichOneof("value")
    if chosen is None:
        return None
    raw: Any = getattr(entry, chosen)
    if chosen != "decimal":
        return raw  # type: ignore[no-any-return]
    unscaled = int.from_bytes(raw, "big", signed=True)
    return Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -entry.scale))


def _unscaled(value: Decimal, scale: int) -> int:
    # From the digits: arithmetic would round to the context's 28 digits, and a decimal here has up to 38.
    sign, digits, exponent = value.as_tuple()
    number: int = int("".join(map(str, digits))) * 10 ** (int(exponent) + scale)
    return -number if sign else number
