"""Data files, a table and stepped storage in memory, for the model: each call is one step of the schedule."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from icefloe.connector.data_names import parse
from icefloe.connector.file_store import publish_file
from icefloe.connector.multipart import FileStore, Part, Upload
from icefloe.connector.targets import Publication, PublishOutcome
from icefloe.errors import ConflictError, NotFoundError
from icefloe.proto import sink_pb2 as sink
from icefloe.state.storage import ObjectInfo, StorageProvider

Step = Callable[[str], None]
_LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class MemoryWorld:
    """What outlives every process: visible files, unfinished ones, and the table's snapshots and ledger."""

    visible: dict[str, tuple[str, bytes]] = field(default_factory=dict)
    uploads: dict[str, tuple[str, str, dict[int, bytes]]] = field(default_factory=dict)
    snapshots: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    ledgers: dict[str, str] = field(default_factory=dict)
    begun: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


class SteppedStorage:
    """A storage provider of which each call is one step."""

    def __init__(self, inner: StorageProvider, step: Step, after: Step = lambda _: None) -> None:
        self._inner = inner
        self._step = step
        # Called when a change has been made and its caller does not know yet.
        self._after = after

    @property
    def url(self) -> str:
        return self._inner.url

    def put(self, key: str, data: bytes | memoryview) -> None:
        self._step(f"put {key}")
        self._inner.put(key, data)
        self._after(f"put {key}")

    def put_if_absent(self, key: str, data: bytes | memoryview) -> bool:
        self._step(f"put_if_absent {key}")
        put = self._inner.put_if_absent(key, data)
        self._after(f"put_if_absent {key}")
        return put

    def get(self, key: str) -> bytes:
        self._step(f"get {key}")
        return self._inner.get(key)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        self._step(f"get_range {key}")
        return self._inner.get_range(key, start, length)

    def size(self, key: str) -> int:
        self._step(f"size {key}")
        return self._inner.size(key)

    def list(self, prefix: str = "", *, after: str = "") -> Iterator[ObjectInfo]:
        self._step(f"list {prefix}")
        return iter(list(self._inner.list(prefix, after=after)))

    def delete_if_present(self, key: str) -> bool:
        self._step(f"delete {key}")
        deleted = self._inner.delete_if_present(key)
        self._after(f"delete {key}")
        return deleted


class MemoryFileStore:
    """A ``FileStore`` like S3: uploads have ids, appear whole when completed, and prove it by the attempt's id."""

    min_part_bytes = 1
    url = "memory://files"

    def __init__(self, world: MemoryWorld, step: Step, after: Step = lambda _: None, *, uploads_expire: bool) -> None:
        self._world = world
        self._step = step
        self._after = after
        self.uploads_expire = uploads_expire

    def begin(self, name: str, attempt_id: str, *, hidden: bool) -> Upload:
        self._step(f"begin {name}")
        self._world.begun += 1
        upload_id = f"upload-{self._world.begun}"
        self._world.uploads[upload_id] = (name, attempt_id, {})
        self._after(f"begin {name}")
        return Upload(name, attempt_id, upload_id)

    def put_part(self, upload: Upload, number: int, offset_bytes: int, data: Sequence[bytes | memoryview]) -> Part:
        self._step(f"put_part {upload.name} {number}")
        whole = b"".join(data)
        self._parts(upload)[number] = whole
        self._after(f"put_part {upload.name} {number}")
        return Part(number, len(whole))

    def copy_part(
        self, upload: Upload, number: int, offset_bytes: int, source: StorageProvider, key: str, start: int, length: int
    ) -> Part:
        return self.put_part(upload, number, offset_bytes, [source.get_range(key, start, length)])

    def copies_from(self, source: StorageProvider) -> bool:
        return False

    def seal(self, upload: Upload, length_bytes: int) -> None:
        assert sum(map(len, self._parts(upload).values())) == length_bytes

    def complete(self, upload: Upload, parts: Sequence[Part]) -> None:
        self._step(f"complete {upload.name}")
        if upload.upload_id not in self._world.uploads:
            there = self._world.visible.get(upload.name)
            if there is not None and there[0] == upload.attempt_id:
                return
            raise NotFoundError("ICEFLOE_UPLOAD_GONE", f"upload of {upload.name} is gone")
        stored = self._parts(upload)
        self._world.visible[upload.name] = (upload.attempt_id, b"".join(stored[part.number] for part in parts))
        del self._world.uploads[upload.upload_id]
        self._after(f"complete {upload.name}")

    def abort(self, upload: Upload) -> None:
        self._step(f"abort {upload.name}")
        self._world.uploads.pop(upload.upload_id, None)

    def put(self, name: str, attempt_id: str, data: Sequence[bytes | memoryview]) -> None:
        self._step(f"put file {name}")
        self._world.visible[name] = (attempt_id, b"".join(data))

    def list_unfinished(self) -> Iterator[Upload]:
        self._step("list uploads")
        return iter([Upload(n, a, i) for i, (n, a, _) in self._world.uploads.items() if parse(n) is not None])

    def exists(self, name: str) -> int | None:
        self._step(f"exists {name}")
        found = self._world.visible.get(name)
        return len(found[1]) if found else None

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        names = sorted(n for n in self._world.visible if n.startswith(prefix))
        return iter([ObjectInfo(name, len(self._world.visible[name][1]), _LONG_AGO) for name in names])

    def delete_if_present(self, name: str) -> bool:
        self._step(f"delete file {name}")
        return self._world.visible.pop(name, None) is not None

    def _parts(self, upload: Upload) -> dict[int, bytes]:
        found = self._world.uploads.get(upload.upload_id)
        if found is None:
            raise NotFoundError("ICEFLOE_UPLOAD_GONE", f"upload of {upload.name} is gone")
        return found[2]


class MemoryTable:
    """A table of the model: append and ledger are one step, refused unless the ledger is what was looked at."""

    def __init__(self, world: MemoryWorld, files: FileStore, state: StorageProvider, step: Step) -> None:
        self._world = world
        self._files = files
        self._state = state
        self._step = step

    def identity(self) -> sink.Target:
        return sink.Target(path="memory://table")

    def ledger(self, job_id: str) -> str:
        self._step("read ledger")
        return self._world.ledgers.get(job_id, "")

    def publish(self, publication: Publication) -> PublishOutcome:
        for file in publication.files:
            publish_file(self._files, self._state, file)
        while True:
            head = len(self._world.snapshots)
            found = self.ledger(publication.job_id)
            if found == publication.ledger:
                return PublishOutcome(already=True)
            if found != publication.expected_ledger:
                raise ConflictError("ICEFLOE_LEDGER", f"the ledger is {found}, expected {publication.expected_ledger}")
            self._step("append")
            if len(self._world.snapshots) == head:
                self._world.snapshots.append((publication.ledger, tuple(file.name for file in publication.files)))
                self._world.ledgers[publication.job_id] = publication.ledger
                return PublishOutcome(already=False)

    def clean_up(self, job_id: str, **_: Any) -> int:
        return 0
