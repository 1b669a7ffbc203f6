"""Rows through a real query: thirty micro-batches with 8, 3, 1 and 8 tasks, and every row is in the target once."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import icefloe
from support.query_runs import QueryPlan
from support.streams import EventFiles, run
from support.verifier import verify, visible_files

# Files (one for each micro-batch) and tasks of each run; the query is restarted between two of them.
RUNS = ((8, 8), (7, 3), (7, 1), (8, 8))
# Each value of each choice; the full product is in `make faults`.
IN_EVERY_RUN = {
    ("path", "roll", "local", "partitioned"),
    ("path", "batch", "s3", "plain"),
    ("table", "batch", "local", "partitioned"),
}
PRODUCT = [
    pytest.param(*choice, id="-".join(choice), marks=() if choice in IN_EVERY_RUN else pytest.mark.faults)
    for choice in itertools.product(("path", "table"), ("batch", "roll"), ("local", "s3"), ("partitioned", "plain"))
]


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("target", "visibility", "where", "layout"), PRODUCT)
def test_every_row_of_thirty_batches_is_in_the_target_once(
    target: str,
    visibility: str,
    where: str,
    layout: str,
    spark: SparkSession,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    bucket = request.getfixturevalue("moto_bucket") if where == "s3" else None
    plan = QueryPlan(
        target=target,  # type: ignore[arg-type]
        visibility=visibility,  # type: ignore[arg-type]
        root=str(tmp_path),
        location=bucket.url if bucket else str(tmp_path / "lake"),
        s3=bucket.options if bucket else {},
        batches=sum(files for files, _ in RUNS),
        widened_from=sum(files for files, _ in RUNS),
    )
    options = {**plan.options(), "checkpointLocation": str(plan.checkpoint)}
    if layout == "plain":
        del options["partitionBy"]
    source = EventFiles(tmp_path / "source", plan.rows)
    for files, tasks in RUNS:
        run(source.add(files).read(spark).repartition(tasks), options)
    icefloe.finish(plan.state, options={**plan.s3, **plan.catalog()})
    verify(plan)
    if visibility == "roll" and layout == "plain":
        # Files stay in flight across batches and restarts, although they are full at 3 KB here.
        assert len(visible_files(plan)) < sum(files * tasks for files, tasks in RUNS) * 2 / 3
