"""What providers do when the disk or the service fails: before a write, after it, or with only the reply lost."""

from __future__ import annotations

import errno
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError, ConnectionClosedError

from icefloe.errors import NotFoundError, OptionError, StorageError
from icefloe.state.local_storage import LocalStorage
from icefloe.state.opening import open_storage
from icefloe.state.retrying import Retrier, RetryPolicy
from icefloe.state.s3_connection import S3Options, shared_filesystem
from icefloe.state.s3_storage import S3Storage
from support.faulty_storage import FakeClock, Fault, FaultKind, FaultyStorage
from support.s3_service import Bucket


def patient(slept: list[float] | None = None, clock: FakeClock | None = None) -> Retrier:
    """Retries as in production, without the waiting."""
    return Retrier(
        sleep=(slept if slept is not None else []).append, clock=clock or FakeClock(), jitter=lambda most: most
    )


class TestRetrying:
    def test_waits_double_up_to_the_longest_one(self) -> None:
        slept: list[float] = []
        policy = RetryPolicy(max_tries=6, first_delay=timedelta(seconds=1), max_delay=timedelta(seconds=5))
        retrier = Retrier(policy, sleep=slept.append, clock=FakeClock(), jitter=lambda most: most)
        with pytest.raises(TimeoutError):
            retrier.call(_always(TimeoutError()), is_transient=lambda _: True, what="a test")
        assert slept == [1, 2, 4, 5, 5]

    def test_what_is_not_transient_is_raised_at_once(self) -> None:
        slept: list[float] = []
        with pytest.raises(PermissionError):
            patient(slept).call(_always(PermissionError()), is_transient=lambda _: False, what="a test")
        assert slept == []

    def test_a_slow_service_is_given_up_by_time_before_the_tries_are_used_up(self) -> None:
        clock = FakeClock()
        tries = []

        def slow() -> None:
            tries.append(1)
            clock.advance(timedelta(seconds=50))
            raise TimeoutError

        with pytest.raises(TimeoutError):
            patient(clock=clock).call(slow, is_transient=lambda _: True, what="a test")
        assert len(tries) == 3

    def test_the_wait_is_spread_by_jitter(self) -> None:
        slept: list[float] = []
        retrier = Retrier(sleep=slept.append, clock=FakeClock())
        with pytest.raises(TimeoutError):
            retrier.call(_always(TimeoutError()), is_transient=lambda _: True, what="a test")
        ceilings = [retrier.policy.ceiling_seconds(failures) for failures in range(1, len(slept) + 1)]
        assert all(0 <= wait <= most for wait, most in zip(slept, ceilings, strict=True))


class TestLocalFaults:
    def test_a_full_disk_leaves_no_part_of_an_object(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        storage = LocalStorage(tmp_path, retrier=patient())
        monkeypatch.setattr(os, "fsync", _always(OSError(errno.ENOSPC, "No space left on device")))
        with pytest.raises(StorageError, match=r"ICEFLOE_STORAGE_FULL: writing 'a/b'.*ENOSPC"):
            storage.put("a/b", b"x" * 1000)
        with pytest.raises(StorageError, match="ICEFLOE_STORAGE_FULL"):
            storage.put_if_absent("a/b", b"x" * 1000)
        assert [*storage.list()] == []
        assert [path for path in tmp_path.rglob("*") if path.is_file()] == []

    def test_a_link_whose_reply_was_lost_is_recognised_as_ones_own(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        storage = LocalStorage(tmp_path, retrier=patient())
        _fail_once_after(monkeypatch, "link", OSError(errno.ESTALE, "Stale file handle"))
        assert storage.put_if_absent("a/b", b"mine")
        assert storage.get("a/b") == b"mine"

    def test_a_busy_mount_is_tried_again(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        slept: list[float] = []
        storage = LocalStorage(tmp_path, retrier=patient(slept))
        _fail_once_after(monkeypatch, "rename", OSError(errno.EBUSY, "Device or resource busy"))
        storage.put("a", b"x")
        assert storage.get("a") == b"x"
        assert len(slept) == 1

    def test_a_writer_killed_before_the_link_leaves_nothing_that_lists(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        storage = LocalStorage(tmp_path)
        storage.put("a/b", b"there")
        (tmp_path / ".icefloe" / "0123abcd").write_bytes(b"half an obj")
        assert [info.key for info in storage.list()] == ["a/b"]
        assert storage.remove_abandoned_writes(timedelta(hours=1)) == 0
        os.utime(tmp_path / ".icefloe" / "0123abcd", (0, 0))
        assert storage.remove_abandoned_writes(timedelta(hours=1)) == 1
        assert storage.get("a/b") == b"there"

    def test_folders_go_with_their_last_object_and_come_back_when_needed(self, tmp_path: Path) -> None:
        storage = LocalStorage(tmp_path)
        storage.put("job/checkpoints/1/record", b"x")
        storage.put("job/checkpoints/2/record", b"x")
        assert storage.delete_if_present("job/checkpoints/1/record")
        assert not (tmp_path / "job/checkpoints/1").exists()
        assert storage.put_if_absent("job/checkpoints/1/record", b"y")

    def test_a_clean_up_that_removes_the_folder_in_between_does_not_fail_the_write(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        storage = LocalStorage(tmp_path)
        link, tries = os.link, []

        def link_after_clean_up(source: Path, target: Path) -> None:
            tries.append(target)
            if len(tries) == 2:
                target.parent.rmdir()
            link(source, target)

        monkeypatch.setattr(os, "link", link_after_clean_up)
        assert storage.put_if_absent("a/b", b"x")
        assert len(tries) == 3

    def test_a_name_below_an_object_is_an_error_of_the_disk(self, tmp_path: Path) -> None:
        storage = LocalStorage(tmp_path)
        storage.put("a", b"x")
        with pytest.raises(StorageError, match="ICEFLOE_STORAGE_FAILED: writing 'a/b'"):
            storage.put("a/b", b"y")
        with pytest.raises(StorageError) as caught:
            storage.put_if_absent("a/b", b"y")
        assert not isinstance(caught.value, NotFoundError)


class TestS3Faults:
    """The real client against moto, with the call to the service failing before or after it."""

    @pytest.fixture
    def storage(self, moto_bucket: Bucket) -> S3Storage:
        return S3Storage(moto_bucket.name, "p", S3Options.from_mapping(moto_bucket.options), retrier=patient())

    def test_a_small_put_is_one_request_and_so_is_a_put_if_absent(self, storage: S3Storage) -> None:
        with _requests(storage) as sent:
            storage.put("a", b"x")
            storage.put_if_absent("b", b"x")
            storage.get("a")
            storage.get_range("a", 0, 1)
            [*storage.list()]
        assert sent == ["PUT", "PUT", "GET", "GET", "GET"]

    @pytest.mark.parametrize("landed", [False, True])
    def test_a_put_whose_connection_broke_is_tried_again(
        self, storage: S3Storage, monkeypatch: pytest.MonkeyPatch, landed: bool
    ) -> None:
        _fail_calls(storage, monkeypatch, "put_object", _broken(), landed=landed)
        storage.put("a", b"x")
        assert storage.get("a") == b"x"

    @pytest.mark.parametrize("landed", [False, True])
    def test_a_put_if_absent_that_lost_its_reply_is_recognised_as_ones_own(
        self, storage: S3Storage, monkeypatch: pytest.MonkeyPatch, landed: bool
    ) -> None:
        _fail_calls(storage, monkeypatch, "put_object", _broken(), landed=landed)
        assert storage.put_if_absent("a", b"mine")
        assert not storage.put_if_absent("a", b"other")

    def test_a_put_if_absent_that_lost_all_its_replies_is_found_by_reading_back(
        self, storage: S3Storage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        real = storage.filesystem.call_s3
        tries: list[str] = []

        def first_lands_and_none_answers(method: str, **parameters: Any) -> Any:
            tries.append(method)
            if len(tries) == 1 or method != "put_object":
                real(method, **parameters)
            raise _broken()

        monkeypatch.setattr(storage.filesystem, "call_s3", first_lands_and_none_answers)
        assert storage.put_if_absent("a", b"mine")
        assert tries == ["put_object"] * RetryPolicy().max_tries
        with pytest.raises(StorageError, match="ICEFLOE_STORAGE_FAILED: creating 'a'"):
            storage.put_if_absent("a", b"other")

    def test_a_conflict_between_two_conditional_puts_is_tried_again(
        self, storage: S3Storage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        _fail_calls(storage, monkeypatch, "put_object", _refused(409, "ConditionalRequestConflict"), landed=False)
        assert storage.put_if_absent("a", b"mine")

    def test_a_service_that_stays_down_is_an_error_after_bounded_tries(
        self, storage: S3Storage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        tries = _fail_calls(storage, monkeypatch, "head_object", _refused(503, "SlowDown"), landed=False, times=100)
        with pytest.raises(StorageError, match=r"ICEFLOE_STORAGE_FAILED: reading the size of 'a'.*503 SlowDown"):
            storage.size("a")
        assert len(tries) == RetryPolicy().max_tries

    def test_denied_access_is_not_tried_again_and_says_what_to_check(
        self, storage: S3Storage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        tries = _fail_calls(storage, monkeypatch, "put_object", _refused(403, "AccessDenied"), landed=False, times=9)
        with pytest.raises(StorageError, match=r"ICEFLOE_STORAGE_DENIED: .*'a'.*check the keys"):
            storage.put("a", b"x")
        assert len(tries) == 1

    def test_a_store_that_overwrites_in_spite_of_the_condition_is_refused(
        self, storage: S3Storage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        real = storage.filesystem.call_s3

        def without_conditions(method: str, **parameters: Any) -> Any:
            parameters.pop("IfNoneMatch", None)
            return real(method, **parameters)

        monkeypatch.setattr(storage.filesystem, "call_s3", without_conditions)
        with pytest.raises(StorageError, match=r"ICEFLOE_CONDITIONAL_PUT_UNSUPPORTED: .*s3://"):
            storage.check_conditional_put()

    def test_a_store_that_does_not_implement_conditions_is_refused(
        self, storage: S3Storage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        _fail_calls(storage, monkeypatch, "put_object", _refused(501, "NotImplemented"), landed=False, times=9)
        with pytest.raises(StorageError, match="ICEFLOE_CONDITIONAL_PUT_UNSUPPORTED"):
            storage.check_conditional_put()

    def test_connections_are_made_anew_in_the_child_of_a_fork(self, moto_bucket: Bucket) -> None:
        script = (
            "import os, pickle, sys\n"
            "storage = pickle.loads(sys.stdin.buffer.read())\n"
            "storage.put('a', b'before the fork')\n"
            "child = os.fork()\n"
            "if child == 0:\n"
            "    storage.put('b', storage.get('a'))\n"
            "    os._exit(0)\n"
            "status = os.waitpid(child, 0)[1]\n"
            "assert status == 0, status\n"
            "assert storage.get('b') == b'before the fork'\n"
        )
        storage = open_storage(moto_bucket.url, moto_bucket.options)
        subprocess.run([sys.executable, "-c", script], input=pickle.dumps(storage), check=True, timeout=60)

    def test_a_bucket_that_does_not_exist_is_not_mistaken_for_an_empty_one(self, moto_bucket: Bucket) -> None:
        storage = open_storage("s3://no-such-bucket-here/p", moto_bucket.options)
        for use in (lambda: [*storage.list()], lambda: storage.get("a"), lambda: storage.put("a", b"")):
            with pytest.raises(StorageError, match="ICEFLOE_STORAGE_BUCKET_MISSING"):
                use()


class TestOpening:
    @pytest.mark.parametrize("url", ["gs://b/p", "abfs://c@a.dfs.core.windows.net/p", "hdfs://n/p", "wasb://x/y"])
    def test_a_store_that_is_not_supported_yet_is_refused_by_name(self, url: str) -> None:
        with pytest.raises(OptionError, match=f"ICEFLOE_STORAGE_UNSUPPORTED: '{url}'.*not supported yet"):
            open_storage(url)

    @pytest.mark.parametrize("url", ["", "relative/path", "file://host/p", "file:relative", "memory://", "s3://"])
    def test_a_location_that_is_none_is_refused(self, url: str) -> None:
        with pytest.raises(OptionError, match="ICEFLOE_STORAGE_URL_INVALID"):
            open_storage(url)

    @pytest.mark.parametrize(
        "url", ["/a b/c#d?e%", "file:/a", "file:///a", "file://localhost/a", "/a/../b/", "memory://x"]
    )
    def test_the_canonical_url_opens_the_same_location(self, url: str) -> None:
        assert open_storage(open_storage(url).url).url == open_storage(url).url

    def test_the_s3_libraries_are_loaded_only_for_s3(self, tmp_path: Path) -> None:
        script = (
            "import sys\n"
            "from icefloe.state.opening import open_storage\n"
            "open_storage(sys.argv[1]).put('a', b'')\n"
            "assert not {'s3fs', 'botocore', 'aiobotocore', 'fsspec', 'pyarrow'} & set(sys.modules)\n"
        )
        subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True, timeout=60)

    def test_secrets_are_neither_in_the_repr_nor_in_errors(self) -> None:
        options = {
            "s3.endpoint": "http://127.0.0.1:9",
            "s3.access-key-id": "KEYKEYKEY",
            "s3.secret-access-key": "SECRETSECRET",
            "s3.session-token": "TOKENTOKEN",
        }
        storage = S3Storage("b", "p", S3Options.from_mapping(options), retrier=patient())
        with pytest.raises(StorageError) as caught:
            storage.get("a")
        for text in (repr(storage), str(caught.value), str(caught.value.__cause__)):
            assert not any(secret in text for secret in ("KEYKEYKEY", "SECRETSECRET", "TOKENTOKEN"))


class TestFaultyStorage:
    """The wrapper that other tests rely on does what it says."""

    def test_each_kind_of_fault_leaves_what_its_name_says(self) -> None:
        storage = FaultyStorage(open_storage("memory://faulty"))
        for kind, lands in (
            (FaultKind.ERROR_BEFORE, False),
            (FaultKind.ERROR_AFTER, True),
            (FaultKind.DISK_FULL, False),
        ):
            storage.plan(Fault(kind, key_contains=kind.name))
            with pytest.raises(StorageError):
                storage.put(kind.name, b"x")
            assert (kind.name in [info.key for info in storage.inner.list()]) is lands
        storage.plan(Fault(FaultKind.REPLY_LOST, "put_if_absent"))
        assert storage.put_if_absent("lost", b"mine")
        storage.plan(Fault(FaultKind.SLOW, "get", delay=timedelta(seconds=3), skip=1))
        assert storage.get("lost") == storage.get("lost") == b"mine"
        assert storage.clock() == 3
        assert (storage.count("get"), storage.bytes_of("get")) == (2, 8)


def _always(error: Exception) -> Callable[..., Any]:
    def fail(*_: object, **__: object) -> Any:
        raise error

    return fail


def _fail_once_after(monkeypatch: pytest.MonkeyPatch, name: str, error: OSError) -> None:
    real = getattr(os, name)

    def failing(source: Path, target: Path) -> None:
        real(source, target)
        monkeypatch.setattr(os, name, real)
        raise error

    monkeypatch.setattr(os, name, failing)


@contextmanager
def _requests(storage: S3Storage) -> Iterator[list[str]]:
    """What goes over the wire, as the client library itself sees it."""
    sent: list[str] = []

    def note(request: Any, **_: Any) -> None:
        sent.append(request.method)

    events = storage.filesystem.s3.meta.events
    events.register("before-send.s3", note)
    try:
        yield sent
    finally:
        events.unregister("before-send.s3", note)


def _fail_calls(
    storage: S3Storage, monkeypatch: pytest.MonkeyPatch, method: str, error: Exception, *, landed: bool, times: int = 1
) -> list[str]:
    filesystem = storage.filesystem
    real = filesystem.call_s3
    failed: list[str] = []

    def failing(called: str, **parameters: Any) -> Any:
        if called != method or len(failed) == times:
            return real(called, **parameters)
        failed.append(called)
        if landed:
            real(called, **parameters)
        raise error

    monkeypatch.setattr(filesystem, "call_s3", failing)
    return failed


def _broken() -> Exception:
    return ConnectionClosedError(endpoint_url="http://127.0.0.1/")


def _refused(status: int, code: str) -> Exception:
    reply = {"Error": {"Code": code, "Message": "planned"}, "ResponseMetadata": {"HTTPStatusCode": status}}
    error = OSError(errno.EIO, "planned")
    error.__cause__ = ClientError(reply, "PutObject")
    return error


def test_instances_with_the_same_options_share_their_connections() -> None:
    options = S3Options(endpoint="http://127.0.0.1:9")
    assert shared_filesystem(options) is shared_filesystem(S3Options(endpoint="http://127.0.0.1:9"))
