"""Real queries into Iceberg tables: created, partitioned, widened, refused when they are not the same any more."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyspark.sql import SparkSession

import icefloe
from support.harness import EVENTS, event_rows
from support.rows import assert_no_row_lost_or_doubled
from support.streams import EVENTS_DDL, EventFiles, refusal, run


@pytest.fixture
def source(tmp_path: Path) -> EventFiles:
    return EventFiles(tmp_path / "source", rows_per_file=30)


@pytest.fixture
def options(tmp_path: Path) -> dict[str, str]:
    return {
        "table": "db.events",
        "warehouse": str(tmp_path / "lake"),
        "partitionBy": "day(ts), bucket(4, region)",
        "checkpointLocation": str(tmp_path / "checkpoint"),
    }


def catalog(tmp_path: Path) -> Any:
    lake = tmp_path / "lake"
    return load_catalog("icefloe", type="sql", uri=f"sqlite:///{lake}/catalog.db", warehouse=str(lake))


def ids(tmp_path: Path) -> list[int]:
    found: list[int] = catalog(tmp_path).load_table("db.events").scan().to_arrow()["id"].to_pylist()
    return found


def test_each_epoch_with_files_is_one_snapshot_that_names_job_epoch_and_offsets(
    spark: SparkSession, source: EventFiles, options: dict[str, str], tmp_path: Path
) -> None:
    run(source.add(3).read(spark).repartition(2), options)
    table = catalog(tmp_path).load_table("db.events")
    assert [str(field.transform) for field in table.spec().fields] == ["day", "bucket[4]"]
    summaries = [snapshot.summary.additional_properties for snapshot in table.snapshots()]
    assert [summary["icefloe.epoch"] for summary in summaries] == ["0", "1", "2"]
    assert [summary["icefloe.batch-id"] for summary in summaries] == ["0", "1", "2"]
    assert len({summary["icefloe.job-id"] for summary in summaries}) == 1
    assert any("logOffset" in value for value in summaries[-1].values())
    # A filter on the source column finds its file by the partition.
    day = event_rows(0, 1)["ts"][0].as_py().date()
    found = table.scan(row_filter=f"ts < '{day}T23:59:59+00:00'").to_arrow()["id"].to_pylist()
    assert sorted(found) == [0, 1]
    assert_no_row_lost_or_doubled(ids(tmp_path), source.ids())


def test_epochs_that_roll_no_file_make_no_snapshot(
    spark: SparkSession, source: EventFiles, options: dict[str, str], tmp_path: Path
) -> None:
    run(source.add(4).read(spark).repartition(2), {**options, "visibility": "roll"})
    assert catalog(tmp_path).load_table("db.events").snapshots() == []
    assert icefloe.finish(str(tmp_path / "checkpoint" / "icefloe")).rows == 120
    assert len(catalog(tmp_path).load_table("db.events").snapshots()) == 1
    assert_no_row_lost_or_doubled(ids(tmp_path), source.ids())


def test_a_restart_with_a_new_column_needs_merge_schema_and_rolls_what_is_in_flight(
    spark: SparkSession, source: EventFiles, options: dict[str, str], tmp_path: Path
) -> None:
    rolling = {**options, "visibility": "roll"}
    run(source.add(2).read(spark), rolling)
    rows = event_rows(60, 30)
    wider = EVENTS.append(pa.field("note", pa.string()))
    source.put(pa.RecordBatch.from_arrays([*rows.columns, pa.array([f"n{i}" for i in range(30)])], schema=wider))
    stream = source.read(spark, schema=f"{EVENTS_DDL}, note STRING")
    error = refusal(stream, rolling)
    assert "ICEFLOE_" in error
    assert "note" in error
    run(stream, {**rolling, "mergeSchema": "true"})
    # The files of the old schema were rolled by the first batch of the new one.
    assert_no_row_lost_or_doubled(ids(tmp_path), range(60))
    icefloe.finish(str(tmp_path / "checkpoint" / "icefloe"))
    assert_no_row_lost_or_doubled(ids(tmp_path), range(90))
    notes = catalog(tmp_path).load_table("db.events").scan().to_arrow()["note"]
    assert notes.null_count == 60


def test_a_table_made_anew_under_the_same_name_is_refused(
    spark: SparkSession, source: EventFiles, options: dict[str, str], tmp_path: Path
) -> None:
    run(source.add(1).read(spark), options)
    schema = catalog(tmp_path).load_table("db.events").schema()
    catalog(tmp_path).drop_table("db.events")
    catalog(tmp_path).create_table("db.events", schema=schema)
    error = refusal(source.add(1).read(spark), options)
    assert "ICEFLOE_TARGET_CHANGED: " in error
    assert ids(tmp_path) == []


def test_a_restored_checkpoint_is_refused_with_both_ledgers_named(
    spark: SparkSession, source: EventFiles, options: dict[str, str], tmp_path: Path
) -> None:
    run(source.add(1).read(spark), options)
    shutil.copytree(tmp_path / "checkpoint", tmp_path / "copy")
    run(source.add(1).read(spark), options)
    error = refusal(source.add(1).read(spark), {**options, "checkpointLocation": str(tmp_path / "copy")})
    assert "ICEFLOE_LEDGER_CONFLICT: " in error
    assert_no_row_lost_or_doubled(ids(tmp_path), range(60))
    # The history that the table knows goes on.
    run(source.read(spark), options)
    assert_no_row_lost_or_doubled(ids(tmp_path), source.ids())


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"createTable": "false"}, "ICEFLOE_TABLE_NOT_FOUND"),
        ({"warehouse": None, "catalog": "nowhere"}, "ICEFLOE_CATALOG"),
        ({"partitionBy": "bucket(4, nation)"}, "nation"),
    ],
    ids=["no table", "no catalog", "no such column"],
)
def test_a_table_that_cannot_be_opened_ends_the_query_before_data_moves(
    changed: dict[str, str | None],
    code: str,
    spark: SparkSession,
    source: EventFiles,
    options: dict[str, str],
    tmp_path: Path,
) -> None:
    given = {key: value for key, value in {**options, **changed}.items() if value is not None}
    error = refusal(source.add(1).read(spark), given)
    assert code in error
    assert "ICEFLOE_" in error
    assert not list(tmp_path.glob("lake/**/*.parquet"))
    assert not (tmp_path / "checkpoint" / "icefloe").exists()
