"""Lower and upper bounds of a column in Iceberg's single-value binary form, from Parquet's statistics."""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa

_MAX_CODE_POINT = 0x10FFFF
_FIRST_SURROGATE, _LAST_SURROGATE = 0xD800, 0xDFFF


class ColumnBounds:
    """Gathers the bounds of one column over the row groups of a file. ``truncate`` is a length in characters or bytes.

    Bounds are given only when every row group with a value in it told its own: a bound that leaves rows out would make
    readers skip them.
    """

    def __init__(self, arrow_type: pa.DataType, truncate: int | None) -> None:
        self._type = arrow_type
        self._truncate = truncate if _is_text(arrow_type) or _is_variable_binary(arrow_type) else None
        self._lower: Any = None
        self._upper: Any = None
        self._is_known = True

    def add(self, statistics: Any, values: int) -> None:
        """Take in the statistics of one column chunk with this number of values, nulls included."""
        if statistics.has_min_max:
            self._widen(self._read(statistics.min_raw), self._read(statistics.max_raw))
        elif not pa.types.is_floating(self._type) and not (
            statistics.has_null_count and statistics.null_count == values
        ):
            # Parquet leaves out long values. A float column without bounds has only nulls and NaNs, which have none.
            self.give_up()

    def give_up(self) -> None:
        """Give no bounds, whatever comes: a row group's are not known."""
        self._is_known = False

    def lower(self) -> bytes | None:
        """The lower bound, or None where it is not known or there is no value."""
        if not self._is_known or self._lower is None:
            return None
        return self._serialize(self._lower[: self._truncate] if self._truncate else self._lower)

    def upper(self) -> bytes | None:
        """The upper bound, or None where it is not known, there is no value, or no short text is above all values."""
        if not self._is_known or self._upper is None:
            return None
        value = self._upper
        if self._truncate and len(value) > self._truncate:
            shorten = shorten_text_up if isinstance(value, str) else shorten_bytes_up
            value = shorten(value, self._truncate)
        return None if value is None else self._serialize(value)

    def _widen(self, lower: Any, upper: Any) -> None:
        self._lower = lower if self._lower is None else min(lower, self._lower)
        self._upper = upper if self._upper is None else max(upper, self._upper)

    def _read(self, raw: Any) -> Any:
        if _is_text(self._type):
            return raw.decode() if isinstance(raw, bytes) else raw
        if pa.types.is_decimal(self._type) and isinstance(raw, bytes):
            return int.from_bytes(raw, "big", signed=True)
        return raw

    def _serialize(self, value: Any) -> bytes:
        if isinstance(value, bytes):
            return value
        if isinstance(value, str):
            return value.encode()
        if pa.types.is_decimal(self._type):
            return decimal_bytes(value)
        return struct.pack(_struct_format(self._type), value)


def decimal_bytes(unscaled: int) -> bytes:
    """An unscaled decimal in the fewest bytes, big-endian two's complement."""
    magnitude = ~unscaled if unscaled < 0 else unscaled
    return unscaled.to_bytes(magnitude.bit_length() // 8 + 1, "big", signed=True)


def shorten_text_up(value: str, length: int) -> str | None:
    """The least text of at most ``length`` characters above ``value``, which is longer; None where there is none."""
    for last in range(length - 1, -1, -1):
        code = ord(value[last]) + 1
        if code == _FIRST_SURROGATE:
            # Surrogates are no characters: UTF-8 cannot hold them.
            code = _LAST_SURROGATE + 1
        if code <= _MAX_CODE_POINT:
            return value[:last] + chr(code)
    return None


def shorten_bytes_up(value: bytes, length: int) -> bytes | None:
    """The least string of at most ``length`` bytes above ``value``, which is longer; None where there is none."""
    for last in range(length - 1, -1, -1):
        if value[last] < 0xFF:
            return value[:last] + bytes([value[last] + 1])
    return None


def _struct_format(arrow_type: pa.DataType) -> str:
    if pa.types.is_boolean(arrow_type):
        return "<?"
    if pa.types.is_float32(arrow_type):
        return "<f"
    if pa.types.is_float64(arrow_type):
        return "<d"
    return "<i" if arrow_type.bit_width <= 32 else "<q"


def _is_text(arrow_type: pa.DataType) -> bool:
    return arrow_type in (pa.string(), pa.large_string(), pa.string_view())


def _is_variable_binary(arrow_type: pa.DataType) -> bool:
    return arrow_type in (pa.binary(), pa.large_binary(), pa.binary_view())
