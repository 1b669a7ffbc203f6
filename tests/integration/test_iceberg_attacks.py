"""Everything that may go wrong between a record and its snapshot: rows stay equal to the source, each once."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException, ForbiddenError
from pyiceberg.table import CommitTableResponse
from pyiceberg.transforms import IdentityTransform

from icefloe.connector.iceberg_table import TableSettings
from icefloe.errors import CommitUnknownError, ConflictError, NotFoundError, StorageError
from icefloe.state.crash_points import arm
from support.iceberg_tables import (
    JOB,
    Driver,
    assert_no_file_added_twice,
    assert_rows_are,
    at_crash_point,
)
from support.seaweed import Seaweed

Commit = Callable[..., CommitTableResponse]


@pytest.fixture
def local(tmp_path: Path) -> TableSettings:
    return TableSettings("db.events", warehouse=str(tmp_path / "warehouse"))


@pytest.fixture(params=["sqlite", "rest"])
def settings(request: pytest.FixtureRequest) -> TableSettings:
    if request.param == "sqlite":
        settings: TableSettings = request.getfixturevalue("local")
        return settings
    seaweed: Seaweed = request.getfixturevalue("seaweed")
    return TableSettings("db.events", "rest", seaweed.catalog_properties(seaweed.new_warehouse()))


@pytest.fixture
def driver(settings: TableSettings) -> Iterator[Driver]:
    driver = Driver.open(settings)
    yield driver
    driver.target.close()


@pytest.fixture
def rival(settings: TableSettings, driver: Driver) -> Iterator[Driver]:
    rival = Driver.open(settings)
    yield rival
    rival.target.close()


def replace_commit(driver: Driver, monkeypatch: pytest.MonkeyPatch, make: Callable[[Commit], Commit]) -> None:
    catalog = driver.target.table.catalog
    monkeypatch.setattr(catalog, "commit_table", make(catalog.commit_table))


@pytest.mark.parametrize("error", [CommitStateUnknownException("500"), ConnectionError("reset"), OSError("gone")])
def test_commit_that_landed_but_lost_its_reply_is_not_repeated(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def losing(commit: Commit) -> Commit:
        def commit_and_lose(*args: Any) -> CommitTableResponse:
            commit(*args)
            raise error

        return commit_and_lose

    replace_commit(driver, monkeypatch, losing)
    outcome = driver.publish(0)
    assert outcome.snapshot_id == driver.target.table.refresh().metadata.current_snapshot_id
    assert (outcome.already, outcome.retries) == (False, 1)
    assert_rows_are(driver.target.table, [0])


def test_commit_that_never_arrived_is_sent_again(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[Any, ...]] = []

    def dropping(commit: Commit) -> Commit:
        def drop_first(*args: Any) -> CommitTableResponse:
            sent.append(args)
            if len(sent) == 1:
                raise ConnectionError("refused")
            return commit(*args)

        return drop_first

    replace_commit(driver, monkeypatch, dropping)
    assert driver.publish(0).retries == 1
    assert_rows_are(driver.target.table, [0])


@pytest.mark.parametrize("lands", ["before the second try", "after the second try"])
def test_commit_that_lands_late_does_not_double(
    driver: Driver, rival: Driver, monkeypatch: pytest.MonkeyPatch, lands: str
) -> None:
    held: list[Callable[[], object]] = []
    catalog = driver.target.table.catalog
    deliver = catalog.commit_table

    def hold_first(*args: Any) -> CommitTableResponse:
        if not held:
            held.append(lambda: deliver(*args))
            raise CommitStateUnknownException("504")
        return deliver(*args)

    monkeypatch.setattr(catalog, "commit_table", hold_first)
    point = "catalog.built" if lands == "before the second try" else "catalog.committed"
    late: list[BaseException] = []

    def land() -> None:
        if not held:
            return
        try:
            held[0]()
        except CommitFailedException as e:
            late.append(e)

    with at_crash_point(point, land, times=3):
        outcome = driver.publish(0)
    assert outcome.retries == (2 if lands == "before the second try" else 1)
    assert bool(late) == (lands == "after the second try") or late
    driver.publish(1)
    assert_rows_are(driver.target.table, [0, 1])
    assert_no_file_added_twice(driver.target.table)


def test_commit_that_landed_and_was_called_refused_before_a_stale_read_keeps_its_manifests(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver.publish(0)
    files = driver.files(1)
    catalog = driver.target.table.catalog
    deliver, load = catalog.commit_table, catalog.load_table
    before = load("db.events")
    lies: list[str] = []

    def land_and_refuse(*args: Any) -> CommitTableResponse:
        answer = deliver(*args)
        if not lies:
            lies.append("refused")
            raise CommitFailedException("the repeated request met the first one's commit")
        return answer

    def load_stale_once(identifier: Any) -> Any:
        if lies == ["refused"]:
            lies.append("stale")
            return before
        return load(identifier)

    monkeypatch.setattr(catalog, "commit_table", land_and_refuse)
    monkeypatch.setattr(catalog, "load_table", load_stale_once)
    driver.publish(1, files)
    assert lies == ["refused", "stale"]
    assert_rows_are(driver.target.table, [0, 1])
    assert_no_file_added_twice(driver.target.table)


def test_unknown_outcome_with_an_unreadable_table_is_said_and_the_next_driver_looks(
    driver: Driver, rival: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = driver.files(0)
    catalog = driver.target.table.catalog
    deliver, load = catalog.commit_table, catalog.load_table
    cut = False

    def commit_and_cut(*args: Any) -> CommitTableResponse:
        nonlocal cut
        deliver(*args)
        cut = True
        raise ConnectionError("reset")

    def load_until_cut(identifier: Any) -> Any:
        if cut:
            raise ConnectionError("unreachable")
        return load(identifier)

    monkeypatch.setattr(catalog, "commit_table", commit_and_cut)
    monkeypatch.setattr(catalog, "load_table", load_until_cut)
    with pytest.raises(CommitUnknownError, match=r"^ICEFLOE_COMMIT_UNKNOWN: "):
        driver.publish(0, files)
    assert rival.publish(0, files).already
    assert_rows_are(rival.target.table, [0])


def test_environment_that_keeps_failing_before_anything_was_sent_is_a_storage_error(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = driver.files(0)

    def unreachable(identifier: Any) -> Any:
        raise ConnectionError("unreachable")

    monkeypatch.setattr(driver.target.table.catalog, "load_table", unreachable)
    with pytest.raises(StorageError, match=r"^ICEFLOE_CATALOG_FAILED: .*unreachable"):
        driver.publish(0, files)


@pytest.mark.parametrize("landed", [True, False])
def test_commit_that_the_catalog_forbids_is_looked_at_once_more_and_not_retried(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, landed: bool
) -> None:
    tries = []

    def forbidding(commit: Commit) -> Commit:
        def forbid(*args: Any) -> CommitTableResponse:
            tries.append(args)
            if landed:
                commit(*args)
            raise ForbiddenError("no grant")

        return forbid

    replace_commit(driver, monkeypatch, forbidding)
    if landed:
        assert not driver.publish(0).already
    else:
        with pytest.raises(StorageError, match=r"^ICEFLOE_TABLE_DENIED: .*no grant"):
            driver.publish(0)
    assert len(tries) == 1
    assert_rows_are(driver.target.table, [0] if landed else [])


def test_table_dropped_between_check_and_commit_is_named(driver: Driver, rival: Driver) -> None:
    with (
        at_crash_point("catalog.built", lambda: rival.target.table.catalog.drop_table("db.events")),
        pytest.raises(NotFoundError, match=r"^ICEFLOE_TABLE_NOT_FOUND: .*db\.events"),
    ):
        driver.publish(0)


def test_denied_load_is_not_retried(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    files = driver.files(0)
    tries = []

    def denied(identifier: Any) -> Any:
        tries.append(identifier)
        raise PermissionError("read-only")

    monkeypatch.setattr(driver.target.table.catalog, "load_table", denied)
    with pytest.raises(StorageError, match=r"^ICEFLOE_TABLE_DENIED: "):
        driver.publish(0, files)
    assert len(tries) == 1


def test_half_of_all_tries_meeting_a_second_writer_lose_and_double_nothing(
    driver: Driver, settings: TableSettings
) -> None:
    stranger = Driver.open(settings, job="stranger")
    chance = random.Random(16)
    theirs = iter(range(100, 200))
    written: list[int] = []
    storming = False

    def storm(point: str) -> None:
        nonlocal storming
        if point == "catalog.built" and not storming and chance.random() < 0.5:
            storming = True
            written.append(next(theirs))
            stranger.publish(written[-1])
            storming = False

    arm(storm)
    try:
        conflicts = sum(driver.publish(epoch).conflicts for epoch in range(12))
    finally:
        arm(None)
        stranger.target.close()
    assert conflicts == len(written) >= 5
    assert_rows_are(driver.target.table, [*range(12), *written])
    assert_no_file_added_twice(driver.target.table)


def test_tries_that_were_refused_leave_no_manifest_behind(local: TableSettings, tmp_path: Path) -> None:
    driver, stranger = Driver.open(local), Driver.open(local, job="stranger")
    with at_crash_point("catalog.built", lambda: stranger.publish(7) and None):
        driver.publish(0)
    stranger.target.close()
    table = driver.target.table.refresh()
    named = {s.manifest_list for s in table.snapshots()}
    named |= {m.manifest_path for s in table.snapshots() for m in s.manifests(table.io)}
    there = {f"file://{path}" for path in (tmp_path / "warehouse").rglob("*.avro")}
    assert there == named
    driver.target.close()


def test_conflicts_without_end_are_an_error_that_appends_nothing(settings: TableSettings) -> None:
    driver, stranger = Driver.open(settings, conflicts=3), Driver.open(settings, job="stranger")
    files = driver.files(0)
    epochs = iter(range(50, 60))
    with (
        at_crash_point("catalog.built", lambda: stranger.publish(next(epochs)) and None, times=1),
        pytest.raises(ConflictError, match=r"^ICEFLOE_COMMIT_CONFLICTS: 1 tries"),
    ):
        Driver.open(settings, conflicts=0).publish(0, files)
    driver.publish(0, files)
    assert_rows_are(driver.target.table, [0, 50])
    driver.target.close()
    stranger.target.close()


def test_replay_after_every_snapshot_expired_appends_nothing(driver: Driver, rival: Driver) -> None:
    files = driver.files(0)
    driver.publish(0, files)
    stranger = Driver(driver.target, job="stranger")
    stranger.publish(1)
    driver.target.expire_own_snapshots(JOB, 1)
    table = driver.target.table.refresh()
    with table.maintenance.expire_snapshots() as expire:
        expire.by_ids([s.snapshot_id for s in table.snapshots() if s.snapshot_id != table.metadata.current_snapshot_id])
    outcome = rival.publish(0, files)
    assert (outcome.already, outcome.snapshot_id) == (True, None)
    assert_rows_are(driver.target.table, [0, 1])


def test_removed_ledger_property_is_found_again_in_the_snapshots(driver: Driver) -> None:
    driver.publish(0)
    driver.publish(1)
    driver.target.table.refresh().transaction().remove_properties(f"icefloe.ledger.{JOB}").commit_transaction()
    assert driver.target.ledger(JOB) == "1:digest-1"
    driver.publish(2)
    assert_rows_are(driver.target.table, range(3))


def test_ledger_that_is_gone_altogether_is_refused(driver: Driver) -> None:
    driver.publish(0)
    Driver(driver.target, job="stranger").publish(5)
    table = driver.target.table.refresh()
    first = table.snapshots()[0].snapshot_id
    table.maintenance.expire_snapshots().by_id(first).commit()
    table.refresh().transaction().remove_properties(f"icefloe.ledger.{JOB}").commit_transaction()
    with pytest.raises(ConflictError, match=r"^ICEFLOE_LEDGER: .*at 0:digest-0, and it is at nothing"):
        driver.publish(1)
    assert_rows_are(driver.target.table, [0, 5])


def test_restored_checkpoint_is_refused_with_both_values(driver: Driver, rival: Driver) -> None:
    driver.publish(0)
    driver.publish(1)
    rival.ledger = "0:digest-0"
    with pytest.raises(ConflictError, match=r"^ICEFLOE_LEDGER: record 1:again .*0:digest-0.*1:digest-1"):
        rival.publish(1, digest="again")
    assert_rows_are(driver.target.table, [0, 1])


def test_wiped_state_of_the_same_job_is_refused(driver: Driver, rival: Driver) -> None:
    driver.publish(0)
    with pytest.raises(ConflictError, match=r"^ICEFLOE_LEDGER: .*at nothing, and it is at 0:digest-0"):
        rival.publish(0, digest="afresh")


def test_rows_that_the_owner_rolled_back_stay_out_and_the_stream_goes_on(
    driver: Driver, rival: Driver, caplog: pytest.LogCaptureFixture
) -> None:
    first = driver.publish(0).snapshot_id
    assert first is not None
    files = driver.files(1)
    driver.publish(1, files)
    driver.target.table.refresh().manage_snapshots().rollback_to_snapshot(first).commit()
    rival.ledger = "0:digest-0"
    with caplog.at_level(logging.WARNING):
        assert rival.publish(1, files).already
    assert any(record.getMessage().startswith("ICEFLOE_TABLE_ROLLED_BACK") for record in caplog.records)
    caplog.clear()
    driver.publish(2)
    assert len(caplog.records) == 1
    driver.publish(3)
    assert len(caplog.records) == 1
    assert_rows_are(driver.target.table, [0, 2, 3])


def test_compaction_and_deletes_by_others_are_tolerated(driver: Driver) -> None:
    driver.publish(0)
    driver.publish(1)
    table = driver.target.table.refresh()
    table.overwrite(table.scan().to_arrow())
    driver.publish(2)
    assert_rows_are(driver.target.table, range(3))
    driver.target.table.refresh().delete("id = 0")
    driver.publish(3)
    assert sorted(driver.target.table.refresh().scan().to_arrow()["id"].to_pylist())[0] == 1


def test_offsets_too_long_for_every_metadata_file_to_repeat_are_left_out(driver: Driver) -> None:
    for epoch, offsets in enumerate(("x" * 4096, "x" * 4097)):
        driver.target.publish(JOB, epoch, "d", "0:d" if epoch else "", epoch, driver.files(epoch), offsets)
    said = [s.summary and s.summary.get("icefloe.source-offsets") for s in driver.target.table.refresh().snapshots()]
    assert said == ["x" * 4096, None]


def test_old_metadata_files_of_tables_that_the_sink_creates_are_deleted(local: TableSettings, tmp_path: Path) -> None:
    bounded = replace(local, table_properties={"write.metadata.previous-versions-max": "3"})
    driver = Driver.open(bounded)
    for epoch in range(6):
        driver.publish(epoch)
    driver.target.close()
    assert len(list((tmp_path / "warehouse").rglob("*.metadata.json"))) == 4


def test_sort_order_of_the_table_is_left_alone_and_files_say_unsorted(driver: Driver) -> None:
    with driver.target.table.update_sort_order() as update:
        update.asc("id", IdentityTransform())
    order = driver.target.table.refresh().metadata.default_sort_order_id
    driver.publish(0)
    table = driver.target.table.refresh()
    assert table.metadata.default_sort_order_id == order != 0
    assert table.inspect.files()["sort_order_id"].to_pylist() == [None]


def test_record_without_files_makes_no_snapshot_and_the_next_one_expects_the_older_ledger(driver: Driver) -> None:
    driver.publish(0)
    outcome = driver.publish(1, [])
    assert (outcome.already, outcome.snapshot_id) == (False, None)
    driver.publish(2)
    table = driver.target.table.refresh()
    assert len(table.snapshots()) == 2
    assert_rows_are(table, [0, 2])


def test_tags_branches_and_other_writers_snapshots_are_not_expired(driver: Driver) -> None:
    tagged = driver.publish(0).snapshot_id
    branched = driver.publish(1).snapshot_id
    assert tagged is not None
    assert branched is not None
    theirs = Driver(driver.target, job="stranger").publish(9).snapshot_id
    table = driver.target.table.refresh()
    table.manage_snapshots().create_tag(tagged, "audit").create_branch(branched, "work").commit()
    for epoch in range(2, 8):
        driver.publish(epoch)
    assert driver.target.expire_own_snapshots(JOB, 2) == 4
    left = {s.snapshot_id for s in driver.target.table.refresh().snapshots()}
    assert {tagged, branched, theirs} <= left
    assert len(left) == 5
    assert_rows_are(driver.target.table, [*range(8), 9])
