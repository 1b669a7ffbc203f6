"""What state tables promise, kept on memory, local disk and two S3 services."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from icefloe.errors import CorruptStateError
from icefloe.proto import state_pb2 as pb
from icefloe.state import ParquetBackend, StorageProvider, open_storage
from icefloe.state.memory_storage import forget_memory_storage
from support.s3_service import Bucket
from support.state_tables import batch, files_named, open_tables, remove_unnamed, scanned, table_files, task


class TablesContract:
    """Subclasses give a ``storage`` fixture: an empty location."""

    def test_epochs_are_written_merged_cleaned_up_and_restored(self, storage: StorageProvider) -> None:
        manager = open_tables(storage, merge_after=3, epoch=1)
        for epoch in range(1, 6):
            counts = manager.get_global_keyed_state("counts")
            counts.insert(f"k{epoch}", epoch)
            counts.remove(f"k{epoch - 2}")
            pending = manager.get_expiring_time_key_table("pending")
            pending.insert(batch([(epoch, epoch % 2, f"{epoch}")]))
            if epoch == 3:
                pending.flush()
            manager.get_key_time_table("latest").insert(epoch, "n", epoch)
            metadata = manager.checkpoint(epoch, 0, epoch)
            manager = manager.continue_as(task(), epoch=epoch + 1)
        remove_unnamed(storage, [metadata])
        restored = open_tables(storage, [metadata])
        assert dict(restored.get_global_keyed_state("counts").items()) == {"k4": 4, "k5": 5}
        assert [row[0] for row in scanned(restored.get_expiring_time_key_table("pending"), key=1)] == [1, 3, 5]
        assert restored.get_key_time_table("latest").get("n") == 5
        assert {info.key for info in storage.list()} == files_named([metadata])

    def test_an_epoch_is_restored_at_another_parallelism_through_the_backend(self, storage: StorageProvider) -> None:
        backend = ParquetBackend(storage, "job")
        rows = [(time, time * (2**64 // 20), "x") for time in range(20)]
        for index in range(2):
            manager = open_tables(storage, info=task(index, parallelism=2), backend=backend)
            manager.get_global_keyed_state("counts").insert(f"own {index}", index)
            manager.get_expiring_time_key_table("pending").insert(batch(rows[index * 10 : index * 10 + 10]))
            manager.checkpoint(1)
        record = [backend.read_operator_checkpoint_metadata(1, "sink", index) for index in range(2)]
        opened = [open_tables(storage, record, info=task(index, parallelism=3)) for index in range(3)]
        found = [scanned(manager.get_expiring_time_key_table("pending")) for manager in opened]
        assert sorted(row for mine in found for row in mine) == rows
        assert all(found)
        for manager in opened:
            assert dict(manager.get_global_keyed_state("counts").items()) == {"own 0": 0, "own 1": 1}

    def test_lost_and_truncated_files_are_refused_by_name(self, storage: StorageProvider) -> None:
        manager = open_tables(storage)
        manager.get_global_keyed_state("counts").insert("a", 1)
        manager.get_expiring_time_key_table("pending").insert(batch([(1, 1, "x")]))
        metadata = manager.checkpoint(1)
        (counts,), (pending,) = (table_files(metadata, name) for name in ("counts", "pending"))
        storage.put(pending.file, storage.get(pending.file)[:-9])
        with pytest.raises(CorruptStateError, match=pending.file):
            scanned(open_tables(storage, [metadata]).get_expiring_time_key_table("pending"))
        storage.delete_if_present(counts.file)
        with pytest.raises(CorruptStateError, match=counts.file):
            open_tables(storage, [metadata])

    def test_ranges_of_a_large_file_are_read_without_the_rest(self, storage: StorageProvider) -> None:
        manager = open_tables(storage)
        manager.get_expiring_time_key_table("pending").insert(
            batch([(time, time // 1000, f"{time * 7919:064b}{time:032b}" * 4) for time in range(20_000)])
        )
        metadata = manager.checkpoint(1)
        (file,) = table_files(metadata, "pending")
        assert file.bytes > 256 << 10
        view = open_tables(storage, [metadata]).get_expiring_time_key_table("pending")
        assert [row[0] for row in scanned(view, key=7)] == list(range(7000, 8000))

    def test_an_attempt_that_lost_leaves_only_names_of_its_own(self, storage: StorageProvider) -> None:
        base = open_tables(storage)
        base.get_global_keyed_state("counts").insert("a", 1)
        first = base.checkpoint(1)
        results: list[pb.OperatorCheckpointMetadata] = []
        for value in (2, 3):
            attempt = open_tables(storage, [first])
            attempt.get_global_keyed_state("counts").insert("a", value)
            results.append(attempt.checkpoint(2))
        assert len(files_named(results)) == 3
        for value, metadata in zip((2, 3), results, strict=True):
            assert open_tables(storage, [metadata]).get_global_keyed_state("counts").get("a") == value


class TestTablesInMemory(TablesContract):
    @pytest.fixture
    def storage(self, request: pytest.FixtureRequest) -> Iterator[StorageProvider]:
        name = request.node.nodeid
        yield open_storage(f"memory://{name}")
        forget_memory_storage(name)


class TestTablesOnDisk(TablesContract):
    @pytest.fixture
    def storage(self, tmp_path: Path) -> StorageProvider:
        return open_storage(str(tmp_path / "state"))


class TestTablesOnMoto(TablesContract):
    @pytest.fixture
    def storage(self, moto_bucket: Bucket) -> StorageProvider:
        return open_storage(f"{moto_bucket.url}/state", moto_bucket.options)


class TestTablesOnSeaweed(TablesContract):
    @pytest.fixture
    def storage(self, seaweed_bucket: Bucket) -> StorageProvider:
        return open_storage(f"{seaweed_bucket.url}/state", seaweed_bucket.options)
