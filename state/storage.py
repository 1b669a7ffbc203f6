"""Where state lives: the contract that memory, local disk and S3 keep. Keys are relative, with ``/`` between parts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol, runtime_checkable

from icefloe.errors import StorageError

# First part of the keys that a provider keeps for itself (unfinished writes, probes); never listed, refused in calls.
RESERVED_PART = ".icefloe"


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

    def put(self, key: str, data: bytes | memoryview) -> None:
        """Store ``data``, replacing what is there."""
        ...

    def put_if_absent(self, key: str, data: bytes | memoryview) -> bool:
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

    def list(self, prefix: str = "", *, after: str = "") -> Iterator[ObjectInfo]:
        """Yield the objects whose key starts with ``prefix`` and sorts above ``after``, in key order.

        ``after`` is a key, or a prefix with its slash at the end. Stores that keep folders (SeaweedFS) order by folder,
        so ``a/b`` may come before ``a-b``: callers rely only on the order of names of one length. Unfinished writes are
        never among them. What is added or deleted while the listing runs may or may not show; what was there before it
        began and still is, does.
        """
        ...

    def delete_if_present(self, key: str) -> bool:
        """Delete the object; False when it was not there."""
        ...


@runtime_checkable
class ChecksPutIfAbsent(Protocol):
    """A provider whose service may only pretend to honour put-if-absent."""

    def check_conditional_put(self) -> None:
        """Try it out on an object of its own. Raises ``StorageError`` when the service does not honour it."""
        ...


@runtime_checkable
class DeletesMany(Protocol):
    """A provider that deletes many objects with few requests."""

    def delete_many(self, keys: Iterable[str]) -> None:
        """Delete the objects, present or not; repeatable. Raises ``StorageError`` when one could not be deleted."""
        ...


@runtime_checkable
class RemovesAbandonedWrites(Protocol):
    """A provider on which a killed writer leaves something behind that no listing shows."""

    def remove_abandoned_writes(self, older_than: timedelta) -> int:
        """Delete what killed writers left and return how much it was; repeatable, may race writers."""
        ...


def flat(data: bytes | memoryview) -> bytes | memoryview:
    """Return ``data`` as plain unsigned bytes: Arrow's buffers are signed, and would not compare equal."""
    return data.cast("B") if isinstance(data, memoryview) else data


def checked_key(key: str) -> str:
    """Return ``key`` when it names an object under the location and nothing outside of it; else ``StorageError``."""
    parts = key.split("/")
    outside = any(part in ("", ".", "..") for part in parts)
    if outside or parts[0] == RESERVED_PART or "\0" in key or "\\" in key:
        raise StorageError(
            "ICEFLOE_STORAGE_KEY_INVALID",
            f"{key!r} cannot be the key of an object: a key is relative, its parts are separated by single slashes, "
            f"none of them is '.' or '..', and the first is not {RESERVED_PART!r}",
        )
    return key


def checked_range(key: str, start: int, length: int) -> None:
    """Refuse a negative start or length with ``StorageError``."""
    if start < 0 or length < 0:
        raise StorageError(
            "ICEFLOE_STORAGE_RANGE_INVALID",
            f"reading {length} bytes from {start} of {key!r}: neither number may be negative",
        )
