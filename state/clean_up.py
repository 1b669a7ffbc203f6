"""Clean-up under the state location (R9): classify first, then delete, oldest first, at any time, any number of times.

A name tagged with epoch t may go when the head is at or past t and no record of the chain names it; a record may go
when it is below the chain. Both stay true for ever once they are, so clean-up may race tasks, drivers and itself.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

from google.protobuf.message import DecodeError, Message

from icefloe.errors import CorruptStateError, StorageError
from icefloe.proto import state_pb2 as pb
from icefloe.state.crash_points import crash_point
from icefloe.state.object_names import (
    ObjectKind,
    checkpoints_prefix,
    operator_metadata_name,
    parse,
    publish_log_name,
    record_name,
)
from icefloe.state.records import Record
from icefloe.state.storage import DeletesMany, RemovesAbandonedWrites, StorageProvider

_log = logging.getLogger(__name__)

# One object that cannot be deleted must not stop the rest; a store that is down should.
_MAX_FAILURES = 3
_BATCH_KEYS = 500
# No write of state takes as long.
_ABANDONED_AFTER = timedelta(days=1)

_FILE_MESSAGES: dict[int, type[Message]] = {
    pb.GLOBAL_KEY_VALUE: pb.GlobalKeyedTableSubtaskCheckpointMetadata,
    pb.EXPIRING_KEYED_TIME_TABLE: pb.ExpiringKeyedTimeSubtaskCheckpointMetadata,
}


@dataclass(frozen=True, slots=True)
class Removable:
    """An object that nothing needs any more, now or later."""

    key: str
    epoch: int
    kind: ObjectKind
    size_bytes: int


@dataclass(frozen=True, slots=True)
class CleanUpReport:
    """What one pass did. ``left`` are removable and still there: for lack of time, or because deleting failed."""

    removed: int = 0
    removed_bytes: int = 0
    left: int = 0
    failures: tuple[str, ...] = ()


def clean_up(
    storage: StorageProvider,
    job_id: str,
    chain: Sequence[Record],
    *,
    also_referenced: Collection[str] = (),
    seconds: float | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> CleanUpReport:
    """Classify and remove, for at most about ``seconds``. Safe at any time with any chain that was a head's once.

    Raises ``CorruptStateError`` when a record names its files in a way that cannot be read (nothing is deleted then),
    and ``StorageError`` when the listing fails. An object that cannot be deleted is reported, logged and left.
    """
    deadline = None if seconds is None else clock() + seconds
    removables = classify(storage, job_id, chain, also_referenced=also_referenced)
    report = remove(storage, removables, deadline=deadline, clock=clock)
    if isinstance(storage, RemovesAbandonedWrites):
        try:
            storage.remove_abandoned_writes(_ABANDONED_AFTER)
        except StorageError as error:
            _log.warning("clean-up left what killed writers had begun: %s", error)
    return report


def referenced_names(chain: Sequence[Record]) -> set[str]:
    """Return every name under the state location that a record of the chain needs, the records included."""
    names: set[str] = set()
    for record in chain:
        job = record.metadata.job_id
        names.add(record_name(job, record.epoch))
        names.add(publish_log_name(job, record.epoch))
        for operator in record.metadata.operators:
            who = operator.operator_metadata
            names.add(operator_metadata_name(job, who.epoch, who.operator_id, who.subtask_index))
            names.update(operator.referenced_names)
            names.update(_table_files(record, operator))
    return names


def classify(
    storage: StorageProvider, job_id: str, chain: Sequence[Record], *, also_referenced: Collection[str] = ()
) -> list[Removable]:
    """Return what may be removed, in the order in which to remove it: names by epoch, then void records by epoch.

    Lists once and changes nothing. Never contains a name tagged above the head (tasks may be writing it), the job's
    metadata, an object that the state layer did not name, or anything in ``also_referenced``.
    """
    if not chain:
        return []
    head_epoch = max(record.epoch for record in chain)
    kept = referenced_names(chain) | set(also_referenced)
    removables = []
    for info in storage.list(checkpoints_prefix(job_id)):
        found = parse(info.key)
        if found is None or found.epoch is None or found.epoch > head_epoch or info.key in kept:
            continue
        removables.append(Removable(info.key, found.epoch, found.kind, info.size_bytes))
    return sorted(removables, key=lambda r: (r.kind is ObjectKind.RECORD, r.epoch, r.key))


def remove(
    storage: StorageProvider,
    removables: Sequence[Removable],
    *,
    deadline: float | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> CleanUpReport:
    """Delete in the given order until ``deadline`` (a reading of ``clock``). Repeatable; what is gone already is fine.

    An object that cannot be deleted is logged and left; after a few such the pass ends.
    """
    removed = removed_bytes = 0
    failures: list[str] = []
    for part in _parts(storage, removables):
        if (deadline is not None and clock() >= deadline) or len(failures) >= _MAX_FAILURES:
            break
        try:
            _delete(storage, [removable.key for removable in part])
        except StorageError as error:
            _log.warning("clean-up left %d objects from %s on: %s", len(part), part[0].key, error)
            failures.append(str(error))
            continue
        removed += len(part)
        removed_bytes += sum(removable.size_bytes for removable in part)
        crash_point("state.removed")
    return CleanUpReport(removed, removed_bytes, len(removables) - removed, tuple(failures))


def _parts(storage: StorageProvider, removables: Sequence[Removable]) -> Iterator[list[Removable]]:
    """Cut into what is deleted together: a store that deletes many at once promises no order within one request."""
    if not isinstance(storage, DeletesMany):
        yield from ([removable] for removable in removables)
        return
    is_record = lambda removable: removable.kind is ObjectKind.RECORD  # noqa: E731
    for record, group in itertools.groupby(removables, key=is_record):
        members = list(group)
        step = 1 if record else _BATCH_KEYS
        yield from (members[start : start + step] for start in range(0, len(members), step))


def _delete(storage: StorageProvider, keys: list[str]) -> None:
    if isinstance(storage, DeletesMany):
        storage.delete_many(keys)
        return
    for key in keys:
        storage.delete_if_present(key)


def _table_files(record: Record, operator: pb.OperatorCheckpointMetadata) -> Iterator[str]:
    for table, metadata in operator.subtask.table_metadata.items():
        where = f"table {table!r} of {operator.operator_metadata.operator_id!r} in record {record.epoch}"
        message_type = _FILE_MESSAGES.get(metadata.table_type)
        if message_type is None:
            raise CorruptStateError(
                "ICEFLOE_STATE_CORRUPT", f"{where} has the unknown type {metadata.table_type}: nothing was deleted"
            )
        try:
            message = message_type.FromString(metadata.data)
        except DecodeError as error:
            raise CorruptStateError(
                "ICEFLOE_STATE_CORRUPT", f"the files of {where} cannot be read: nothing was deleted"
            ) from error
        yield from (file.file for file in message.files)  # type: ignore[attr-defined]
