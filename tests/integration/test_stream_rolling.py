"""Files of real queries reach their size at any trigger interval, and roll when their policy says so."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import icefloe
from icefloe.connector.data_names import parse
from support.rows import assert_no_row_lost_or_doubled, read_path, visible_files
from support.streams import EventFiles, refusal, run

NOISE_DDL = "id BIGINT, noise BINARY"
TASKS = 2
# Named, because a folder of nulls does not tell the type.
REGION = pa.schema({"region": pa.string()})


def noise(start: int, rows: int, row_bytes: int) -> pa.RecordBatch:
    """Return rows that no codec makes smaller."""
    values = [os.urandom(row_bytes) for _ in range(rows)]
    return pa.record_batch({"id": pa.array(range(start, start + rows), pa.int64()), "noise": pa.array(values)})


def add_noise(source: EventFiles, files: int, file_bytes: int) -> EventFiles:
    """Add files of incompressible rows, each of so many bytes."""
    row_bytes = 4096
    rows = file_bytes // row_bytes
    for _ in range(files):
        source.put(noise(source.files * rows, rows, row_bytes))
    return source


@pytest.mark.parametrize(
    ("epochs", "epoch_bytes", "file_bytes"),
    [
        (30, 256 << 10, 1 << 20),
        pytest.param(100, 640 << 10, 8 << 20, marks=[pytest.mark.faults, pytest.mark.timeout(900)]),
    ],
    ids=["1MB files of 30 epochs", "8MB files of 100 epochs"],
)
def test_every_file_but_the_last_of_each_subtask_has_its_size(
    epochs: int, epoch_bytes: int, file_bytes: int, spark: SparkSession, tmp_path: Path
) -> None:
    source = add_noise(EventFiles(tmp_path / "source"), epochs, epoch_bytes)
    options = {
        "path": str(tmp_path / "out"),
        "checkpointLocation": str(tmp_path / "checkpoint"),
        "visibility": "roll",
        "rollFileSize": str(file_bytes),
        "rowGroupSize": str(file_bytes // 4),
        "rollInterval": "1d",
        "rollInactivity": "1d",
    }
    run(source.read(spark, schema=NOISE_DDL).repartition(TASKS), options)
    icefloe.finish(str(tmp_path / "checkpoint" / "icefloe"))

    sizes: dict[int, list[tuple[int, int]]] = {}
    for file in visible_files(tmp_path / "out"):
        name = parse(file.name)
        assert name is not None
        sizes.setdefault(name.subtask, []).append((name.epoch, file.stat().st_size))
    assert set(sizes) == set(range(TASKS))
    for found in sizes.values():
        *full, _last = sorted(found)
        assert len(full) >= 2
        assert all(file_bytes * 0.9 <= size <= file_bytes * 1.25 for _, size in full), found
    assert_no_row_lost_or_doubled(read_path(tmp_path / "out")["id"].to_pylist(), source.ids())


@pytest.mark.faults
@pytest.mark.timeout(900)
def test_sparks_own_sink_makes_a_file_for_every_task_of_every_epoch(spark: SparkSession, tmp_path: Path) -> None:
    source = add_noise(EventFiles(tmp_path / "source"), 100, 16 << 10)
    rows = source.read(spark, schema=NOISE_DDL).repartition(TASKS)
    query = (
        rows.writeStream.format("parquet")
        .option("path", str(tmp_path / "out"))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(600)
    assert len(visible_files(tmp_path / "out")) >= 100


def test_a_file_rolls_when_sparks_watermark_has_passed_its_latest_event(spark: SparkSession, tmp_path: Path) -> None:
    source = EventFiles(tmp_path / "source", rows_per_file=2).add(1)
    options = {
        "path": str(tmp_path / "out"),
        "partitionBy": "region",
        "checkpointLocation": str(tmp_path / "checkpoint"),
        "visibility": "roll",
        "rollWatermark": "true",
    }
    rows = source.read(spark).withWatermark("ts", "10 minutes").coalesce(1)
    run(rows, options)
    assert visible_files(tmp_path / "out") == []
    source.add(2)
    run(rows, options)
    # Row 0 is alone in its region, and row 1, an hour later, moves the watermark past it. Row 1 is newer than it.
    assert read_path(tmp_path / "out", REGION)["id"].to_pylist() == [0]
    icefloe.finish(str(tmp_path / "checkpoint" / "icefloe"))
    assert_no_row_lost_or_doubled(read_path(tmp_path / "out", REGION)["id"].to_pylist(), source.ids())


def test_state_in_a_place_of_its_own_needs_no_readable_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    """Spark reads its checkpoint through Hadoop, from places where Python cannot; a SparkConf default is one."""
    source = EventFiles(tmp_path / "source", rows_per_file=6).add(3)
    options = {
        "path": str(tmp_path / "out"),
        "stateLocation": str(tmp_path / "state"),
        "visibility": "roll",
        "queryName": "unreadable_checkpoint",
    }
    spark.conf.set("spark.sql.streaming.checkpointLocation", str(tmp_path / "checkpoints"))
    try:
        run(source.read(spark).repartition(2), options)
        run(source.add(2).read(spark).repartition(3), options)
        assert "ICEFLOE_WATERMARK_UNREADABLE: " in refusal(
            source.add(1).read(spark).withWatermark("ts", "1 hour"), {**options, "rollWatermark": "true"}
        )
        run(source.read(spark).repartition(1), options)
    finally:
        spark.conf.unset("spark.sql.streaming.checkpointLocation")
    assert visible_files(tmp_path / "out") == []
    result = icefloe.finish(str(tmp_path / "state"))
    assert result.rows == len(source.ids())
    assert_no_row_lost_or_doubled(read_path(tmp_path / "out")["id"].to_pylist(), source.ids())


def test_dropped_event_time_is_in_no_file_and_file_names_have_their_prefix(spark: SparkSession, tmp_path: Path) -> None:
    source = EventFiles(tmp_path / "source", rows_per_file=6).add(1)
    options = {
        "path": str(tmp_path / "out"),
        "checkpointLocation": str(tmp_path / "checkpoint"),
        "dropEventTime": "true",
        "filePrefix": "events",
        "compression": "gzip",
    }
    rows = source.read(spark).coalesce(1)
    assert "ICEFLOE_OPTION_CONFLICT: dropEventTime" in refusal(rows, options)
    run(rows, {**options, "eventTimeColumn": "TS"})
    (file,) = visible_files(tmp_path / "out")
    assert file.name.startswith("events")
    footer = pq.read_metadata(file)
    assert footer.schema.to_arrow_schema().names == ["id", "region", "amount"]
    assert footer.row_group(0).column(0).compression == "GZIP"
    assert_no_row_lost_or_doubled(read_path(tmp_path / "out")["id"].to_pylist(), source.ids())
