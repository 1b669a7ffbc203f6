"""Files of several partition specs and schemas in one commit: the table changed while they were in flight."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.expressions import EqualTo
from pyiceberg.transforms import BucketTransform, IdentityTransform

from icefloe.connector.iceberg_table import IcebergTarget, TableSettings
from icefloe.errors import SchemaError
from support.iceberg_files import write_data_file
from support.iceberg_tables import JOB, STREAM, assert_no_file_added_twice


@pytest.fixture
def settings(tmp_path: Path) -> TableSettings:
    return TableSettings("db.events", warehouse=str(tmp_path / "warehouse"), partition_by="name", merge_schema=True)


def rows_where(target: IcebergTarget, name: str | None) -> list[int]:
    scan = target.table.refresh().scan(row_filter=EqualTo("name", name)) if name else target.table.refresh().scan()
    return sorted(scan.to_arrow()["id"].to_pylist())


def test_each_spec_has_a_manifest_of_its_own_with_the_right_tuples(settings: TableSettings) -> None:
    with IcebergTarget.open(settings, STREAM) as target:
        old = target.plan(STREAM)
        files = [
            write_data_file(old, {"id": [1, 2], "name": ["a", "a"]}, partition=["a"]),
            write_data_file(old, {"id": [3], "name": [None]}, partition=[None]),
        ]
        with target.table.update_spec() as update:
            update.remove_field("name").add_field("id", BucketTransform(4), "id_bucket")
        new = target.plan(STREAM)
        assert (old.spec_id, new.spec_id) == (0, 1)
        assert [f.name for f in new.partition_fields] == ["id_bucket"]
        files.append(write_data_file(new, {"id": [4], "name": ["b"]}, partition=[2]))
        target.publish(JOB, 0, "d", "", 0, files)

        snapshot = target.table.refresh().current_snapshot()
        assert snapshot is not None
        manifests = snapshot.manifests(target.table.io)
        assert sorted(m.partition_spec_id for m in manifests) == [0, 1]
        listed = target.table.inspect.files().to_pylist()
        assert sorted((f["spec_id"], f["partition"]["name"] or "", f["record_count"]) for f in listed) == [
            (0, "", 1),
            (0, "a", 2),
            (1, "", 1),
        ]
        assert rows_where(target, None) == [1, 2, 3, 4]
        assert rows_where(target, "a") == [1, 2]
        assert rows_where(target, "b") == [4]
        assert_no_file_added_twice(target.table)


def test_spec_whose_source_column_is_gone_keeps_its_types(settings: TableSettings) -> None:
    with IcebergTarget.open(settings, STREAM) as target:
        old = target.plan(STREAM)
        files = [write_data_file(old, {"id": [1], "name": ["a"]}, partition=["a"])]
        with target.table.update_spec() as update:
            update.remove_field("name")
        with target.table.refresh().update_schema(allow_incompatible_changes=True) as change:
            change.delete_column("name")
        only_id = STREAM.remove(1)
        target.plan(only_id)
        target.publish(JOB, 0, "d", "", 0, files)
        assert target.table.refresh().scan().to_arrow().to_pylist() == [{"id": 1}]
        manifest = target.table.inspect.manifests().to_pylist()[0]
        assert manifest["partition_spec_id"] == 0
        assert target.table.current_snapshot() is not None


def test_file_of_the_schema_before_is_read_with_the_new_columns_as_nulls(settings: TableSettings) -> None:
    with IcebergTarget.open(settings, STREAM) as target:
        old = target.plan(STREAM)
        files = [write_data_file(old, {"id": [1], "name": ["a"]}, partition=["a"])]
        wider = STREAM.append(pa.field("extra", pa.int32()))
        new = target.plan(wider)
        assert new.schema_id != old.schema_id
        files.append(write_data_file(new, {"id": [2], "name": ["a"], "extra": [7]}, partition=["a"]))
        target.publish(JOB, 0, "d", "", 0, files)
        rows = target.table.refresh().scan().to_arrow().sort_by("id").to_pylist()
        assert [row["extra"] for row in rows] == [None, 7]


def test_identity_partition_of_a_promoted_column_keeps_its_files_apart(settings: TableSettings) -> None:
    narrow = pa.schema([("id", pa.int32()), ("name", pa.string())])
    with IcebergTarget.open(replace(settings, partition_by="id"), narrow) as target:
        old = target.plan(narrow)
        files = [write_data_file(old, {"id": [5], "name": ["a"]}, partition=[5])]
        new = target.plan(STREAM)
        files.append(write_data_file(new, {"id": [2**40], "name": ["b"]}, partition=[2**40]))
        target.publish(JOB, 0, "d", "", 0, files)
        assert [f["partition"]["id"] for f in target.table.refresh().inspect.files().to_pylist()] == [5, 2**40]
        assert rows_where(target, "b") == [2**40]


def test_file_of_a_spec_that_the_table_never_had_is_refused(settings: TableSettings) -> None:
    with IcebergTarget.open(settings, STREAM) as target:
        plan = target.plan(STREAM)
        strange = write_data_file(plan, {"id": [1], "name": ["a"]}, partition=["a"])
        strange.fingerprint.spec_id = 9
        with pytest.raises(SchemaError, match=r"^ICEFLOE_TABLE_SPEC: .*spec 9"):
            target.publish(JOB, 0, "d", "", 0, [strange])
        assert target.table.refresh().current_snapshot() is None


def test_manifests_are_merged_where_the_table_asks_for_it_and_rows_stay(settings: TableSettings) -> None:
    merging = {"commit.manifest.min-count-to-merge": "3"}
    with IcebergTarget.open(replace(settings, table_properties=merging), STREAM) as target:
        plan = target.plan(STREAM)
        ledger = ""
        for epoch in range(8):
            data_file = write_data_file(plan, {"id": [epoch], "name": ["a"]}, partition=["a"])
            target.publish(JOB, epoch, "d", ledger, epoch, [data_file])
            ledger = f"{epoch}:d"
        assert rows_where(target, None) == list(range(8))
        assert len(target.table.inspect.manifests()) < 4
        summary = target.table.metadata.snapshots[-1].summary
        assert summary is not None
        assert summary["total-records"] == "8"


def test_changed_partitions_are_summed_up_by_the_files_own_spec(settings: TableSettings) -> None:
    counting = {"write.summary.partition-limit": "10"}
    with IcebergTarget.open(replace(settings, table_properties=counting), STREAM) as target:
        old = target.plan(STREAM)
        files = [write_data_file(old, {"id": [1], "name": ["a"]}, partition=["a"])]
        with target.table.update_spec() as update:
            update.remove_field("name").add_field("id", IdentityTransform(), "id")
        new = target.plan(STREAM)
        files.append(write_data_file(new, {"id": [4], "name": ["b"]}, partition=[4]))
        target.publish(JOB, 0, "d", "", 0, files)
        snapshot = target.table.refresh().current_snapshot()
        assert snapshot is not None
        assert snapshot.summary is not None
        changed = {k for k in snapshot.summary.additional_properties if k.startswith("partitions.")}
        assert changed == {"partitions.name=a", "partitions.id=4"}
