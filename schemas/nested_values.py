"""What lies below a nested Arrow type, by type and by array: shared by whoever walks all parts of a column."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from icefloe.schemas.types import LIST_ELEMENT, MAP_KEY, MAP_VALUE, is_list


def child_fields(arrow_type: pa.DataType) -> list[tuple[str, pa.Field]]:
    """The fields directly below a type, with the names that Iceberg's paths give them; none for a primitive type."""
    if pa.types.is_struct(arrow_type):
        return [(child.name, child) for child in arrow_type]
    if is_list(arrow_type):
        return [(LIST_ELEMENT, arrow_type.value_field)]
    if pa.types.is_map(arrow_type):
        return [(MAP_KEY, arrow_type.key_field), (MAP_VALUE, arrow_type.item_field)]
    return []


def child_values(array: pa.Array, position: int) -> pa.Array:
    """The values of one child in this slice of an array; what a null parent hides is null (struct) or left out."""
    if pa.types.is_struct(array.type):
        return pc.struct_field(array, [position])
    if not pa.types.is_map(array.type):
        return array.flatten()
    maps = array.drop_null() if array.null_count else array
    values = maps.keys if position == 0 else maps.items
    if not len(maps):
        return values.slice(0, 0)
    first, last = maps.offsets[0].as_py(), maps.offsets[len(maps)].as_py()
    return values.slice(first, last - first)
