"""Records: created once, linked by digest, fenced, and void outside the chain."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from icefloe.errors import ConflictError, CorruptStateError, FencedError, NotFoundError, StateError, StateVersionError
from icefloe.proto.state_pb2 import CheckpointMetadata
from icefloe.state import records as records_module
from icefloe.state.memory_storage import MemoryStorage, forget_memory_storage
from icefloe.state.object_names import record_name
from icefloe.state.record_cache import DigestCache
from icefloe.state.records import Record, RecordLog
from icefloe.state.sealing import FORMAT_VERSION, seal
from icefloe.state.storage import ObjectInfo
from support.checkpoints import JOB, file_name, metadata, put_chain
from support.faulty_storage import Fault, FaultKind, FaultyStorage


@pytest.fixture(autouse=True)
def no_record_seen_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records_module, "_seen", DigestCache(max_bytes=0))


@pytest.fixture
def storage() -> Iterator[FaultyStorage]:
    yield FaultyStorage(MemoryStorage("records"))
    forget_memory_storage("records")


@pytest.fixture
def log(storage: FaultyStorage) -> RecordLog:
    return RecordLog(storage, JOB)


class TestPut:
    def test_a_record_is_read_back_with_the_digest_it_was_put_with(self, log: RecordLog) -> None:
        put = log.put(metadata(0, None))
        read = log.read(0)
        assert read == put
        assert len(read.digest) == 64
        assert len(read.metadata.nonce) == 16
        assert read.metadata.format_version == FORMAT_VERSION

    def test_a_twin_that_would_write_the_same_loses(self, log: RecordLog) -> None:
        first = log.put(metadata(0, None))
        with pytest.raises(ConflictError, match=f"ICEFLOE_RECORD_EXISTS: .*{first.digest}") as caught:
            log.put(metadata(0, None))
        assert not isinstance(caught.value, FencedError)
        assert log.read(0) == first

    def test_a_put_that_lost_its_reply_is_ones_own(self, log: RecordLog, storage: FaultyStorage) -> None:
        storage.plan(Fault(FaultKind.REPLY_LOST, "put_if_absent"))
        assert log.put(metadata(0, None)) == log.read(0)

    def test_a_put_repeated_by_its_caller_is_ones_own(self, log: RecordLog, storage: FaultyStorage) -> None:
        mine = metadata(0, None)
        mine.nonce = b"0123456789abcdef"
        storage.plan(Fault(FaultKind.ERROR_AFTER, "put_if_absent"))
        with pytest.raises(Exception, match="planned"):
            log.put(mine)
        mine.finish_time = 99
        assert log.put(mine).metadata.finish_time == 0

    def test_what_cannot_be_a_record_of_the_job_is_refused(self, log: RecordLog, storage: FaultyStorage) -> None:
        for wrong in (metadata(0, None, job="other"), metadata(3, None, min_epoch=4)):
            with pytest.raises(StateError, match="ICEFLOE_RECORD_INVALID"):
                log.put(wrong)
        assert storage.count("put_if_absent") == 0

    def test_the_message_that_is_given_is_left_as_it_is(self, log: RecordLog) -> None:
        given = metadata(0, None)
        log.put(given)
        assert given == metadata(0, None)


class TestFence:
    def test_the_highest_record_is_the_head(self, log: RecordLog) -> None:
        put_chain(log, 3)
        assert log.head() == log.read(2)

    def test_a_record_above_fences_and_is_named(self, log: RecordLog) -> None:
        records = put_chain(log, 3)
        with pytest.raises(FencedError, match=r"ICEFLOE_FENCED: record 2 .* above record 1"):
            log.ensure_head(records[1])

    def test_attempts_for_the_next_epoch_do_not_fence(self, log: RecordLog, storage: FaultyStorage) -> None:
        (record,) = put_chain(log, 1)
        storage.put(file_name(1), b"of a task that runs already")
        log.ensure_head(record)

    def test_a_record_that_vanished_is_an_error(self, log: RecordLog, storage: FaultyStorage) -> None:
        (record,) = put_chain(log, 1)
        storage.delete_if_present(record_name(JOB, 0))
        with pytest.raises(CorruptStateError, match="ICEFLOE_RECORD_MISSING"):
            log.ensure_head(record)

    def test_the_fence_looks_only_at_or_above_its_epoch(self, log: RecordLog, storage: FaultyStorage) -> None:
        put_chain(log, 5)
        listed = storage.inner.list
        seen: list[str] = []

        class Watching(MemoryStorage):
            def list(self, prefix: str = "", *, after: str = "") -> Iterator[ObjectInfo]:
                for info in listed(prefix, after=after):
                    seen.append(info.key)
                    yield info

        RecordLog(Watching("records"), JOB).ensure_head(log.read(4))
        assert seen == [record_name(JOB, 4)]

    def test_finding_the_head_takes_one_listing_and_one_read(self, log: RecordLog, storage: FaultyStorage) -> None:
        put_chain(log, 5)
        storage.calls.clear()
        log.head()
        assert [call.operation for call in storage.calls] == ["list", "get"]


class TestHead:
    def test_a_job_without_records_has_no_head(self, log: RecordLog, storage: FaultyStorage) -> None:
        storage.put(file_name(0), b"of an attempt")
        assert log.head() is None
        assert log.epochs() == []

    def test_records_of_another_job_are_not_seen(self, log: RecordLog, storage: FaultyStorage) -> None:
        put_chain(RecordLog(storage, JOB + "-2"), 2, job=JOB + "-2")
        assert log.head() is None

    def test_an_epoch_gap_is_an_error_that_names_what_is_missing(self, log: RecordLog, storage: FaultyStorage) -> None:
        put_chain(log, 4)
        storage.delete_if_present(record_name(JOB, 2))
        with pytest.raises(CorruptStateError, match=f"ICEFLOE_RECORD_MISSING: .*{record_name(JOB, 2)}"):
            log.head()

    def test_a_clean_up_during_the_listing_is_not_taken_for_a_gap(self, log: RecordLog, storage: FaultyStorage) -> None:
        put_chain(log, 4)
        whole = storage.inner.list
        listings: list[str] = []

        class Racing(MemoryStorage):
            def list(self, prefix: str = "", *, after: str = "") -> Iterator[ObjectInfo]:
                listings.append(prefix)
                torn = record_name(JOB, 1) if len(listings) == 1 else ""
                return (info for info in whole(prefix, after=after) if info.key != torn)

        head = RecordLog(Racing("records"), JOB).head()
        assert head is not None
        assert head.epoch == 3

    @pytest.mark.parametrize("damage", [b"", b"garbage", seal(metadata(1, None))[:-1], b"PAR1" * 100])
    def test_a_damaged_head_is_never_an_empty_start(
        self, log: RecordLog, storage: FaultyStorage, damage: bytes
    ) -> None:
        put_chain(log, 2)
        storage.put(record_name(JOB, 1), damage)
        with pytest.raises(CorruptStateError, match=record_name(JOB, 1)):
            log.head()

    @pytest.mark.parametrize("moved", [metadata(0, None), metadata(1, None, job="other")])
    def test_a_record_under_another_name_is_an_error(
        self, log: RecordLog, storage: FaultyStorage, moved: CheckpointMetadata
    ) -> None:
        put_chain(log, 2)
        storage.put(record_name(JOB, 1), seal(moved))
        with pytest.raises(CorruptStateError, match="moved or copied"):
            log.head()

    def test_a_newer_record_is_refused_with_its_version(self, log: RecordLog, storage: FaultyStorage) -> None:
        newer = metadata(0, None)
        newer.format_version = FORMAT_VERSION + 1
        storage.put(record_name(JOB, 0), seal(newer))
        with pytest.raises(StateVersionError) as caught:
            log.head()
        assert caught.value.found == FORMAT_VERSION + 1


class TestChain:
    def test_it_goes_from_the_head_down_to_the_first_record(self, log: RecordLog) -> None:
        records = put_chain(log, 4)
        assert log.chain(records[-1]) == records[::-1]

    def test_it_ends_at_the_min_epoch(self, log: RecordLog) -> None:
        records = put_chain(log, 6, keep=3)
        assert [record.epoch for record in log.chain(records[-1])] == [5, 4, 3]

    def test_a_stray_record_below_the_min_epoch_is_void(self, log: RecordLog, storage: FaultyStorage) -> None:
        records = put_chain(log, 6, keep=2)
        for epoch in range(4):
            storage.delete_if_present(record_name(JOB, epoch))
        stray = log.put(metadata(2, records[1]))
        with pytest.raises(FencedError):
            log.ensure_head(stray)
        assert log.head() == records[-1]
        assert [record.epoch for record in log.chain(records[-1])] == [5, 4]

    def test_a_min_epoch_that_is_lowered_again_brings_nothing_back(
        self, log: RecordLog, storage: FaultyStorage
    ) -> None:
        records = put_chain(log, 6, keep=2)
        for epoch in range(4):
            storage.delete_if_present(record_name(JOB, epoch))
        head = log.put(metadata(6, records[-1], min_epoch=0))
        assert log.head() == head
        assert [record.epoch for record in log.chain(head)] == [6, 5, 4]

    def test_a_record_of_another_history_is_an_error_that_names_both(
        self, log: RecordLog, storage: FaultyStorage
    ) -> None:
        records = put_chain(log, 3)
        storage.put(record_name(JOB, 1), seal(metadata(1, None)))
        with pytest.raises(CorruptStateError, match=f"ICEFLOE_RECORD_UNLINKED: .*{records[1].digest}"):
            log.chain(records[2])

    def test_a_missing_record_that_is_not_void_is_an_error(self, log: RecordLog, storage: FaultyStorage) -> None:
        records = put_chain(log, 3)
        storage.delete_if_present(record_name(JOB, 0))
        with pytest.raises(CorruptStateError, match=f"ICEFLOE_RECORD_MISSING: .*{record_name(JOB, 0)}"):
            log.chain(records[2])

    def test_what_a_newer_head_voided_in_the_meantime_is_left_out(self, log: RecordLog, storage: FaultyStorage) -> None:
        records = put_chain(log, 4)
        log.put(metadata(4, records[-1], min_epoch=3))
        storage.delete_if_present(record_name(JOB, 1))
        storage.delete_if_present(record_name(JOB, 0))
        assert [record.epoch for record in log.chain(records[3])] == [3, 2]

    def test_a_stray_in_place_of_a_record_that_a_newer_head_voided_ends_the_chain_too(
        self, log: RecordLog, storage: FaultyStorage
    ) -> None:
        records = put_chain(log, 4)
        log.put(metadata(4, records[-1], min_epoch=3))
        for epoch in (0, 1):
            storage.delete_if_present(record_name(JOB, epoch))
        log.put(metadata(1, records[0]))
        assert [record.epoch for record in log.chain(records[3])] == [3, 2]

    def test_records_that_this_process_knows_are_not_read_again(
        self, log: RecordLog, storage: FaultyStorage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        cache: DigestCache[Record] = DigestCache(max_bytes=10_000)
        monkeypatch.setattr(records_module, "_seen", cache)
        records = put_chain(log, 4)
        storage.calls.clear()
        assert log.chain(records[-1]) == records[::-1]
        assert storage.calls == []

    def test_a_known_record_at_the_wrong_epoch_is_not_taken_for_the_base(
        self, log: RecordLog, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(records_module, "_seen", DigestCache(max_bytes=10_000))
        records = put_chain(log, 3)
        skipping = log.put(metadata(3, records[1]))
        with pytest.raises(CorruptStateError, match="ICEFLOE_RECORD_UNLINKED"):
            log.chain(skipping)


class TestDigestCache:
    def test_it_holds_the_last_used_values_up_to_its_size(self) -> None:
        cache: DigestCache[str] = DigestCache(max_bytes=10)
        cache.add("a", "A", 5)
        cache.add("b", "B", 5)
        assert cache.get("a") == "A"
        cache.add("c", "C", 5)
        assert (cache.get("a"), cache.get("b"), cache.get("c")) == ("A", None, "C")
        cache.add("d", "D", 11)
        assert cache.get("d") is None


def test_reading_an_epoch_that_has_no_record_is_not_found(log: RecordLog) -> None:
    with pytest.raises(NotFoundError, match=record_name(JOB, 9)):
        log.read(9)
