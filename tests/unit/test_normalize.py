"""Batches brought to the writer's schema: what is cast, what is left alone, what is refused."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from icefloe.errors import SchemaError
from icefloe.schemas.normalize import BatchNormalizer, check_schemas_fit, normalize_batch_to_schema


def one_column(source: pa.DataType, values: list[Any], target: pa.DataType, *, nullable: bool = True) -> pa.Array:
    batch = pa.RecordBatch.from_arrays([pa.array(values, source)], schema=pa.schema([("c", source)]))
    result = normalize_batch_to_schema(batch, pa.schema([pa.field("c", target, nullable=nullable)]))
    result.validate(full=True)
    return result.column(0)


WIDENINGS = [
    (pa.int8(), [1, None], pa.int32(), [1, None]),
    (pa.int16(), [-5], pa.int64(), [-5]),
    (pa.int32(), [7], pa.int64(), [7]),
    (pa.uint16(), [65535], pa.int32(), [65535]),
    (pa.float32(), [0.5], pa.float64(), [0.5]),
    (pa.large_string(), ["ä", None], pa.string(), ["ä", None]),
    (pa.string_view(), ["ä", None], pa.string(), ["ä", None]),
    (pa.large_binary(), [b"x"], pa.binary(), [b"x"]),
    (pa.binary(2), [b"xy", None], pa.binary(), [b"xy", None]),
    (pa.binary(), [b"xy", None], pa.binary(2), [b"xy", None]),
    (pa.dictionary(pa.int32(), pa.string()), ["a", None, "a"], pa.string(), ["a", None, "a"]),
    (pa.dictionary(pa.int8(), pa.int32()), [1, None], pa.int64(), [1, None]),
    (pa.null(), [None, None], pa.list_(pa.int32()), [None, None]),
    (pa.large_list(pa.int32()), [[1, None], None], pa.list_(pa.int64()), [[1, None], None]),
    (pa.list_(pa.int32(), 2), [[1, 2], None], pa.list_(pa.int64()), [[1, 2], None]),
]


@pytest.mark.parametrize(("source", "values", "target", "expected"), WIDENINGS)
def test_a_wider_or_plainer_type_takes_every_value(
    source: pa.DataType, values: list[Any], target: pa.DataType, expected: list[Any]
) -> None:
    result = one_column(source, values, target)
    assert result.type == target
    assert result.to_pylist() == expected


def test_a_wider_decimal_takes_every_value() -> None:
    result = one_column(pa.decimal128(5, 2), [1, -1, None], pa.decimal128(9, 3))
    assert [str(value) for value in result] == ["1.000", "-1.000", "None"]


def test_a_zone_becomes_utc_and_the_instant_stays() -> None:
    result = one_column(
        pa.timestamp("us", "Europe/Berlin"), [0, 1_700_000_000_000_000, None], pa.timestamp("us", "UTC")
    )
    assert result.cast(pa.int64()).to_pylist() == [0, 1_700_000_000_000_000, None]


def test_coarser_units_of_time_are_scaled() -> None:
    assert one_column(pa.timestamp("s"), [2], pa.timestamp("us")).cast(pa.int64()).to_pylist() == [2_000_000]
    assert one_column(pa.time64("ns"), [3_000], pa.time64("us")).cast(pa.int64()).to_pylist() == [3]


def test_uuids_are_made_from_sixteen_bytes() -> None:
    assert one_column(pa.binary(), [b"a" * 16], pa.uuid()).storage.to_pylist() == [b"a" * 16]


REFUSED = [
    (pa.int64(), [None, 5], pa.int32(), "ICEFLOE_TYPE_NARROWING", "5"),
    (pa.uint32(), [1], pa.int32(), "ICEFLOE_TYPE_NARROWING", "1"),
    (pa.float64(), [0.25], pa.float32(), "ICEFLOE_TYPE_NARROWING", "0.25"),
    (pa.decimal128(9, 2), [1], pa.decimal128(8, 2), "ICEFLOE_TYPE_NARROWING", "1.00"),
    (pa.decimal128(9, 2), [1], pa.decimal128(9, 3), "ICEFLOE_TYPE_NARROWING", "1.00"),
    (pa.int64(), [3], pa.float64(), "ICEFLOE_TYPE_NARROWING", "3"),
    (pa.timestamp("ns"), [2_000, 1_500, 1], pa.timestamp("us"), "ICEFLOE_TYPE_NARROWING", "00:00:00.000001500"),
    (pa.binary(), [b"ok", b"long"], pa.binary(2), "ICEFLOE_TYPE_NARROWING", "long"),
    (pa.string(), ["x"], pa.int32(), "ICEFLOE_TYPE_MISMATCH", "x"),
    (pa.timestamp("us"), [0], pa.timestamp("us", "UTC"), "ICEFLOE_TYPE_MISMATCH", "1970-01-01"),
    (pa.timestamp("us", "UTC"), [0], pa.timestamp("us"), "ICEFLOE_TYPE_MISMATCH", "1970-01-01"),
    (pa.list_(pa.int32()), [[1]], pa.int32(), "ICEFLOE_TYPE_MISMATCH", "1"),
    (pa.list_view(pa.int32()), [[1]], pa.list_(pa.int32()), "ICEFLOE_TYPE_MISMATCH", "1"),
    (pa.int32(), [1], pa.struct([("x", pa.int32())]), "ICEFLOE_TYPE_MISMATCH", "1"),
]


@pytest.mark.parametrize(("source", "values", "target", "code", "example"), REFUSED)
def test_what_could_lose_a_value_is_refused_with_column_types_and_an_example(
    source: pa.DataType, values: list[Any], target: pa.DataType, code: str, example: str
) -> None:
    with pytest.raises(SchemaError) as refused:
        one_column(source, values, target)
    assert refused.value.code == code
    for part in ("'c'", str(source), str(target), example):
        assert part in refused.value.message


def test_a_long_example_is_cut() -> None:
    with pytest.raises(SchemaError, match=r"x\.\.\.: cast") as refused:
        one_column(pa.string(), ["x" * 10_000], pa.int32())
    assert len(str(refused.value)) < 300


def test_a_nested_narrowing_is_refused_with_its_path() -> None:
    source = pa.list_(pa.struct([("x", pa.int64())]))
    with pytest.raises(SchemaError, match=r"ICEFLOE_TYPE_NARROWING: Column 'c\.element\.x'"):
        one_column(source, [[{"x": 1}]], pa.list_(pa.struct([("x", pa.int32())])))


SOURCE = pa.schema(
    [
        ("ID", pa.int32()),
        ("place", pa.struct([("y", pa.large_string()), ("x", pa.int16())])),
        ("tags", pa.map_(pa.string(), pa.large_list(pa.struct([("n", pa.int32())])))),
    ]
)
TARGET = pa.schema(
    [
        ("extra", pa.list_(pa.string())),
        ("place", pa.struct([pa.field("x", pa.int32(), nullable=False), ("y", pa.string()), ("z", pa.date32())])),
        ("id", pa.int64()),
        ("tags", pa.map_(pa.string(), pa.list_(pa.struct([pa.field("n", pa.int64(), nullable=False)])))),
    ]
)
ROWS: list[dict[str, Any]] = [
    {"ID": 1, "place": {"y": "a", "x": 5}, "tags": [("k", [{"n": 1}, None]), ("l", None)]},
    {"ID": None, "place": None, "tags": None},
    {"ID": 3, "place": {"y": None, "x": 7}, "tags": []},
]
EXPECTED = [
    {"extra": None, "place": {"x": 5, "y": "a", "z": None}, "id": 1, "tags": [("k", [{"n": 1}, None]), ("l", None)]},
    {"extra": None, "place": None, "id": None, "tags": None},
    {"extra": None, "place": {"x": 7, "y": None, "z": None}, "id": 3, "tags": []},
]


@pytest.mark.parametrize(("start", "length"), [(0, 3), (1, 2), (2, 1), (0, 2), (1, 0)])
def test_nested_columns_are_reordered_filled_and_cast_in_every_slice(start: int, length: int) -> None:
    batch = pa.RecordBatch.from_pylist(ROWS, schema=SOURCE).slice(start, length)
    result = normalize_batch_to_schema(batch, TARGET)
    result.validate(full=True)
    assert result.schema.equals(TARGET, check_metadata=True)
    assert result.to_pylist() == EXPECTED[start : start + length]


def test_columns_that_fit_share_their_memory_with_the_input() -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.string()), ("t", pa.timestamp("us", "Asia/Tokyo"))])
    target = pa.schema(
        [("t", pa.timestamp("us", "UTC")), ("b", pa.string()), pa.field("a", pa.int64(), nullable=False)]
    )
    batch = pa.RecordBatch.from_pydict({"a": [1, 2], "b": ["x", "y"], "t": [1, 2]}, schema=schema)
    result = normalize_batch_to_schema(batch, target)
    for name in schema.names:
        assert result.column(name).buffers()[-1].address == batch.column(name).buffers()[-1].address


def test_a_batch_of_the_target_schema_is_handed_back_itself() -> None:
    batch = pa.RecordBatch.from_pylist(ROWS, schema=SOURCE)
    assert normalize_batch_to_schema(batch, SOURCE) is batch


def test_schemas_that_differ_only_in_field_ids_have_plans_of_their_own() -> None:
    batch = pa.RecordBatch.from_pydict({"a": [1]})
    for number in (b"1", b"2"):
        target = pa.schema([pa.field("a", pa.int64(), metadata={b"PARQUET:field_id": number})])
        assert normalize_batch_to_schema(batch, target).schema.field(0).metadata == {b"PARQUET:field_id": number}


def test_a_null_in_a_required_column_is_refused_with_column_and_row_count() -> None:
    with pytest.raises(SchemaError, match="ICEFLOE_NULL_IN_REQUIRED: Column 'c' is required, and 2 of 3 values"):
        one_column(pa.int64(), [1, None, None], pa.int64(), nullable=False)


def test_nulls_are_counted_also_where_the_stream_says_there_are_none() -> None:
    schema = pa.schema([pa.field("c", pa.int64(), nullable=False)])
    batch = pa.RecordBatch.from_arrays([pa.array([None], pa.int64())], schema=schema)
    with pytest.raises(SchemaError, match="ICEFLOE_NULL_IN_REQUIRED"):
        normalize_batch_to_schema(batch, schema)


@pytest.mark.parametrize(
    ("source", "target", "good", "bad", "path"),
    [
        (
            pa.struct([("x", pa.int32())]),
            pa.struct([pa.field("x", pa.int32(), nullable=False)]),
            [None, {"x": 1}],
            [None, {"x": None}],
            "c.x",
        ),
        (
            pa.list_(pa.int32()),
            pa.list_(pa.field("element", pa.int32(), nullable=False)),
            [None, [], [1]],
            [None, [1, None]],
            "c.element",
        ),
        (
            pa.map_(pa.string(), pa.int32()),
            pa.map_(pa.string(), pa.field("value", pa.int32(), nullable=False)),
            [None, [], [("k", 1)]],
            [None, [("k", None)]],
            "c.value",
        ),
    ],
)
def test_a_required_part_may_be_absent_with_its_parent_but_not_null(
    source: pa.DataType, target: pa.DataType, good: list[Any], bad: list[Any], path: str
) -> None:
    assert one_column(source, good, target).to_pylist() == good
    with pytest.raises(SchemaError, match=f"ICEFLOE_NULL_IN_REQUIRED: Column '{path}'"):
        one_column(source, bad, target)


def test_nulls_outside_of_the_slice_are_not_counted() -> None:
    target = pa.schema([("m", pa.map_(pa.string(), pa.field("value", pa.int32(), nullable=False)))])
    source = pa.schema([("m", pa.map_(pa.string(), pa.int32()))])
    batch = pa.RecordBatch.from_pylist([{"m": [("a", None)]}, {"m": [("b", 2)]}], schema=source).slice(1)
    assert normalize_batch_to_schema(batch, target).to_pylist() == [{"m": [("b", 2)]}]


def test_a_missing_required_column_is_refused_by_name() -> None:
    target = pa.schema([pa.field("a", pa.int64(), nullable=False), pa.field("b", pa.int64(), nullable=False)])
    with pytest.raises(SchemaError, match="ICEFLOE_COLUMN_MISSING: The target requires 'b'"):
        BatchNormalizer(pa.schema([("a", pa.int64())]), target)


def test_a_column_without_a_target_is_refused_unless_it_is_dropped_by_name() -> None:
    source, target = pa.schema([("a", pa.int64()), ("when", pa.int64())]), pa.schema([("a", pa.int64())])
    with pytest.raises(SchemaError, match=r"ICEFLOE_COLUMN_UNKNOWN: .*'when'"):
        BatchNormalizer(source, target)
    batch = pa.RecordBatch.from_pydict({"a": [1], "when": [2]}, schema=source)
    assert BatchNormalizer(source, target, drop={"when"}).apply(batch).to_pylist() == [{"a": 1}]


def test_a_batch_of_another_schema_than_the_plan_is_refused() -> None:
    schema = pa.schema([("a", pa.int64())])
    with pytest.raises(SchemaError, match="ICEFLOE_BATCH_SCHEMA"):
        BatchNormalizer(schema, schema).apply(pa.RecordBatch.from_pydict({"a": ["x"]}))


@pytest.mark.parametrize(("source", "values", "target", "code", "example"), REFUSED)
def test_the_check_before_any_data_refuses_the_same_types(
    source: pa.DataType, values: list[Any], target: pa.DataType, code: str, example: str
) -> None:
    if code == "ICEFLOE_TYPE_NARROWING" and (pa.types.is_timestamp(source) or pa.types.is_binary(source)):
        check_schemas_fit(pa.schema([("c", source)]), pa.schema([("c", target)]))
        return
    with pytest.raises(SchemaError, match=code):
        check_schemas_fit(pa.schema([("c", pa.list_(source))]), pa.schema([("c", pa.list_(target))]))


def test_the_check_before_any_data_passes_what_fits() -> None:
    check_schemas_fit(SOURCE, TARGET)
