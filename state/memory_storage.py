"""State in the memory of one process: for tests, and for trying the state layer out."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime

from icefloe.errors import NotFoundError
from icefloe.state.storage import ObjectInfo, checked_key, checked_range


@dataclass(slots=True)
class _Location:
    objects: dict[str, tuple[bytes, datetime]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)


_locations: dict[str, _Location] = {}
_locations_lock = threading.Lock()


class MemoryStorage:
    """A ``StorageProvider`` whose objects belong to the process and are shared by all instances of one name.

    Unpickled in another process it opens that process's own (there empty) location of the same name.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        with _locations_lock:
            self._location = _locations.setdefault(name, _Location())

    @property
    def url(self) -> str:
        return f"memory://{self._name}"

    def put(self, key: str, data: bytes | memoryview) -> None:
        entry = (bytes(data), datetime.now(UTC))
        with self._location.lock:
            self._location.objects[checked_key(key)] = entry

    def put_if_absent(self, key: str, data: bytes | memoryview) -> bool:
        entry = (bytes(data), datetime.now(UTC))
        with self._location.lock:
            return self._location.objects.setdefault(checked_key(key), entry)[0] == entry[0]

    def get(self, key: str) -> bytes:
        with self._location.lock:
            entry = self._location.objects.get(checked_key(key))
        if entry is None:
            raise NotFoundError("ICEFLOE_STORAGE_NOT_FOUND", f"no object {key!r} in {self.url}")
        return entry[0]

    def get_range(self, key: str, start: int, length: int) -> bytes:
        checked_range(key, start, length)
        return self.get(key)[start : start + length]

    def size(self, key: str) -> int:
        return len(self.get(key))

    def list(self, prefix: str = "", *, after: str = "") -> Iterator[ObjectInfo]:
        with self._location.lock:
            found = [
                ObjectInfo(key, len(data), modified)
                for key, (data, modified) in self._location.objects.items()
                if key.startswith(prefix) and key > after
            ]
        return iter(sorted(found, key=lambda info: info.key))

    def delete_if_present(self, key: str) -> bool:
        with self._location.lock:
            return self._location.objects.pop(checked_key(key), None) is not None

    def __reduce__(self) -> tuple[object, ...]:
        return (MemoryStorage, (self._name,))

    def __repr__(self) -> str:
        return f"MemoryStorage({self._name!r})"


def forget_memory_storage(name: str) -> None:
    """Drop a location and all its objects. Instances that are still open keep the old ones to themselves."""
    with _locations_lock:
        _locations.pop(name, None)
