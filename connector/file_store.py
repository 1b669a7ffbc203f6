"""Opens the store of data files behind a URL, and publishes files that tasks finished."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from icefloe.connector.compose import compose
from icefloe.connector.local_file_store import LocalFileStore
from icefloe.connector.multipart import FileStore, Part, Upload
from icefloe.errors import NotFoundError, OptionError, StorageError
from icefloe.proto import sink_pb2
from icefloe.state.crash_points import crash_point
from icefloe.state.storage import StorageProvider

__all__ = ["FileStore", "Part", "Upload", "open_file_store", "publish_file"]


def open_file_store(url: str, options: Mapping[str, str], *, job_id: str) -> FileStore:
    """Return the store for an absolute path, a ``file:`` URL (taken as it stands) or ``s3://bucket/prefix``.

    Nothing is contacted or created before the first call. Raises ``OptionError`` for any other URL.
    """
    scheme, colon, rest = url.partition(":")
    if url.startswith("/"):
        return LocalFileStore(Path(url), job_id=job_id)
    if colon and scheme == "file":
        path = rest.removeprefix("//").removeprefix("localhost") if rest.startswith("//") else rest
        if path.startswith("/"):
            return LocalFileStore(Path(path), job_id=job_id)
    if scheme in ("s3", "s3a", "s3n"):
        # Imported only here: S3 libraries cost half a second that local jobs need not pay.
        from icefloe.connector.s3_file_store import S3FileStore

        return S3FileStore.open(url, options, job_id=job_id)
    raise OptionError(
        "ICEFLOE_TARGET_UNSUPPORTED",
        f"data files cannot be written to {url!r}: give an absolute path, file:///absolute/path or s3://bucket/prefix",
    )


def publish_file(files: FileStore, state: StorageProvider, file: sink_pb2.DataFile) -> None:
    """Make a finished file visible (step 5 of the protocol, paths only). Repeatable by anyone.

    1. complete the upload, or link the in-progress file; a file that is there already counts as done
    2. where that is gone: compose the file again from what the record names

    Files of tables, which tasks complete themselves, are left alone. Raises ``StorageError`` naming the file when
    neither is possible.
    """
    if not file.upload_id and not file.in_progress:
        return
    upload = Upload(file.name, file.attempt_id, file.upload_id or file.in_progress)
    parts = [Part(part.number, part.length_bytes, part.etag) for part in file.parts]
    try:
        files.complete(upload, parts)
    except NotFoundError as error:
        if not file.sources:
            raise StorageError(
                "ICEFLOE_FILE_LOST",
                f"{file.name} ({file.rows} rows, {file.length_bytes} bytes) was finished by attempt {file.attempt_id} "
                f"and is neither in {files.url} nor unfinished there: something ended its upload or deleted it. "
                "Restore it, or give it up with `icefloe finish --give-up`",
            ) from error
        crash_point("file.upload-gone")
        again = files.begin(file.name, file.attempt_id, hidden=True)
        files.complete(again, compose(files, again, state=state, segments=file.sources))
    crash_point("file.published")
