"""The event time that stands for a batch or a file: taken from its first row, in UTC."""

from __future__ import annotations

import pyarrow as pa

from icefloe.errors import SchemaError

_US_PER_UNIT = {"s": 1_000_000, "ms": 1_000, "us": 1}
_NS_PER_US = 1_000
_US_PER_DAY = 86_400_000_000


def representative_timestamp(column: pa.Array | pa.ChunkedArray) -> int:
    """The first value of an event-time column in microseconds since the Unix epoch, UTC.

    Takes timestamps of any unit, with any zone or none (read as UTC), and dates. Nanoseconds are rounded down.

    Raises:
        SchemaError: ICEFLOE_EVENT_TIME_EMPTY for a column without rows, ICEFLOE_EVENT_TIME_NULL when the first value
            is null, ICEFLOE_EVENT_TIME_TYPE for a type that is not a time.
    """
    arrow_type = column.type
    if not (pa.types.is_timestamp(arrow_type) or pa.types.is_date(arrow_type)):
        raise SchemaError(
            "ICEFLOE_EVENT_TIME_TYPE", f"The event-time column is {arrow_type}: choose a timestamp or a date column."
        )
    if len(column) == 0:
        raise SchemaError("ICEFLOE_EVENT_TIME_EMPTY", "An event time was asked for from a column without rows.")
    first = column[0]
    if not first.is_valid:
        raise SchemaError(
            "ICEFLOE_EVENT_TIME_NULL", "The first event time is null: filter null event times out before the sink."
        )
    # The stored number, never a datetime: it is UTC whatever the zone, and has no year 9999.
    if pa.types.is_date32(arrow_type):
        return int(first.cast(pa.int32()).as_py()) * _US_PER_DAY
    value = int(first.cast(pa.int64()).as_py())
    if pa.types.is_date64(arrow_type):
        return value * _US_PER_UNIT["ms"]
    return value // _NS_PER_US if arrow_type.unit == "ns" else value * _US_PER_UNIT[arrow_type.unit]
