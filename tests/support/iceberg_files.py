"""Data files for tests of the table side: written with PyArrow, described as the sink's tasks describe theirs."""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.conversions import to_bytes
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import DateType, LongType, StringType, TimestamptzType

from icefloe.connector.table_plan import TablePlan
from icefloe.proto import sink_pb2

PartitionScalar = bool | int | float | str | bytes | None
_BOUNDED = (LongType, StringType, DateType, TimestamptzType)


def partition_key(plan: TablePlan, values: Sequence[PartitionScalar]) -> sink_pb2.PartitionKey:
    """Return the tuple with the spec's field ids; None is null."""
    key = sink_pb2.PartitionKey()
    for field, value in zip(plan.partition_fields, values, strict=True):
        entry = key.values.add(field_id=field.field_id, name=field.name)
        if isinstance(value, bool):
            entry.boolean = value
        elif isinstance(value, int):
            entry.integer = value
        elif isinstance(value, float):
            entry.floating = value
        elif isinstance(value, str):
            entry.text = value
        elif isinstance(value, bytes):
            entry.binary = value
    return key


def write_data_file(
    plan: TablePlan,
    rows: Mapping[str, Sequence[object]],
    *,
    partition: Sequence[PartitionScalar] = (),
    key: sink_pb2.PartitionKey | None = None,
    storage_options: Mapping[str, object] | None = None,
) -> sink_pb2.DataFile:
    """Write one Parquet file below the plan's data location and return its description.

    Its tuple is ``key`` where a partitioner made one, else the plain values of ``partition``.
    """
    schema = Schema.model_validate_json(plan.iceberg_schema_json)
    arrow = schema_to_pyarrow(schema)
    columns = {f.name: rows.get(f.name, [None] * len(next(iter(rows.values())))) for f in arrow}
    table = pa.table({name: pa.array(values, arrow.field(name).type) for name, values in columns.items()}, schema=arrow)
    name = plan.relative_name(f"{uuid.uuid4().hex}.parquet", "/".join(f"p={value}" for value in partition))
    location = f"{plan.data_location}/{name}"
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    data = sink.getvalue().to_pybytes()
    _put(location, data, storage_options or {})
    footer = pq.read_metadata(pa.BufferReader(data))
    return sink_pb2.DataFile(
        name=name,
        location=location,
        length_bytes=len(data),
        rows=table.num_rows,
        attempt_id=uuid.uuid4().hex,
        partition=key if key is not None else partition_key(plan, partition),
        fingerprint=sink_pb2.Fingerprint(schema_id=plan.schema_id, spec_id=plan.spec_id, format_version=1),
        metadata=_measure(schema, table, footer),
        row_groups=footer.num_row_groups,
    )


def _measure(schema: Schema, table: pa.Table, footer: pq.FileMetaData) -> sink_pb2.IcebergFileMetadata:
    measured = sink_pb2.IcebergFileMetadata(row_count=table.num_rows, split_offsets=[4])
    for field in schema.fields:
        if not field.field_type.is_primitive:
            continue
        column = table.column(field.name)
        measured.value_counts[field.field_id] = table.num_rows
        measured.null_value_counts[field.field_id] = column.null_count
        present = [value for value in column.to_pylist() if value is not None]
        if present and isinstance(field.field_type, _BOUNDED):
            measured.lower_bounds[field.field_id] = to_bytes(field.field_type, min(present))
            measured.upper_bounds[field.field_id] = to_bytes(field.field_type, max(present))
    return measured


def _put(location: str, data: bytes, storage_options: Mapping[str, object]) -> None:
    parts = urlsplit(location)
    if parts.scheme in ("", "file"):
        os.makedirs(os.path.dirname(parts.path), exist_ok=True)
    with fsspec.open(location, "wb", **storage_options) as out:
        out.write(data)
