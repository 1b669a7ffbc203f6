"""The whole protocol without a JVM: rows in, records, publication, replay, finish."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from icefloe.connector.finish import finish
from icefloe.connector.size_estimate import _shared
from icefloe.connector.subtask_state import _left_in_memory
from icefloe.errors import ConflictError, FencedError, IcefloeError, OptionError
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


def test_what_a_lost_attempt_left_in_memory_is_not_used(tmp_path: Path, out: Path) -> None:
    query = harness(tmp_path, visibility="roll")
    query.run(0, [[event_rows(0, 100)]])
    query.begin(1)
    query.tasks(1, [[event_rows(100, 100)]])  # Its report never reaches the driver.
    query.run(1, [[event_rows(100, 100)]])
    query.run(2, [[event_rows(200, 100)]])
    finish(str(query.checkpoint / "icefloe"))
    assert_no_row_lost_or_doubled(ids(out), range(300))


def test_files_with_another_fingerprint_are_rolled_and_not_rewritten(tmp_path: Path, out: Path) -> None:
    query = harness(tmp_path, visibility="roll")
    query.run(0, [[event_rows(0, 100)]])
    query.run(1, [[event_rows(100, 100)]], compression="gzip")
    assert_no_row_lost_or_doubled(ids(out), range(100))
    finish(str(query.checkpoint / "icefloe"))
    assert_no_row_lost_or_doubled(ids(out), range(200))


def test_going_back_to_batch_visibility_shows_what_was_in_flight(tmp_path: Path, out: Path) -> None:
    query = harness(tmp_path, visibility="roll")
    query.run(0, [[event_rows(0, 100)]])
    query.run(1, [[event_rows(100, 100)]], visibility="batch")
    assert_no_row_lost_or_doubled(ids(out), range(200))


@pytest.mark.parametrize("visibility", ["batch", "roll"])
def test_more_partitions_than_memory_and_open_files_allow_lose_nothing(
    tmp_path: Path, out: Path, visibility: str
) -> None:
    query = harness(tmp_path, visibility=visibility, partitionBy="region", maxOpenFiles="2", memoryBudget="16KB")
    for batch in range(4):
        query.run(batch, [[event_rows(batch * 2000 + part * 200, 200) for part in range(10)]])
    flushed = list((query.checkpoint / "icefloe").glob("**/table-pending-*"))
    finish(str(query.checkpoint / "icefloe"))
    assert bool(flushed) == (visibility == "roll")
    assert_no_row_lost_or_doubled(ids(out), range(8000))


def test_files_roll_at_their_size_across_batches(tmp_path: Path, out: Path) -> None:
    query = harness(tmp_path, visibility="roll", rollFileSize="200KB", compression="uncompressed")
    for batch in range(20):
        query.run(batch, [[event_rows(batch * 1000, 1000)]])
    sizes = [file.stat().st_size for file in visible_files(out)]
    assert len(sizes) >= 2
    assert all(180 << 10 <= size <= 240 << 10 for size in sizes), sizes


def refused(code: str, query: Harness, batch: int, **changed: str) -> None:
    before = sorted(str(p) for p in query.checkpoint.parent.glob("**/*.parquet"))
    with pytest.raises(IcefloeError, match=code):
        query.run(batch, [[event_rows(0, 10)]], **changed)
    assert sorted(str(p) for p in query.checkpoint.parent.glob("**/*.parquet")) == before


def test_a_batch_that_does_not_follow_the_state_is_refused_before_data_moves(tmp_path: Path) -> None:
    query = harness(tmp_path)
    query.run(0, [[event_rows(0, 10)]])
    query.run(1, [[event_rows(10, 10)]])
    refused("ICEFLOE_STATE_OLDER", query, 3)
    refused("ICEFLOE_CHECKPOINT_OLDER", query, 0)


def test_another_target_or_partitioning_is_refused_before_data_moves(tmp_path: Path) -> None:
    query = harness(tmp_path)
    query.run(0, [[event_rows(0, 10)]])
    refused("ICEFLOE_TARGET_CHANGED", query, 1, path=str(tmp_path / "elsewhere"))
    refused("ICEFLOE_TARGET_CHANGED", query, 1, partitionBy="region")


def test_a_batch_replayed_with_other_offsets_is_refused(tmp_path: Path, out: Path) -> None:
    query = harness(tmp_path)
    query.run(0, [[event_rows(0, 10)]])
    query.begin(0, offsets="other")
    reports = query.tasks(0, [[event_rows(0, 10)]])
    with pytest.raises(ConflictError, match="ICEFLOE_REPLAY_DIFFERS"):
        query.driver().commit(list(reports), 0)
    assert_no_row_lost_or_doubled(ids(out), range(10))


def test_a_continuous_trigger_is_refused_by_name(tmp_path: Path) -> None:
    query = harness(tmp_path)
    with pytest.raises(OptionError, match="ICEFLOE_TRIGGER_UNSUPPORTED"):
        query.driver().commit([None, None], 0)


def test_a_restored_history_is_refused_before_data_moves(tmp_path: Path, out: Path) -> None:
    query = harness(tmp_path)
    query.run(0, [[event_rows(0, 10)]])
    shutil.copytree(query.checkpoint, tmp_path / "copy")
    query.run(1, [[event_rows(10, 10)]])
    copy = Harness(tmp_path / "copy", query.options)
    refused("ICEFLOE_LEDGER_CONFLICT", copy, 1)
    assert_no_row_lost_or_doubled(ids(out), range(20))


def test_a_query_in_the_middle_of_a_batch_is_fenced_by_finish_and_goes_on_after_a_restart(
    tmp_path: Path, out: Path
) -> None:
    query = harness(tmp_path, visibility="roll")
    query.run(0, [[event_rows(0, 10)]])
    query.begin(1)
    reports = query.tasks(1, [[event_rows(10, 10)]])
    finish(str(query.checkpoint / "icefloe"))
    with pytest.raises(FencedError):
        query.driver().commit(list(reports), 1)
    query.run(1, [[event_rows(10, 10)]])
    finish(str(query.checkpoint / "icefloe"))
    assert_no_row_lost_or_doubled(ids(out), range(20))


def test_a_file_that_another_subtask_takes_over_survives_the_end_of_that_subtask_s_own(
    tmp_path: Path, out: Path
) -> None:
    query = harness(tmp_path, visibility="roll", rollFileSize="3KB")
    query.run(0, [[event_rows(0, 10)], [event_rows(10, 10)]])
    # Subtask 0 rolls its only file and forgets its writer; subtask 1 has no task, and its file uses the same writer.
    query.run(1, [[event_rows(20, 400)]])
    query.run(2, [[event_rows(420, 10)]])
    finish(str(query.checkpoint / "icefloe"))
    assert_no_row_lost_or_doubled(ids(out), range(430))


def test_a_batch_is_replayed_after_a_finish_however_few_records_are_kept(tmp_path: Path, out: Path) -> None:
    query = harness(tmp_path, visibility="roll", keepEpochs="1")
    query.run(0, [[event_rows(0, 100)]])
    finish(str(query.checkpoint / "icefloe"))
    query.run(0, [[event_rows(0, 100)]])
    query.run(1, [[event_rows(100, 100)]])
    finish(str(query.checkpoint / "icefloe"))
    assert_no_row_lost_or_doubled(ids(out), range(200))


def test_small_batches_of_rows_that_compress_well_still_give_files_of_the_asked_size(tmp_path: Path, out: Path) -> None:
    # A few hundred rows compress far worse than the file they end up in: the size must not be guessed from them.
    query = harness(tmp_path, visibility="roll", rollFileSize="200KB", compression="zstd")
    for batch in range(60):
        _left_in_memory.clear()
        _shared.clear()  # Every batch meets a process that knows nothing.
        query.run(batch, [[event_rows(batch * 800, 800)]])
    sizes = [file.stat().st_size for file in visible_files(out)]
    assert sizes
    assert all(180 << 10 <= size <= 230 << 10 for size in sizes), sizes
