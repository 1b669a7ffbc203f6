"""Finished row-group bytes between the encoder and what takes them away: an uploader or a local file."""

from __future__ import annotations

import threading
from collections import deque

from icefloe.errors import StateError


class SharedBuffer:
    """A first-in first-out queue of bytes that looks like a file to its writer.

    Safe for one thread that writes and another that takes. Nothing is allocated ahead and nothing copied on the way
    in: the buffer keeps views of what it was given and lets go of them as they are taken.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._chunks: deque[memoryview] = deque()
        self._length_bytes = 0
        self._written_bytes = 0

    def write(self, data: bytes | memoryview) -> int:
        """Append ``data``, which must not change afterwards. Returns its length, as files do."""
        view = memoryview(data)
        with self._lock:
            if len(view):
                self._chunks.append(view)
            self._length_bytes += len(view)
            self._written_bytes += len(view)
        return len(view)

    def tell(self) -> int:
        """Return how many bytes were ever written."""
        with self._lock:
            return self._written_bytes

    def flush(self) -> None:
        """Do nothing: what is written can be taken at once. Present because files have it."""

    def __len__(self) -> int:
        with self._lock:
            return self._length_bytes

    def split_to(self, length_bytes: int) -> bytes:
        """Take exactly the first ``length_bytes``; with fewer there, ``StateError`` is raised and nothing taken."""
        return b"".join(self.take(length_bytes))

    def take(self, length_bytes: int) -> list[memoryview]:
        """Take exactly the first ``length_bytes`` as views, without copying them."""
        with self._lock:
            if not 0 <= length_bytes <= self._length_bytes:
                raise StateError(
                    "ICEFLOE_BUFFER_SHORT",
                    f"{length_bytes} bytes were asked for, and the buffer holds {self._length_bytes} finished bytes",
                )
            self._length_bytes -= length_bytes
            return self._pop(length_bytes)

    def peek(self) -> bytes:
        """Return a copy of everything that is held; nothing is taken."""
        with self._lock:
            return b"".join(self._chunks)

    def _pop(self, length_bytes: int) -> list[memoryview]:
        taken: list[memoryview] = []
        while length_bytes > 0:
            chunk = self._chunks.popleft()
            if len(chunk) > length_bytes:
                self._chunks.appendleft(chunk[length_bytes:])
                chunk = chunk[:length_bytes]
            taken.append(chunk)
            length_bytes -= len(chunk)
        return taken
