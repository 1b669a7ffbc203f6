"""What is measured about a file equals what PyIceberg reads from its footer, and a count over the rows for NaNs."""

from __future__ import annotations

import io
import math
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.schema import Schema

from icefloe.connector.file_metrics import count_nans, iceberg_file_metadata
from icefloe.schemas.iceberg_schema import arrow_schema_from_iceberg
from support.wide_schema import rows_of, wide_schema_json

SCHEMA_JSON = wide_schema_json()
ARROW_SCHEMA = arrow_schema_from_iceberg(SCHEMA_JSON)
ICEBERG_SCHEMA = Schema.model_validate(SCHEMA_JSON)

MODES = st.sampled_from(["none", "counts", "full", "truncate(1)", "truncate(3)", "truncate(16)", " FULL "])
CONFIGS = st.fixed_dictionaries(
    {},
    optional={
        "write.metadata.metrics.default": MODES,
        "write.metadata.metrics.column.c_string_10": MODES,
        "write.metadata.metrics.column.c_binary_11": MODES,
        "write.metadata.metrics.column.place.x": MODES,
    },
)


def write(rows: list[dict[str, Any]], *, row_group_rows: int, decimals_as_integers: bool) -> pq.FileMetaData:
    sink = io.BytesIO()
    table = pa.Table.from_pylist(rows, schema=ARROW_SCHEMA)
    pq.write_table(table, sink, row_group_size=row_group_rows, store_decimal_as_integer=decimals_as_integers)
    return pq.read_metadata(sink)


def judge(footer: pq.FileMetaData, config: dict[str, str]) -> dict[str, Any]:
    """PyIceberg's own statistics of the file."""
    found = data_file_statistics_from_parquet_metadata(
        footer, compute_statistics_plan(ICEBERG_SCHEMA, config), parquet_path_to_id_mapping(ICEBERG_SCHEMA)
    )
    return {**found.to_serialized_dict(), "record_count": found.record_count}


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(rows=rows_of(ARROW_SCHEMA, min_size=1), row_group_rows=st.integers(1, 5), config=CONFIGS, as_int=st.booleans())
def test_statistics_equal_those_that_pyiceberg_takes_from_the_same_footer(
    rows: list[dict[str, Any]], row_group_rows: int, config: dict[str, str], as_int: bool
) -> None:
    footer = write(rows, row_group_rows=row_group_rows, decimals_as_integers=as_int)
    ours = iceberg_file_metadata(footer, ARROW_SCHEMA, metrics_config=config, nan_counts={})
    theirs = judge(footer, config)
    assert ours.row_count == theirs["record_count"] == len(rows)
    assert list(ours.split_offsets) == theirs["split_offsets"]
    assert dict(ours.column_sizes) == theirs["column_sizes"]
    assert dict(ours.value_counts) == theirs["value_counts"]
    assert dict(ours.null_value_counts) == theirs["null_value_counts"]
    assert dict(ours.lower_bounds) == theirs["lower_bounds"]
    assert dict(ours.upper_bounds) == theirs["upper_bounds"]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(rows=rows_of(ARROW_SCHEMA), start=st.integers(0, 4))
def test_nan_counts_equal_a_count_over_the_rows(rows: list[dict[str, Any]], start: int) -> None:
    batch = pa.RecordBatch.from_pylist(rows, schema=ARROW_SCHEMA).slice(start)
    seen = rows[start:]
    place = [row["place"]["x"] for row in seen if row["place"] is not None]
    tags = [value for row in seen for _, values in row["tags"] or [] for value in values or []]
    pairs = [pair["left"] for row in seen for pair in row["rows"] or [] if pair is not None]
    expected = {
        4: nans([row["c_float_4"] for row in seen]),
        5: nans([row["c_double_5"] for row in seen]),
        101: nans(place),
        201: nans([value for row in seen for value in row["floats"] or []]),
        204: nans(tags),
        222: nans(pairs),
    }
    assert count_nans(batch, ARROW_SCHEMA) == expected


def nans(values: list[float | None]) -> int:
    return sum(1 for value in values if value is not None and math.isnan(value))
