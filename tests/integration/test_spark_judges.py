"""Iceberg's own Spark runtime reads our tables, and appends to them and compacts them between our epochs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import icefloe
from support.iceberg_spark import CATALOG, IcebergSpark, running_iceberg_spark
from support.rows import assert_no_row_lost_or_doubled
from support.streams import EventFiles, delete_commit, run

TABLE = f"{CATALOG}.db.events"
FOREIGN = [-1, -2]

pytestmark = [pytest.mark.judges, pytest.mark.timeout(600)]


@pytest.fixture
def source(tmp_path: Path) -> EventFiles:
    return EventFiles(tmp_path / "source", rows_per_file=30)


@pytest.fixture(params=["batch", "roll"])
def options(tmp_path: Path, request: pytest.FixtureRequest) -> dict[str, str]:
    return {
        "table": "db.events",
        "warehouse": str(tmp_path / "lake"),
        "partitionBy": "day(ts), bucket(4, region)",
        "visibility": request.param,
        "checkpointLocation": str(tmp_path / "checkpoint"),
    }


@pytest.fixture
def judge(tmp_path: Path) -> Iterator[IcebergSpark]:
    environment = Path(os.environ["ICEFLOE_ICEBERG_SPARK"])
    with running_iceberg_spark(environment, tmp_path / "lake", tmp_path / "judge") as running:
        yield running


def ids(judge: IcebergSpark) -> list[int]:
    return [row[0] for row in judge.sql(f"SELECT id FROM {TABLE}")]


def test_icebergs_spark_reads_appends_and_compacts_between_our_epochs(
    spark: SparkSession, source: EventFiles, options: dict[str, str], judge: IcebergSpark, tmp_path: Path
) -> None:
    state = str(tmp_path / "checkpoint" / "icefloe")
    run(source.add(4).read(spark).repartition(2), options)
    icefloe.finish(state)
    assert_no_row_lost_or_doubled(ids(judge), source.ids())
    wanted = {row["id"]: row for batch in source.rows() for row in batch.to_pylist()}
    for id_, region, amount in judge.sql(f"SELECT id, region, amount FROM {TABLE}"):
        assert (region, amount) == (wanted[id_]["region"], wanted[id_]["amount"])
    partitions = judge.sql(f"SELECT partition.ts_day, sum(record_count) FROM {TABLE}.partitions GROUP BY 1 ORDER BY 1")
    assert partitions == judge.sql(f"SELECT date(ts), count(*) FROM {TABLE} GROUP BY 1 ORDER BY 1")

    # Files in flight across all that another engine does to the table.
    run(source.add(1).read(spark).repartition(2), options)
    rows = ", ".join(f"({id_}, 'x', TIMESTAMP '2020-01-01 00:00:00', 0.5)" for id_ in FOREIGN)
    judge.sql(f"INSERT INTO {TABLE} (id, region, ts, amount) VALUES {rows}")
    rewritten = judge.sql(
        f"CALL {CATALOG}.system.rewrite_data_files(table => 'db.events', options => map('rewrite-all', 'true'))"
    )
    assert rewritten[0][0] > 0
    judge.sql(f"CALL {CATALOG}.system.rewrite_manifests('db.events')")
    judge.sql(f"CALL {CATALOG}.system.expire_snapshots(table => 'db.events', older_than => now(), retain_last => 1)")

    run(source.add(2).read(spark).repartition(2), options)
    replayed = delete_commit(tmp_path / "checkpoint")
    run(source.read(spark).repartition(2), options)
    assert replayed == 6
    icefloe.finish(state)
    judge.sql(f"REFRESH TABLE {TABLE}")
    assert_no_row_lost_or_doubled(ids(judge), [*source.ids(), *FOREIGN])
    added = judge.sql(f"SELECT DISTINCT data_file.file_path, snapshot_id FROM {TABLE}.all_entries WHERE status = 1")
    assert len({path for path, _ in added}) == len(added), "a data file was added by two snapshots"
