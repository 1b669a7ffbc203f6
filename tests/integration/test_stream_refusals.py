"""What the sink refuses in a real query: with its code in the query's error, before a byte of data is written."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from support.rows import assert_no_row_lost_or_doubled, read_path
from support.streams import EventFiles, delete_commit, refusal, run
from support.verifier import local_files


def written(folder: Path) -> dict[Path, int]:
    """Return everything that the sink could have written: all but the source and Spark's own checkpoint."""
    files = [file for name in ("out", "other", "lake", "checkpoint/icefloe") for file in local_files(folder / name)]
    return {file: file.stat().st_mtime_ns for file in files}


@pytest.fixture
def source(tmp_path: Path) -> EventFiles:
    return EventFiles(tmp_path / "source", rows_per_file=5).add(1)


@pytest.fixture
def options(tmp_path: Path) -> dict[str, str]:
    return {"path": str(tmp_path / "out"), "checkpointLocation": str(tmp_path / "checkpoint")}


@pytest.mark.parametrize(
    ("changed", "code", "advice"),
    [
        ({"path": None}, "ICEFLOE_OPTION_NO_TARGET", "toTable"),
        ({"table": "db.events"}, "ICEFLOE_OPTION_TWO_TARGETS", "keep one of them"),
        ({"rollFileSzie": "8MB"}, "ICEFLOE_OPTION_UNKNOWN", "did you mean 'rollFileSize'"),
        ({"rollFileSize": "8 potatoes"}, "ICEFLOE_OPTION_VALUE", "rollFileSize"),
        ({"rollInterval": "15"}, "ICEFLOE_OPTION_VALUE", "rollInterval"),
        ({"visibility": "roll", "rollWatermark": "true"}, "ICEFLOE_OPTION_CONFLICT", "withWatermark()"),
    ],
    ids=["no target", "two targets", "unknown option", "bad size", "bad duration", "no event time"],
)
def test_a_wrong_option_ends_the_query_before_data_moves(
    changed: dict[str, str | None],
    code: str,
    advice: str,
    spark: SparkSession,
    source: EventFiles,
    options: dict[str, str],
    tmp_path: Path,
) -> None:
    given = {key: value for key, value in {**options, **changed}.items() if value is not None}
    error = refusal(source.read(spark), given)
    assert f"{code}: " in error
    assert advice in error
    assert written(tmp_path) == {}


def test_complete_mode_is_refused_by_name(
    spark: SparkSession, source: EventFiles, options: dict[str, str], tmp_path: Path
) -> None:
    error = refusal(source.read(spark).groupBy("region").count(), options, mode="complete")
    assert "ICEFLOE_MODE_UNSUPPORTED: complete mode" in error
    assert written(tmp_path) == {}


def test_update_mode_is_refused(
    spark: SparkSession, source: EventFiles, options: dict[str, str], tmp_path: Path
) -> None:
    # By Spark itself: a Python sink has no way to take updates.
    with pytest.raises(Exception, match="does not support Update mode"):
        run(source.read(spark).groupBy("region").count(), options, mode="update")
    assert written(tmp_path) == {}


def test_a_continuous_trigger_is_refused_by_name(spark: SparkSession, options: dict[str, str], tmp_path: Path) -> None:
    rows = spark.readStream.format("rate").option("rowsPerSecond", 10).option("numPartitions", 1).load()
    query = rows.writeStream.format("icefloe").options(**options).trigger(continuous="200 milliseconds").start()
    try:
        with pytest.raises(StreamingQueryException, match="ICEFLOE_TRIGGER_UNSUPPORTED"):
            query.awaitTermination(120)
    finally:
        query.stop()
    assert written(tmp_path) == {}


def test_a_job_keeps_its_target_and_its_partitioning(
    spark: SparkSession, source: EventFiles, options: dict[str, str], tmp_path: Path
) -> None:
    run(source.read(spark), options)
    before = written(tmp_path)
    source.add(1)
    other = refusal(source.read(spark), {**options, "path": str(tmp_path / "other")})
    assert "ICEFLOE_TARGET_CHANGED: " in other
    assert str(tmp_path / "other") in other
    assert str(tmp_path / "out") in other
    table = {key: value for key, value in options.items() if key != "path"}
    given = {**table, "table": "db.events", "warehouse": str(tmp_path / "warehouse")}
    assert "ICEFLOE_TARGET_CHANGED: " in refusal(source.read(spark), given)
    assert "partitioned by region" in refusal(source.read(spark), {**options, "partitionBy": "region"})
    assert written(tmp_path) == before
    # What was right before is right again, and nothing was lost by the refusals.
    run(source.read(spark), options)
    assert_no_row_lost_or_doubled(read_path(tmp_path / "out")["id"].to_pylist(), source.ids())


def test_a_batch_replayed_with_other_offsets_is_refused_with_both_named(
    spark: SparkSession, source: EventFiles, options: dict[str, str], tmp_path: Path
) -> None:
    run(source.read(spark), options)
    before = written(tmp_path)
    delete_commit(tmp_path / "checkpoint")
    # A checkpoint restored from before the offsets were logged: Spark makes up the batch anew.
    for name in ("offsets/0", "offsets/.0.crc", "sources/0/0", "sources/0/.0.crc"):
        (tmp_path / "checkpoint" / name).unlink(missing_ok=True)
    source.add(1)
    error = refusal(source.read(spark), options)
    assert "ICEFLOE_REPLAY_DIFFERS: " in error
    assert "was recorded with offsets" in error
    assert written(tmp_path) == before


def test_a_checkpoint_older_than_the_state_is_refused(
    spark: SparkSession, source: EventFiles, options: dict[str, str], tmp_path: Path
) -> None:
    run(source.add(2).read(spark), options)
    before = written(tmp_path)
    for number in (1, 2):
        for name in (f"offsets/{number}", f"offsets/.{number}.crc", f"commits/{number}", f"commits/.{number}.crc"):
            (tmp_path / "checkpoint" / name).unlink(missing_ok=True)
    assert "ICEFLOE_CHECKPOINT_OLDER: " in refusal(source.read(spark), options)
    assert written(tmp_path) == before
