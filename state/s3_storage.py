"""State on S3 and on stores that speak its protocol, through s3fs. Loaded only when an S3 location is opened."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, TypeVar

import s3fs
from fsspec.asyn import sync

from icefloe.errors import NotFoundError, StorageError
from icefloe.state.retrying import Retrier
from icefloe.state.s3_connection import S3Options, request_body, shared_filesystem
from icefloe.state.s3_errors import is_store_error, is_transient, refusal_of, storage_error
from icefloe.state.storage import RESERVED_PART, ObjectInfo, checked_key, checked_range, flat

T = TypeVar("T")

# What one PutObject takes, and what one DeleteObjects takes.
MAX_PUT_BYTES = 5 * 1024**3
_DELETE_KEYS = 1000
# The largest page that stores give.
_LIST_KEYS = 1000


class S3Storage:
    """A ``StorageProvider`` on a prefix of a bucket.

    A put is one PutObject, a put-if-absent one with ``If-None-Match: *``, a get one GetObject; nothing is cached.
    Stores that take no notice of the condition are found by ``check_conditional_put``. Connections are shared by all
    instances with the same options in a process, and made anew after a fork.
    """

    def __init__(self, bucket: str, prefix: str, options: S3Options, *, retrier: Retrier | None = None) -> None:
        self._bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""
        self._options = options
        self._retrier = retrier or Retrier()

    @property
    def url(self) -> str:
        return f"s3://{self._bucket}/{self._prefix}".rstrip("/")

    @property
    def filesystem(self) -> s3fs.S3FileSystem:
        """The s3fs file system of this process: no listings cache, and no retries of its own (see ``request``)."""
        return shared_filesystem(self._options)

    def bucket_and_key(self, key: str) -> tuple[str, str]:
        """Return the bucket and the whole key of an object. Raises ``StorageError`` for a key that is none."""
        return self._bucket, self._prefix + checked_key(key)

    def request(self, method: str, *, what: str, **parameters: Any) -> Any:
        """Call an S3 operation by its botocore name, retried when transient; safe only for what may be repeated.

        Raises ``NotFoundError`` or ``StorageError``, with ``what`` in the text.
        """
        return self._call(what, lambda: self.filesystem.call_s3(method, **parameters))

    def put(self, key: str, data: bytes | memoryview) -> None:
        data = flat(data)
        bucket, name = self.bucket_and_key(key)
        self._call(f"writing {key!r}", lambda: self._put_object(bucket, name, data))

    def put_if_absent(self, key: str, data: bytes | memoryview) -> bool:
        data = flat(data)
        bucket, name = self.bucket_and_key(key)
        what = f"creating {key!r}"
        try:
            while True:
                if self._call(what, lambda: self._put_object_if_absent(bucket, name, data)):
                    return True
                # 412 also answers a try of our own that landed before its reply was lost: what is there decides. If it
                # went in between, the name is free again.
                existing = self._get_or_none(key)
                if existing is not None:
                    return existing == data
        except NotFoundError:
            raise
        except StorageError:
            # All tries are used up; the last one may have landed all the same.
            if self._holds(key, data):
                return True
            raise

    def get(self, key: str) -> bytes:
        bucket, name = self.bucket_and_key(key)
        return self._call(f"reading {key!r}", lambda: self._get_object(Bucket=bucket, Key=name))

    def get_range(self, key: str, start: int, length: int) -> bytes:
        checked_range(key, start, length)
        bucket, name = self.bucket_and_key(key)
        if length == 0:
            return b""

        def read() -> bytes:
            try:
                return self._get_object(Bucket=bucket, Key=name, Range=f"bytes={start}-{start + length - 1}")
            except OSError as error:
                refusal = refusal_of(error)
                if refusal and refusal.status == 416:
                    return b""
                raise

        return self._call(f"reading {length} bytes from {start} of {key!r}", read)

    def size(self, key: str) -> int:
        bucket, name = self.bucket_and_key(key)
        return int(
            self.request("head_object", what=f"reading the size of {key!r}", Bucket=bucket, Key=name)["ContentLength"]
        )

    def list(self, prefix: str = "", *, after: str = "") -> Iterator[ObjectInfo]:
        parameters: dict[str, Any] = {"Bucket": self._bucket, "Prefix": self._prefix + prefix, "MaxKeys": _LIST_KEYS}
        if after:
            parameters["StartAfter"] = self._prefix + after
        while True:
            page = self.request("list_objects_v2", what=f"listing {prefix!r}", **parameters)
            for entry in page.get("Contents", ()):
                key = entry["Key"].removeprefix(self._prefix)
                # Consoles and some stores make objects for folders; they are not ours.
                if not key.endswith("/") and key.partition("/")[0] not in ("", RESERVED_PART):
                    yield ObjectInfo(key, entry["Size"], entry["LastModified"])
            if not page.get("IsTruncated"):
                return
            parameters["ContinuationToken"] = page["NextContinuationToken"]

    def delete_if_present(self, key: str) -> bool:
        # DeleteObject does not say whether there was anything to delete.
        bucket, name = self.bucket_and_key(key)
        try:
            self.size(key)
        except NotFoundError:
            return False
        self.request("delete_object", what=f"deleting {key!r}", Bucket=bucket, Key=name)
        return True

    def delete_many(self, keys: Iterable[str]) -> None:
        """Delete objects, present or not, a thousand to a request. May be repeated.

        Raises ``StorageError`` that names the first object that could not be deleted; others may have been.
        """
        names = [self.bucket_and_key(key)[1] for key in keys]
        for start in range(0, len(names), _DELETE_KEYS):
            part = names[start : start + _DELETE_KEYS]
            what = f"deleting {len(part)} objects from {part[0]!r} on"
            objects = [{"Key": name} for name in part]
            reply = self.request(
                "delete_objects", what=what, Bucket=self._bucket, Delete={"Objects": objects, "Quiet": True}
            )
            for failure in reply.get("Errors", ()):
                answer = f"{failure.get('Code')} {failure.get('Message')}"
                raise StorageError(
                    "ICEFLOE_STORAGE_FAILED", f"deleting {failure.get('Key')!r} in s3://{self._bucket}: {answer}"
                )

    def check_conditional_put(self) -> None:
        """Find out whether the store honours ``If-None-Match``: three small requests.

        Nothing is left behind, unless the store refuses to delete the probe: one byte, where nothing is listed.

        Raises ``StorageError`` when it does not: two drivers could both believe to own an epoch.
        """
        name = f"{self._prefix}{RESERVED_PART}/probe-{os.urandom(16).hex()}"
        what = "trying a conditional put"
        try:
            self._call(what, lambda: self._put_object_if_absent(self._bucket, name, b"1"))
            honoured = not self._call(what, lambda: self._put_object_if_absent(self._bucket, name, b"2"))
            self._delete_probe(name)
        except StorageError as error:
            with suppress(StorageError):
                self._delete_probe(name)
            refusal = refusal_of(error.__cause__) if error.__cause__ else None
            if refusal is None or refusal.status != 501:
                raise
            honoured = False
        if not honoured:
            raise StorageError(
                "ICEFLOE_CONDITIONAL_PUT_UNSUPPORTED",
                f"the store behind {self.url} (endpoint {self._options.endpoint or 'of the environment'}) overwrites "
                "objects in spite of If-None-Match: state needs a store that honours it, or a local disk",
            )

    def _delete_probe(self, name: str) -> None:
        self.request("delete_object", what="deleting a probe", Bucket=self._bucket, Key=name)

    def _put_object(self, bucket: str, name: str, data: bytes | memoryview, **condition: str) -> None:
        if len(data) > MAX_PUT_BYTES:
            raise StorageError(
                "ICEFLOE_STORAGE_TOO_LARGE",
                f"writing {name!r}: {len(data)} bytes are more than the {MAX_PUT_BYTES} of one request",
            )
        self.filesystem.call_s3("put_object", Bucket=bucket, Key=name, Body=request_body(data), **condition)

    def _put_object_if_absent(self, bucket: str, name: str, data: bytes | memoryview) -> bool:
        try:
            self._put_object(bucket, name, data, IfNoneMatch="*")
        except OSError as error:
            refusal = refusal_of(error)
            if refusal and refusal.status == 412:
                return False
            raise
        return True

    def _get_object(self, **parameters: str) -> bytes:
        filesystem = self.filesystem

        async def read() -> bytes:
            reply = await filesystem._call_s3("get_object", **parameters)
            async with reply["Body"] as body:
                data: bytes = await body.read()
                return data

        data: bytes = sync(filesystem.loop, read)
        return data

    def _get_or_none(self, key: str) -> bytes | None:
        try:
            return self.get(key)
        except NotFoundError:
            return None

    def _holds(self, key: str, data: bytes | memoryview) -> bool:
        try:
            return self._get_or_none(key) == data
        except StorageError:
            return False

    def _call(self, what: str, operation: Callable[[], T]) -> T:
        try:
            return self._retrier.call(operation, is_transient=is_transient, what=f"{what} in {self.url}")
        except StorageError:
            raise
        except Exception as error:
            if not is_store_error(error):
                raise
            raise storage_error(error, f"{what} in {self.url}") from error

    def __reduce__(self) -> tuple[object, ...]:
        return (_reopen, (self._bucket, self._prefix.rstrip("/"), self._options, self._retrier))

    def __repr__(self) -> str:
        return f"S3Storage({self.url!r}, {self._options!r})"


def _reopen(bucket: str, prefix: str, options: S3Options, retrier: Retrier) -> S3Storage:
    return S3Storage(bucket, prefix, options, retrier=retrier)
