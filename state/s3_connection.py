"""Connections to S3: one s3fs file system for each set of options in a process, and bodies that are not copied."""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import s3fs

# Up to here a copy is cheaper than reading a buffer through a file object.
_COPIED_BYTES = 1024**2


@dataclass(frozen=True, slots=True)
class S3Options:
    """How to reach the store; what is empty comes from the environment. ``repr`` shows no key."""

    endpoint: str = ""
    region: str = ""
    access_key_id: str = field(default="", repr=False)
    secret_access_key: str = field(default="", repr=False)
    session_token: str = field(default="", repr=False)

    @staticmethod
    def from_mapping(options: Mapping[str, str]) -> S3Options:
        """Pick the ``s3.*`` options out of all of them."""
        return S3Options(
            endpoint=options.get("s3.endpoint", ""),
            region=options.get("s3.region", ""),
            access_key_id=options.get("s3.access-key-id", ""),
            secret_access_key=options.get("s3.secret-access-key", ""),
            session_token=options.get("s3.session-token", ""),
        )


class _BufferReader(io.RawIOBase):
    """Reads a buffer in place, so that a large object is not copied before it is sent."""

    def __init__(self, view: memoryview) -> None:
        self._view = view
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        origin = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: len(self._view)}[whence]
        self._position = origin + offset
        return self._position

    def readinto(self, buffer: Any) -> int:
        count = min(len(buffer), len(self._view) - self._position)
        buffer[:count] = self._view[self._position : self._position + count]
        self._position += count
        return count


def request_body(data: bytes | memoryview) -> bytes | io.BufferedReader:
    """Return what botocore takes as the body of a request: small buffers copied, large ones read in place."""
    if isinstance(data, bytes):
        return data
    if len(data) <= _COPIED_BYTES:
        return bytes(data)
    return io.BufferedReader(_BufferReader(data), _COPIED_BYTES)


_filesystems: dict[S3Options, s3fs.S3FileSystem] = {}
_filesystems_lock = threading.Lock()


def shared_filesystem(options: S3Options) -> s3fs.S3FileSystem:
    """Return the process's file system for these options, made at the first call. Safe for threads and after a fork."""
    with _filesystems_lock:
        if options not in _filesystems:
            _filesystems[options] = _connect(options)
        return _filesystems[options]


def _connect(options: S3Options) -> s3fs.S3FileSystem:
    config: dict[str, Any] = {
        # Retries live in one place, retrying.py; two layers of them would multiply.
        "retries": {"total_max_attempts": 1, "mode": "standard"},
        "connect_timeout": 10,
        "read_timeout": 60,
        "max_pool_connections": 32,
    }
    if options.endpoint:
        config["s3"] = {"addressing_style": "path"}
    filesystem = s3fs.S3FileSystem(
        key=options.access_key_id or None,
        secret=options.secret_access_key or None,
        token=options.session_token or None,
        endpoint_url=options.endpoint or None,
        client_kwargs={"region_name": options.region} if options.region else {},
        config_kwargs=config,
        use_listings_cache=False,
        skip_instance_cache=True,
    )
    filesystem.retries = 1
    return filesystem


def _forget_connections() -> None:
    # The child of a fork has neither the thread nor the sockets. The old objects are kept alive, because their
    # finalizers would wait for that thread.
    global _filesystems, _filesystems_lock
    _before_fork.append(_filesystems)
    _filesystems = {}
    _filesystems_lock = threading.Lock()


_before_fork: list[dict[S3Options, s3fs.S3FileSystem]] = []
os.register_at_fork(after_in_child=_forget_connections)
