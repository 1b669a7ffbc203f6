"""The text of partitionBy, and the corners of the transforms that PyIceberg's Python values cannot show."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest

from icefloe.errors import OptionError, SchemaError
from icefloe.schemas.transforms import PartitionField, Transform, TransformKind, parse_partition_by


def test_the_example_of_the_documentation_is_read_with_icebergs_default_names() -> None:
    fields = parse_partition_by("day(ts), bucket(16, user_id), truncate(4, name), region")
    assert [(field.source, str(field.transform), field.name) for field in fields] == [
        ("ts", "day", "ts_day"),
        ("user_id", "bucket[16]", "user_id_bucket"),
        ("name", "truncate[4]", "name_trunc"),
        ("region", "identity", "region"),
    ]
    assert pickle.loads(pickle.dumps(fields)) == fields


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("  ", []),
        ("Years(ts)", [("ts", "year", "ts_year")]),
        ("HOURS( ts )", [("ts", "hour", "ts_hour")]),
        ("bucket(id, 8)", [("id", "bucket[8]", "id_bucket")]),
        ("identity(a)", [("a", "identity", "a")]),
        ("day", [("day", "identity", "day")]),
        ("`a, (b)`,c", [("a, (b)", "identity", "a, (b)"), ("c", "identity", "c")]),
        ("bucket(4, `16`)", [("16", "bucket[4]", "16_bucket")]),
        ("`a``b`", [("a`b", "identity", "a`b")]),
        ("month(place.when)", [("place.when", "month", "place_when_month")]),
        ("größe", [("größe", "identity", "größe")]),
    ],
)
def test_spellings_that_are_understood(text: str, expected: list[tuple[str, str, str]]) -> None:
    assert [(field.source, str(field.transform), field.name) for field in parse_partition_by(text)] == expected


@pytest.mark.parametrize(
    ("text", "position", "what"),
    [
        ("day(ts", 7, "')' is expected"),
        ("a, week(ts)", 4, "'week' is not a transform"),
        ("void(a)", 1, "'void' is not a transform"),
        ("day(ts),,a", 9, "a column or a transform is expected"),
        ("a,", 3, "a column or a transform is expected"),
        ("bucket(x)", 8, "bucket is written bucket(n, column)"),
        ("day(3, x)", 8, "day is written day(column)"),
        ("bucket(0, x)", 11, "bucket takes a number from 1"),
        ("bucket(2147483648, x)", 20, "bucket takes a number from 1"),
        ("bucket(-1, x)", 12, "bucket is written"),
        ("a b", 3, "',' is expected"),
        ("`a", 1, "a column or a transform is expected"),
        ("day()", 5, "a column or a number is expected"),
    ],
)
def test_what_is_not_understood_is_refused_with_its_position(text: str, position: int, what: str) -> None:
    with pytest.raises(OptionError) as refused:
        parse_partition_by(text)
    assert refused.value.code == "ICEFLOE_PARTITION_BY"
    assert f"position {position}: " in refused.value.message
    assert what in refused.value.message


def test_a_name_given_twice_is_refused() -> None:
    with pytest.raises(OptionError, match=r"ICEFLOE_PARTITION_BY: .* 'a_bucket' twice"):
        parse_partition_by("bucket(4, a), bucket(8, a)")


@pytest.mark.parametrize("text", ["identity", "bucket[16]", "truncate[4]", "year", "month", "day", "hour", "void"])
def test_the_specs_spelling_is_read_and_written_unchanged(text: str) -> None:
    assert str(Transform.from_spec(text)) == text


@pytest.mark.parametrize("text", ["", "bucket", "bucket[0]", "day[3]", "zorder[2]", "truncate[x]", "bucket[4] "])
def test_an_unknown_transform_of_a_table_is_refused(text: str) -> None:
    with pytest.raises(SchemaError, match="ICEFLOE_TRANSFORM_UNKNOWN"):
        Transform.from_spec(text)


def test_times_are_taken_in_utc_whatever_zone_the_array_has() -> None:
    array = pa.array([-1, 0, None], pa.timestamp("us", "Asia/Tokyo"))
    for text, expected in [("year", [-1, 0, None]), ("month", [-1, 0, None]), ("hour", [-1, 0, None])]:
        assert Transform.from_spec(text).apply(array).to_pylist() == expected


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_every_unit_of_time_gives_the_same_days_and_hours_and_buckets(unit: str) -> None:
    seconds = pa.array([-86_401, -3_601, -1, 0, 90_000, None], pa.timestamp("s"))
    array = seconds.cast(pa.timestamp(unit))
    for text in ("day", "hour", "bucket[64]"):
        transform = Transform.from_spec(text)
        assert transform.apply(array).equals(transform.apply(seconds))


def test_a_nanosecond_before_the_epoch_is_in_the_microsecond_before_it() -> None:
    transform = Transform.from_spec("bucket[1000]")
    before = transform.apply(pa.array([-1], pa.timestamp("us")))
    assert transform.apply(pa.array([-1], pa.timestamp("ns"))).equals(before)


@pytest.mark.parametrize("arrow_type", [pa.large_string(), pa.string_view(), pa.string()])
def test_text_is_cut_by_characters_in_every_arrow_type(arrow_type: pa.DataType) -> None:
    cut = Transform.from_spec("truncate[2]").apply(pa.array(["日本語", "a😀b", "", None], arrow_type))
    assert cut.type == arrow_type
    assert cut.to_pylist() == ["日本", "a😀", "", None]


def test_bytes_are_cut_by_bytes_in_every_arrow_type() -> None:
    for arrow_type in (pa.binary(), pa.large_binary()):
        cut = Transform.from_spec("truncate[2]").apply(pa.array([b"\xff\x00\x01", b"", None], arrow_type))
        assert cut.to_pylist() == [b"\xff\x00", b"", None]
        assert cut.type == arrow_type


def test_small_integers_are_truncated_as_the_int_that_iceberg_stores() -> None:
    transform = Transform(TransformKind.TRUNCATE, 1000)
    assert transform.result_type(pa.int8()) == pa.int32()
    assert transform.apply(pa.array([-5, 5, None], pa.int8())).to_pylist() == [-1000, 0, None]


def test_a_type_that_a_transform_does_not_take_is_refused() -> None:
    with pytest.raises(SchemaError, match="ICEFLOE_TRANSFORM_TYPE: Transform hour does not take values of type date32"):
        Transform.from_spec("hour").apply(pa.array([1], pa.date32()))


def test_fields_of_a_table_are_plain_values() -> None:
    field = PartitionField("ts", Transform.from_spec("day"), "ts_day", field_id=1000, source_id=3)
    assert pickle.loads(pickle.dumps(field)) == field
    assert hash(field) == hash(pickle.loads(pickle.dumps(field)))
