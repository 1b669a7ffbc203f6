"""Opening, creating and planning: what the table decides, and what is refused before any data moves."""

from __future__ import annotations

import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionFieldValue, PartitionKey, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.locations import load_location_provider
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from icefloe.connector.iceberg_catalog import redact
from icefloe.connector.iceberg_table import IcebergTarget, TableSettings, check_table
from icefloe.connector.table_plan import TablePlan
from icefloe.errors import NotFoundError, OptionError, SchemaError, StorageError
from support.iceberg_tables import STREAM, Driver, assert_rows_are

EVENTS = pa.schema(
    [
        pa.field("ts", pa.timestamp("us", "Europe/Berlin"), nullable=False),
        pa.field("day", pa.date32()),
        pa.field("user_id", pa.int64()),
        pa.field("name", pa.string()),
        pa.field("place", pa.struct([pa.field("region", pa.string(), nullable=False)])),
    ]
)


@pytest.fixture
def settings(tmp_path: Path) -> TableSettings:
    return TableSettings("db.events", warehouse=str(tmp_path / "warehouse"))


def plan_of(settings: TableSettings, stream: pa.Schema) -> TablePlan:
    with IcebergTarget.open(settings, stream) as target:
        return target.plan(stream)


def test_all_transforms_of_partition_by_become_the_tables_spec(settings: TableSettings) -> None:
    wanted = "year(day), month(ts), bucket(16, user_id), truncate(4, name), place.region, Name"
    fields = plan_of(replace(settings, partition_by=wanted), EVENTS).partition_fields
    assert [(f.name, f.transform, f.source_name, f.result_type) for f in fields] == [
        ("day_year", "year", "day", "int"),
        ("ts_month", "month", "ts", "int"),
        ("user_id_bucket", "bucket[16]", "user_id", "int"),
        ("name_trunc", "truncate[4]", "name", "string"),
        ("place_region", "identity", "place.region", "string"),
        ("name", "identity", "name", "string"),
    ]
    assert [f.field_id for f in fields] == list(range(1000, 1006))


@pytest.mark.parametrize(("term", "result"), [("day(ts)", "date"), ("hours(ts)", "int"), ("days(day)", "date")])
def test_times_take_every_unit_and_sparks_plural(settings: TableSettings, term: str, result: str) -> None:
    assert plan_of(replace(settings, partition_by=term), EVENTS).partition_fields[0].result_type == result


@pytest.mark.parametrize(
    "term",
    [
        "hour(name)",
        "bucket(user_id)",
        "bucket(0, user_id)",
        "minute(ts)",
        "nothing",
        "day(ts",
        "truncate(3, ts)",
        "ts, ts",
    ],
)
def test_partition_by_that_makes_no_sense_is_refused_and_creates_nothing(
    settings: TableSettings, term: str, tmp_path: Path
) -> None:
    bad = replace(settings, partition_by=term)
    with pytest.raises(OptionError, match=r"^ICEFLOE_PARTITION_BY: "):
        check_table(bad, EVENTS)
    assert not (tmp_path / "warehouse").exists()
    with pytest.raises(OptionError, match=r"^ICEFLOE_PARTITION_BY: "):
        IcebergTarget.open(bad, EVENTS)
    assert not list((tmp_path / "warehouse").rglob("*.json"))


def test_created_columns_are_optional_at_every_level(settings: TableSettings) -> None:
    with IcebergTarget.open(settings, EVENTS) as target:
        schema = target.table.schema()
        assert not any(schema.find_field(i).required for i in schema.field_ids)
        assert str(schema.find_type("ts")) == "timestamptz"


def test_table_properties_of_the_user_win_over_the_defaults(settings: TableSettings) -> None:
    given = {"write.metadata.previous-versions-max": "5", "owner": "me"}
    plan = plan_of(replace(settings, table_properties=given), STREAM)
    assert plan.properties["write.metadata.previous-versions-max"] == "5"
    assert plan.properties["owner"] == "me"
    assert plan.properties["commit.manifest-merge.enabled"] == "true"


def test_write_properties_of_an_existing_table_reach_the_tasks(settings: TableSettings, tmp_path: Path) -> None:
    elsewhere = f"file://{tmp_path}/elsewhere"
    given = {
        "write.target-file-size-bytes": "1048576",
        "write.parquet.compression-codec": "gzip",
        "write.metadata.metrics.default": "none",
        "write.data.path": elsewhere + "/",
    }
    driver = Driver.open(replace(settings, table_properties=given))
    plan = driver.target.plan(STREAM)
    assert plan.target_file_size_bytes == 1 << 20
    assert plan.properties["write.parquet.compression-codec"] == "gzip"
    assert plan.data_location == elsewhere
    driver.publish(0)
    assert_rows_are(driver.target.table, [0])
    driver.target.close()
    assert len(list((tmp_path / "elsewhere").rglob("*.parquet"))) == 1


@pytest.mark.parametrize("partitioned", ["true", "false"])
@pytest.mark.parametrize("hashed", ["true", "false"])
def test_files_are_placed_where_the_tables_location_provider_places_them(
    settings: TableSettings, hashed: str, partitioned: str
) -> None:
    given = {"write.object-storage.enabled": hashed, "write.object-storage.partitioned-paths": partitioned}
    plan = plan_of(replace(settings, table_properties=given, partition_by="name"), STREAM)
    with IcebergTarget.open(settings) as target:
        provider = load_location_provider(target.table.location(), target.table.properties)
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "name", StringType()))
    field = PartitionField(2, 1000, IdentityTransform(), "name")
    for value in ("a", "ü b", "x/y"):
        key = PartitionKey([PartitionFieldValue(field, value)], PartitionSpec(field), schema)
        name = f"{value[:1]}-0.parquet"
        expected = provider.new_data_location(name, key)
        assert f"{plan.data_location}/{plan.relative_name(name, key.to_path())}" == expected
        assert f"{plan.data_location}/{plan.relative_name(name)}" == provider.new_data_location(name)


def test_custom_location_provider_is_refused_by_name(settings: TableSettings) -> None:
    with IcebergTarget.open(settings, STREAM) as target:
        given = {"write.py-location-provider.impl": "pyiceberg.table.locations.SimpleLocationProvider"}
        target.table.transaction().set_properties(given).commit_transaction()
        with pytest.raises(OptionError, match=r"^ICEFLOE_TABLE_LOCATION_PROVIDER: .*locations\.SimpleLocationProvider"):
            target.plan(STREAM)


def test_plan_travels_by_pickle_to_processes_that_never_load_pyiceberg(settings: TableSettings, tmp_path: Path) -> None:
    plan = plan_of(replace(settings, partition_by="bucket(4, id)"), STREAM)
    (tmp_path / "plan").write_bytes(pickle.dumps(plan))
    program = (
        "import pickle, sys; plan = pickle.load(open(sys.argv[1], 'rb')); plan.relative_name('f');"
        "import icefloe.connector.write_plan; print('pyiceberg' in sys.modules, plan.partition_fields[0].name)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "plan")], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["False", "id_bucket"]


def test_nothing_that_may_be_secret_is_shown(settings: TableSettings) -> None:
    secret = replace(settings, catalog_properties={"token": "hush-hush"}, s3={"secret-access-key": "hush-hush"})
    assert "hush" not in repr(secret)
    plan = plan_of(replace(settings, s3={"secret-access-key": "hush-hush"}), STREAM)
    assert plan.storage_options["s3.secret-access-key"] == "hush-hush"
    assert "hush" not in repr(plan)
    text = redact("no hush-hush at postgres://me:pw@host/db", {"token": "hush-hush"})
    assert text == "no *** at postgres://***@host/db"


@pytest.mark.parametrize(
    ("changes", "error", "code"),
    [
        ({"catalog_name": "nowhere", "warehouse": None}, OptionError, "ICEFLOE_CATALOG"),
        ({"catalog_properties": {"type": "odd"}}, OptionError, "ICEFLOE_CATALOG"),
        ({"catalog_properties": {"type": "rest", "uri": "http://127.0.0.1:9"}}, StorageError, "ICEFLOE_CATALOG_FAILED"),
        ({"warehouse": "s3://bucket/x"}, OptionError, "ICEFLOE_OPTION_WAREHOUSE"),
        ({"warehouse": "/tmp/a#b"}, OptionError, "ICEFLOE_OPTION_WAREHOUSE"),
        ({"warehouse": "/dev/null/x"}, StorageError, "ICEFLOE_WAREHOUSE"),
        ({"identifier": "bare"}, OptionError, "ICEFLOE_OPTION_TABLE"),
        ({"table_properties": {"format-version": "3"}}, OptionError, "ICEFLOE_TABLE_VERSION"),
        ({"create": False}, NotFoundError, "ICEFLOE_TABLE_NOT_FOUND"),
    ],
)
def test_bad_settings_are_refused_with_a_code(
    settings: TableSettings, changes: dict[str, object], error: type[Exception], code: str
) -> None:
    with pytest.raises(error, match=f"^{code}: "):
        IcebergTarget.open(replace(settings, **changes), STREAM)  # type: ignore[arg-type]


def test_type_that_iceberg_lacks_is_refused_with_its_column(settings: TableSettings) -> None:
    stream = pa.schema([pa.field("id", pa.int64()), pa.field("gap", pa.duration("us"))])
    with pytest.raises(SchemaError, match=r"^ICEFLOE_TYPE_UNSUPPORTED: .*gap"):
        IcebergTarget.open(settings, stream)


def test_version_1_table_is_written_as_pyiceberg_writes_it(settings: TableSettings) -> None:
    driver = Driver.open(replace(settings, table_properties={"format-version": "1"}))
    driver.publish(0)
    driver.publish(1)
    assert driver.target.table.metadata.format_version == 1
    assert_rows_are(driver.target.table, [0, 1])
    driver.target.close()


@pytest.mark.parametrize("folder", ["with space", "ümlaut", "per%20cent", "a+b=c&d"])
def test_warehouse_may_have_any_ordinary_name(settings: TableSettings, tmp_path: Path, folder: str) -> None:
    driver = Driver.open(replace(settings, warehouse=str(tmp_path / folder)))
    driver.publish(0)
    assert_rows_are(driver.target.table, [0])
    driver.target.close()
    assert (tmp_path / folder / "catalog.db").is_file()
