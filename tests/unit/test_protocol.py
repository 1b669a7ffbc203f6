"""The whole protocol without a JVM: rows in, records, publication, replay, finish."""

from __future__ import annotations

from pathlib import Path

import pytest

from icefloe.connector.finish import finish
from support.harness import Harness, event_rows
from support.rows import assert_every_visible_file_is_whole, assert_no_row_lost_or_doubled, read_path, visible_files


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def harness(tmp_path: Path, **options: str) -> Harness:
    return Harness(tmp_path / "checkpoint", {"path": str(tmp_path / "out"), **options})


def ids(path: Path) -> list[int]:
    table = read_path(path)
    return table["id"].to_pylist() if table.num_rows else []


def test_every_row_of_a_finished_batch_is_readable(tmp_path: Path, out: Path) -> None:
    query = harness(tmp_path)
    for batch in range(3):
        query.run(batch, [[event_rows(batch * 100, 50)], [event_rows(batch * 100 + 50, 50)]])
        assert_no_row_lost_or_doubled(ids(out), range((batch + 1) * 100))
    assert_every_visible_file_is_whole(out)


def test_partition_columns_are_folders_and_not_in_the_files(tmp_path: Path, out: Path) -> None:
    harness(tmp_path, partitionBy="region").run(0, [[event_rows(0, 100)]])
    folders = {file.parent.name for file in visible_files(out)}
    assert folders == {"region=region-0", "region=region-1", "region=region-2", "region=__HIVE_DEFAULT_PARTITION__"}
    assert_no_row_lost_or_doubled(ids(out), range(100))


def test_rolling_keeps_files_in_flight_until_finish(tmp_path: Path, out: Path) -> None:
    query = harness(tmp_path, visibility="roll")
    for batch in range(5):
        query.run(batch, [[event_rows(batch * 100, 50)], [event_rows(batch * 100 + 50, 50)]])
    assert visible_files(out) == []
    result = finish(str(query.checkpoint / "icefloe"))
    assert result.rows == 500
    assert len(visible_files(out)) == 2
    assert_no_row_lost_or_doubled(ids(out), range(500))
    assert finish(str(query.checkpoint / "icefloe")).files == ()


def test_a_query_goes_on_after_finish(tmp_path: Path, out: Path) -> None:
    query = harness(tmp_path, visibility="roll")
    query.run(0, [[event_rows(0, 100)]])
    finish(str(query.checkpoint / "icefloe"))
    query.run(1, [[event_rows(100, 100)]])
    finish(str(query.checkpoint / "icefloe"))
    assert_no_row_lost_or_doubled(ids(out), range(200))


def test_a_replayed_batch_is_published_from_its_record(tmp_path: Path, out: Path) -> None:
    query = harness(tmp_path)
    query.run(0, [[event_rows(0, 100)]])
    # The commit-log entry is lost, and the rows come in other partitions.
    query.run(0, [[event_rows(50, 50)], [event_rows(0, 50)]])
    assert_no_row_lost_or_doubled(ids(out), range(100))


def test_files_of_a_subtask_without_a_task_are_given_to_another(tmp_path: Path, out: Path) -> None:
    query = harness(tmp_path, visibility="roll")
    start = 0
    for batch, tasks in enumerate([8, 3, 1, 8]):
        query.run(batch, [[event_rows(start + 10 * task, 10)] for task in range(tasks)])
        start += 10 * tasks
    finish(str(query.checkpoint / "icefloe"))
    assert_no_row_lost_or_doubled(ids(out), range(start))
