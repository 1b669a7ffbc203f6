"""How an Arrow array becomes one of another type without losing a value: compiled once per pair of types.

Used by the normaliser only; a pair that could lose something is refused with an example of what would be lost.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto

import pyarrow as pa

from icefloe.errors import SchemaError
from icefloe.schemas.column_matching import match_columns, name_with_hint, unmatched_sources
from icefloe.schemas.types import LIST_ELEMENT, MAP_KEY, MAP_VALUE, is_list, join_path

Conversion = Callable[[pa.Array], pa.Array]

_MAX_EXAMPLE_CHARS = 80
_UNITS = ("s", "ms", "us", "ns")


class Fit(Enum):
    """Whether every value of one primitive type is a value of another."""

    ALWAYS = auto()
    IF_VALUES_DO = auto()
    NARROWS = auto()
    UNRELATED = auto()


def compile_conversion(source: pa.DataType, target: pa.DataType, path: str) -> Conversion | None:
    """The way from ``source`` to ``target``, or None where an array of one already is one of the other.

    Types that do not fit give a conversion that refuses the first array it meets, so that the message can show a
    value. Nested names match as columns do.

    Raises:
        SchemaError: ICEFLOE_COLUMN_AMBIGUOUS, ICEFLOE_COLUMN_UNKNOWN or ICEFLOE_COLUMN_MISSING for struct fields.
    """
    if source.equals(target):
        return None
    if pa.types.is_null(source):
        return lambda array: pa.nulls(len(array), target)
    if pa.types.is_dictionary(source):
        return _after(lambda array: array.dictionary_decode(), source.value_type, target, path)
    if pa.types.is_struct(source) and pa.types.is_struct(target):
        return _struct_conversion(source, target, path)
    if is_list(source) and is_list(target):
        return _list_conversion(source, target, path)
    if pa.types.is_map(source) and pa.types.is_map(target):
        return _map_conversion(source, target, path)
    return _primitive_conversion(source, target, path)


def fit(source: pa.DataType, target: pa.DataType) -> Fit:
    """Whether values of the primitive type ``source`` are values of ``target``: widening only, as Iceberg promotes.

    A timestamp never gains or loses its zone: that would move it in time.
    """
    if source.equals(target):
        return Fit.ALWAYS
    for family, compare in _FAMILIES:
        if family(source) and family(target):
            return compare(source, target)
    if _is_number(source) and _is_number(target):
        return Fit.NARROWS
    return Fit.UNRELATED


def refusal(array: pa.Array | None, target: pa.DataType, *, source: pa.DataType, path: str) -> SchemaError:
    """The error for a column that does not fit, with its first value where ``array`` has one."""
    example = _example(array)
    shown = "" if example is None else f", for example {example}"
    if fit(source, target) in (Fit.NARROWS, Fit.IF_VALUES_DO):
        return SchemaError(
            "ICEFLOE_TYPE_NARROWING",
            f"Column {path!r} is {source} in the stream and {target} in the target, which cannot hold all of its "
            f"values{shown}: widen the target's column or cast the stream's.",
        )
    return SchemaError(
        "ICEFLOE_TYPE_MISMATCH",
        f"Column {path!r} is {source} in the stream and {target} in the target{shown}: cast one of the two.",
    )


def _after(first: Conversion, source: pa.DataType, target: pa.DataType, path: str) -> Conversion:
    second = compile_conversion(source, target, path)
    return first if second is None else lambda array: second(first(array))


def _primitive_conversion(source: pa.DataType, target: pa.DataType, path: str) -> Conversion:
    accepted = fit(source, target) in (Fit.ALWAYS, Fit.IF_VALUES_DO)

    def convert(array: pa.Array) -> pa.Array:
        if not accepted:
            raise refusal(array, target, source=source, path=path)
        try:
            return array.cast(target)
        except pa.ArrowInvalid as error:
            raise refusal(_first_misfit(array, target), target, source=source, path=path) from error

    return convert


def _struct_conversion(source: pa.StructType, target: pa.StructType, path: str) -> Conversion:
    names = [field.name for field in source]
    matched = match_columns(names, [field.name for field in target], path=path)
    if unknown := unmatched_sources(names, matched):
        known = [field.name for field in target]
        listed = ", ".join(name_with_hint(name, known, path=path) for name in unknown)
        raise SchemaError(
            "ICEFLOE_COLUMN_UNKNOWN", f"The target has no column for {listed}: drop or rename it in the stream."
        )
    children: list[tuple[int | None, Conversion | None]] = []
    for field, index in zip(target, matched, strict=True):
        child_path = join_path(path, field.name)
        if index is None and not field.nullable:
            raise SchemaError("ICEFLOE_COLUMN_MISSING", f"The target requires {child_path!r}: add it to the stream.")
        children.append(
            (index, None if index is None else compile_conversion(source[index].type, field.type, child_path))
        )
    fields = list(target)

    def convert(array: pa.StructArray) -> pa.Array:
        arrays = []
        for (index, conversion), field in zip(children, fields, strict=True):
            child = pa.nulls(len(array), field.type) if index is None else array.field(index)
            arrays.append(child if conversion is None else conversion(child))
        return pa.StructArray.from_arrays(arrays, fields=fields, mask=array.is_null() if array.null_count else None)

    return convert


def _list_conversion(source: pa.DataType, target: pa.DataType, path: str) -> Conversion:
    plain = pa.large_list if pa.types.is_large_list(target) else pa.list_
    same_layout = source.id == target.id
    element = compile_conversion(source.value_type, target.value_type, join_path(path, LIST_ELEMENT))

    def convert(array: pa.Array) -> pa.Array:
        if not same_layout:
            array = array.cast(plain(source.value_field))
        values = array.values if element is None else element(array.values)
        # Sharing the offsets keeps the list itself uncopied, and a slice stays a slice.
        return pa.Array.from_buffers(target, len(array), array.buffers()[:2], -1, array.offset, [values])

    return convert


def _map_conversion(source: pa.MapType, target: pa.MapType, path: str) -> Conversion:
    key = compile_conversion(source.key_type, target.key_type, join_path(path, MAP_KEY))
    value = compile_conversion(source.item_type, target.item_type, join_path(path, MAP_VALUE))
    fields = [target.key_field, target.item_field]

    def convert(array: pa.MapArray) -> pa.Array:
        keys = array.keys if key is None else key(array.keys)
        values = array.items if value is None else value(array.items)
        entries = pa.StructArray.from_arrays([keys, values], fields=fields)
        return pa.Array.from_buffers(target, len(array), array.buffers()[:2], -1, array.offset, [entries])

    return convert


def _compare_integers(source: pa.DataType, target: pa.DataType) -> Fit:
    if pa.types.is_unsigned_integer(source) and pa.types.is_signed_integer(target):
        return Fit.ALWAYS if target.bit_width > source.bit_width else Fit.NARROWS
    same_sign = pa.types.is_signed_integer(source) == pa.types.is_signed_integer(target)
    return Fit.ALWAYS if same_sign and target.bit_width >= source.bit_width else Fit.NARROWS


def _compare_floats(source: pa.DataType, target: pa.DataType) -> Fit:
    return Fit.ALWAYS if target.bit_width >= source.bit_width else Fit.NARROWS


def _compare_decimals(source: pa.DataType, target: pa.DataType) -> Fit:
    whole_digits = target.precision - target.scale >= source.precision - source.scale
    return Fit.ALWAYS if whole_digits and target.scale >= source.scale else Fit.NARROWS


def _compare_timestamps(source: pa.DataType, target: pa.DataType) -> Fit:
    if (source.tz is None) != (target.tz is None):
        return Fit.UNRELATED
    return _compare_units(source, target)


def _compare_units(source: pa.DataType, target: pa.DataType) -> Fit:
    finer = _UNITS.index(target.unit) >= _UNITS.index(source.unit)
    # A finer unit has a shorter range and a coarser one loses digits: both depend on the values.
    return Fit.ALWAYS if finer and target.unit != "ns" else Fit.IF_VALUES_DO


def _compare_bytes(source: pa.DataType, target: pa.DataType) -> Fit:
    return Fit.IF_VALUES_DO if _is_fixed(target) else Fit.ALWAYS


def _always(source: pa.DataType, target: pa.DataType) -> Fit:
    return Fit.ALWAYS


def _is_text(arrow_type: pa.DataType) -> bool:
    return arrow_type in (pa.string(), pa.large_string(), pa.string_view())


def _is_fixed(arrow_type: pa.DataType) -> bool:
    return bool(pa.types.is_fixed_size_binary(arrow_type) or arrow_type == pa.uuid())


def _is_bytes(arrow_type: pa.DataType) -> bool:
    return bool(_is_fixed(arrow_type) or arrow_type in (pa.binary(), pa.large_binary(), pa.binary_view()))


def _is_number(arrow_type: pa.DataType) -> bool:
    return bool(pa.types.is_integer(arrow_type) or pa.types.is_floating(arrow_type) or pa.types.is_decimal(arrow_type))


_FAMILIES: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType, pa.DataType], Fit]], ...] = (
    (pa.types.is_integer, _compare_integers),
    (pa.types.is_floating, _compare_floats),
    (pa.types.is_decimal, _compare_decimals),
    (pa.types.is_timestamp, _compare_timestamps),
    (pa.types.is_time, _compare_units),
    (pa.types.is_date, _always),
    (_is_text, _always),
    (_is_bytes, _compare_bytes),
)


def _first_misfit(array: pa.Array, target: pa.DataType) -> pa.Array:
    """The one-value slice of ``array`` that the cast stumbles over, found by halving on the way to an error."""
    while len(array) > 1:
        half = array.slice(0, len(array) // 2)
        try:
            half.cast(target)
        except pa.ArrowInvalid:
            array = half
        else:
            array = array.slice(len(half))
    return array


def _example(array: pa.Array | None) -> str | None:
    if array is None or len(array) == array.null_count:
        return None
    first = array.drop_null().slice(0, 1)
    # By Arrow's own cast: Python's datetime cannot hold every timestamp, and must not break the message about it.
    text = str(first.cast(pa.string())[0] if pa.types.is_temporal(first.type) else first[0])
    return text if len(text) <= _MAX_EXAMPLE_CHARS else text[: _MAX_EXAMPLE_CHARS - 3] + "..."
