"""A storage provider that fails on request, around a real one; it also counts what is asked of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import TypeVar

from icefloe.errors import StorageError
from icefloe.state.storage import ObjectInfo, StorageProvider

T = TypeVar("T")


class FaultKind(StrEnum):
    """What goes wrong."""

    ERROR_BEFORE = "nothing is written, the caller sees an error"
    ERROR_AFTER = "the write lands, the caller sees an error"
    REPLY_LOST = "the write lands, its reply is lost, and the provider tries again by itself"
    DISK_FULL = "nothing is written, and nothing will be"
    SLOW = "it takes long by the injected clock"


@dataclass(slots=True)
class FakeClock:
    """A clock that moves only when told to."""

    seconds: float = 0.0

    def __call__(self) -> float:
        return self.seconds

    def advance(self, by: timedelta) -> None:
        self.seconds += by.total_seconds()


@dataclass(slots=True)
class Fault:
    """One planned fault: which calls it hits, after how many that it lets pass, and how often."""

    kind: FaultKind
    operation: str = "put"
    key_contains: str = ""
    skip: int = 0
    times: int = 1
    delay: timedelta = timedelta()


@dataclass(slots=True)
class Call:
    """One call that reached the wrapper."""

    operation: str
    key: str
    size_bytes: int = 0


@dataclass(slots=True)
class FaultyStorage:
    """``inner`` with planned faults. Every call is in ``calls``, the ones that failed too."""

    inner: StorageProvider
    faults: list[Fault] = field(default_factory=list)
    clock: FakeClock = field(default_factory=FakeClock)
    calls: list[Call] = field(default_factory=list)

    @property
    def url(self) -> str:
        return self.inner.url

    def plan(self, fault: Fault) -> None:
        """Let ``fault`` happen from now on."""
        self.faults.append(fault)

    def count(self, operation: str, key_contains: str = "") -> int:
        """Return how many calls of ``operation`` there were on keys with ``key_contains`` in them."""
        return sum(1 for call in self.calls if call.operation == operation and key_contains in call.key)

    def bytes_of(self, *operations: str) -> int:
        """Return how many bytes the calls of ``operations`` moved."""
        return sum(call.size_bytes for call in self.calls if call.operation in operations)

    def put(self, key: str, data: bytes | memoryview) -> None:
        self._run("put", key, lambda: self.inner.put(key, data), len(data))

    def put_if_absent(self, key: str, data: bytes | memoryview) -> bool:
        return self._run("put_if_absent", key, lambda: self.inner.put_if_absent(key, data), len(data))

    def get(self, key: str) -> bytes:
        return self._counted("get", key, lambda: self.inner.get(key))

    def get_range(self, key: str, start: int, length: int) -> bytes:
        return self._counted("get_range", key, lambda: self.inner.get_range(key, start, length))

    def size(self, key: str) -> int:
        return self._run("size", key, lambda: self.inner.size(key))

    def list(self, prefix: str = "", *, after: str = "") -> Iterator[ObjectInfo]:
        return self._run("list", prefix, lambda: self.inner.list(prefix, after=after))

    def delete_if_present(self, key: str) -> bool:
        return self._run("delete_if_present", key, lambda: self.inner.delete_if_present(key))

    def _counted(self, operation: str, key: str, action: Callable[[], bytes]) -> bytes:
        data = self._run(operation, key, action)
        self.calls[-1].size_bytes = len(data)
        return data

    def _run(self, operation: str, key: str, action: Callable[[], T], size_bytes: int = 0) -> T:
        self.calls.append(Call(operation, key, size_bytes))
        fault = self._next_fault(operation, key)
        if fault is None:
            return action()
        if fault.kind is FaultKind.SLOW:
            self.clock.advance(fault.delay)
            return action()
        if fault.kind is FaultKind.DISK_FULL:
            raise StorageError("ICEFLOE_STORAGE_FULL", f"planned for a test: {operation} of {key!r} on a full disk")
        if fault.kind is not FaultKind.ERROR_BEFORE:
            action()
        if fault.kind is FaultKind.REPLY_LOST:
            return action()
        raise StorageError("ICEFLOE_STORAGE_FAILED", f"planned for a test: {fault.kind} ({operation} of {key!r})")

    def _next_fault(self, operation: str, key: str) -> Fault | None:
        for fault in self.faults:
            if fault.operation == operation and fault.key_contains in key and fault.times > 0:
                if fault.skip > 0:
                    fault.skip -= 1
                    continue
                fault.times -= 1
                return fault
        return None
