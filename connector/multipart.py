"""The contract of data file stores: files made of parts, which appear whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from icefloe.state.storage import ObjectInfo, StorageProvider


@dataclass(frozen=True, slots=True)
class Upload:
    """A file that was begun and is not visible under its name. A plain value: any process may go on with it."""

    name: str
    attempt_id: str
    # What the store knows it by: S3's upload id, or the local file that takes the parts, relative to the location.
    upload_id: str


@dataclass(frozen=True, slots=True)
class Part:
    """A part that is stored. Numbers start at 1 and have no gap."""

    number: int
    length_bytes: int
    etag: str = ""


class FileStore(Protocol):
    """Data files under one location. Names are relative, with ``/`` between parts.

    Safe for use by several threads and processes at once. Picklable; ``repr`` shows no secret. Transient faults are
    retried a bounded number of times, then raised as ``StorageError`` naming the file. Callers keep to R1: a name is
    begun only by the attempt whose id it carries.
    """

    @property
    def url(self) -> str:
        """The location, without a trailing slash: ``file:///a/b`` or ``s3://b/p``."""
        ...

    @property
    def min_part_bytes(self) -> int:
        """The least size of a part that is not the last one."""
        ...

    @property
    def uploads_expire(self) -> bool:
        """Whether something outside, such as a bucket's lifecycle rule, may end an upload that is not complete."""
        ...

    def begin(self, name: str, attempt_id: str, *, hidden: bool) -> Upload:
        """Begin a file. ``hidden`` says that readers list the location: then nothing may show before ``complete``."""
        ...

    def put_part(self, upload: Upload, number: int, offset_bytes: int, data: Sequence[bytes | memoryview]) -> Part:
        """Store the part that stands at ``offset_bytes``; parts may come in any order and from several threads."""
        ...

    def copy_part(
        self, upload: Upload, number: int, offset_bytes: int, source: StorageProvider, key: str, start: int, length: int
    ) -> Part:
        """Store a range of a state object as a part, without moving it through this process where the stores allow it.

        Raises ``CorruptStateError`` naming the object when it is gone or shorter than the range.
        """
        ...

    def copies_from(self, source: StorageProvider) -> bool:
        """Tell whether ``copy_part`` from ``source`` moves no bytes through this process."""
        ...

    def seal(self, upload: Upload, length_bytes: int) -> None:
        """Return once all parts are durable; nothing becomes visible. Raises ``StorageError`` on a wrong length."""
        ...

    def complete(self, upload: Upload, parts: Sequence[Part]) -> None:
        """Make the file visible, whole and durable. Repeatable by anyone.

        Done is proven by the attempt id and the length of what stands under the name. Raises ``NotFoundError`` when
        the upload is gone and that proof is not there.
        """
        ...

    def abort(self, upload: Upload) -> None:
        """Throw an unfinished file away. Repeatable; never touches a file that was completed."""
        ...

    def put(self, name: str, attempt_id: str, data: Sequence[bytes | memoryview]) -> None:
        """Store a whole file at once, visible and durable on return. Only where nobody lists the location."""
        ...

    def list_unfinished(self) -> Iterator[Upload]:
        """Yield what was begun for this job and not completed, whichever attempt did it."""
        ...

    def exists(self, name: str) -> int | None:
        """Return the length of a visible file, or None."""
        ...

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Yield the visible files whose name starts with ``prefix``, in name order."""
        ...

    def delete_if_present(self, name: str) -> bool:
        """Delete a visible file; False when it was not there."""
        ...
