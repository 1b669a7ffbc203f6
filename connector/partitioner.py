"""Splits batches by partition: from the normaliser's batches to one batch per file that is written.

Rows are never looked at one by one: keys are dictionary-encoded, combined into one code, and the batch is sliced by it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from icefloe.connector.partition_key import (
    UNPARTITIONED,
    KeyField,
    PartitionKey,
    PartitionValue,
    show_for_hive,
    show_for_iceberg,
)
from icefloe.errors import OptionError, SchemaError
from icefloe.schemas.column_matching import match_columns, name_with_hint
from icefloe.schemas.transforms import PartitionField, Transform, TransformKind

__all__ = ["UNPARTITIONED", "KeyField", "PartitionKey", "Partitioner"]

_MAX_CACHED_KEYS = 10_000


class Partitioner:
    """Groups the rows of batches of ``schema`` by partition. Holds no rows; one per task.

    ``mode`` is ``table`` for an Iceberg table (all transforms, columns kept in the files) or ``path`` for a directory
    (plain columns, which are left out of the files). ``data_schema`` is the schema of the batches handed out.

    Raises:
        OptionError: ICEFLOE_PARTITION_BY for a column that is not there, a transform on a path, or no column left.
        SchemaError: ICEFLOE_TRANSFORM_TYPE for a column whose type the transform does not take.
    """

    def __init__(
        self, fields: Sequence[PartitionField], schema: pa.Schema, mode: Literal["path", "table"] = "table"
    ) -> None:
        self.fields = tuple(fields)
        self.schema = schema
        self.mode = mode
        self._paths = [_find_source(field, schema) for field in self.fields]
        if mode == "path":
            _refuse_nested(self.fields, self._paths)
        source_types = [pa.int32() if path is None else _type_at(schema, path) for path in self._paths]
        for field, source_type in zip(self.fields, source_types, strict=True):
            _check_type(field, source_type, mode)
        self._result_types = [
            field.transform.result_type(source_type)
            for field, source_type in zip(self.fields, source_types, strict=True)
        ]
        self.key_fields = tuple(
            KeyField(self._folder_name(index), field.field_id, result.scale if pa.types.is_decimal(result) else 0)
            for index, (field, result) in enumerate(zip(self.fields, self._result_types, strict=True))
        )
        self._data_columns = self._columns_in_files()
        self.data_schema = pa.schema([schema.field(i) for i in self._data_columns], metadata=schema.metadata)
        self._keys: dict[tuple[PartitionValue, ...], PartitionKey] = {}

    def split(self, batch: pa.RecordBatch) -> list[tuple[PartitionKey, pa.RecordBatch]]:
        """The batch's rows by partition, in the order in which the partitions first appear; rows keep their order.

        Copies nothing when the batch holds one partition, or each partition in one run of rows. Otherwise the parts
        are slices of one re-ordered copy, which lives as long as any of them. A batch without rows gives no part.

        Raises:
            SchemaError: ICEFLOE_BATCH_SCHEMA for a batch that is not of ``schema``.
        """
        if not batch.schema.equals(self.schema):
            raise SchemaError(
                "ICEFLOE_BATCH_SCHEMA",
                f"A batch of columns {batch.schema.names} came to a partitioner that was made "
                f"for {self.schema.names}, or with other types.",
            )
        if batch.num_rows == 0:
            return []
        data = self._without_partition_columns(batch)
        if not self.fields:
            return [(UNPARTITIONED, data)]
        columns = [self._values_of(batch, index) for index in range(len(self.fields))]
        codes, groups = _encode(columns)
        if groups == 1:
            return list(zip(self._keys_at(columns, pa.array([0])), [data], strict=True))
        counts = codes.value_counts().field("counts").to_pylist()
        ends = list(accumulate(counts))
        starts = [0, *ends[:-1]]
        first_rows = pa.array(starts)
        if _runs(codes) != groups:
            # Stable, so rows keep their order; codes count up in order of appearance, so partitions do too.
            order = pc.array_sort_indices(codes)
            data = data.take(order)
            first_rows = order.take(first_rows)
        keys = self._keys_at(columns, first_rows)
        return [(k, data.slice(start, rows)) for k, start, rows in zip(keys, starts, counts, strict=True)]

    def _folder_name(self, index: int) -> str:
        path = self._paths[index]
        # A directory's reader takes the column's name from the folder: it must be the column's own.
        return str(self.schema.field(path[0]).name) if self.mode == "path" and path else self.fields[index].name

    def _columns_in_files(self) -> list[int]:
        if self.mode == "table":
            return list(range(len(self.schema)))
        left = [index for index in range(len(self.schema)) if [index] not in self._paths]
        if self.fields and not left:
            raise OptionError(
                "ICEFLOE_PARTITION_BY", f"partitionBy takes all columns {self.schema.names}: leave one for the files."
            )
        return left

    def _without_partition_columns(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if len(self._data_columns) == len(self.schema):
            return batch
        arrays = [batch.column(index) for index in self._data_columns]
        return pa.RecordBatch.from_arrays(arrays, schema=self.data_schema)

    def _values_of(self, batch: pa.RecordBatch, index: int) -> pa.Array:
        path = self._paths[index]
        if path is None:
            return pa.nulls(batch.num_rows, pa.int32())
        top, *below = path
        array = batch.column(top)
        if below:
            array = pc.struct_field(array, below)
        result = self.fields[index].transform.apply(array)
        if pa.types.is_floating(result.type):
            return _one_nan_and_zero(result)
        return _as_stored(result)

    def _keys_at(self, columns: list[pa.Array], rows: pa.Array) -> list[PartitionKey]:
        found = zip(*(column.take(rows).to_pylist() for column in columns), strict=True)
        return [self._key(values) for values in found]

    def _key(self, values: tuple[PartitionValue, ...]) -> PartitionKey:
        # A NaN is not equal to itself: the key's own canonical values are what is looked up.
        key = self._keys.get(values)
        if key is None:
            shown = tuple(self._show(value, index) for index, value in enumerate(values))
            key = PartitionKey(values, self.key_fields, shown)
            if len(self._keys) >= _MAX_CACHED_KEYS:
                self._keys.clear()
            self._keys[key.values] = key
        return key

    def _show(self, value: PartitionValue, index: int) -> str:
        result_type = self._result_types[index]
        if self.mode == "path":
            return show_for_hive(value, result_type)
        return show_for_iceberg(value, result_type, self.fields[index].transform)


def _encode(columns: list[pa.Array]) -> tuple[pa.Array, int]:
    """One code per row, the same for rows of one partition, and the number of partitions; codes count up from 0."""
    codes, groups = _encode_one(columns[0])
    for column in columns[1:]:
        more, size = _encode_one(column)
        if size == 1:
            continue
        # Both factors are at most the number of rows, and a batch has fewer than 2**31: the product fits 64 bits.
        wide = pa.int32() if groups * size < 2**31 else pa.int64()
        combined = pc.add(pc.multiply(codes.cast(wide), pa.scalar(size, wide)), more.cast(wide))
        codes, groups = _encode_one(combined)
    return codes, groups


def _runs(codes: pa.Array) -> int:
    """How many runs of equal codes there are: as many as partitions when the rows came sorted by them."""
    changes = pc.sum(pc.not_equal(codes.slice(1), codes.slice(0, len(codes) - 1))).as_py()
    return 1 + int(changes or 0)


def _encode_one(array: pa.Array) -> tuple[pa.Array, int]:
    encoded = array.dictionary_encode(null_encoding="encode")
    return encoded.indices, len(encoded.dictionary)


def _one_nan_and_zero(array: pa.Array) -> pa.Array:
    """NaNs of all bit patterns as one, -0.0 as 0.0: what SQL calls equal must not be two partitions."""
    nan, zero = pa.scalar(float("nan"), array.type), pa.scalar(0.0, array.type)
    array = pc.if_else(pc.is_nan(array), nan, array)
    return pc.if_else(pc.equal(array, zero), zero, array)


def _as_stored(array: pa.Array) -> pa.Array:
    """The values as Iceberg types a partition tuple: numbers for times, bytes for a UUID. Copies nothing."""
    if pa.types.is_date32(array.type):
        return array.view(pa.int32())
    if pa.types.is_timestamp(array.type) or pa.types.is_time64(array.type):
        return array.view(pa.int64())
    return array.storage if array.type == pa.uuid() else array


def _find_source(field: PartitionField, schema: pa.Schema) -> list[int] | None:
    """The way to the source column, one index per level; None for a void field, whose column may be gone."""
    if field.transform.kind is TransformKind.VOID:
        return None
    (whole,) = match_columns(schema.names, [field.source])
    if whole is not None:
        return [whole]
    path: list[int] = []
    level = list(schema)
    for part in field.source.split("."):
        (index,) = match_columns([f.name for f in level], [part])
        if index is None:
            raise OptionError(
                "ICEFLOE_PARTITION_BY",
                f"Partition field {field.name!r} needs column {name_with_hint(field.source, schema.names)}, which is "
                f"not among {schema.names}: correct partitionBy.",
            )
        path.append(index)
        level = list(level[index].type) if pa.types.is_struct(level[index].type) else []
    return path


def _type_at(schema: pa.Schema, path: list[int]) -> pa.DataType:
    arrow_type = schema.field(path[0]).type
    for index in path[1:]:
        arrow_type = arrow_type.field(index).type
    return arrow_type


def _refuse_nested(fields: Sequence[PartitionField], paths: Sequence[list[int] | None]) -> None:
    for field, path in zip(fields, paths, strict=True):
        if path is not None and len(path) > 1:
            raise OptionError(
                "ICEFLOE_PARTITION_BY",
                f"partitionBy names {field.source!r}, a part of a column, but a path takes whole columns only: select "
                "it as a column of its own.",
            )


def _check_type(field: PartitionField, source_type: pa.DataType, mode: str) -> None:
    transform: Transform = field.transform
    if mode == "path" and transform.kind is not TransformKind.IDENTITY:
        raise OptionError(
            "ICEFLOE_PARTITION_BY",
            f"partitionBy has {transform} of {field.source!r}, but a path takes plain columns only: add the value as "
            "a column of its own, or write to a table.",
        )
    if not transform.accepts(source_type):
        raise SchemaError(
            "ICEFLOE_TRANSFORM_TYPE",
            f"Partition field {field.name!r}: {transform} does not take column {field.source!r} of type {source_type}.",
        )
    if mode == "path" and (pa.types.is_binary(source_type) or pa.types.is_fixed_size_binary(source_type)):
        raise SchemaError(
            "ICEFLOE_TRANSFORM_TYPE",
            f"Partition column {field.source!r} is {source_type}: bytes make no folder name, encode them as text.",
        )
