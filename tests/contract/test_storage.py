"""The contract of a storage provider, kept by memory, local disk and two S3 services."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from icefloe.errors import NotFoundError, StorageError
from icefloe.state import s3_storage
from icefloe.state.memory_storage import forget_memory_storage
from icefloe.state.opening import open_storage
from icefloe.state.s3_storage import S3Storage
from icefloe.state.storage import StorageProvider
from support.racing import RACERS, race, racing_processes
from support.s3_service import Bucket


@pytest.fixture(scope="module")
def racers() -> Iterator[ProcessPoolExecutor]:
    with racing_processes() as pool:
        yield pool


class StorageContract:
    """Subclasses give a ``storage`` fixture: an empty location."""

    def test_a_put_object_is_read_back_whole_and_in_ranges(self, storage: StorageProvider) -> None:
        storage.put("a/b.bin", b"0123456789")
        assert storage.get("a/b.bin") == b"0123456789"
        assert storage.get_range("a/b.bin", 3, 4) == b"3456"
        assert storage.get_range("a/b.bin", 8, 100) == b"89"
        assert storage.get_range("a/b.bin", 10, 5) == b""
        assert storage.get_range("a/b.bin", 2, 0) == b""
        assert storage.size("a/b.bin") == 10

    def test_a_put_replaces_what_is_there(self, storage: StorageProvider) -> None:
        storage.put("a", b"old and longer")
        storage.put("a", b"new")
        assert storage.get("a") == b"new"

    def test_an_empty_object_is_an_object(self, storage: StorageProvider) -> None:
        storage.put("a", b"")
        assert storage.get("a") == b""
        assert storage.size("a") == 0
        assert not storage.put_if_absent("a", b"x")

    def test_put_if_absent_tells_the_first_from_the_others(self, storage: StorageProvider) -> None:
        assert storage.put_if_absent("a/b", b"first")
        assert not storage.put_if_absent("a/b", b"other")
        assert storage.get("a/b") == b"first"

    def test_put_if_absent_of_what_is_already_there_byte_for_byte_succeeds(self, storage: StorageProvider) -> None:
        assert storage.put_if_absent("a", b"mine")
        assert storage.put_if_absent("a", b"mine")

    def test_put_if_absent_succeeds_again_after_a_delete(self, storage: StorageProvider) -> None:
        assert storage.put_if_absent("a/b", b"1")
        assert storage.delete_if_present("a/b")
        assert storage.put_if_absent("a/b", b"2")

    def test_large_buffers_of_arrow_are_taken_as_they_are(self, storage: StorageProvider) -> None:
        data = os.urandom(3 * 1024**2)
        view = memoryview(pa.py_buffer(data))
        storage.put("a", view)
        assert storage.get("a") == data
        assert storage.put_if_absent("b", view)
        assert storage.put_if_absent("b", view)

    def test_a_missing_object_is_not_found_by_name(self, storage: StorageProvider) -> None:
        storage.put("folder/there", b"x")
        for key in ("gone", "folder", "folder/gone", "folder/there/below"):
            for read in (storage.get, storage.size, lambda key: storage.get_range(key, 0, 1)):
                with pytest.raises(NotFoundError, match=f"ICEFLOE_STORAGE_NOT_FOUND: .*{key}"):
                    read(key)

    def test_deleting_says_whether_there_was_something(self, storage: StorageProvider) -> None:
        storage.put("a/b", b"x")
        assert storage.delete_if_present("a/b")
        assert not storage.delete_if_present("a/b")
        assert not storage.delete_if_present("a")
        assert [*storage.list()] == []

    def test_listing_is_in_key_order_with_sizes_and_times(self, storage: StorageProvider) -> None:
        for key in ("b/2", "a", "b/10", "c/x/y"):
            storage.put(key, key.encode())
        found = [*storage.list()]
        assert [info.key for info in found] == ["a", "b/10", "b/2", "c/x/y"]
        assert [info.size_bytes for info in found] == [1, 4, 3, 5]
        assert all(abs(info.modified - datetime.now(UTC)) < timedelta(minutes=5) for info in found)

    def test_listing_takes_any_prefix_and_a_key_to_start_after(self, storage: StorageProvider) -> None:
        for key in ("b/09/x", "b/10/x", "b/10/y", "b/11/x", "bc", "c"):
            storage.put(key, b"")
        assert _keys(storage, "b") == ["b/09/x", "b/10/x", "b/10/y", "b/11/x", "bc"]
        assert _keys(storage, "b/1") == ["b/10/x", "b/10/y", "b/11/x"]
        assert _keys(storage, "b/", after="b/10/") == ["b/10/x", "b/10/y", "b/11/x"]
        assert _keys(storage, "b/", after="b/10/x") == ["b/10/y", "b/11/x"]
        assert _keys(storage, "b/", after="b/11/x") == []
        assert _keys(storage, "nothing/here/") == []

    @pytest.mark.parametrize("key", ["", "/a", "../a", "a/../../b", "a//b", "a/", "./a", "a\\b", "a\0b", ".icefloe/a"])
    def test_a_key_that_could_leave_the_location_is_refused(self, storage: StorageProvider, key: str) -> None:
        for use in (storage.get, storage.size, storage.delete_if_present, lambda key: storage.put(key, b"")):
            with pytest.raises(StorageError, match="ICEFLOE_STORAGE_KEY_INVALID"):
                use(key)

    def test_a_negative_range_is_refused(self, storage: StorageProvider) -> None:
        storage.put("a", b"0123")
        with pytest.raises(StorageError, match="ICEFLOE_STORAGE_RANGE_INVALID"):
            storage.get_range("a", -2, 2)

    def test_a_copy_by_pickle_reaches_the_same_objects(self, storage: StorageProvider) -> None:
        storage.put("a", b"x")
        copy = pickle.loads(pickle.dumps(storage))
        assert copy.url == storage.url
        assert copy.get("a") == b"x"

    def test_threads_racing_for_a_name_agree_on_one_winner(self, storage: StorageProvider) -> None:
        with ThreadPoolExecutor(8) as threads:
            won = [*threads.map(lambda n: storage.put_if_absent("b/c", str(n).encode()), range(8))]
        assert won.count(True) == 1
        assert storage.get("b/c") == str(won.index(True)).encode()


class RacingContract:
    """For what several processes can reach."""

    rounds = 20

    def test_of_eight_processes_exactly_one_creates_an_object(
        self, storage: StorageProvider, racers: ProcessPoolExecutor
    ) -> None:
        keys = [f"race/{number}/record" for number in range(self.rounds)]
        told = race(racers, storage, keys)
        for number, key in enumerate(keys):
            winners = [racer for racer in range(RACERS) if told[racer][number]]
            assert len(winners) == 1, f"{key}: {winners}"
            assert storage.get(key) == f"racer {winners[0]}".encode()


class S3Contract(StorageContract):
    """For what speaks S3."""

    def test_listing_goes_on_past_one_page(self, storage: StorageProvider, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(s3_storage, "_LIST_KEYS", 3)
        keys = [f"a/{number:02d}/x" for number in range(7)]
        for key in keys:
            storage.put(key, b"")
        assert _keys(storage, "a/") == keys
        assert _keys(storage, "a/", after="a/02/") == keys[2:]

    def test_many_objects_are_deleted_whether_present_or_not(self, storage: S3Storage) -> None:
        for key in ("a", "b/1", "b/2"):
            storage.put(key, b"")
        storage.delete_many(["a", "b/1", "never/there"])
        assert _keys(storage) == ["b/2"]

    def test_a_store_that_honours_conditions_passes_the_probe_and_keeps_nothing(self, storage: S3Storage) -> None:
        storage.check_conditional_put()
        bucket, prefix = storage.bucket_and_key("x")
        reply = storage.filesystem.call_s3("list_objects_v2", Bucket=bucket, Prefix=prefix.removesuffix("x"))
        assert "Contents" not in reply


class TestMemoryStorage(StorageContract):
    @pytest.fixture
    def storage(self, request: pytest.FixtureRequest) -> Iterator[StorageProvider]:
        name = request.node.nodeid
        yield open_storage(f"memory://{name}")
        forget_memory_storage(name)


class TestLocalStorage(StorageContract, RacingContract):
    @pytest.fixture
    def storage(self, tmp_path: Path) -> StorageProvider:
        return open_storage(str(tmp_path / "not made yet" / "50% #1"))


class TestMotoStorage(S3Contract):
    @pytest.fixture
    def storage(self, moto_bucket: Bucket) -> StorageProvider:
        return open_storage(f"{moto_bucket.url}/some/prefix", moto_bucket.options)


class TestSeaweedStorage(S3Contract, RacingContract):
    # A client that finds its lock taken looks again a second later.
    rounds = 2

    @pytest.fixture
    def storage(self, seaweed_bucket: Bucket) -> StorageProvider:
        return open_storage(f"{seaweed_bucket.url}/some/prefix", seaweed_bucket.options)


def _keys(storage: StorageProvider, prefix: str = "", *, after: str = "") -> list[str]:
    return [info.key for info in storage.list(prefix, after=after)]
