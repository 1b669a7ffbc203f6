"""Batches split by partition, and the folders their files go to."""

from __future__ import annotations

import pickle
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from icefloe.connector.partition_key import KeyField, escape_hive, show_for_hive
from icefloe.connector.partitioner import UNPARTITIONED, Partitioner, PartitionKey
from icefloe.errors import OptionError, SchemaError
from icefloe.schemas.transforms import PartitionField, Transform, parse_partition_by

NAN = float("nan")
OTHER_NAN = pa.array([0x7FF8000000000001], pa.uint64()).view(pa.float64())[0].as_py()


def split(
    partition_by: str, rows: dict[str, pa.Array], mode: Any = "table"
) -> list[tuple[PartitionKey, pa.RecordBatch]]:
    batch = pa.RecordBatch.from_pydict(rows)
    return Partitioner(parse_partition_by(partition_by), batch.schema, mode).split(batch)


def test_rows_go_to_their_partition_in_order_and_partitions_come_in_order_of_appearance() -> None:
    parts = split(
        "k, l", {"k": pa.array(["b", "a", "b", None]), "l": pa.array([1, 2, 1, None]), "n": pa.array([0, 1, 2, 3])}
    )
    assert [(key.values, part.column("n").to_pylist()) for key, part in parts] == [
        (("b", 1), [0, 2]),
        (("a", 2), [1]),
        ((None, None), [3]),
    ]


def test_null_and_the_empty_text_are_two_partitions() -> None:
    parts = split("k", {"k": pa.array(["", None, ""])})
    assert [(key.values, part.num_rows) for key, part in parts] == [(("",), 2), ((None,), 1)]


def test_no_partitioning_hands_the_batch_on_itself() -> None:
    batch = pa.RecordBatch.from_pydict({"a": [1, 2]})
    ((key, part),) = Partitioner((), batch.schema).split(batch)
    assert part is batch
    assert key == UNPARTITIONED
    assert key.iceberg_path() == key.hive_path() == ""


def test_a_batch_of_one_partition_is_handed_on_itself() -> None:
    batch = pa.RecordBatch.from_pydict({"k": ["x", "x"], "n": [1, 2]})
    ((key, part),) = Partitioner(parse_partition_by("k, truncate(10, n)"), batch.schema).split(batch)
    assert part is batch
    assert key.values == ("x", 0)


def test_partitions_that_come_in_runs_are_slices_of_the_batch() -> None:
    batch = pa.RecordBatch.from_pydict({"k": pa.array([3, 3, 1, 2, 2], pa.int64())})
    parts = Partitioner(parse_partition_by("k"), batch.schema).split(batch)
    address = batch.column(0).buffers()[1].address
    assert [part.num_rows for _, part in parts] == [2, 1, 2]
    assert all(part.column(0).buffers()[1].address == address for _, part in parts)


def test_a_batch_without_rows_gives_no_part() -> None:
    assert split("k", {"k": pa.array([], pa.string())}) == []


def test_all_nans_are_one_partition_and_so_are_both_zeros() -> None:
    parts = split("f", {"f": pa.array([NAN, -0.0, OTHER_NAN, 0.0, None, float("-inf")])})
    assert [part.num_rows for _, part in parts] == [2, 2, 1, 1]
    assert [key.iceberg_path() for key, _ in parts] == ["f=nan", "f=0.0", "f=null", "f=-inf"]


def test_keys_of_two_batches_and_two_processes_are_equal() -> None:
    rows = {"f": pa.array([NAN]), "d": pa.array([Decimal("-1.50")], pa.decimal128(38, 2))}
    ((first, _),), ((second, _),) = split("f, d", rows), split("f, d", rows)
    for other in (second, pickle.loads(pickle.dumps(first)), PartitionKey.from_proto(first.to_proto())):
        assert other == first
        assert hash(other) == hash(first)
        assert {first: 1}[other] == 1
        assert other.iceberg_path() == first.iceberg_path() == "f=nan/d=-1.50"


def test_every_kind_of_value_survives_the_message_with_its_folder() -> None:
    values = (True, -5, 2.5, "ä/b", b"\xff", Decimal("-0.01"), Decimal("9" * 36 + ".99"), None, "", 0, False, b"")
    fields = tuple(KeyField(f"f{i}", 1000 + i, 2 if isinstance(v, Decimal) else 0) for i, v in enumerate(values))
    key = PartitionKey(values, fields, tuple("" if value is None else str(value) for value in values))
    back = PartitionKey.from_proto(type(key.to_proto()).FromString(key.to_proto().SerializeToString()))
    assert back == key
    assert [type(value) for value in back.values] == [type(value) for value in values]
    assert back.hive_path() == key.hive_path()
    assert back.iceberg_path() == key.iceberg_path()


def test_keys_of_other_fields_are_not_equal() -> None:
    assert PartitionKey((1,), (KeyField("a"),), ("1",)) != PartitionKey((1,), (KeyField("b"),), ("1",))


def test_path_targets_leave_partition_columns_out_of_the_files() -> None:
    batch = pa.RecordBatch.from_pydict({"a": [1, 2], "day": ["x", "y"], "b": [3, 4]})
    partitioner = Partitioner(parse_partition_by("DAY"), batch.schema, "path")
    parts = partitioner.split(batch)
    assert partitioner.data_schema == pa.schema([("a", pa.int64()), ("b", pa.int64())])
    assert [part.schema for _, part in parts] == [partitioner.data_schema] * 2
    assert [key.hive_path() for key, _ in parts] == ["day=x", "day=y"]


def test_a_struct_field_is_a_partition_source_and_a_null_struct_a_null() -> None:
    place = pa.array([{"x": 1}, None, {"x": None}, {"x": 2}], pa.struct([("x", pa.int32())]))
    parts = split("place.x", {"place": place})
    assert [(key.values, part.num_rows) for key, part in parts] == [((1,), 1), ((None,), 2), ((2,), 1)]


def test_a_void_field_is_null_even_when_its_column_is_gone() -> None:
    batch = pa.RecordBatch.from_pydict({"a": [1, 2]})
    field = PartitionField("dropped", Transform.from_spec("void"), "dropped_day", 1000, 9)
    ((key, part),) = Partitioner([field], batch.schema).split(batch)
    assert key.values == (None,)
    assert part.num_rows == 2


def test_nested_columns_come_along() -> None:
    tags = pa.array([[("a", 1)], None, [("b", 2)]], pa.map_(pa.string(), pa.int64()))
    uuid = pa.array([b"a" * 16, None, b"b" * 16], pa.uuid())
    parts = split("k", {"k": pa.array([1, 2, 1]), "tags": tags, "uuid": uuid, "list": pa.array([[1], [], None])})
    assert (
        parts[0][1].to_pylist()
        == pa.RecordBatch.from_arrays(
            [pa.array([1, 1]), tags.take(pa.array([0, 2])), uuid.take(pa.array([0, 2])), pa.array([[1], None])],
            names=["k", "tags", "uuid", "list"],
        ).to_pylist()
    )


def test_many_fields_with_many_values_do_not_run_into_each_other() -> None:
    rows = 5_000
    columns = {f"c{i}": pa.array([(n * (i + 7)) % (rows - i) for n in range(rows)]) for i in range(6)}
    parts = split(", ".join(columns), columns)
    expected = set(zip(*(column.to_pylist() for column in columns.values()), strict=True))
    assert {key.values for key, _ in parts} == expected
    assert sum(part.num_rows for _, part in parts) == rows


@pytest.mark.parametrize(
    ("partition_by", "mode", "code"),
    [
        ("nope", "table", "ICEFLOE_PARTITION_BY"),
        ("s.nope", "table", "ICEFLOE_PARTITION_BY"),
        ("list.element", "table", "ICEFLOE_PARTITION_BY"),
        ("s", "table", "ICEFLOE_TRANSFORM_TYPE"),
        ("day(n)", "table", "ICEFLOE_TRANSFORM_TYPE"),
        ("bucket(4, n)", "path", "ICEFLOE_PARTITION_BY"),
        ("s.x", "path", "ICEFLOE_PARTITION_BY"),
        ("b", "path", "ICEFLOE_TRANSFORM_TYPE"),
    ],
)
def test_a_partitioning_that_does_not_fit_is_refused_when_it_is_made(partition_by: str, mode: Any, code: str) -> None:
    struct = pa.struct([("x", pa.int32())])
    schema = pa.schema([("n", pa.int64()), ("s", struct), ("list", pa.list_(pa.int32())), ("b", pa.binary())])
    with pytest.raises((OptionError, SchemaError), match=code):
        Partitioner(parse_partition_by(partition_by), schema, mode)


def test_a_path_needs_a_column_that_is_not_a_folder() -> None:
    with pytest.raises(OptionError, match="leave one for the files"):
        Partitioner(parse_partition_by("a"), pa.schema([("a", pa.int64())]), "path")


def test_a_batch_of_another_schema_is_refused() -> None:
    partitioner = Partitioner(parse_partition_by("a"), pa.schema([("a", pa.int64())]))
    with pytest.raises(SchemaError, match="ICEFLOE_BATCH_SCHEMA"):
        partitioner.split(pa.RecordBatch.from_pydict({"a": ["x"]}))


def test_folder_names_are_escaped_as_spark_escapes_them() -> None:
    key = PartitionKey(("a/b=c%", None, ""), (KeyField("x:y"), KeyField("n"), KeyField("e")), ("a/b=c%", "", ""))
    assert key.hive_path() == "x%3Ay=a%2Fb%3Dc%25/n=__HIVE_DEFAULT_PARTITION__/e=__HIVE_DEFAULT_PARTITION__"
    assert escape_hive("ä }~ \x00\n\x7f\"#'*?\\{[]^") == "ä }~ %00%0A%7F%22%23%27%2A%3F%5C%7B%5B%5D%5E"


@pytest.mark.parametrize(
    ("value", "arrow_type", "shown"),
    [
        (None, pa.string(), ""),
        (True, pa.bool_(), "true"),
        (-7, pa.int64(), "-7"),
        (Decimal("1E+2"), pa.decimal128(5, 0), "100"),
        (Decimal("-0.0100"), pa.decimal128(9, 4), "-0.0100"),
        (-1, pa.date32(), "1969-12-31"),
        (-1, pa.timestamp("us", "UTC"), "1969-12-31 23:59:59.999999"),
        (1_500_000, pa.timestamp("us"), "1970-01-01 00:00:01.5"),
        (0, pa.timestamp("us"), "1970-01-01 00:00:00"),
        (2**60, pa.timestamp("us"), str(2**60)),
        (0.0, pa.float64(), "0.0"),
        (1.0, pa.float64(), "1.0"),
        (0.001, pa.float64(), "0.001"),
        (1e7, pa.float64(), "1.0E7"),
        (-1.25e-4, pa.float64(), "-1.25E-4"),
        (1234567.5, pa.float64(), "1234567.5"),
        (0.10000000149011612, pa.float32(), "0.1"),
        (NAN, pa.float64(), "NaN"),
        (float("-inf"), pa.float32(), "-Infinity"),
    ],
)
def test_values_are_spelled_as_sparks_cast_to_string_spells_them(
    value: Any, arrow_type: pa.DataType, shown: str
) -> None:
    assert show_for_hive(value, arrow_type) == shown
