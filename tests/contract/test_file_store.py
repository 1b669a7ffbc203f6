"""What every store of data files does, on local disk and on two S3 services."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from icefloe.connector.data_names import data_name
from icefloe.connector.file_store import FileStore, open_file_store
from icefloe.errors import CorruptStateError, NotFoundError, OptionError, StorageError
from icefloe.state.opening import open_storage
from icefloe.state.storage import StorageProvider
from icefloe.state.task_info import TaskInfo, new_attempt_id
from support.s3_service import Bucket

JOB = "77aa88bb-0000-0000-0000-000000000000"
MIB = 1024 * 1024
BIG = os.urandom(5 * MIB)


def own_name(folder: str = "", epoch: int = 3) -> tuple[str, str]:
    """A fresh attempt and a name of its own."""
    info = TaskInfo(JOB, "sink", 0, new_attempt_id())
    return data_name(info, epoch, 0, folder=folder), info.attempt_id


class FileStoreContract:
    """Subclasses say where."""

    @pytest.fixture
    def files(self) -> FileStore:
        raise NotImplementedError

    @pytest.fixture
    def state(self) -> StorageProvider:
        raise NotImplementedError

    def read(self, files: FileStore, name: str) -> bytes:
        raise NotImplementedError

    def test_a_hidden_file_appears_only_when_completed_and_is_whole(self, files: FileStore) -> None:
        name, attempt = own_name("day=2026-01-01")
        upload = files.begin(name, attempt, hidden=True)
        first = files.put_part(upload, 1, 0, [BIG])
        second = files.put_part(upload, 2, len(BIG), [b"ta", memoryview(b"il")])
        files.seal(upload, len(BIG) + 4)
        assert files.exists(name) is None
        assert [info.key for info in files.list()] == []
        files.complete(upload, [first, second])
        assert self.read(files, name) == BIG + b"tail"
        assert files.exists(name) == len(BIG) + 4
        assert [info.key for info in files.list("day=")] == [name]

    def test_parts_may_come_in_any_order(self, files: FileStore) -> None:
        name, attempt = own_name()
        upload = files.begin(name, attempt, hidden=False)
        second = files.put_part(upload, 2, len(BIG), [b"end"])
        first = files.put_part(upload, 1, 0, [BIG])
        files.complete(upload, [first, second])
        assert self.read(files, name) == BIG + b"end"

    def test_completing_twice_is_the_same_as_once(self, files: FileStore) -> None:
        name, attempt = own_name()
        upload = files.begin(name, attempt, hidden=True)
        parts = [files.put_part(upload, 1, 0, [b"rows"])]
        files.complete(upload, parts)
        files.complete(upload, parts)
        assert self.read(files, name) == b"rows"
        assert list(files.list_unfinished()) == []

    def test_an_unfinished_file_is_listed_by_its_name_until_it_is_aborted(self, files: FileStore) -> None:
        name, attempt = own_name("region=eu")
        upload = files.begin(name, attempt, hidden=True)
        files.put_part(upload, 1, 0, [b"rows"])
        assert list(files.list_unfinished()) == [upload]
        files.abort(upload)
        files.abort(upload)
        assert list(files.list_unfinished()) == []

    def test_aborting_after_completion_leaves_the_file(self, files: FileStore) -> None:
        name, attempt = own_name()
        upload = files.begin(name, attempt, hidden=True)
        files.complete(upload, [files.put_part(upload, 1, 0, [b"rows"])])
        files.abort(upload)
        assert self.read(files, name) == b"rows"

    def test_a_segment_is_copied_in_ranges(self, files: FileStore, state: StorageProvider) -> None:
        state.put("job/segment", BIG + b"0123456789")
        name, attempt = own_name()
        upload = files.begin(name, attempt, hidden=True)
        first = files.copy_part(upload, 1, 0, state, "job/segment", 0, len(BIG))
        last = files.copy_part(upload, 2, len(BIG), state, "job/segment", len(BIG) + 2, 5)
        files.complete(upload, [first, last])
        assert self.read(files, name) == BIG + b"23456"

    def test_a_segment_from_another_kind_of_store_is_streamed(self, files: FileStore) -> None:
        memory = open_storage(f"memory://{new_attempt_id()}")
        memory.put("job/segment", b"0123456789")
        name, attempt = own_name()
        upload = files.begin(name, attempt, hidden=True)
        assert not files.copies_from(memory)
        files.complete(upload, [files.copy_part(upload, 1, 0, memory, "job/segment", 3, 4)])
        assert self.read(files, name) == b"3456"

    def test_a_missing_or_short_segment_is_named(self, files: FileStore, state: StorageProvider) -> None:
        name, attempt = own_name()
        upload = files.begin(name, attempt, hidden=True)
        with pytest.raises(CorruptStateError, match="job/gone"):
            files.copy_part(upload, 1, 0, state, "job/gone", 0, 5)
        state.put("job/short", b"123")
        with pytest.raises(CorruptStateError, match="job/short"):
            files.copy_part(upload, 1, 0, state, "job/short", 0, 5)

    def test_a_whole_file_is_put_at_once(self, files: FileStore) -> None:
        name, attempt = own_name("a=1")
        files.put(name, attempt, [b"one", memoryview(b"two")])
        assert self.read(files, name) == b"onetwo"

    def test_deleting_says_whether_there_was_a_file(self, files: FileStore) -> None:
        name, attempt = own_name()
        files.put(name, attempt, [b"x"])
        assert files.delete_if_present(name)
        assert not files.delete_if_present(name)

    def test_a_copy_by_pickle_goes_on_with_an_upload(self, files: FileStore) -> None:
        name, attempt = own_name()
        upload = files.begin(name, attempt, hidden=True)
        part = files.put_part(upload, 1, 0, [b"rows"])
        other = pickle.loads(pickle.dumps(files))
        other.complete(pickle.loads(pickle.dumps(upload)), [part])
        assert self.read(files, name) == b"rows"

    def test_a_zombie_that_wakes_up_late_changes_nothing(self, files: FileStore) -> None:
        name, attempt = own_name()
        upload = files.begin(name, attempt, hidden=True)
        parts = [files.put_part(upload, 1, 0, [b"rows"])]
        files.complete(upload, parts)
        with pytest.raises(StorageError):
            files.put_part(upload, 1, 0, [b"other"])
        files.complete(upload, parts)
        assert self.read(files, name) == b"rows"


class TestLocal(FileStoreContract):
    @pytest.fixture
    def files(self, tmp_path: Path) -> FileStore:
        return open_file_store(f"file://{tmp_path}/data", {}, job_id=JOB)

    @pytest.fixture
    def state(self, tmp_path: Path) -> StorageProvider:
        return open_storage(str(tmp_path / "state"))

    def read(self, files: FileStore, name: str) -> bytes:
        return Path(f"{files.url.removeprefix('file://')}/{name}").read_bytes()

    def test_completing_an_upload_that_is_gone_is_refused(self, files: FileStore) -> None:
        name, attempt = own_name()
        upload = files.begin(name, attempt, hidden=True)
        part = files.put_part(upload, 1, 0, [b"rows"])
        files.abort(upload)
        with pytest.raises(NotFoundError, match=attempt):
            files.complete(upload, [part])

    def test_a_file_that_lost_bytes_is_not_completed(self, files: FileStore, tmp_path: Path) -> None:
        name, attempt = own_name()
        upload = files.begin(name, attempt, hidden=True)
        part = files.put_part(upload, 1, 0, [b"rows"])
        os.truncate(tmp_path / "data" / upload.upload_id, 2)
        with pytest.raises(StorageError, match="ICEFLOE_FILE_LENGTH"):
            files.complete(upload, [part])
        assert files.exists(name) is None

    def test_a_foreign_file_under_the_name_keeps_the_unfinished_one(self, files: FileStore, tmp_path: Path) -> None:
        name, attempt = own_name()
        upload = files.begin(name, attempt, hidden=True)
        part = files.put_part(upload, 1, 0, [b"rows"])
        (tmp_path / "data" / name).write_bytes(b"somebody else's")
        with pytest.raises(StorageError, match="ICEFLOE_FILE_LENGTH"):
            files.complete(upload, [part])
        assert (tmp_path / "data" / upload.upload_id).read_bytes() == b"rows"

    def test_a_name_is_begun_once(self, files: FileStore) -> None:
        name, attempt = own_name()
        files.begin(name, attempt, hidden=True)
        with pytest.raises(StorageError):
            files.begin(name, attempt, hidden=True)

    @pytest.mark.parametrize("name", ["../x.parquet", "/x.parquet", "a//b.parquet", ""])
    def test_a_name_cannot_leave_the_location(self, files: FileStore, name: str) -> None:
        with pytest.raises(StorageError, match="ICEFLOE_FILE_NAME_INVALID"):
            files.begin(name, new_attempt_id(), hidden=False)


class S3Contract(FileStoreContract):
    @pytest.fixture
    def bucket(self) -> Bucket:
        raise NotImplementedError

    @pytest.fixture
    def files(self, bucket: Bucket) -> FileStore:
        return open_file_store(f"{bucket.url}/warehouse/data", bucket.options, job_id=JOB)

    @pytest.fixture
    def state(self, bucket: Bucket) -> StorageProvider:
        return open_storage(f"{bucket.url}/state", bucket.options)

    @pytest.fixture
    def client(self, bucket: Bucket) -> Iterator[Any]:
        client = bucket.service.client()
        yield client
        client.close()

    def read(self, files: FileStore, name: str) -> bytes:
        bucket, _, prefix = files.url.removeprefix("s3://").partition("/")
        return open_storage(f"s3://{bucket}/{prefix}", self.options).get(name)  # type: ignore[attr-defined]

    @pytest.fixture(autouse=True)
    def _remember_options(self, bucket: Bucket) -> None:
        self.options = bucket.options

    def test_objects_carry_the_attempt_that_made_them(self, files: FileStore, bucket: Bucket, client: Any) -> None:
        name, attempt = own_name()
        upload = files.begin(name, attempt, hidden=True)
        files.complete(upload, [files.put_part(upload, 1, 0, [b"rows"])])
        other, other_attempt = own_name()
        files.put(other, other_attempt, [b"x"])
        for made, by in ((name, attempt), (other, other_attempt)):
            head = client.head_object(Bucket=bucket.name, Key=f"warehouse/data/{made}")
            assert head["Metadata"] == {"icefloe-attempt": by}

    def test_parts_that_the_store_has_under_another_etag_are_completed(
        self, files: FileStore, bucket: Bucket, client: Any
    ) -> None:
        name, attempt = own_name()
        upload = files.begin(name, attempt, hidden=True)
        part = files.put_part(upload, 1, 0, [b"rows"])
        with pytest.raises(StorageError, match="ICEFLOE_STORAGE_FAILED"):
            files.complete(upload, [replace(part, etag='"0bad"', length_bytes=5)])
        files.complete(upload, [replace(part, etag='"0bad"')])
        assert client.get_object(Bucket=bucket.name, Key=f"warehouse/data/{name}")["Body"].read() == b"rows"

    def test_another_jobs_unfinished_files_are_not_listed(self, files: FileStore) -> None:
        info = TaskInfo("ffffffff-1111", "sink", 0)
        files.begin(data_name(info, 1, 0), info.attempt_id, hidden=True)
        assert list(files.list_unfinished()) == []

    def test_no_secret_is_shown(self, bucket: Bucket) -> None:
        options = {**bucket.options, "s3.secret-access-key": "hush-hush"}
        assert "hush-hush" not in repr(open_file_store(bucket.url, options, job_id=JOB))


class TestMoto(S3Contract):
    @pytest.fixture
    def bucket(self, moto_bucket: Bucket) -> Bucket:
        return moto_bucket


class TestSeaweed(S3Contract):
    @pytest.fixture
    def bucket(self, seaweed_bucket: Bucket) -> Bucket:
        return seaweed_bucket

    def test_completing_an_upload_that_was_ended_is_refused_by_name(self, files: FileStore) -> None:
        name, attempt = own_name()
        upload = files.begin(name, attempt, hidden=True)
        part = files.put_part(upload, 1, 0, [b"rows"])
        files.abort(upload)
        with pytest.raises(NotFoundError, match="ICEFLOE_UPLOAD_GONE") as caught:
            files.complete(upload, [part])
        assert name in str(caught.value)

    def test_an_object_of_another_attempt_is_no_proof_of_completion(self, files: FileStore) -> None:
        name, attempt = own_name()
        upload = files.begin(name, attempt, hidden=True)
        part = files.put_part(upload, 1, 0, [b"rows"])
        files.abort(upload)
        files.put(name, new_attempt_id(), [b"rows"])
        with pytest.raises(NotFoundError):
            files.complete(upload, [part])


@pytest.mark.parametrize("url", ["gs://b/p", "relative/path", "file:relative", "abfs://c@a/p"])
def test_other_locations_are_refused(url: str) -> None:
    with pytest.raises(OptionError, match="ICEFLOE_TARGET_UNSUPPORTED"):
        open_file_store(url, {}, job_id=JOB)


def test_a_local_location_is_taken_as_it_stands() -> None:
    assert open_file_store("file:/a/b%20c d", {}, job_id=JOB).url == "file:///a/b%20c d"
    assert open_file_store("/a/b", {}, job_id=JOB).url == "file:///a/b"
