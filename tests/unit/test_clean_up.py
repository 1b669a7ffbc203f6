"""Clean-up removes what nothing names any more, and nothing else, whenever it runs and however often."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from icefloe.errors import CorruptStateError
from icefloe.proto import state_pb2 as pb
from icefloe.state import crash_points
from icefloe.state.clean_up import CleanUpReport, Removable, classify, clean_up, referenced_names, remove
from icefloe.state.memory_storage import MemoryStorage, forget_memory_storage
from icefloe.state.object_names import (
    ObjectKind,
    job_metadata_name,
    operator_metadata_name,
    publish_log_name,
    record_name,
)
from icefloe.state.records import Record, RecordLog
from support.checkpoints import JOB, file_name, metadata, operator, segment
from support.faulty_storage import Fault, FaultKind, FaultyStorage


@pytest.fixture
def storage() -> Iterator[FaultyStorage]:
    yield FaultyStorage(MemoryStorage("clean-up"))
    forget_memory_storage("clean-up")


@pytest.fixture
def chain(storage: FaultyStorage) -> list[Record]:
    """Records 2 and 1 of a job that keeps two; 0 is void. Each wrote a file and a segment, and 2 carries those of 1."""
    log = RecordLog(storage, JOB)
    needs = {0: [0], 1: [1], 2: [1, 2]}
    base: Record | None = None
    for epoch, written in needs.items():
        operators = [operator(epoch, files=[file_name(e) for e in written], segments=[segment(e) for e in written])]
        base = log.put(metadata(epoch, base, min_epoch=max(0, epoch - 1), operators=operators))
        storage.put(operator_metadata_name(JOB, epoch, "sink", 0), b"copied")
        storage.put(file_name(epoch), b"table")
        storage.put(segment(epoch), b"row groups")
        storage.put(publish_log_name(JOB, epoch), b"log")
    storage.put(job_metadata_name(JOB), b"job")
    head = log.head()
    assert head is not None
    return log.chain(head)


def test_only_what_belongs_to_void_epochs_goes_names_first_then_the_record(
    storage: FaultyStorage, chain: list[Record]
) -> None:
    removables = classify(storage, JOB, chain)
    assert [removable.key for removable in removables] == [
        operator_metadata_name(JOB, 0, "sink", 0),
        publish_log_name(JOB, 0),
        segment(0),
        file_name(0),
        record_name(JOB, 0),
    ]


def test_attempts_that_lost_go_once_their_epoch_is_recorded(storage: FaultyStorage, chain: list[Record]) -> None:
    lost = [file_name(2, 77), segment(2, 77), file_name(1, 77, subtask=5)]
    for key in lost:
        storage.put(key, b"garbage")
    assert set(lost) < {removable.key for removable in classify(storage, JOB, chain)}


def test_what_attempts_write_for_the_next_epoch_is_never_touched(storage: FaultyStorage, chain: list[Record]) -> None:
    coming = [file_name(3), segment(3), record_name(JOB, 3), segment(4_000)]
    for key in coming:
        storage.put(key, b"in progress")
    assert not set(coming) & {removable.key for removable in classify(storage, JOB, chain)}


def test_objects_that_the_state_layer_did_not_name_are_left_alone(storage: FaultyStorage, chain: list[Record]) -> None:
    foreign = f"{JOB}/checkpoints/0000000000/notes of the operator.txt"
    storage.put(foreign, b"do not delete")
    clean_up(storage, JOB, chain)
    assert storage.get(foreign) == b"do not delete"
    assert storage.get(job_metadata_name(JOB)) == b"job"


def test_what_the_owner_still_needs_is_kept(storage: FaultyStorage, chain: list[Record]) -> None:
    assert segment(0) not in {r.key for r in classify(storage, JOB, chain, also_referenced={segment(0)})}


def test_everything_a_record_of_the_chain_names_survives(storage: FaultyStorage, chain: list[Record]) -> None:
    before = {info.key for info in storage.list()} & referenced_names(chain)
    clean_up(storage, JOB, chain)
    assert before <= {info.key for info in storage.list()}
    assert {file_name(1), segment(1), file_name(2), segment(2)} <= before


def test_time_files_are_named_by_their_record_too() -> None:
    files = pb.ExpiringKeyedTimeSubtaskCheckpointMetadata(files=[pb.ParquetTimeFile(file=file_name(0))])
    made = operator(0)
    made.subtask.table_metadata["pending"].CopyFrom(
        pb.TableSubtaskCheckpointMetadata(table_type=pb.EXPIRING_KEYED_TIME_TABLE, data=files.SerializeToString())
    )
    assert file_name(0) in referenced_names([Record(0, "digest", metadata(0, None, operators=[made]))])


@pytest.mark.parametrize(("table_type", "data"), [(pb.MISSING_TABLE_TYPE, b""), (pb.GLOBAL_KEY_VALUE, b"\xff\xff")])
def test_a_record_whose_files_cannot_be_read_stops_all_deleting(
    storage: FaultyStorage, chain: list[Record], table_type: pb.TableEnum, data: bytes
) -> None:
    made = operator(2)
    made.subtask.table_metadata["recovery"].table_type = table_type
    made.subtask.table_metadata["recovery"].data = data
    unreadable = Record(2, "digest", metadata(2, chain[1], operators=[made]))
    with pytest.raises(CorruptStateError, match=r"'recovery' of 'sink' in record 2.*nothing was deleted"):
        clean_up(storage, JOB, [unreadable, chain[1]])
    assert storage.count("delete_if_present") == 0


def test_before_the_first_record_nothing_is_removable(storage: FaultyStorage) -> None:
    storage.put(file_name(0), b"of a task that runs")
    assert classify(storage, JOB, []) == []


def test_a_pass_lists_once_and_says_what_it_removed(storage: FaultyStorage, chain: list[Record]) -> None:
    storage.calls.clear()
    report = clean_up(storage, JOB, chain)
    assert storage.count("list") == 1
    assert (report.removed, report.left, report.failures) == (5, 0, ())
    assert report.removed_bytes > 0
    assert clean_up(storage, JOB, chain) == CleanUpReport()


def test_a_pass_that_was_killed_after_any_delete_is_completed_by_the_next(
    storage: FaultyStorage, chain: list[Record]
) -> None:
    passes = 0

    def kill(_: str) -> None:
        raise KeyboardInterrupt

    crash_points.arm(kill)
    try:
        while classify(storage, JOB, chain):
            passes += 1
            with pytest.raises(KeyboardInterrupt):
                clean_up(storage, JOB, chain)
    finally:
        crash_points.arm(None)
    assert passes == 5
    assert RecordLog(storage, JOB).epochs() == [1, 2]


def test_two_passes_at_once_do_not_disturb_each_other(storage: FaultyStorage, chain: list[Record]) -> None:
    removables = classify(storage, JOB, chain)
    remove(storage, removables)
    assert remove(storage, removables).failures == ()


def test_a_pass_ends_at_its_deadline_and_says_what_is_left(storage: FaultyStorage, chain: list[Record]) -> None:
    storage.plan(Fault(FaultKind.SLOW, "delete_if_present", times=100, delay=timedelta(seconds=2)))
    report = clean_up(storage, JOB, chain, seconds=3, clock=storage.clock)
    assert (report.removed, report.left) == (2, 3)


def test_an_object_that_cannot_be_deleted_does_not_stop_the_rest(storage: FaultyStorage, chain: list[Record]) -> None:
    storage.plan(Fault(FaultKind.ERROR_BEFORE, "delete_if_present", key_contains=segment(0)))
    report = clean_up(storage, JOB, chain)
    assert (report.removed, report.left, len(report.failures)) == (4, 1, 1)


def test_a_store_that_is_down_ends_the_pass_early(storage: FaultyStorage, chain: list[Record]) -> None:
    storage.plan(Fault(FaultKind.ERROR_BEFORE, "delete_if_present", times=100))
    report = clean_up(storage, JOB, chain)
    assert (report.removed, report.left) == (0, 5)
    assert storage.count("delete_if_present") == len(report.failures) == 3


def test_a_store_that_deletes_many_at_once_gets_names_together_and_records_one_by_one() -> None:
    class Bulk(MemoryStorage):
        requests: list[list[str]] = []  # noqa: RUF012

        def delete_many(self, keys: list[str]) -> None:
            self.requests.append(list(keys))

    storage = Bulk("bulk")
    names = [Removable(file_name(0, n), 0, ObjectKind.TABLE_FILE, 1) for n in range(3)]
    records = [Removable(record_name(JOB, epoch), epoch, ObjectKind.RECORD, 1) for epoch in (0, 1)]
    report = remove(storage, names + records)
    assert storage.requests == [[r.key for r in names], [records[0].key], [records[1].key]]
    assert report.removed == 5
