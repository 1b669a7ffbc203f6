"""Records that this process has seen, by digest: a chain is followed without reading again what can never change."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Generic, TypeVar

T = TypeVar("T")


class DigestCache(Generic[T]):
    """Values by the digest of their stored bytes, the last used ones, up to a number of bytes. Safe for threads.

    The digest names the content, so an entry is never wrong, whoever stored it and wherever. Values are shared: callers
    do not change them.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._entries: OrderedDict[str, tuple[T, int]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def get(self, digest: str) -> T | None:
        """Return the value, or None when it is not, or no longer, held."""
        with self._lock:
            entry = self._entries.get(digest)
            if entry is None:
                return None
            self._entries.move_to_end(digest)
            return entry[0]

    def add(self, digest: str, value: T, size_bytes: int) -> None:
        """Hold ``value``, whose stored form has ``size_bytes``; a value above the limit is not held."""
        with self._lock:
            if digest in self._entries or size_bytes > self._max_bytes:
                return
            self._entries[digest] = (value, size_bytes)
            self._bytes += size_bytes
            while self._bytes > self._max_bytes:
                _, (_, dropped_bytes) = self._entries.popitem(last=False)
                self._bytes -= dropped_bytes
