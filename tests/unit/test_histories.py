"""Two histories on one target, state or files that are gone: refused by name, and nobody's rows are touched."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import pytest

from icefloe.connector import committer as protocol
from icefloe.connector.cleaning import plan_cleaning, remove_leftovers
from icefloe.connector.finish import finish
from icefloe.connector.jobs import open_job
from icefloe.errors import ConflictError, CorruptStateError, FencedError, StorageError
from icefloe.state import crash_points
from support.harness import Harness, event_rows
from support.rows import assert_no_row_lost_or_doubled, read_path


class Killed(BaseException):
    """What stands for kill -9 within one process."""


def kill_at(point: str) -> None:
    def act(name: str) -> None:
        if name == point:
            raise Killed

    crash_points.arm(act)


@pytest.fixture(autouse=True)
def _disarm() -> object:
    yield
    crash_points.arm(None)


def ids(path: Path) -> list[int]:
    table = read_path(path)
    return table["id"].to_pylist() if table.num_rows else []


def killed_before_publishing(query: Harness, batch: int, rows: int, **changed: str) -> None:
    """Run a batch whose driver dies once its record is there."""
    kill_at("commit.record-is-head")
    with pytest.raises(Killed):
        query.run(batch, [[event_rows(rows, 10)]], **changed)
    crash_points.arm(None)


@pytest.mark.parametrize("by_hand", [False, True])
def test_a_copied_history_cleans_up_nothing_that_the_owner_will_publish(tmp_path: Path, by_hand: bool) -> None:
    out = tmp_path / "out"
    owner = Harness(tmp_path / "checkpoint", {"path": str(out), "visibility": "roll"})
    owner.run(0, [[event_rows(0, 10)]])
    shutil.copytree(owner.checkpoint, tmp_path / "copy")
    killed_before_publishing(owner, 1, 10, visibility="batch")
    copy = Harness(tmp_path / "copy", owner.options)
    copy.run(1, [[event_rows(10, 10)]])
    if by_hand:
        location = str(copy.checkpoint / "icefloe")
        remove_leftovers(plan_cleaning(open_job(location), location))
    owner.run(1, [[event_rows(10, 10)]], visibility="batch")
    assert_no_row_lost_or_doubled(ids(out), range(20))


def test_a_table_is_never_given_files_that_are_gone(tmp_path: Path) -> None:
    options = {"table": "db.events", "warehouse": str(tmp_path / "lake")}
    query = Harness(tmp_path / "checkpoint", options)
    killed_before_publishing(query, 0, 0)
    (file,) = (tmp_path / "lake").glob("**/*.parquet")
    kept = file.rename(tmp_path / "kept")
    with pytest.raises(StorageError, match=r"ICEFLOE_FILE_LOST.*10 rows"):
        query.run(0, [[event_rows(0, 10)]])
    kept.rename(file)
    assert query.run(0, [[event_rows(0, 10)]]).epoch == 0


def test_a_job_that_has_published_is_refused_without_its_state_before_data_moves(tmp_path: Path) -> None:
    query = Harness(tmp_path / "checkpoint", {"path": str(tmp_path / "out")})
    query.run(0, [[event_rows(0, 10)]])
    shutil.rmtree(query.checkpoint / "icefloe")
    with pytest.raises(ConflictError, match="ICEFLOE_STATE_LOST"):
        query.run(1, [[event_rows(10, 10)]])
    assert not (query.checkpoint / "icefloe").exists()


def test_a_job_whose_state_seems_gone_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    query = Harness(tmp_path / "checkpoint", {"path": str(tmp_path / "out"), "visibility": "roll"})
    query.run(0, [[event_rows(0, 10)]])
    shutil.rmtree(query.checkpoint / "icefloe")
    with caplog.at_level(logging.WARNING):
        query.run(1, [[event_rows(10, 10)]])
    assert "Spark has committed batch 0" in caplog.text


def test_a_clean_up_that_fails_does_not_fail_a_commit_whose_rows_are_visible(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def denied(*_: object, **__: object) -> None:
        raise StorageError("ICEFLOE_STORAGE_DENIED", "listing uploads is not allowed")

    monkeypatch.setattr(protocol, "clean_up", denied)
    query = Harness(tmp_path / "checkpoint", {"path": str(tmp_path / "out")})
    query.run(0, [[event_rows(0, 10)]])
    assert "ICEFLOE_STORAGE_DENIED" in caplog.text
    assert_no_row_lost_or_doubled(ids(tmp_path / "out"), range(10))


def test_the_slower_of_two_publishers_finds_the_file_published(tmp_path: Path) -> None:
    query = Harness(tmp_path / "checkpoint", {"path": str(tmp_path / "out")})
    killed_before_publishing(query, 0, 0)

    def faster(name: str) -> None:
        if name == "file.not-there-yet":
            crash_points.arm(None)
            finish(str(query.checkpoint / "icefloe"))

    crash_points.arm(faster)
    query.run(0, [[event_rows(0, 10)]])
    assert_no_row_lost_or_doubled(ids(tmp_path / "out"), range(10))


@pytest.mark.parametrize("keep", ["1", "10"])
def test_a_driver_that_slept_through_newer_batches_is_fenced(tmp_path: Path, keep: str) -> None:
    query = Harness(tmp_path / "checkpoint", {"path": str(tmp_path / "out"), "keepEpochs": keep})
    query.run(0, [[event_rows(0, 10)]])
    query.begin(1)
    stale = query.tasks(1, [[event_rows(10, 10)]])
    query.run(1, [[event_rows(10, 10)]])
    query.run(2, [[event_rows(20, 10)]])
    with pytest.raises(FencedError):
        query.driver().commit(list(stale), 1)
    assert_no_row_lost_or_doubled(ids(tmp_path / "out"), range(30))


def test_a_segment_with_a_changed_byte_is_refused_and_never_published(tmp_path: Path) -> None:
    options = {
        "path": str(tmp_path / "out"),
        "visibility": "roll",
        "rowGroupSize": "8KB",
        "compression": "uncompressed",
    }
    query = Harness(tmp_path / "checkpoint", options)
    query.run(0, [[event_rows(0, 2000)]])
    segment = next((query.checkpoint / "icefloe").glob("**/segment-*"))
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 1
    segment.write_bytes(data)
    with pytest.raises(CorruptStateError, match=r"ICEFLOE_SEGMENT_CHANGED.*segment-"):
        finish(str(query.checkpoint / "icefloe"))
    assert ids(tmp_path / "out") == []
