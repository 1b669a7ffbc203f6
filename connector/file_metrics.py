"""What Iceberg wants to know about a finished file, from its footer alone: no data is read again.

Last stage of a file on the task's side: the result travels in the pre-commit to the driver, which appends it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from icefloe.connector.column_bounds import ColumnBounds
from icefloe.errors import OptionError, SchemaError
from icefloe.proto import sink_pb2
from icefloe.schemas.field_ids import field_id
from icefloe.schemas.nested_values import child_fields, child_values
from icefloe.schemas.types import join_path

_DEFAULT_PROPERTY = "write.metadata.metrics.default"
_COLUMN_PROPERTY = "write.metadata.metrics.column."
_DEFAULT_MODE = "truncate(16)"
_TRUNCATE = re.compile(r"^truncate\((\d+)\)$")


class MetricsKind(StrEnum):
    """How much is kept about a column, in the words of Iceberg's table properties."""

    NONE = "none"
    COUNTS = "counts"
    TRUNCATE = "truncate"
    FULL = "full"


@dataclass(frozen=True, slots=True)
class MetricsMode:
    """A column's mode; ``length`` only for ``truncate``."""

    kind: MetricsKind
    length: int | None = None

    @classmethod
    def parse(cls, text: str) -> MetricsMode:
        """Read a table property's value, such as ``truncate(16)``.

        Raises:
            OptionError: ICEFLOE_METRICS_MODE.
        """
        word = text.strip().lower()
        match = _TRUNCATE.match(word)
        if match is not None and int(match[1]) > 0:
            return cls(MetricsKind.TRUNCATE, int(match[1]))
        if word in (MetricsKind.NONE, MetricsKind.COUNTS, MetricsKind.FULL):
            return cls(MetricsKind(word))
        raise OptionError(
            "ICEFLOE_METRICS_MODE",
            f"{text!r} in a table property write.metadata.metrics.* is not one of none, counts, truncate(n), full.",
        )


@dataclass(frozen=True, slots=True)
class Leaf:
    """A column of the file: its id, its type, and its path in Iceberg's spelling."""

    field_id: int
    arrow_type: pa.DataType
    path: str

    def mode(self, metrics_config: Mapping[str, str]) -> MetricsMode:
        """The mode that the table's properties give this column. Parts of a nested column have counts at most."""
        default = metrics_config.get(_DEFAULT_PROPERTY) or _DEFAULT_MODE
        mode = MetricsMode.parse(metrics_config.get(_COLUMN_PROPERTY + self.path) or default)
        if "." in self.path and mode.kind in (MetricsKind.TRUNCATE, MetricsKind.FULL):
            return MetricsMode(MetricsKind.COUNTS)
        return mode


def iceberg_file_metadata(
    footer: pq.FileMetaData,
    schema: pa.Schema,
    *,
    metrics_config: Mapping[str, str] | None = None,
    nan_counts: Mapping[int, int] | None = None,
) -> sink_pb2.IcebergFileMetadata:
    """The statistics of a data file, as PyIceberg computes them from the same footer, plus the NaN counts.

    ``schema`` is the one the file was written with, with field ids; ``metrics_config`` the table's properties
    ``write.metadata.metrics.*``; ``nan_counts`` what ``count_nans`` gave for all batches of the file. Bounds that
    Parquet left out for one row group are left out for the file.

    Raises:
        SchemaError: ICEFLOE_FIELD_ID_MISSING, or ICEFLOE_FOOTER_SCHEMA when the footer has other columns.
        OptionError: ICEFLOE_METRICS_MODE for a property that is not a mode.
    """
    columns = list(leaves(schema))
    if len(columns) != footer.num_columns:
        raise SchemaError(
            "ICEFLOE_FOOTER_SCHEMA",
            f"A file has {footer.num_columns} columns, but the schema that it was written with has {len(columns)}.",
        )
    result = sink_pb2.IcebergFileMetadata(row_count=footer.num_rows)
    row_groups = [footer.row_group(index) for index in range(footer.num_row_groups)]
    result.split_offsets.extend(sorted(_start(row_group) for row_group in row_groups))
    for position, leaf in enumerate(columns):
        mode = leaf.mode(metrics_config or {})
        _measure([row_group.column(position) for row_group in row_groups], leaf, mode, result)
        if nan_counts and leaf.field_id in nan_counts and mode.kind is not MetricsKind.NONE:
            result.nan_value_counts[leaf.field_id] = nan_counts[leaf.field_id]
    return result


def check_metrics_config(metrics_config: Mapping[str, str]) -> None:
    """Refuse, before any data moves, table properties that no file could be measured by.

    Raises:
        OptionError: ICEFLOE_METRICS_MODE.
    """
    for key, value in metrics_config.items():
        if key == _DEFAULT_PROPERTY or key.startswith(_COLUMN_PROPERTY):
            MetricsMode.parse(value)


def leaves(schema: pa.Schema) -> Iterator[Leaf]:
    """The columns of a Parquet file of this schema, in the file's order.

    Raises:
        SchemaError: ICEFLOE_FIELD_ID_MISSING.
    """
    for field in schema:
        yield from _leaves(field, field.name)


def count_nans(batch: pa.RecordBatch, schema: pa.Schema) -> dict[int, int]:
    """How many values are NaN, by field id, for every float column and nested part: 0 where none is.

    ``schema`` is that of the batch, with field ids. Sums over the batches of a file are its NaN counts.

    Raises:
        SchemaError: ICEFLOE_FIELD_ID_MISSING.
    """
    counts: dict[int, int] = {}
    for field, array in zip(schema, batch.columns, strict=True):
        if _has_floats(field.type):
            _count_nans(array, field, counts)
    return counts


def _measure(
    chunks: list[pq.ColumnChunkMetaData], leaf: Leaf, mode: MetricsMode, result: sink_pb2.IcebergFileMetadata
) -> None:
    if not chunks:
        return
    result.column_sizes[leaf.field_id] = sum(chunk.total_compressed_size for chunk in chunks)
    if mode.kind is MetricsKind.NONE:
        return
    result.value_counts[leaf.field_id] = sum(chunk.num_values for chunk in chunks)
    if not all(chunk.is_stats_set for chunk in chunks):
        return
    statistics = [chunk.statistics for chunk in chunks]
    if all(one.has_null_count for one in statistics):
        result.null_value_counts[leaf.field_id] = sum(one.null_count for one in statistics)
    if mode.kind is MetricsKind.COUNTS:
        return
    bounds = ColumnBounds(leaf.arrow_type, mode.length)
    for one, chunk in zip(statistics, chunks, strict=True):
        bounds.add(one, chunk.num_values)
    if (lower := bounds.lower()) is not None:
        result.lower_bounds[leaf.field_id] = lower
    if (upper := bounds.upper()) is not None:
        result.upper_bounds[leaf.field_id] = upper


def _start(row_group: pq.RowGroupMetaData) -> int:
    first = row_group.column(0)
    offset = int(first.data_page_offset)
    if first.has_dictionary_page and first.dictionary_page_offset < offset:
        return int(first.dictionary_page_offset)
    return offset


def _leaves(field: pa.Field, path: str) -> Iterator[Leaf]:
    children = child_fields(field.type)
    if not children:
        yield Leaf(field_id(field), field.type, path)
    for name, child in children:
        yield from _leaves(child, join_path(path, name))


def _has_floats(arrow_type: pa.DataType) -> bool:
    children = child_fields(arrow_type)
    return pa.types.is_floating(arrow_type) or any(_has_floats(child.type) for _, child in children)


def _count_nans(array: pa.Array, field: pa.Field, counts: dict[int, int]) -> None:
    if pa.types.is_floating(field.type):
        counts[field_id(field)] = pc.sum(pc.is_nan(array)).as_py() or 0
        return
    for position, (_, child) in enumerate(child_fields(field.type)):
        if _has_floats(child.type):
            _count_nans(child_values(array, position), child, counts)
