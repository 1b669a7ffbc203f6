"""How far a table may be changed to fit a stream, and what is refused with every column named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DecimalType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
)

from icefloe.connector.iceberg_catalog import open_catalog
from icefloe.connector.iceberg_table import IcebergTarget, TableSettings, check_table
from icefloe.errors import SchemaError
from support.iceberg_tables import no_waiting

TABLE = Schema(
    NestedField(1, "id", IntegerType()),
    NestedField(2, "score", FloatType()),
    NestedField(3, "price", DecimalType(9, 2)),
    NestedField(4, "place", StructType(NestedField(5, "city", StringType()))),
    NestedField(6, "tags", ListType(7, StructType(NestedField(8, "tag", StringType())))),
)
NARROW = pa.schema(
    [
        ("id", pa.int32()),
        ("score", pa.float32()),
        ("price", pa.decimal128(9, 2)),
        ("place", pa.struct([("city", pa.string())])),
        ("tags", pa.list_(pa.struct([("tag", pa.string())]))),
    ]
)
WIDE = pa.schema(
    [
        ("ID", pa.int64()),
        ("score", pa.float64()),
        ("price", pa.decimal128(12, 2)),
        ("place", pa.struct([("city", pa.string()), ("zip", pa.int32())])),
        ("tags", pa.list_(pa.struct([("tag", pa.string()), ("weight", pa.float64())]))),
        ("seen", pa.map_(pa.string(), pa.int64())),
    ]
)


@pytest.fixture
def settings(tmp_path: Path) -> TableSettings:
    settings = TableSettings("db.t", warehouse=str(tmp_path / "warehouse"), create=False)
    make(settings, TABLE)
    return settings


def make(settings: TableSettings, schema: Schema) -> None:
    catalog: Catalog = open_catalog(settings)
    catalog.create_namespace_if_not_exists("db")
    catalog.create_table("db.t", schema)
    catalog.close()


def test_columns_and_types_are_widened_nested_ones_too_and_only_once(settings: TableSettings) -> None:
    with IcebergTarget.open(replace(settings, merge_schema=True)) as target:
        before = target.table.schema()
        plan = target.plan(WIDE)
        schema = target.table.schema()
        found = {
            name: str(schema.find_type(name)) for name in ("id", "score", "price", "place.zip", "tags.element.weight")
        }
        assert found == {
            "id": "long",
            "score": "double",
            "price": "decimal(12, 2)",
            "place.zip": "int",
            "tags.element.weight": "double",
        }
        assert str(schema.find_type("seen")) == "map<string, long>"
        assert not schema.find_field("seen").required
        # Ids of what was there stay, and a second look changes nothing.
        for name in ("id", "place.city", "tags.element.tag"):
            assert schema.find_field(name).field_id == before.find_field(name).field_id
        location = target.table.metadata_location
        assert target.plan(WIDE) == plan
        assert target.table.metadata_location == location
        assert target.table.current_snapshot() is None


def test_without_merge_schema_every_column_in_the_way_is_listed(settings: TableSettings) -> None:
    with IcebergTarget.open(settings) as target, pytest.raises(SchemaError) as refused:
        target.plan(WIDE)
    text = str(refused.value)
    assert text.startswith("ICEFLOE_SCHEMA_MISMATCH: ")
    for name in ("id is int", "score is float", "price is decimal(9, 2)", "place.zip", "tags.element.weight", "seen"):
        assert name in text
    assert "mergeSchema=true" in text


def test_narrower_stream_and_missing_optional_columns_fit_as_they_are(settings: TableSettings) -> None:
    wide = replace(settings, merge_schema=True)
    with IcebergTarget.open(wide) as target:
        before = target.plan(WIDE)
        assert target.plan(NARROW).schema_id == before.schema_id
        assert target.plan(NARROW.remove(4)).schema_id == before.schema_id


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("id", pa.string()),
        ("score", pa.int64()),
        ("price", pa.decimal128(12, 4)),
        ("place", pa.string()),
        ("tags", pa.list_(pa.string())),
    ],
)
def test_types_that_no_promotion_mends_are_refused_even_with_merge_schema(
    settings: TableSettings, name: str, kind: pa.DataType
) -> None:
    stream = NARROW.set(NARROW.get_field_index(name), pa.field(name, kind))
    with (
        IcebergTarget.open(replace(settings, merge_schema=True)) as target,
        pytest.raises(SchemaError, match=f"^ICEFLOE_SCHEMA_MISMATCH: .*{name}"),
    ):
        target.plan(stream)


def test_timestamp_never_gains_or_loses_its_zone(tmp_path: Path) -> None:
    settings = TableSettings("db.t", warehouse=str(tmp_path), create=False, merge_schema=True)
    make(settings, Schema(NestedField(1, "ts", TimestampType())))
    with (
        IcebergTarget.open(settings) as target,
        pytest.raises(SchemaError, match="ts is timestamp in the table and timestamptz"),
    ):
        target.plan(pa.schema([("ts", pa.timestamp("us", "UTC"))]))


def test_required_column_missing_in_the_stream_is_refused(tmp_path: Path) -> None:
    settings = TableSettings("db.t", warehouse=str(tmp_path), create=False)
    make(settings, Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "name", StringType())))
    with (
        IcebergTarget.open(settings) as target,
        pytest.raises(SchemaError, match="column id is required in the table and missing in the stream"),
    ):
        target.plan(pa.schema([("name", pa.string())]))


def test_column_that_two_differ_from_only_in_case_is_refused(settings: TableSettings) -> None:
    stream = pa.schema([("Id", pa.int32()), ("ID", pa.int32())])
    with IcebergTarget.open(settings) as target, pytest.raises(SchemaError, match=r"^ICEFLOE_COLUMN_AMBIGUOUS: "):
        target.plan(stream)


def test_check_says_what_plan_would_say_and_changes_nothing(settings: TableSettings) -> None:
    with pytest.raises(SchemaError, match=r"^ICEFLOE_SCHEMA_MISMATCH: "):
        check_table(settings, WIDE)
    check_table(replace(settings, merge_schema=True), WIDE)
    with IcebergTarget.open(settings) as target:
        assert target.table.metadata.current_schema_id == 0


def test_two_drivers_that_evolve_at_once_agree(settings: TableSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    merging = replace(settings, merge_schema=True)
    with IcebergTarget.open(merging, policy=no_waiting()) as first, IcebergTarget.open(merging) as second:
        commit = first.table.catalog.commit_table
        raced = []

        def lose_once(*args: object) -> object:
            if not raced:
                raced.append(second.plan(WIDE))
            return commit(*args)  # type: ignore[arg-type]

        monkeypatch.setattr(first.table.catalog, "commit_table", lose_once)
        assert first.plan(WIDE).schema_id == raced[0].schema_id


def test_evolution_that_is_always_refused_is_an_error(settings: TableSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    with IcebergTarget.open(replace(settings, merge_schema=True), policy=no_waiting()) as target:

        def refuse(*args: object) -> object:
            raise CommitFailedException("busy")

        monkeypatch.setattr(target.table.catalog, "commit_table", refuse)
        with pytest.raises(Exception, match=r"^ICEFLOE_CATALOG_FAILED: changing the table's schema"):
            target.plan(WIDE)
