"""What the driver decides for the tasks of an epoch, as plain values: schema, partitions, format, policies, places."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from icefloe.connector.parquet_format import ParquetCompression, ParquetFormat
from icefloe.connector.partitioner import Partitioner, PartitionKey
from icefloe.connector.roll_policy import RollPolicy
from icefloe.connector.table_plan import TablePlan
from icefloe.proto import sink_pb2 as sink
from icefloe.schemas.sink_schema import SinkSchema
from icefloe.schemas.transforms import PartitionField

IN_FLIGHT_VERSION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class WritePlan:
    """Everything a task needs to turn rows into files of the target; travels by pickle, holds no PyIceberg value."""

    # What batches are normalised to: the target's columns in its order, with its field ids.
    schema: pa.Schema
    timestamp_index: int | None
    partition_fields: tuple[PartitionField, ...]
    # None: a path, with Hive-style folders, partition columns not in the files, each file published by the driver.
    table: TablePlan | None
    schema_id: int
    spec_id: int
    files_url: str
    files_options: Mapping[str, str] = field(repr=False)
    format: ParquetFormat
    # `write.parquet.*` and `write.metadata.metrics.*` of the table.
    properties: Mapping[str, str]
    roll: RollPolicy
    file_prefix: str
    part_size_bytes: int
    max_open_files: int
    memory_budget_bytes: int
    # Columns of the stream that go nowhere.
    dropped_columns: tuple[str, ...] = ()

    def partitioner(self) -> Partitioner:
        """Return what splits normalised batches by partition."""
        return Partitioner(self.partition_fields, self.schema, "path" if self.table is None else "table")

    def relative_name(self, file_name: str, partition: PartitionKey) -> str:
        """Return where a file of a partition belongs below ``files_url``."""
        if self.table is not None:
            return self.table.relative_name(file_name, partition.iceberg_path())
        folder = partition.hive_path()
        return f"{folder}/{file_name}" if folder else file_name

    def data_schema(self) -> SinkSchema:
        """Return what is in the files: the schema, less the partition columns of a path."""
        written = self.partitioner().data_schema
        name = self.schema.field(self.timestamp_index).name if self.timestamp_index is not None else None
        index = written.get_field_index(name) if name is not None else -1
        return SinkSchema(written, index if index >= 0 else None)

    def writer(self) -> sink.WriterDescription:
        """Return the description of the writer, from which any process can finish a file of it."""
        schema = self.data_schema()
        return sink.WriterDescription(
            arrow_schema=schema.arrow.serialize().to_pybytes(),
            timestamp_index=schema.timestamp_index,
            compression=self.format.compression,
            compression_level=self.format.compression_level,
            row_group_bytes=self.format.row_group_bytes,
            properties=dict(self.properties),
            schema_id=self.schema_id,
            spec_id=self.spec_id,
            format_version=IN_FLIGHT_VERSION,
        )


def writer_fingerprint(writer: sink.WriterDescription) -> sink.Fingerprint:
    """Return what must stay the same while a file is continued (R8)."""
    digest = hashlib.sha256(writer.SerializeToString(deterministic=True)).hexdigest()
    return sink.Fingerprint(
        schema_id=writer.schema_id,
        spec_id=writer.spec_id,
        writer_digest=digest,
        format_version=writer.format_version,
    )


def described_schema(writer: sink.WriterDescription) -> SinkSchema:
    """Return the schema that a description holds."""
    arrow = pa.ipc.read_schema(pa.py_buffer(writer.arrow_schema))
    return SinkSchema(arrow, writer.timestamp_index if writer.HasField("timestamp_index") else None)


def described_format(writer: sink.WriterDescription) -> ParquetFormat:
    """Return the format that a description holds."""
    return ParquetFormat.from_table_properties(
        writer.properties,
        compression=ParquetCompression(writer.compression),
        compression_level=writer.compression_level if writer.HasField("compression_level") else None,
        row_group_bytes=writer.row_group_bytes,
    )
