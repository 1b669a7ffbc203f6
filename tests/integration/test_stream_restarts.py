"""Stops, restarts and replays of real queries: in-flight files go on, and nothing is lost or doubled."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that every Spark user knows

import icefloe
from support.query_runs import QueryPlan
from support.rows import assert_no_row_lost_or_doubled, read_path, visible_files
from support.streams import EventFiles, Gate, delete_commit, run, running
from support.verifier import verify

STOPS = 5
TASKS = 2


@pytest.fixture
def source(tmp_path: Path) -> EventFiles:
    return EventFiles(tmp_path / "source", rows_per_file=10)


@pytest.fixture
def rolling(tmp_path: Path) -> dict[str, str]:
    """A sink whose files nothing but ``finish`` makes visible."""
    return {
        "path": str(tmp_path / "out"),
        "checkpointLocation": str(tmp_path / "checkpoint"),
        "visibility": "roll",
        "rollInterval": "1d",
        "rollInactivity": "1d",
    }


def test_stops_while_idle_leave_one_file_for_each_subtask(
    spark: SparkSession, source: EventFiles, rolling: dict[str, str], tmp_path: Path
) -> None:
    for _ in range(STOPS + 1):
        with running(source.add(1).read(spark).repartition(TASKS), rolling) as query:
            query.processAllAvailable()
        assert visible_files(tmp_path / "out") == []
    icefloe.finish(str(tmp_path / "checkpoint" / "icefloe"))
    assert len(visible_files(tmp_path / "out")) == TASKS
    assert_no_row_lost_or_doubled(read_path(tmp_path / "out")["id"].to_pylist(), source.ids())


def test_stops_in_mid_epoch_leave_one_file_for_each_subtask(
    spark: SparkSession, source: EventFiles, rolling: dict[str, str], tmp_path: Path
) -> None:
    gate = Gate(tmp_path / "gate")
    source.add(1)
    rows = gate.across(source.read(spark).repartition(TASKS))
    with running(rows, rolling) as query:
        gate.open()
        query.processAllAvailable()
    for _ in range(STOPS):
        gate.close()
        source.add(1)
        with running(rows, rolling):
            gate.wait_for_a_task()
        gate.open()
        # What was stopped runs again, and then the next one is.
        with running(rows, rolling) as query:
            query.processAllAvailable()
    icefloe.finish(str(tmp_path / "checkpoint" / "icefloe"))
    assert len(visible_files(tmp_path / "out")) == TASKS
    assert_no_row_lost_or_doubled(read_path(tmp_path / "out")["id"].to_pylist(), source.ids())


@pytest.mark.parametrize(
    ("target", "visibility"),
    [
        ("path", "batch"),
        ("table", "roll"),
        pytest.param("path", "roll", marks=pytest.mark.faults),
        pytest.param("table", "batch", marks=pytest.mark.faults),
    ],
)
def test_a_batch_that_spark_forgot_to_have_committed_is_not_doubled(
    target: str, visibility: str, spark: SparkSession, tmp_path: Path
) -> None:
    plan = QueryPlan(
        target=target,  # type: ignore[arg-type]
        visibility=visibility,  # type: ignore[arg-type]
        root=str(tmp_path),
        location=str(tmp_path / "lake"),
        batches=4,
        widened_from=4,
    )
    options = {**plan.options(), "checkpointLocation": str(plan.checkpoint)}
    source = EventFiles(tmp_path / "source", plan.rows)
    for files, tasks in ((2, 3), (0, 1), (2, 2), (0, 4)):
        if not files:
            delete_commit(plan.checkpoint)
        run(source.add(files).read(spark).repartition(tasks), options)
    icefloe.finish(plan.state, options=plan.catalog())
    verify(plan)


STATE_STORES = {
    "in memory": {},
    "rocksdb": {
        "spark.sql.streaming.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        ),
        "spark.sql.streaming.stateStore.checkpointFormatVersion": "2",
    },
}


@pytest.mark.parametrize("store", STATE_STORES)
def test_state_of_an_aggregation_in_front_of_the_sink_survives_a_replay(
    store: str, spark: SparkSession, tmp_path: Path
) -> None:
    source = EventFiles(tmp_path / "source", rows_per_file=12)
    options = {"path": str(tmp_path / "out"), "checkpointLocation": str(tmp_path / "checkpoint")}
    for key, value in STATE_STORES[store].items():
        spark.conf.set(key, value)
    try:
        counts = (
            source.add(3)
            .read(spark)
            .withWatermark("ts", "2 hours")
            .groupBy(F.window("ts", "6 hours"))
            .agg(F.count("*").alias("n"), F.sum("id").alias("ids"))
            .select(F.col("window.start").alias("start"), "n", "ids")
        )
        run(counts, options)
        delete_commit(tmp_path / "checkpoint")
        run(counts, options)
        source.add(2)
        run(counts, options)
    finally:
        for key in STATE_STORES[store]:
            spark.conf.unset(key)
    found = {row["start"]: (row["n"], row["ids"]) for row in read_path(tmp_path / "out").to_pylist()}
    rows = read_path(tmp_path / "out").num_rows
    assert rows == len(found), "a window is in the target twice"
    windows: dict[object, list[int]] = {}
    table = pa.Table.from_batches(source.rows())
    for row in table.to_pylist():
        start = row["ts"].replace(hour=row["ts"].hour // 6 * 6, minute=0, second=0, microsecond=0)
        windows.setdefault(start, []).append(row["id"])
    expected = {start: (len(ids), sum(ids)) for start, ids in windows.items()}
    # The last windows are still open: the watermark has not passed them.
    assert len(expected) - 3 <= len(found) < len(expected)
    assert found.items() <= expected.items()
