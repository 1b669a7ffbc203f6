"""State on a local disk, or on a shared one with POSIX links and renames."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

from icefloe.errors import NotFoundError, StorageError
from icefloe.state.durable_folders import make_folder, sync_folder
from icefloe.state.retrying import Retrier
from icefloe.state.storage import RESERVED_PART, ObjectInfo, checked_key, checked_range, flat

T = TypeVar("T")

# Worth another try: a busy or stale network mount. A full disk or a denied access is not.
_TRANSIENT = frozenset({errno.EAGAIN, errno.EBUSY, errno.ESTALE, errno.ETIMEDOUT, errno.EINTR})
# What a name that holds no object answers, depending on what is there instead.
_MISSING = (FileNotFoundError, NotADirectoryError, IsADirectoryError)
# How often a write makes its folder again when a clean-up removes the folder while it is still empty.
_FOLDER_TRIES = 20


class LocalStorage:
    """A ``StorageProvider`` on a folder.

    A write goes to a file of its own in ``.icefloe`` below the location, is synced, then linked (put-if-absent) or
    renamed (put) to its name, and the folder is synced: a reader sees nothing or all of it, also after a power cut.
    Folders are made when needed and removed when their last object is.
    """

    def __init__(self, root: Path, *, retrier: Retrier | None = None) -> None:
        self._root = Path(os.path.abspath(root))
        self._retrier = retrier or Retrier()

    @property
    def url(self) -> str:
        return f"file://{quote(str(self._root))}"

    def local_path(self, key: str) -> Path:
        """Return where the object is, or would be. Raises ``StorageError`` for a key that leaves the location."""
        return self._root / checked_key(key)

    def put(self, key: str, data: bytes | memoryview) -> None:
        target = self.local_path(key)

        def write() -> None:
            with self._unfinished(data) as temporary:
                _in_folder(target.parent, lambda: os.rename(temporary, target))
                _sync_names(target.parent)

        self._call(f"writing {key!r}", write)

    def put_if_absent(self, key: str, data: bytes | memoryview) -> bool:
        target = self.local_path(key)

        def write() -> bool:
            with self._unfinished(data) as temporary:
                while True:
                    try:
                        # Not rename (it replaces), not O_EXCL (others would see a part of it).
                        _in_folder(target.parent, lambda: os.link(temporary, target))
                    except FileExistsError:
                        # A network disk may have linked it and lost the reply: what is there decides. If it went in
                        # between, the name is free again.
                        with suppress(FileNotFoundError):
                            same = target.read_bytes() == flat(data)
                            # Whoever linked it may have been killed before it was durable.
                            _sync_names(target.parent)
                            return same
                        continue
                    _sync_names(target.parent)
                    return True

        return self._call(f"creating {key!r}", write)

    def get(self, key: str) -> bytes:
        path = self.local_path(key)
        return self._call(f"reading {key!r}", path.read_bytes, reads=True)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        checked_range(key, start, length)
        path = self.local_path(key)

        def read() -> bytes:
            with path.open("rb") as file:
                file.seek(start)
                return file.read(length)

        return self._call(f"reading {length} bytes from {start} of {key!r}", read, reads=True)

    def size(self, key: str) -> int:
        path = self.local_path(key)
        return self._call(f"reading the size of {key!r}", lambda: _file_size(path), reads=True)

    def list(self, prefix: str = "", *, after: str = "") -> Iterator[ObjectInfo]:
        folder, _, _ = prefix.rpartition("/")
        if folder:
            checked_key(folder)
        found = self._call(f"listing {prefix!r}", lambda: [*self._walk(folder, prefix, after)])
        return iter(sorted(found, key=lambda info: info.key))

    def delete_if_present(self, key: str) -> bool:
        path = self.local_path(key)

        def delete() -> bool:
            # Not synced: an object that is back after a power cut is one more to clean up, and void until then.
            try:
                path.unlink()
            except _MISSING:
                return False
            self._remove_empty_folders(path.parent)
            return True

        return self._call(f"deleting {key!r}", delete)

    def remove_abandoned_writes(self, older_than: timedelta) -> int:
        """Delete files that killed writers left in ``.icefloe`` and return how many. May be repeated, and race writers.

        A writer that is slower than ``older_than`` loses its file, gets an error and writes it again: nothing is lost.
        """
        limit = datetime.now(UTC).timestamp() - older_than.total_seconds()

        def remove() -> int:
            removed = 0
            with suppress(FileNotFoundError):
                for entry in [*os.scandir(self._root / RESERVED_PART)]:
                    with suppress(FileNotFoundError):
                        if entry.stat().st_mtime < limit:
                            os.unlink(entry.path)
                            removed += 1
            return removed

        return self._call("removing abandoned writes", remove)

    def _walk(self, folder: str, prefix: str, after: str) -> Iterator[ObjectInfo]:
        try:
            entries = [*os.scandir(self._root / folder)]
        except _MISSING:
            return
        for entry in entries:
            key = f"{folder}/{entry.name}" if folder else entry.name
            if entry.is_dir():
                below = f"{key}/"
                can_match = below.startswith(prefix) or prefix.startswith(below)
                # All of a folder's keys start alike, so all of them are on one side of an `after` that does not.
                passed = below <= after and not after.startswith(below)
                if can_match and not passed and key != RESERVED_PART:
                    yield from self._walk(key, prefix, after)
            elif key.startswith(prefix) and key > after:
                with suppress(FileNotFoundError):
                    status = entry.stat()
                    yield ObjectInfo(key, status.st_size, datetime.fromtimestamp(status.st_mtime, UTC))

    @contextmanager
    def _unfinished(self, data: bytes | memoryview) -> Iterator[Path]:
        folder = self._root / RESERVED_PART
        path = folder / os.urandom(16).hex()
        descriptor = _in_folder(folder, lambda: os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
        try:
            with open(descriptor, "wb", buffering=0) as file:
                rest = memoryview(data).cast("B")
                while rest:
                    rest = rest[file.write(rest) :]
                os.fsync(file.fileno())
            yield path
        finally:
            with suppress(FileNotFoundError):
                path.unlink()

    def _remove_empty_folders(self, folder: Path) -> None:
        # A job makes a folder each epoch: left alone, they would slow every listing down for ever.
        while folder != self._root and folder.is_relative_to(self._root):
            try:
                folder.rmdir()
            except OSError:
                return
            folder = folder.parent

    def _call(self, what: str, operation: Callable[[], T], *, reads: bool = False) -> T:
        try:
            return self._retrier.call(operation, is_transient=_is_transient, what=what)
        except OSError as error:
            if reads and isinstance(error, _MISSING):
                raise NotFoundError("ICEFLOE_STORAGE_NOT_FOUND", f"{what} in {self.url}: it is not there") from error
            name = errno.errorcode.get(error.errno or 0, "unknown")
            raise StorageError(_code(error), f"{what} in {self.url}: {error.strerror or error} ({name})") from error

    def __reduce__(self) -> tuple[object, ...]:
        return (_reopen, (str(self._root), self._retrier))

    def __repr__(self) -> str:
        return f"LocalStorage({str(self._root)!r})"


def _reopen(root: str, retrier: Retrier) -> LocalStorage:
    return LocalStorage(Path(root), retrier=retrier)


def _is_transient(error: Exception) -> bool:
    return isinstance(error, OSError) and error.errno in _TRANSIENT


def _file_size(path: Path) -> int:
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, "not a file", str(path))
    return status.st_size


def _code(error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "ICEFLOE_STORAGE_FULL"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return "ICEFLOE_STORAGE_DENIED"
    return "ICEFLOE_STORAGE_FAILED"


def _in_folder(folder: Path, operation: Callable[[], T]) -> T:
    """Run ``operation``, making ``folder`` first where it is missing. A clean-up may remove it again in between."""
    for _ in range(_FOLDER_TRIES):
        try:
            return operation()
        except FileNotFoundError:
            make_folder(folder)
    raise OSError(errno.ESTALE, f"{folder}, or the file to be moved there, was removed again and again")


def _sync_names(folder: Path) -> None:
    # A clean-up may have removed the object and its empty folder again.
    with suppress(FileNotFoundError):
        sync_folder(folder)
