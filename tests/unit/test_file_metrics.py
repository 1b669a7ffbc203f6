"""Corners of file statistics that PyIceberg gets wrong or cannot judge."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from icefloe.connector.column_bounds import decimal_bytes, shorten_bytes_up, shorten_text_up
from icefloe.connector.file_metrics import check_metrics_config, count_nans, iceberg_file_metadata
from icefloe.errors import OptionError, SchemaError

TEXT = pa.schema([pa.field("s", pa.string(), metadata={"PARQUET:field_id": "1"})])
FLOAT = pa.schema([pa.field("f", pa.float64(), metadata={"PARQUET:field_id": "1"})])


def footer_of(schema: pa.Schema, values: list[Any], **options: Any) -> pq.FileMetaData:
    sink = io.BytesIO()
    table = pa.Table.from_arrays([pa.array(values, schema.field(0).type)], schema=schema)
    pq.write_table(table, sink, row_group_size=1, **options)
    return pq.read_metadata(sink)


def test_bounds_are_left_out_when_parquet_left_them_out_for_one_row_group() -> None:
    # PyIceberg would give "b" as the upper bound here, and a reader would skip the file when it looks for "zzz...".
    found = iceberg_file_metadata(footer_of(TEXT, ["b", "z" * 5_000]), TEXT)
    assert dict(found.upper_bounds) == dict(found.lower_bounds) == {}
    assert dict(found.null_value_counts) == {1: 0}


def test_a_row_group_of_nulls_only_does_not_take_the_bounds_away() -> None:
    found = iceberg_file_metadata(footer_of(TEXT, ["b", None, "c"]), TEXT)
    assert (found.lower_bounds[1], found.upper_bounds[1]) == (b"b", b"c")


def test_bounds_of_floats_leave_nans_out_and_nan_counts_tell_them() -> None:
    values = [float("nan"), 1.0, None, -2.0]
    batch = pa.RecordBatch.from_arrays([pa.array(values)], schema=FLOAT)
    found = iceberg_file_metadata(footer_of(FLOAT, values), FLOAT, nan_counts=count_nans(batch, FLOAT))
    assert (found.lower_bounds[1], found.upper_bounds[1]) == (b"\0\0\0\0\0\0\0\xc0", b"\0\0\0\0\0\0\xf0?")
    assert dict(found.nan_value_counts) == {1: 1}


def test_a_column_of_nans_only_has_no_bounds() -> None:
    found = iceberg_file_metadata(footer_of(FLOAT, [float("nan")]), FLOAT, nan_counts={1: 1})
    assert dict(found.lower_bounds) == {}
    assert dict(found.nan_value_counts) == {1: 1}


def test_nan_counts_are_left_out_where_the_table_wants_no_metrics() -> None:
    config = {"write.metadata.metrics.column.f": "none"}
    found = iceberg_file_metadata(footer_of(FLOAT, [1.0]), FLOAT, metrics_config=config, nan_counts={1: 0})
    assert dict(found.nan_value_counts) == dict(found.value_counts) == {}
    assert found.column_sizes[1] > 0


def test_statistics_that_were_not_written_are_not_invented() -> None:
    found = iceberg_file_metadata(footer_of(TEXT, ["a"], write_statistics=False), TEXT)
    assert dict(found.value_counts) == {1: 1}
    assert dict(found.null_value_counts) == dict(found.lower_bounds) == {}


def test_an_upper_bound_never_ends_in_half_a_character() -> None:
    # One above U+D7FF is a surrogate, which UTF-8 cannot hold: PyIceberg fails here.
    found = iceberg_file_metadata(footer_of(TEXT, ["a" * 15 + "\ud7ff" + "b"]), TEXT)
    assert found.upper_bounds[1].decode() == "a" * 15 + "\ue000"


@pytest.mark.parametrize(
    ("value", "length", "expected"),
    [
        ("abc", 2, "ac"),
        ("a\U0010ffffc", 2, "b"),
        ("\U0010ffff\U0010ffffc", 2, None),
        ("\ud7ffxx", 1, "\ue000"),
    ],
)
def test_shortened_text_is_the_least_that_is_above(value: str, length: int, expected: str | None) -> None:
    assert shorten_text_up(value, length) == expected


def test_shortened_bytes_are_the_least_that_are_above() -> None:
    assert shorten_bytes_up(b"ab\xff\xff", 3) == b"ac"
    assert shorten_bytes_up(b"\xff\xff\xff", 2) is None


@pytest.mark.parametrize(
    ("unscaled", "expected"),
    [(0, b"\0"), (127, b"\x7f"), (128, b"\0\x80"), (-128, b"\x80"), (-129, b"\xff\x7f"), (-1, b"\xff")],
)
def test_decimals_take_the_fewest_bytes(unscaled: int, expected: bytes) -> None:
    assert decimal_bytes(unscaled) == expected


def test_times_beyond_the_year_9999_have_bounds() -> None:
    schema = pa.schema([pa.field("t", pa.timestamp("us"), metadata={"PARQUET:field_id": "1"})])
    found = iceberg_file_metadata(footer_of(schema, [-(2**62), 2**62]), schema)
    assert int.from_bytes(found.lower_bounds[1], "little", signed=True) == -(2**62)
    assert int.from_bytes(found.upper_bounds[1], "little", signed=True) == 2**62


def test_nans_that_a_null_parent_hides_are_not_counted() -> None:
    child = pa.field("x", pa.float64(), metadata={"PARQUET:field_id": "2"})
    schema = pa.schema([pa.field("s", pa.struct([child]), metadata={"PARQUET:field_id": "1"})])
    hidden = pa.StructArray.from_arrays(
        [pa.array([float("nan"), float("nan")])], fields=[child], mask=pa.array([True, False])
    )
    assert count_nans(pa.RecordBatch.from_arrays([hidden], schema=schema), schema) == {2: 1}


@pytest.mark.parametrize("mode", ["", "most", "truncate", "truncate(0)", "truncate(-1)", "truncate(x)"])
def test_a_metrics_mode_that_does_not_exist_is_refused_before_any_data(mode: str) -> None:
    with pytest.raises(OptionError, match="ICEFLOE_METRICS_MODE"):
        check_metrics_config({"write.metadata.metrics.column.a": mode})
    check_metrics_config({"write.metadata.metrics.default": " Truncate(8) ", "write.format.default": mode})


def test_a_footer_of_another_schema_is_refused() -> None:
    two = pa.schema([*TEXT, pa.field("b", pa.int64(), metadata={"PARQUET:field_id": "2"})])
    with pytest.raises(SchemaError, match="ICEFLOE_FOOTER_SCHEMA: A file has 1 columns"):
        iceberg_file_metadata(footer_of(TEXT, ["a"]), two)


def test_a_schema_without_field_ids_is_refused() -> None:
    with pytest.raises(SchemaError, match="ICEFLOE_FIELD_ID_MISSING: Field 's'"):
        iceberg_file_metadata(footer_of(TEXT, ["a"]), pa.schema([("s", pa.string())]))


def test_a_file_without_rows_has_no_bounds() -> None:
    found = iceberg_file_metadata(footer_of(TEXT, []), TEXT)
    assert found.row_count == 0
    assert dict(found.lower_bounds) == dict(found.upper_bounds) == {}
