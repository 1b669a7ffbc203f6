"""The contract of a backing store, kept by ``ParquetBackend`` on every storage provider."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from icefloe.errors import (
    ConflictError,
    CorruptStateError,
    FencedError,
    NotFoundError,
    StateError,
    StateVersionError,
    StorageError,
)
from icefloe.proto import state_pb2 as pb
from icefloe.state import records
from icefloe.state.backing_store import BackingStore
from icefloe.state.memory_storage import forget_memory_storage
from icefloe.state.object_names import operator_metadata_name, record_name
from icefloe.state.opening import open_storage
from icefloe.state.parquet_backend import ParquetBackend
from icefloe.state.records import RecordLog, check_put_if_absent
from icefloe.state.sealing import FORMAT_VERSION, seal
from icefloe.state.storage import StorageProvider
from support.checkpoints import JOB, file_name, metadata, operator, put_chain, segment
from support.faulty_storage import Fault, FaultKind, FaultyStorage
from support.s3_service import Bucket


class BackendContract:
    """Subclasses give a ``storage`` fixture: an empty location."""

    @pytest.fixture
    def backend(self, storage: StorageProvider) -> BackingStore:
        return ParquetBackend(storage, JOB)

    def test_operator_metadata_is_stored_at_its_documented_path(
        self, backend: BackingStore, storage: StorageProvider
    ) -> None:
        written = operator(7, subtask=3, files=[file_name(7)])
        backend.write_operator_checkpoint_metadata(written)
        assert [info.key for info in storage.list()] == [f"{JOB}/checkpoints/0000000007/operator-sink-3.metadata"]
        assert backend.read_operator_checkpoint_metadata(7, "sink", 3) == written

    def test_writing_operator_metadata_again_changes_nothing(
        self, backend: BackingStore, storage: StorageProvider
    ) -> None:
        written = operator(7, subtask=3)
        backend.write_operator_checkpoint_metadata(written)
        before = storage.get(operator_metadata_name(JOB, 7, "sink", 3))
        backend.write_operator_checkpoint_metadata(written)
        assert storage.get(operator_metadata_name(JOB, 7, "sink", 3)) == before

    def test_a_record_is_put_once_read_and_listed(self, backend: BackingStore) -> None:
        first = backend.put_record(metadata(0, None))
        second = backend.put_record(metadata(1, first))
        assert backend.list_records() == [0, 1]
        assert backend.read_record(1) == second
        with pytest.raises(ConflictError, match="ICEFLOE_RECORD_EXISTS"):
            backend.put_record(metadata(1, first))

    def test_an_old_driver_that_wakes_up_is_fenced_and_its_record_void(
        self, backend: BackingStore, storage: StorageProvider
    ) -> None:
        records = put_chain(RecordLog(storage, JOB), 4, keep=2)
        backend.clean_up()
        assert backend.list_records() == [2, 3]
        with pytest.raises(FencedError, match="ICEFLOE_FENCED"):
            backend.put_record(metadata(1, records[0]))
        assert backend.prepare_restore(3) == []
        with pytest.raises(StateError, match="ICEFLOE_EPOCH_VOID"):
            backend.prepare_restore(1)
        backend.clean_up()
        assert backend.list_records() == [2, 3]

    def test_a_restore_gives_the_state_of_every_subtask(self, backend: BackingStore) -> None:
        first = backend.put_record(metadata(0, None, operators=[operator(0, subtask=0), operator(0, subtask=1)]))
        backend.put_record(metadata(1, first, operators=[operator(1, subtask=0), operator(0, subtask=1)]))
        assert backend.prepare_restore(1) == [operator(1, subtask=0), operator(0, subtask=1)]
        assert backend.prepare_restore(0) == [operator(0, subtask=0), operator(0, subtask=1)]

    def test_clean_up_removes_what_nothing_names(self, backend: BackingStore, storage: StorageProvider) -> None:
        first = backend.put_record(metadata(0, None, operators=[operator(0, files=[file_name(0)])]))
        for key in (file_name(0), file_name(0, 9), segment(0), segment(1)):
            storage.put(key, b"x")
        backend.put_record(metadata(1, first, min_epoch=1, operators=[operator(1, segments=[segment(1)])]))
        report = backend.clean_up(also_referenced=[segment(0)])
        assert (report.removed, report.left) == (3, 0)
        assert {info.key for info in storage.list()} == {segment(0), segment(1), record_name(JOB, 1)}

    def test_write_operators_copies_only_the_subtasks_that_changed(self, storage: StorageProvider) -> None:
        backend = ParquetBackend(storage, JOB)
        first = backend.put_record(metadata(0, None))
        changed = [operator(1, subtask=subtask) for subtask in range(3)]
        record = backend.put_record(metadata(1, first, operators=[*changed, operator(0, subtask=3)]))
        backend.write_operators(record)
        backend.write_operators(record)
        written = [info.key for info in storage.list(f"{JOB}/checkpoints/") if "operator-" in info.key]
        assert written == [operator_metadata_name(JOB, 1, "sink", subtask) for subtask in range(3)]


class TestOnMemory(BackendContract):
    @pytest.fixture
    def storage(self) -> Iterator[StorageProvider]:
        yield open_storage("memory://backend")
        forget_memory_storage("backend")


class TestOnLocalDisk(BackendContract):
    @pytest.fixture
    def storage(self, tmp_path: Path) -> StorageProvider:
        return open_storage(str(tmp_path))


class TestOnMoto(BackendContract):
    @pytest.fixture
    def storage(self, moto_bucket: Bucket) -> StorageProvider:
        return open_storage(f"{moto_bucket.url}/state", moto_bucket.options)


class TestOnSeaweed(BackendContract):
    @pytest.fixture
    def storage(self, seaweed_bucket: Bucket) -> StorageProvider:
        return open_storage(f"{seaweed_bucket.url}/state", seaweed_bucket.options)


class TestBadInput:
    @pytest.fixture
    def storage(self) -> Iterator[FaultyStorage]:
        yield FaultyStorage(open_storage("memory://bad-input"))
        forget_memory_storage("bad-input")

    @pytest.fixture
    def backend(self, storage: FaultyStorage) -> ParquetBackend:
        return ParquetBackend(storage, JOB)

    @pytest.mark.parametrize("damage", [b"", b"garbage", seal(operator(7))[:-3], seal(metadata(7, None))])
    def test_damaged_operator_metadata_is_refused_by_name(
        self, backend: ParquetBackend, storage: FaultyStorage, damage: bytes
    ) -> None:
        name = operator_metadata_name(JOB, 7, "sink", 0)
        storage.put(name, damage)
        with pytest.raises(CorruptStateError, match=name):
            backend.read_operator_checkpoint_metadata(7, "sink", 0)

    def test_operator_metadata_of_another_job_is_refused_both_ways(
        self, backend: ParquetBackend, storage: FaultyStorage
    ) -> None:
        storage.put(operator_metadata_name(JOB, 7, "sink", 0), seal(operator(7, job="other")))
        with pytest.raises(CorruptStateError, match="'other'"):
            backend.read_operator_checkpoint_metadata(7, "sink", 0)
        with pytest.raises(StateError, match="ICEFLOE_OPERATOR_INVALID"):
            backend.write_operator_checkpoint_metadata(operator(7, job="other"))

    def test_newer_operator_metadata_is_refused_with_its_version(
        self, backend: ParquetBackend, storage: FaultyStorage
    ) -> None:
        newer = operator(7)
        newer.format_version = FORMAT_VERSION + 1
        storage.put(operator_metadata_name(JOB, 7, "sink", 0), seal(newer))
        with pytest.raises(StateVersionError) as caught:
            backend.read_operator_checkpoint_metadata(7, "sink", 0)
        assert (caught.value.found, caught.value.supported) == (FORMAT_VERSION + 1, FORMAT_VERSION)

    def test_missing_operator_metadata_is_not_found(self, backend: ParquetBackend) -> None:
        with pytest.raises(NotFoundError, match="operator-sink-0"):
            backend.read_operator_checkpoint_metadata(7, "sink", 0)

    def test_an_epoch_without_a_record_is_never_an_empty_restore(self, backend: ParquetBackend) -> None:
        with pytest.raises(StateError, match=r"ICEFLOE_EPOCH_UNKNOWN: epoch 0 .*there: none"):
            backend.prepare_restore(0)
        backend.put_record(metadata(0, None))
        with pytest.raises(StateError, match=r"ICEFLOE_EPOCH_UNKNOWN: epoch 1 .*there: 0 to 0"):
            backend.prepare_restore(1)

    def test_an_epoch_gap_is_found_before_a_restore(self, backend: ParquetBackend, storage: FaultyStorage) -> None:
        put_chain(RecordLog(storage, JOB), 4)
        storage.delete_if_present(record_name(JOB, 2))
        with pytest.raises(CorruptStateError, match="ICEFLOE_RECORD_MISSING"):
            backend.prepare_restore(3)

    def test_a_write_that_does_not_read_back_is_an_error(self, storage: FaultyStorage) -> None:
        class Rotten(FaultyStorage):
            def get(self, key: str) -> bytes:
                return storage.inner.get(key)[:-1]

        with pytest.raises(StorageError, match=r"ICEFLOE_STORAGE_UNVERIFIED: .*operator-sink-0"):
            ParquetBackend(Rotten(storage.inner), JOB).write_operator_checkpoint_metadata(operator(7))

    @pytest.mark.parametrize("kind", [FaultKind.ERROR_BEFORE, FaultKind.DISK_FULL, FaultKind.ERROR_AFTER])
    def test_a_failure_in_the_middle_of_a_checkpoint_leaves_the_earlier_epoch_restorable(
        self, backend: ParquetBackend, storage: FaultyStorage, kind: FaultKind
    ) -> None:
        first = backend.put_record(metadata(0, None, operators=[operator(0)]))
        storage.plan(Fault(kind, "put_if_absent"))
        mine = metadata(1, first, operators=[operator(1)])
        mine.nonce = b"0123456789abcdef"
        with pytest.raises(StorageError):
            backend.put_record(mine)
        assert backend.prepare_restore(0) == [operator(0)]
        backend.put_record(mine)
        assert backend.prepare_restore(1) == [operator(1)]

    def test_a_failing_operator_copy_is_raised_and_can_be_repeated(
        self, backend: ParquetBackend, storage: FaultyStorage
    ) -> None:
        record = backend.put_record(metadata(0, None, operators=[operator(0, subtask=s) for s in range(4)]))
        storage.plan(Fault(FaultKind.ERROR_BEFORE, "put", key_contains="operator-sink-2"))
        with pytest.raises(StorageError, match="operator-sink-2"):
            backend.write_operators(record)
        backend.write_operators(record)
        assert len([info for info in storage.list() if "operator-" in info.key]) == 4

    def test_a_store_that_only_pretends_is_refused_before_the_first_record(
        self, storage: FaultyStorage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(records, "_checked_locations", set())

        class Pretending(FaultyStorage):
            def check_conditional_put(self) -> None:
                raise StorageError("ICEFLOE_CONDITIONAL_PUT_UNSUPPORTED", "planned for a test")

        with pytest.raises(StorageError, match="ICEFLOE_CONDITIONAL_PUT_UNSUPPORTED"):
            ParquetBackend(Pretending(storage.inner), JOB).put_record(metadata(0, None))
        assert [*storage.list()] == []

    def test_a_store_is_tried_out_once_in_a_process(
        self, storage: FaultyStorage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(records, "_checked_locations", set())
        probes: list[str] = []

        class Honest(FaultyStorage):
            def check_conditional_put(self) -> None:
                probes.append(self.url)

            def __repr__(self) -> str:
                return f"Honest({self.url})"

        for _ in range(3):
            check_put_if_absent(Honest(storage.inner))
        assert probes == ["memory://bad-input"]


def test_the_envelope_names_the_message_types_of_the_proto_package() -> None:
    sealed = pb.Sealed()
    sealed.ParseFromString(seal(operator(7)))
    assert sealed.kind == "icefloe.state.OperatorCheckpointMetadata"
