"""What users call on a session: finding the sink, checking before the start, and giving each partition to one task."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.transforms import BucketTransform, TruncateTransform
from pyiceberg.types import IntegerType, LongType, StringType
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that every Spark user knows

import icefloe
from icefloe.connector.data_source import ARROW_BYTES_KEY, FAST_ARROW_BYTES
from icefloe.errors import ConflictError, OptionError, SchemaError
from support.rows import assert_no_row_lost_or_doubled, read_path
from support.streams import EventFiles, run
from support.verifier import local_files

TASKS = 4


@pytest.fixture
def fresh_session(spark: SparkSession) -> SparkSession:
    """A session of its own on the shared JVM: what one test sets or registers, another one does not see."""
    return spark.newSession()


def test_the_sink_is_found_without_a_register_call(fresh_session: SparkSession, tmp_path: Path) -> None:
    source = EventFiles(tmp_path / "source").add(1)
    run(source.read(fresh_session), {"path": str(tmp_path / "out"), "checkpointLocation": str(tmp_path / "checkpoint")})
    assert_no_row_lost_or_doubled(read_path(tmp_path / "out")["id"].to_pylist(), source.ids())


def test_register_makes_rows_fast_and_the_sink_known(fresh_session: SparkSession, tmp_path: Path) -> None:
    fresh_session.conf.unset(ARROW_BYTES_KEY)
    icefloe.register(fresh_session)
    icefloe.register(fresh_session)
    assert fresh_session.conf.get(ARROW_BYTES_KEY) == FAST_ARROW_BYTES
    source = EventFiles(tmp_path / "source").add(1)
    run(source.read(fresh_session), {"path": str(tmp_path / "out"), "checkpointLocation": str(tmp_path / "checkpoint")})
    assert_no_row_lost_or_doubled(read_path(tmp_path / "out")["id"].to_pylist(), source.ids())


def test_register_leaves_a_setting_of_the_user_alone(fresh_session: SparkSession) -> None:
    fresh_session.conf.set(ARROW_BYTES_KEY, "1000000")
    icefloe.register(fresh_session)
    assert fresh_session.conf.get(ARROW_BYTES_KEY) == "1000000"


def test_check_raises_what_the_first_epoch_would_and_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    schema = spark.createDataFrame([], "id BIGINT, region STRING").schema
    there = {"path": str(tmp_path / "out"), "checkpointLocation": str(tmp_path / "checkpoint")}
    icefloe.check(schema, there)
    with pytest.raises(OptionError, match="ICEFLOE_OPTION_UNKNOWN"):
        icefloe.check(schema, {**there, "colour": "blue"})
    with pytest.raises((OptionError, SchemaError), match="nation"):
        icefloe.check(schema, {**there, "partitionBy": "nation"})
    assert local_files(tmp_path) == []


def test_check_of_a_table_creates_none_and_names_what_does_not_fit(spark: SparkSession, tmp_path: Path) -> None:
    narrow = spark.createDataFrame([(1, "a")], "id BIGINT, region STRING")
    wide = spark.createDataFrame([], "id BIGINT, region STRING, colour STRING")
    options = {"table": "db.events", "warehouse": str(tmp_path / "lake")}
    stream = {**options, "checkpointLocation": str(tmp_path / "checkpoint")}
    icefloe.check(narrow.schema, stream)
    assert not list((tmp_path / "lake").glob("**/*.metadata.json"))
    narrow.write.format("icefloe").options(**options).mode("append").save()
    icefloe.check(narrow.schema, stream)
    with pytest.raises(SchemaError, match="colour"):
        icefloe.check(wide.schema, stream)
    icefloe.check(wide.schema, {**stream, "mergeSchema": "true"})


def test_check_before_a_restart_names_a_changed_target(spark: SparkSession, tmp_path: Path) -> None:
    source = EventFiles(tmp_path / "source").add(1)
    options = {"path": str(tmp_path / "out"), "checkpointLocation": str(tmp_path / "checkpoint")}
    rows = source.read(spark)
    run(rows, options)
    icefloe.check(rows.schema, options)
    with pytest.raises(ConflictError, match="ICEFLOE_TARGET_CHANGED"):
        icefloe.check(rows.schema, {**options, "path": str(tmp_path / "other")})


def rows_to_distribute(spark: SparkSession) -> DataFrame:
    """Return rows from before 1970 on, with nulls, times of every hour and text that is not ASCII."""
    return spark.range(400).selectExpr(
        "if(id % 50 = 0, null, concat(elt(1 + id % 4, 'a', 'ä', '漢', '🙂'), id % 20)) AS name",
        "if(id % 60 = 0, null, int(id % 40 - 20)) AS number",
        "if(id % 70 = 0, null, timestamp_seconds(-86400 * 40 + id * 17 * 977)) AS ts",
        "cast(timestamp_seconds(-86400 * 40 + id * 17 * 977) AS timestamp_ntz) AS ntz",
        "date_add(DATE'1969-11-20', int(id)) AS day",
    )


def _month(moment: dt.date | None) -> object:
    return moment and (moment.year, moment.month)


def _hour(moment: dt.datetime | None) -> object:
    return moment and moment.replace(minute=0, second=0, microsecond=0)


KEYS: dict[str, Callable[[dict[str, Any]], object]] = {
    "name": lambda row: row["name"],
    "bucket(16, name)": lambda row: BucketTransform(16).transform(StringType())(row["name"]),
    "bucket(8, number)": lambda row: BucketTransform(8).transform(IntegerType())(row["number"]),
    "truncate(1, name)": lambda row: TruncateTransform(1).transform(StringType())(row["name"]),
    "truncate(10, number)": lambda row: TruncateTransform(10).transform(LongType())(row["number"]),
    "year(ts)": lambda row: row["utc"] and row["utc"].year,
    "month(ts)": lambda row: _month(row["utc"]),
    "day(ts)": lambda row: row["utc"] and row["utc"].date(),
    "hour(ts)": lambda row: _hour(row["utc"]),
    "hour(ntz)": lambda row: _hour(row["ntz"]),
    "day(ntz)": lambda row: row["ntz"].date(),
    "month(day)": lambda row: _month(row["day"]),
    "year(day), truncate(1, name)": lambda row: (row["day"].year, row["name"] and row["name"][:1]),
}


@pytest.mark.parametrize("zone", ["Asia/Kolkata", "America/New_York"])
def test_distribute_gives_all_rows_of_a_partition_to_one_task(zone: str, fresh_session: SparkSession) -> None:
    fresh_session.conf.set("spark.sql.session.timeZone", zone)
    rows = rows_to_distribute(fresh_session).withColumn("utc", F.unix_micros("ts"))
    for text, key_of in KEYS.items():
        spread = icefloe.distribute(rows, text, tasks=TASKS).withColumn("task", F.spark_partition_id())
        homes: dict[object, set[int]] = {}
        found = spread.drop("ts").collect()
        for row in found:
            values = row.asDict()
            epoch = dt.datetime(1970, 1, 1)
            values["utc"] = None if row["utc"] is None else epoch + dt.timedelta(microseconds=row["utc"])
            homes.setdefault(key_of(values), set()).add(row["task"])
        assert len(found) == 400
        assert spread.rdd.getNumPartitions() == TASKS
        split = {key: tasks for key, tasks in homes.items() if len(tasks) > 1}
        assert not split, f"{text}: partitions in several tasks: {split}"
        assert len(homes) < 3 or len(set.union(*homes.values())) > 1, f"{text}: everything is in one task"


def test_distributed_rows_make_one_file_for_each_partition(spark: SparkSession, tmp_path: Path) -> None:
    source = EventFiles(tmp_path / "source", rows_per_file=60).add(1)
    options = {
        "path": str(tmp_path / "out"),
        "partitionBy": "region",
        "checkpointLocation": str(tmp_path / "checkpoint"),
    }
    run(icefloe.distribute(source.read(spark).repartition(3), "region", tasks=3), options)
    files = [file for file in local_files(tmp_path / "out") if file.suffix == ".parquet"]
    assert len(files) == len({file.parent for file in files}) == 4
