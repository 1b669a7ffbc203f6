"""A restored, rolled back, copied or wiped checkpoint or state is refused by name, and no row is ever doubled by it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from icefloe.connector.finish import finish
from icefloe.connector.path_target import PathTarget
from icefloe.connector.targets import Publication
from icefloe.errors import ConflictError, IcefloeError, StateError
from icefloe.state import crash_points
from icefloe.state.memory_storage import MemoryStorage, forget_memory_storage
from support.harness import Harness, event_rows
from support.memory_files import MemoryFileStore, MemoryWorld
from support.rows import assert_no_row_lost_or_doubled, read_path


def query(tmp_path: Path, checkpoint: str = "checkpoint", **options: str) -> Harness:
    return Harness(tmp_path / checkpoint, {"path": str(tmp_path / "out"), **options})


def run(of: Harness, batch_id: int, rows: int = 20) -> None:
    of.run(batch_id, [[event_rows(batch_id * rows, rows)]])


def ids(tmp_path: Path) -> list[int]:
    table = read_path(tmp_path / "out")
    found: list[int] = table["id"].to_pylist() if table.num_rows else []
    return found


def copy(tmp_path: Path, source: str, target: str) -> None:
    shutil.rmtree(tmp_path / target, ignore_errors=True)
    shutil.copytree(tmp_path / source, tmp_path / target)


def test_of_two_histories_that_publish_different_epochs_at_once_one_is_refused() -> None:
    world, name = MemoryWorld(), "two-histories"
    ledgers = MemoryStorage(name)
    files = MemoryFileStore(world, lambda _: None, uploads_expire=False)
    target = PathTarget(files=files, ledgers=ledgers, state=ledgers, partition_columns=())

    def publication(epoch: int, digest: str) -> Publication:
        return Publication(job_id="job", epoch=epoch, digest=digest, batch_id=0, expected_ledger="", files=[])

    # 1. B looks at the ledger for its epoch 2. 2. A publishes epoch 1, whole. 3. B goes on.
    def between(point: str) -> None:
        if point == "path.ledger-checked":
            crash_points.arm(None)
            target.publish(publication(1, "a"))

    crash_points.arm(between)
    try:
        with pytest.raises(ConflictError, match="ICEFLOE_LEDGER_CONFLICT"):
            target.publish(publication(2, "b"))
    finally:
        crash_points.arm(None)
        forget_memory_storage(name)


def test_a_checkpoint_rolled_back_without_its_state_is_refused(tmp_path: Path) -> None:
    of = query(tmp_path, stateLocation=str(tmp_path / "state"))
    run(of, 0)
    copy(tmp_path, "checkpoint", "older")
    run(of, 1)
    run(of, 2)
    copy(tmp_path, "older", "checkpoint")
    with pytest.raises(ConflictError, match="ICEFLOE_CHECKPOINT_OLDER"):
        run(query(tmp_path, stateLocation=str(tmp_path / "state")), 1)
    assert_no_row_lost_or_doubled(ids(tmp_path), range(60))


def test_a_state_rolled_back_without_its_checkpoint_is_refused(tmp_path: Path) -> None:
    of = query(tmp_path, stateLocation=str(tmp_path / "state"))
    run(of, 0)
    copy(tmp_path, "state", "older")
    run(of, 1)
    run(of, 2)
    copy(tmp_path, "older", "state")
    with pytest.raises(IcefloeError, match=r"ICEFLOE_(STATE_OLDER|LEDGER)"):
        run(of, 3)
    assert_no_row_lost_or_doubled(ids(tmp_path), range(60))


@pytest.mark.parametrize("visibility", ["batch", "roll"])
def test_checkpoint_and_state_rolled_back_together_are_refused_once_the_target_has_more(
    tmp_path: Path, visibility: str
) -> None:
    of = query(tmp_path, visibility=visibility)
    run(of, 0)
    finish(str(of.checkpoint / "icefloe"))
    copy(tmp_path, "checkpoint", "older")
    run(of, 1)
    finish(str(of.checkpoint / "icefloe"))
    copy(tmp_path, "older", "checkpoint")
    again = query(tmp_path, visibility=visibility)
    with pytest.raises(ConflictError, match="ICEFLOE_LEDGER"):
        run(again, 1)
    assert_no_row_lost_or_doubled(ids(tmp_path), range(40))


def test_a_copied_checkpoint_and_state_cannot_write_beside_the_original(tmp_path: Path) -> None:
    of = query(tmp_path)
    run(of, 0)
    copy(tmp_path, "checkpoint", "copied")
    run(of, 1)
    with pytest.raises(ConflictError, match="ICEFLOE_LEDGER"):
        run(query(tmp_path, "copied"), 1)
    run(of, 2)
    assert_no_row_lost_or_doubled(ids(tmp_path), range(60))


def test_a_state_that_vanished_is_not_started_afresh(tmp_path: Path) -> None:
    of = query(tmp_path)
    run(of, 0)
    run(of, 1)
    shutil.rmtree(of.checkpoint / "icefloe" / of.job_id / "checkpoints")
    with pytest.raises((StateError, ConflictError), match="ICEFLOE_"):
        run(of, 2)
    assert_no_row_lost_or_doubled(ids(tmp_path), range(40))


def test_a_state_that_vanished_whole_is_refused_by_the_ledger_of_the_target(tmp_path: Path) -> None:
    of = query(tmp_path)
    run(of, 0)
    run(of, 1)
    shutil.rmtree(of.checkpoint / "icefloe")
    for _ in range(2):
        with pytest.raises(ConflictError, match="ICEFLOE_STATE_LOST"):
            run(of, 2)
    assert_no_row_lost_or_doubled(ids(tmp_path), range(40))


def test_a_wiped_checkpoint_is_a_new_job_and_what_the_old_one_had_in_flight_can_be_finished(tmp_path: Path) -> None:
    old = query(tmp_path, visibility="roll", stateLocation=str(tmp_path / "state"))
    run(old, 0)
    shutil.rmtree(old.checkpoint)
    new = query(tmp_path, visibility="roll", stateLocation=str(tmp_path / "state"))
    assert new.job_id != old.job_id
    new.run(0, [[event_rows(20, 20)]])
    for job in (old.job_id, new.job_id):
        finish(str(tmp_path / "state"), job=job)
    assert_no_row_lost_or_doubled(ids(tmp_path), range(40))


def test_a_replay_with_other_offsets_is_refused_with_both_named(tmp_path: Path) -> None:
    of = query(tmp_path)
    run(of, 0)
    of.begin(0, offsets="another source")
    reports = of.tasks(0, [[event_rows(0, 20)]])
    with pytest.raises(ConflictError, match=r"ICEFLOE_REPLAY_DIFFERS.*offsets .* offsets "):
        of.driver().commit(list(reports), 0)
    assert_no_row_lost_or_doubled(ids(tmp_path), range(20))


def test_a_replay_of_a_recorded_batch_in_other_partitions_and_another_number_of_tasks_adds_nothing(
    tmp_path: Path,
) -> None:
    of = query(tmp_path)
    run(of, 0)
    (of.checkpoint / "commits" / "0").unlink()
    of.run(0, [[event_rows(15, 5)], [event_rows(0, 7)], [event_rows(7, 8)]])
    run(of, 1)
    assert_no_row_lost_or_doubled(ids(tmp_path), range(40))


def test_the_target_of_a_job_cannot_change(tmp_path: Path) -> None:
    run(query(tmp_path), 0)
    other = Harness(tmp_path / "checkpoint", {"path": str(tmp_path / "elsewhere")})
    with pytest.raises(ConflictError, match="ICEFLOE_TARGET_CHANGED"):
        run(other, 1)
