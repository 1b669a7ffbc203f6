"""What every catalog must do for the sink, on the catalogs that the README calls tested."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.io.fsspec import FsspecFileIO
from pyiceberg.table import Table

from icefloe.connector.iceberg_table import IcebergTarget, TableSettings
from icefloe.errors import ConflictError, NotFoundError, SchemaError
from support.iceberg_files import write_data_file
from support.iceberg_tables import (
    JOB,
    STREAM,
    Driver,
    assert_no_file_added_twice,
    assert_rows_are,
    at_crash_point,
    fsspec_options,
)
from support.s3_service import S3Service
from support.seaweed import Seaweed


class CatalogContract:
    """Create, append, restart, replay: the part that needs no check of versions by the catalog."""

    @pytest.fixture
    def settings(self) -> TableSettings:
        raise NotImplementedError

    @pytest.fixture
    def driver(self, settings: TableSettings) -> Iterator[Driver]:
        driver = Driver.open(settings)
        yield driver
        driver.target.close()

    def test_table_and_namespace_are_created_with_bounded_metadata(self, driver: Driver) -> None:
        properties = driver.target.table.properties
        assert properties["write.metadata.delete-after-commit.enabled"] == "true"
        assert properties["commit.manifest-merge.enabled"] == "true"
        assert int(properties["write.metadata.previous-versions-max"]) > 0

    def test_epochs_are_appended_once_and_say_where_they_come_from(self, driver: Driver) -> None:
        for epoch in range(3):
            outcome = driver.publish(epoch)
            assert not outcome.already
        assert_rows_are(driver.target.table, range(3))
        snapshot = driver.target.table.refresh().current_snapshot()
        assert snapshot is not None
        assert snapshot.summary is not None
        assert snapshot.summary["icefloe.job-id"] == JOB
        assert snapshot.summary["icefloe.epoch"] == "2"
        assert snapshot.summary["icefloe.batch-id"] == "2"
        assert snapshot.summary["icefloe.source-offsets"] == "offsets 2"
        assert driver.target.table.properties[f"icefloe.ledger.{JOB}"] == "2:digest-2"

    def test_replay_by_a_restarted_driver_appends_nothing(self, driver: Driver, settings: TableSettings) -> None:
        files = driver.files(0)
        first = driver.publish(0, files)
        restarted = Driver.open(settings)
        second = restarted.publish(0, files)
        restarted.target.close()
        assert second.already
        assert second.snapshot_id == first.snapshot_id
        assert_rows_are(driver.target.table, [0])

    def test_existing_table_is_opened_and_goes_on(self, driver: Driver, settings: TableSettings) -> None:
        driver.publish(0)
        restarted = Driver.open(replace(settings, create=False), ledger=driver.ledger)
        assert restarted.target.uuid == driver.target.uuid
        assert restarted.target.ledger(JOB) == "0:digest-0"
        restarted.publish(1)
        restarted.target.close()
        assert_rows_are(driver.target.table, [0, 1])

    def test_missing_table_is_refused_by_name_when_it_may_not_be_created(self, settings: TableSettings) -> None:
        missing = replace(settings, identifier="nowhere.nothing", create=False)
        with pytest.raises(NotFoundError, match=r"^ICEFLOE_TABLE_NOT_FOUND: .*nowhere\.nothing"):
            IcebergTarget.open(missing, STREAM)

    def test_columns_of_the_stream_are_added_in_a_commit_of_their_own(
        self, driver: Driver, settings: TableSettings
    ) -> None:
        driver.publish(0)
        wider = STREAM.append(pa.field("amount", pa.decimal128(9, 2)))
        with IcebergTarget.open(replace(settings, merge_schema=True), wider) as target:
            snapshots = len(target.table.snapshots())
            plan = target.plan(wider)
            again = target.plan(wider)
            assert plan.schema_id == again.schema_id != driver.target.table.metadata.current_schema_id
            assert len(target.table.snapshots()) == snapshots
            data_file = write_data_file(
                plan,
                {"id": [10], "name": ["x"], "amount": [None]},
                storage_options=fsspec_options(plan.storage_options),
            )
            target.publish(JOB, 1, "d", driver.ledger, 1, [data_file])
            assert target.table.refresh().scan().to_arrow().num_rows == 4

    def test_storage_settings_reach_the_tasks_and_are_looked_up_anew_for_each_epoch(
        self, driver: Driver, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        catalog = driver.target.table.catalog
        load = catalog.load_table
        tokens = iter(["first", "second"])

        def vending(identifier: str) -> Table:
            table = load(identifier)
            table.io.properties["s3.session-token"] = next(tokens)
            return table

        first = driver.target.plan(STREAM)
        monkeypatch.setattr(catalog, "load_table", vending)
        for token in ("first", "second"):
            plan = driver.target.plan(STREAM)
            assert dict(plan.storage_options) == {**first.storage_options, "s3.session-token": token}

    def test_own_snapshots_expire_and_the_ledger_stays(self, driver: Driver) -> None:
        for epoch in range(4):
            driver.publish(epoch)
        assert driver.target.expire_own_snapshots(JOB, 1) == 3
        assert len(driver.target.table.refresh().snapshots()) == 1
        assert driver.target.ledger(JOB) == "3:digest-3"
        driver.publish(4)
        assert_rows_are(driver.target.table, range(5))


class OnS3:
    """What holds for tables whose files are on S3."""

    def test_small_objects_are_written_with_one_request_each(self, driver: Driver) -> None:
        driver.publish(0)
        assert isinstance(driver.target.table.io, FsspecFileIO)
        plan = driver.target.plan(STREAM)
        assert plan.data_location.startswith("s3://")
        assert {"s3.endpoint", "s3.access-key-id", "s3.secret-access-key"} <= plan.storage_options.keys()


class VersionedCatalogContract(CatalogContract):
    """What a catalog that checks requirements must add: no two drivers both win."""

    def test_rival_driver_between_check_and_commit_does_not_double(
        self, driver: Driver, settings: TableSettings
    ) -> None:
        files = driver.files(0)
        rival = Driver.open(settings)
        with at_crash_point("catalog.built", lambda: rival.publish(0, files) and None):
            outcome = driver.publish(0, files)
        rival.target.close()
        assert outcome.conflicts == 1
        assert_rows_are(driver.target.table, [0])
        assert_no_file_added_twice(driver.target.table)

    def test_rival_with_another_record_is_named_and_nothing_is_appended(
        self, driver: Driver, settings: TableSettings
    ) -> None:
        rival = Driver.open(settings)
        files, others = driver.files(0), rival.files(0)
        with (
            at_crash_point("catalog.built", lambda: rival.publish(0, others, digest="other") and None),
            pytest.raises(ConflictError, match=r"^ICEFLOE_LEDGER: .*0:digest-0.*0:other"),
        ):
            driver.publish(0, files)
        rival.target.close()
        assert_rows_are(driver.target.table, [0])

    def test_foreign_append_between_check_and_commit_is_kept(self, driver: Driver, settings: TableSettings) -> None:
        stranger = Driver.open(settings, job="stranger")
        with at_crash_point("catalog.built", lambda: stranger.publish(5) and None):
            outcome = driver.publish(0)
        stranger.target.close()
        assert (outcome.conflicts, outcome.already) == (1, False)
        assert_rows_are(driver.target.table, [0, 5])

    def test_table_replaced_under_the_same_name_is_refused(self, driver: Driver, settings: TableSettings) -> None:
        files = driver.files(0)
        driver.target.table.catalog.drop_table(settings.identifier)
        Driver.open(settings).target.close()
        with pytest.raises(ConflictError, match=f"^ICEFLOE_TABLE_REPLACED: .*{driver.target.uuid}"):
            driver.publish(0, files)


class TestEmbeddedSqliteCatalog(VersionedCatalogContract):
    @pytest.fixture
    def settings(self, tmp_path: Path) -> TableSettings:
        return TableSettings("db.events", warehouse=str(tmp_path / "warehouse"))

    def test_version_3_table_is_refused_by_name(self, settings: TableSettings, driver: Driver) -> None:
        table = driver.target.table
        metadata = table.metadata.model_copy(update={"format_version": 3})
        table.io.delete(table.metadata_location)
        with table.io.new_output(table.metadata_location).create() as out:
            text = metadata.model_dump_json().replace('"format-version":2', '"format-version":3')
            out.write(text.replace('"last-updated-ms"', '"next-row-id":0,"last-updated-ms"').encode())
        with pytest.raises(SchemaError, match=r"^ICEFLOE_TABLE_VERSION: .*db\.events.*version 3"):
            IcebergTarget.open(settings, STREAM)


class TestRestCatalogOnSeaweed(VersionedCatalogContract, OnS3):
    @pytest.fixture
    def settings(self, seaweed: Seaweed) -> TableSettings:
        return TableSettings("db.events", "rest", seaweed.catalog_properties(seaweed.new_warehouse()))


class TestGlueCatalogOnMoto(CatalogContract, OnS3):
    @pytest.fixture
    def settings(self, moto_service: S3Service) -> TableSettings:
        properties = {
            "type": "glue",
            "glue.endpoint": moto_service.endpoint,
            "glue.region": moto_service.region,
            "glue.access-key-id": moto_service.access_key_id,
            "glue.secret-access-key": moto_service.secret_access_key,
            "warehouse": f"{moto_service.new_bucket().url}/warehouse",
        }
        bucket = properties["warehouse"].split("/")[2]
        # One Glue for all tests of the process: a namespace of this test's own.
        return TableSettings(f"db_{bucket.replace('-', '_')}.events", "glue", properties, s3=moto_service.options)
