"""On the driver: turn options, the stream's schema and the target into the plan that tasks follow."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import pyarrow as pa

from icefloe.connector.options import SinkOptions
from icefloe.connector.parquet_format import ParquetCompression, ParquetFormat
from icefloe.connector.partitioner import Partitioner
from icefloe.connector.roll_policy import RollPolicy
from icefloe.connector.table_plan import TablePlan
from icefloe.connector.write_plan import WritePlan
from icefloe.errors import OptionError
from icefloe.schemas.column_matching import match_columns
from icefloe.schemas.iceberg_schema import arrow_schema_from_iceberg
from icefloe.schemas.sink_schema import SinkSchema
from icefloe.schemas.transforms import PartitionField, Transform, TransformKind, parse_partition_by

_DEFAULT_FILE_BYTES = 512 << 20
# Table properties that shape the bytes or the metrics of a file: they are part of its fingerprint.
_FILE_PROPERTIES = ("write.parquet.", "write.metadata.metrics.")


def stream_schema(options: SinkOptions, schema_json: str) -> SinkSchema:
    """Return what the stream brings to the target: its columns, less the event time where it is to be left out."""
    schema = SinkSchema.from_spark(schema_json, event_time_column=options.event_time_column)
    if options.roll_watermark and schema.timestamp_index is None:
        raise OptionError(
            "ICEFLOE_OPTION_CONFLICT",
            "rollWatermark needs an event time: name it with eventTimeColumn, or put withWatermark() before the sink",
        )
    if options.drop_event_time and schema.timestamp_index is None:
        raise OptionError(
            "ICEFLOE_OPTION_CONFLICT",
            "dropEventTime needs an event time to leave out: name it with eventTimeColumn, or put withWatermark() "
            "before the sink",
        )
    return schema


def written_schema(options: SinkOptions, schema: SinkSchema) -> SinkSchema:
    """Return the columns that reach the target: all, less the event time where ``dropEventTime`` asks for it."""
    if not options.drop_event_time or schema.timestamp_index is None:
        return schema
    return SinkSchema(schema.arrow.remove(schema.timestamp_index))


def path_partitions(options: SinkOptions, schema: SinkSchema) -> tuple[PartitionField, ...]:
    """Return the plain columns that a path is partitioned by, under the names that the stream gives them.

    Raises ``OptionError`` for a transform, an unknown column, or where no column would be left for the files.
    """
    if options.partition_by is None:
        return ()
    fields = parse_partition_by(options.partition_by)
    names = [field.name for field in Partitioner(fields, schema.arrow, "path").key_fields]
    return tuple(PartitionField(name, Transform(TransformKind.IDENTITY), name) for name in names)


def plan_path(options: SinkOptions, schema: SinkSchema) -> WritePlan:
    """Return the plan for a directory or an S3 prefix."""
    assert options.path is not None
    written = written_schema(options, schema)
    partitions = path_partitions(options, written)
    if options.roll_watermark and written.timestamp_name in {field.name for field in partitions}:
        raise OptionError(
            "ICEFLOE_OPTION_CONFLICT",
            f"rollWatermark compares the watermark with {written.timestamp_name!r} in each file, but this path is "
            "partitioned by that column, so its files do not hold it: partition by a column made from it (such as its "
            "date), or leave rollWatermark out",
        )
    return WritePlan(
        schema=written.arrow,
        timestamp_index=written.timestamp_index,
        partition_fields=partitions,
        table=None,
        schema_id=0,
        spec_id=0,
        files_url=options.path,
        files_options=options.s3_options,
        format=_format(options, {}),
        properties={},
        roll=_roll_policy(options, _DEFAULT_FILE_BYTES),
        file_prefix=options.file_prefix,
        part_size_bytes=options.part_size,
        max_open_files=options.max_open_files,
        memory_budget_bytes=options.memory_budget,
        dropped_columns=_dropped(options, schema),
    )


def plan_table(options: SinkOptions, schema: SinkSchema, table: TablePlan) -> WritePlan:
    """Return the plan for an Iceberg table, whose schema, spec and properties decide."""
    written = written_schema(options, schema)
    arrow = arrow_schema_from_iceberg(table.iceberg_schema_json)
    name = schema.arrow.field(schema.timestamp_index).name if schema.timestamp_index is not None else None
    (index,) = match_columns(arrow.names, [name]) if name is not None and written is schema else (None,)
    fields = tuple(
        PartitionField(f.source_name, Transform.from_spec(f.transform), f.name, f.field_id, f.source_id)
        for f in table.partition_fields
    )
    return WritePlan(
        schema=arrow,
        timestamp_index=index,
        partition_fields=fields,
        table=table,
        schema_id=table.schema_id,
        spec_id=table.spec_id,
        files_url=table.data_location,
        files_options={**options.s3_options, **table.storage_options},
        format=_format(options, table.properties),
        properties={k: v for k, v in table.properties.items() if k.startswith(_FILE_PROPERTIES)},
        roll=_roll_policy(options, table.target_file_size_bytes),
        file_prefix=options.file_prefix,
        part_size_bytes=options.part_size,
        max_open_files=options.max_open_files,
        memory_budget_bytes=options.memory_budget,
        dropped_columns=_dropped(options, schema),
    )


def plan_in_flight(options: SinkOptions) -> WritePlan:
    """Return a plan that takes no rows: ``finish`` rolls files by what their own state says of schema and format."""
    empty = SinkSchema(pa.schema([]))
    if options.path is not None:
        return plan_path(dataclasses.replace(options, partition_by=None, drop_event_time=False), empty)
    from icefloe.connector.iceberg_table import IcebergTarget
    from icefloe.connector.table_target import table_settings

    with IcebergTarget.open(table_settings(options)) as table:
        return plan_table(options, empty, table.describe())


def _dropped(options: SinkOptions, schema: SinkSchema) -> tuple[str, ...]:
    name = schema.timestamp_name
    return (name,) if options.drop_event_time and name is not None else ()


def _format(options: SinkOptions, properties: Mapping[str, str]) -> ParquetFormat:
    return ParquetFormat.from_table_properties(
        properties,
        compression=ParquetCompression(options.compression) if options.compression else None,
        compression_level=options.compression_level,
        row_group_bytes=options.row_group_size,
    )


def _roll_policy(options: SinkOptions, target_bytes: int) -> RollPolicy:
    return RollPolicy(
        file_size_bytes=options.roll_file_size or target_bytes,
        interval=options.roll_interval,
        inactivity=options.roll_inactivity,
        by_watermark=options.roll_watermark,
        every_batch=options.rolls_each_batch,
    )
