"""``df.write.format("icefloe")``: append without state; one snapshot of a table, or files that appear whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import load_catalog
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that every Spark user knows

from support.rows import assert_every_visible_file_is_whole, assert_no_row_lost_or_doubled, read_path, visible_files
from support.s3_service import Bucket
from support.verifier import local_files


def rows(spark: SparkSession, start: int = 0, end: int = 40, *, tasks: int = 3) -> DataFrame:
    return spark.range(start, end, 1, tasks).withColumn("region", F.concat(F.lit("region "), F.col("id") % 3))


def save(df: DataFrame, mode: str = "append", **options: str) -> None:
    df.write.format("icefloe").options(**options).mode(mode).save()


def table(warehouse: Path) -> Any:
    catalog = load_catalog("icefloe", type="sql", uri=f"sqlite:///{warehouse}/catalog.db", warehouse=str(warehouse))
    return catalog.load_table("db.events")


def test_each_append_to_a_table_is_one_snapshot(spark: SparkSession, tmp_path: Path) -> None:
    options = {"table": "db.events", "warehouse": str(tmp_path), "partitionBy": "region"}
    save(rows(spark, 0, 40), **options)
    save(rows(spark, 40, 50), **options)
    found = table(tmp_path)
    assert_no_row_lost_or_doubled(found.scan().to_arrow()["id"].to_pylist(), range(50))
    assert len(found.snapshots()) == 2
    # No state, and no trace of a job that will never come back.
    assert not [key for key in found.properties if key.startswith("icefloe.ledger")]


def test_a_task_that_fails_leaves_a_table_as_it_was(spark: SparkSession, tmp_path: Path) -> None:
    options = {"table": "db.events", "warehouse": str(tmp_path)}
    save(rows(spark), **options)
    before = table(tmp_path).metadata_location
    broken = rows(spark, 40, 80).withColumn("region", F.expr("if(id = 79, raise_error('broken'), region)"))
    with pytest.raises(PySparkException, match="broken"):
        save(broken, **options)
    assert table(tmp_path).metadata_location == before
    assert_no_row_lost_or_doubled(table(tmp_path).scan().to_arrow()["id"].to_pylist(), range(40))


def test_a_directory_gets_whole_files_in_hive_folders(spark: SparkSession, tmp_path: Path) -> None:
    options = {"path": str(tmp_path / "out"), "partitionBy": "region", "filePrefix": "part-"}
    save(rows(spark, 0, 40), **options)
    save(rows(spark, 40, 60), **options)
    assert_every_visible_file_is_whole(tmp_path / "out")
    assert_no_row_lost_or_doubled(read_path(tmp_path / "out")["id"].to_pylist(), range(60))
    assert {file.parent.name for file in visible_files(tmp_path / "out")} == {f"region=region {n}" for n in range(3)}
    assert all(file.name.startswith("part-") for file in visible_files(tmp_path / "out"))
    assert local_files(tmp_path / "out") == visible_files(tmp_path / "out")


def test_a_task_that_fails_shows_no_file_in_a_directory(spark: SparkSession, tmp_path: Path) -> None:
    broken = rows(spark).withColumn("region", F.expr("if(id = 39, raise_error('broken'), region)"))
    with pytest.raises(PySparkException, match="broken"):
        save(broken, path=str(tmp_path / "out"))
    assert visible_files(tmp_path / "out") == []


def test_a_prefix_on_s3_gets_the_rows(spark: SparkSession, tmp_path: Path, moto_bucket: Bucket) -> None:
    save(rows(spark), path=f"{moto_bucket.url}/out", **moto_bucket.options)
    names = moto_bucket.keys()
    assert names
    client = moto_bucket.service.client()
    for name in names:
        target = tmp_path / "copy" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        client.download_file(moto_bucket.name, name, str(target))
    client.close()
    assert_no_row_lost_or_doubled(read_path(tmp_path / "copy")["id"].to_pylist(), range(40))
    assert moto_bucket.open_uploads() == []


def test_rows_of_a_column_that_the_table_lacks_need_merge_schema(spark: SparkSession, tmp_path: Path) -> None:
    options = {"table": "db.events", "warehouse": str(tmp_path)}
    save(rows(spark), **options)
    wider = rows(spark, 40, 60).withColumn("note", F.lit("new"))
    with pytest.raises(PySparkException, match="note"):
        save(wider, **options)
    save(wider, mergeSchema="true", **options)
    assert table(tmp_path).scan(row_filter="note = 'new'").to_arrow().num_rows == 20


def test_overwrite_is_refused_by_name(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PySparkException, match="ICEFLOE_MODE_UNSUPPORTED: icefloe only appends"):
        save(rows(spark), mode="overwrite", path=str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_a_wrong_option_is_refused_before_data_moves(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PySparkException, match="ICEFLOE_OPTION_UNKNOWN"):
        save(rows(spark), path=str(tmp_path / "out"), colour="blue")
    with pytest.raises(PySparkException, match="ICEFLOE_OPTION_NO_TARGET"):
        save(rows(spark))
    assert not (tmp_path / "out").exists()


def test_an_empty_write_makes_the_table_and_no_snapshot(spark: SparkSession, tmp_path: Path) -> None:
    save(rows(spark, 0, 0), table="db.events", warehouse=str(tmp_path))
    assert table(tmp_path).snapshots() == []
    assert table(tmp_path).schema().column_names == ["id", "region"]


@pytest.mark.parametrize("target", ["path", "table"])
def test_structs_lists_and_maps_within_each_other_come_back_equal_through_spark(
    spark: SparkSession, tmp_path: Path, target: str
) -> None:
    nested = spark.range(0, 60, 1, 2).selectExpr(
        "id",
        "named_struct('name', concat('n', id), 'tags', array('a', if(id % 3 = 0, null, string(id)))) AS place",
        "map(string(id % 4), named_struct('at', timestamp_micros(id), 'price', cast(id as decimal(12, 3)))) AS seen",
        "if(id % 5 = 0, null, array(map('x', double(id)), map('y', double('NaN')))) AS readings",
        "binary(concat('b', id)) AS raw",
    )
    table = {"table": "db.events", "warehouse": str(tmp_path)}
    options = {"path": str(tmp_path / "out")} if target == "path" else table
    save(nested, **options)
    back = spark.read.parquet(*[str(file) for file in visible_files(tmp_path)])
    # NaN is no value of its own in Python: compared as text.
    assert sorted(map(str, back.collect())) == sorted(map(str, nested.collect()))
