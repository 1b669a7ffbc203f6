"""The few disk operations that durability on a local disk is made of, with typed errors."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from icefloe.errors import CorruptStateError, NotFoundError, StorageError
from icefloe.state.durable_folders import sync_folder
from icefloe.state.storage import StorageProvider

Result = TypeVar("Result")

STREAM_BYTES = 8 * 1024 * 1024
# What copy_file_range answers where it cannot be used: another file system, an old kernel, a special one.
_NO_COPY_RANGE = frozenset({errno.EXDEV, errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EPERM, errno.EBADF})


def call_local(what: str, operation: Callable[[], Result]) -> Result:
    """Run ``operation``. An ``OSError`` becomes a ``StorageError`` that says ``what`` was tried and what to do."""
    try:
        return operation()
    except FileNotFoundError as error:
        raise NotFoundError("ICEFLOE_FILE_NOT_FOUND", f"{what}: {error.filename or 'a file'} is not there") from error
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            hint = "the disk is full: make room and restart the query; what was durable stays finishable"
            raise StorageError("ICEFLOE_STORAGE_FULL", f"{what}: {hint}") from error
        raise StorageError("ICEFLOE_STORAGE_FAILED", f"{what}: {error.strerror or error}") from error


def sync_file(path: Path, length_bytes: int) -> None:
    """Make a file's bytes and its name durable. Raises ``StorageError`` when it does not have the length."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        size = os.fstat(descriptor).st_size
        if size != length_bytes:
            raise StorageError(
                "ICEFLOE_FILE_LENGTH", f"{path} has {size} bytes and should have {length_bytes}: something changed it"
            )
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    sync_folder(path.parent)


def write_all(descriptor: int, pieces: Sequence[bytes | memoryview]) -> int:
    """Write the pieces one behind the other where the descriptor stands; return their length."""
    total = 0
    for piece in pieces:
        rest = memoryview(piece)
        total += len(rest)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
    return total


def copy_object(source: StorageProvider, key: str, start: int, length: int, descriptor: int) -> None:
    """Copy a range of a state object to where the descriptor stands, inside the kernel where it is a local file.

    Raises ``CorruptStateError`` naming the object when it is gone or shorter than the range.
    """
    local = getattr(source, "local_path", None)
    try:
        copied = (
            _stream(source, key, start, length, descriptor)
            if local is None
            else _copy_file(local(key), start, length, descriptor)
        )
    except (FileNotFoundError, NotFoundError) as error:
        raise segment_gone(source, key) from error
    if copied != length:
        raise segment_short(source, key, start + length, start + copied)


def segment_gone(source: StorageProvider, key: str) -> CorruptStateError:
    """The error for a segment that a record names and the state does not hold."""
    return CorruptStateError(
        "ICEFLOE_SEGMENT_GONE",
        f"segment {key!r} is named by the state and is not in {source.url}: restore it; its rows are nowhere else",
    )


def segment_short(source: StorageProvider, key: str, wanted_bytes: int, found_bytes: int) -> CorruptStateError:
    """The error for a segment that is not as long as the state says."""
    return CorruptStateError(
        "ICEFLOE_SEGMENT_SHORT",
        f"segment {key!r} in {source.url} ends at {found_bytes} bytes, and {wanted_bytes} were written: it is damaged",
    )


def _copy_file(path: Path, start: int, length: int, target: int) -> int:
    source = os.open(path, os.O_RDONLY)
    try:
        os.lseek(source, start, os.SEEK_SET)
        left = length
        while left:
            done = _copy_some(source, target, left)
            if done == 0:
                break
            left -= done
        return length - left
    finally:
        os.close(source)


def _copy_some(source: int, target: int, length: int) -> int:
    if hasattr(os, "copy_file_range"):
        try:
            return os.copy_file_range(source, target, length)
        except OSError as error:
            if error.errno not in _NO_COPY_RANGE:
                raise
    return write_all(target, [os.read(source, min(length, STREAM_BYTES))])


def _stream(source: StorageProvider, key: str, start: int, length: int, target: int) -> int:
    copied = 0
    while copied < length:
        data = source.get_range(key, start + copied, min(STREAM_BYTES, length - copied))
        if not data:
            break
        copied += write_all(target, [data])
    return copied
