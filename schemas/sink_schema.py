"""The stream's schema as the sink uses it: Arrow types and which column is the event time."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

import pyarrow as pa

from icefloe.errors import OptionError, SchemaError
from icefloe.schemas.column_matching import match_columns, name_with_hint
from icefloe.schemas.types import arrow_schema_from_spark

# Spark puts this on the column that withWatermark() named.
_WATERMARK_KEY = "spark.watermarkDelayMs"


@dataclass(frozen=True, slots=True)
class SinkSchema:
    """The schema of the rows and the index of the event-time column, None where there is none. Picklable."""

    arrow: pa.Schema
    timestamp_index: int | None = None

    def __post_init__(self) -> None:
        if self.timestamp_index is None:
            return
        if not 0 <= self.timestamp_index < len(self.arrow):
            raise SchemaError(
                "ICEFLOE_EVENT_TIME_COLUMN",
                f"Event-time column {self.timestamp_index} is asked for, but the schema has {len(self.arrow)} columns.",
            )

    @classmethod
    def from_spark(cls, schema_json: str, *, event_time_column: str | None = None) -> SinkSchema:
        """Read ``StructType.json()``; the event time is the named column, else the one with a Spark watermark.

        Raises:
            SchemaError: as ``arrow_schema_from_spark``, or ICEFLOE_EVENT_TIME_TYPE for a column that is not a time.
            OptionError: ICEFLOE_EVENT_TIME_COLUMN when the stream has no column of that name.
        """
        arrow = arrow_schema_from_spark(schema_json)
        name = event_time_column or watermark_column(schema_json)
        if name is None:
            return cls(arrow)
        (index,) = match_columns(arrow.names, [name])
        if index is None:
            raise OptionError(
                "ICEFLOE_EVENT_TIME_COLUMN",
                f"eventTimeColumn={name_with_hint(name, arrow.names)} is not a column of the stream: {arrow.names}.",
            )
        arrow_type = arrow.field(index).type
        if not (pa.types.is_timestamp(arrow_type) or pa.types.is_date(arrow_type)):
            raise SchemaError(
                "ICEFLOE_EVENT_TIME_TYPE",
                f"Event-time column {arrow.field(index).name!r} is {arrow_type}: choose a timestamp or a date column.",
            )
        return cls(arrow, index)

    @property
    def timestamp_name(self) -> str | None:
        return None if self.timestamp_index is None else str(self.arrow.field(self.timestamp_index).name)

    def fingerprint(self) -> str:
        """SHA-256 (hex) of names, types, nullability, field ids and event-time column.

        The same in every process and on every PyArrow release, since it is taken from a text of our own.
        """
        content = {"fields": [_describe(field) for field in self.arrow], "timestamp": self.timestamp_index}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def watermark_column(schema_json: str) -> str | None:
    """The name of the column that carries a Spark watermark, or None."""
    fields = json.loads(schema_json).get("fields", [])
    return next((str(field["name"]) for field in fields if _WATERMARK_KEY in (field.get("metadata") or {})), None)


def _describe(field: pa.Field) -> dict[str, object]:
    metadata = sorted((key.decode(), value.decode()) for key, value in (field.metadata or {}).items())
    arrow_type = field.type
    children = [arrow_type.field(index) for index in range(arrow_type.num_fields)]
    # A nested type is described by its children: its own text leaves out their nullability and ids.
    kind = str(arrow_type) if not children else str(arrow_type).partition("<")[0]
    return {
        "name": field.name,
        "type": kind,
        "nullable": field.nullable,
        "metadata": metadata,
        "children": [_describe(child) for child in children],
    }
