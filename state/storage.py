"""Where state lives: the contract that memory, local disk and S3 keep. Keys are relative, with ``/`` between parts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One stored object as a listing shows it."""

    key: str
    size_bytes: int
    modified: datetime


class StorageProvider(Protocol):
    """Durable, atomic objects under one location.

    Every write is all or nothing and durable on return. Transient faults are retried a bounded number of times with
    jitter, then raised as ``StorageError``; a name that is not there is ``NotFoundError``. A reply that was lost after
    the write landed is recognised by reading back. Safe for use by several threads and processes at once. Picklable,
    so that tasks can be given one by value; ``repr`` shows no secret.
    """

    @property
    def url(self) -> str:
        """The location in canonical form, without a trailing slash: ``memory://x``, ``file:///a/b``, ``s3://b/p``."""
        ...

    def put(self, key: str, data: bytes) -> None:
        """Store ``data``, replacing what is there."""
        ...

    def put_if_absent(self, key: str, data: bytes) -> bool:
        """Store ``data`` unless the key exists. Exact under any number of racing processes.

        Returns True when the object now holds exactly ``data`` (also when an earlier try of this call had landed and
        only its reply was lost), False when somebody else's object is there. Callers put a nonce in ``data``.
        """
        ...

    def get(self, key: str) -> bytes:
        """Return the whole object."""
        ...

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Return ``length`` bytes from ``start`` (fewer only at the end of the object); nothing else is read."""
        ...

    def size(self, key: str) -> int:
        """Return the object's length in bytes."""
        ...

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Yield the objects whose key starts with ``prefix``, in key order. Unfinished writes are never among them."""
        ...

    def delete_if_present(self, key: str) -> bool:
        """Delete the object; False when it was not there."""
        ...
