"""Data files on a local or shared disk: written under a hidden name, synced, linked to their own, folder synced."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from icefloe.connector.data_names import HIDDEN_FOLDER, in_progress_name, parse_in_progress
from icefloe.connector.durable_disk import call_local, copy_object, sync_file, write_all
from icefloe.connector.multipart import Part, Upload
from icefloe.errors import StorageError
from icefloe.state.crash_points import crash_point
from icefloe.state.durable_folders import make_folder, sync_folder
from icefloe.state.storage import ObjectInfo, StorageProvider

Result = TypeVar("Result")


class LocalFileStore:
    """A ``FileStore`` on a folder. The attempt's id is part of each name, so name and length prove a completion."""

    min_part_bytes = 1
    uploads_expire = False

    def __init__(self, root: Path, *, job_id: str) -> None:
        self._root = Path(os.path.abspath(root))
        self._job_id = job_id

    @property
    def url(self) -> str:
        # Not percent-encoded: readers of a table take the path as it stands.
        return f"file://{self._root}"

    def path(self, name: str) -> Path:
        """Return where a file is, or would be. Raises ``StorageError`` for a name that leaves the location."""
        if not name or name.startswith("/") or any(part in ("", ".", "..") for part in name.split("/")):
            raise StorageError("ICEFLOE_FILE_NAME_INVALID", f"{name!r} is not a file name below {self.url}")
        return self._root / name

    def begin(self, name: str, attempt_id: str, *, hidden: bool) -> Upload:
        upload_id = in_progress_name(self._job_id, name) if hidden else name
        path = self.path(upload_id)

        def create() -> None:
            make_folder(path.parent)
            # A name belongs to one attempt, which begins it once: an existing file is somebody's mistake.
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))

        self._call(f"beginning {name!r}", create)
        crash_point("file.begun")
        return Upload(name, attempt_id, upload_id)

    def put_part(self, upload: Upload, number: int, offset_bytes: int, data: Sequence[bytes | memoryview]) -> Part:
        path = self.path(upload.upload_id)

        def write() -> int:
            with open(path, "r+b", buffering=0) as file:
                file.seek(offset_bytes)
                return write_all(file.fileno(), data)

        return Part(number, self._call(f"writing part {number} of {upload.name!r}", write))

    def copy_part(
        self, upload: Upload, number: int, offset_bytes: int, source: StorageProvider, key: str, start: int, length: int
    ) -> Part:
        path = self.path(upload.upload_id)

        def copy() -> None:
            with open(path, "r+b", buffering=0) as file:
                file.seek(offset_bytes)
                copy_object(source, key, start, length, file.fileno())

        self._call(f"copying segment {key!r} into {upload.name!r}", copy)
        return Part(number, length)

    def copies_from(self, source: StorageProvider) -> bool:
        return hasattr(source, "local_path")

    def seal(self, upload: Upload, length_bytes: int) -> None:
        path = self.path(upload.upload_id)
        self._call(f"syncing {upload.name!r}", lambda: sync_file(path, length_bytes))
        crash_point("file.sealed")

    def complete(self, upload: Upload, parts: Sequence[Part]) -> None:
        length = sum(part.length_bytes for part in parts)
        final = self.path(upload.name)
        if upload.upload_id == upload.name:
            self.seal(upload, length)
            return
        hidden = self.path(upload.upload_id)

        def link() -> None:
            if self.exists(upload.name) != length:
                crash_point("file.not-there-yet")
                try:
                    sync_file(hidden, length)
                    make_folder(final.parent)
                    with suppress(FileExistsError):
                        os.link(hidden, final)
                except FileNotFoundError:
                    # Somebody else publishes the same record and was faster.
                    if self.exists(upload.name) != length:
                        raise
                crash_point("file.linked")
                _check_length(final, length)
            sync_folder(final.parent)
            with suppress(FileNotFoundError):
                hidden.unlink()

        self._call(f"completing {upload.name!r}", link)
        crash_point("file.completed")

    def abort(self, upload: Upload) -> None:
        if upload.upload_id != upload.name:
            self._unlink(upload.upload_id)

    def put(self, name: str, attempt_id: str, data: Sequence[bytes | memoryview]) -> None:
        upload = self.begin(name, attempt_id, hidden=False)
        self.complete(upload, [self.put_part(upload, 1, 0, data)])

    def list_unfinished(self) -> Iterator[Upload]:
        for info in self._walk(f"{HIDDEN_FOLDER}/{self._job_id}"):
            parsed = parse_in_progress(info.key)
            if parsed is not None:
                data = parsed[1]
                yield Upload(str(data), data.attempt_id, info.key)

    def exists(self, name: str) -> int | None:
        try:
            return self.path(name).stat().st_size
        except (FileNotFoundError, NotADirectoryError):
            return None

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        folder = prefix.rpartition("/")[0]
        found = [info for info in self._walk(folder) if info.key.startswith(prefix)]
        return iter(sorted(found, key=lambda info: info.key))

    def delete_if_present(self, name: str) -> bool:
        return self._unlink(name)

    def _unlink(self, name: str) -> bool:
        path = self.path(name)

        def unlink() -> bool:
            try:
                path.unlink()
            except (FileNotFoundError, NotADirectoryError):
                return False
            return True

        return self._call(f"deleting {name!r}", unlink)

    def _walk(self, folder: str) -> Iterator[ObjectInfo]:
        try:
            entries = sorted(os.scandir(self._root / folder), key=lambda entry: entry.name)
        except (FileNotFoundError, NotADirectoryError):
            return
        for entry in entries:
            name = f"{folder}/{entry.name}" if folder else entry.name
            if entry.is_dir(follow_symlinks=False):
                if name != HIDDEN_FOLDER:
                    yield from self._walk(name)
            else:
                with suppress(FileNotFoundError):
                    status = entry.stat()
                    yield ObjectInfo(name, status.st_size, datetime.fromtimestamp(status.st_mtime, UTC))

    def _call(self, what: str, operation: Callable[[], Result]) -> Result:
        return call_local(f"{what} in {self.url}", operation)

    def __repr__(self) -> str:
        return f"LocalFileStore({str(self._root)!r})"


def _check_length(path: Path, length_bytes: int) -> None:
    found = path.stat().st_size
    if found != length_bytes:
        raise StorageError(
            "ICEFLOE_FILE_LENGTH",
            f"{path} is there with {found} bytes and should have {length_bytes}: something else wrote under this name",
        )
