"""Files that real processes hand to each other, read by Spark itself."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from support.in_flight import Carried, Place, assert_same_rows, begin, continue_elsewhere, events, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BATCHES = [events(start, 3000) for start in range(0, 15_000, 3000)]


def handed_over_file(tmp_path: Path) -> Path:
    """Begun here, continued in two other processes one after the other, rolled here."""
    place = Place(str(tmp_path / "data"), str(tmp_path / "state"))
    with place.task(1) as ctx:
        file = begin(ctx)
        file.append(BATCHES[0])
        carried = Carried.first(file.suspend())
    spawn = multiprocessing.get_context("spawn")
    for epoch, batches in ((2, BATCHES[1:3]), (3, BATCHES[3:4])):
        with ProcessPoolExecutor(1, mp_context=spawn) as elsewhere:
            carried = elsewhere.submit(continue_elsewhere, place, carried, epoch, batches).result()
    with place.task(4) as ctx:
        file = carried.resume(ctx)
        file.append(BATCHES[4])
        return tmp_path / "data" / file.roll().name


def test_a_file_that_four_processes_wrote_is_one_valid_file_for_arrow_and_spark(
    tmp_path: Path, spark: SparkSession
) -> None:
    path = handed_over_file(tmp_path)
    assert pq.read_metadata(path).num_row_groups > 2
    assert_same_rows(pq.read_table(path), rows_of(BATCHES))
    frame = spark.read.parquet(str(path))
    found = frame.selectExpr("count(*)", "sum(id)", "count(user)", "sum(int(isnan(amount)))").first()
    users = sum(1 for i in range(15_000) if i % 11)
    assert tuple(found or ()) == (15_000, sum(range(15_000)), users, len(range(0, 15_000, 13)))
    # A filter that the page index and statistics answer.
    assert frame.where("id between 7000 and 7009").count() == 10
