"""All state tables of one operator subtask: opened from metadata, checkpointed together, handed on between attempts."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa

from icefloe.errors import StateError
from icefloe.proto import state_pb2 as pb
from icefloe.state.compaction import CompactionConfig
from icefloe.state.crash_points import crash_point
from icefloe.state.encoding import Codec, KeyedCodecs
from icefloe.state.global_keyed_view import GlobalKeyedView
from icefloe.state.key_time_view import KeyTimeView
from icefloe.state.sealing import FORMAT_VERSION
from icefloe.state.storage import StorageProvider
from icefloe.state.table import CheckpointMessage
from icefloe.state.table_slot import TableSlot, check_restorable, open_slot
from icefloe.state.task_info import TaskInfo
from icefloe.state.time_view import ExpiringTimeKeyView
from icefloe.state.write_gate import WriteGate

_NO_SCHEMAS: Mapping[str, pa.Schema] = {}
_NO_CODECS: Mapping[str, KeyedCodecs] = {}


class MetadataWriter(Protocol):
    """Where a checkpoint's metadata goes when the manager itself is to make it durable (``ParquetBackend`` is one)."""

    def write_operator_checkpoint_metadata(self, metadata: pb.OperatorCheckpointMetadata) -> object: ...


def now_us() -> int:
    """Return the wall clock in microseconds since the Unix epoch."""
    return time.time_ns() // 1000


class TableManager:
    """Owns the tables of one attempt of one subtask. For one thread; use ``open``.

    Guarantee: metadata that ``checkpoint`` returned restores exactly the tables as they were at that call, and nothing
    that happens in this manager afterwards changes that.
    """

    def __init__(
        self,
        task_info: TaskInfo,
        slots: Mapping[str, TableSlot],
        *,
        gate: WriteGate,
        last_epoch: int | None,
        backend: MetadataWriter | None,
        clock: Callable[[], int],
    ) -> None:
        self.task_info = task_info
        self._slots = slots
        self._gate = gate
        self._last_epoch = last_epoch
        self._backend = backend
        self._clock = clock
        self._closed: str | None = None

    @classmethod
    def open(
        cls,
        task_info: TaskInfo,
        configs: Mapping[str, pb.TableConfig],
        storage: StorageProvider,
        *,
        restore_from: Sequence[pb.OperatorCheckpointMetadata] = (),
        compaction: CompactionConfig | None = None,
        schemas: Mapping[str, pa.Schema] = _NO_SCHEMAS,
        codecs: Mapping[str, KeyedCodecs | tuple[Codec[Any], Codec[Any]]] = _NO_CODECS,
        backend: MetadataWriter | None = None,
        epoch: int | None = None,
        clock: Callable[[], int] = now_us,
    ) -> TableManager:
        """Open new tables, or those that ``restore_from`` describes.

        With ``task_info.parallelism`` 0 everything in ``restore_from`` belongs to this subtask; otherwise time tables
        are dealt by key range and global tables replicated. ``epoch``, where known, is the one that the next checkpoint
        will have. Raises ``CorruptStateError`` for a file that is gone or garbled or a table of another type,
        ``StateVersionError`` for newer state, ``StateError`` for stored tables that ``configs`` does not have.
        """
        check_restorable(task_info, configs, restore_from)
        gate = WriteGate()
        slots = {
            name: open_slot(
                name,
                config,
                task_info,
                storage,
                restore_from=restore_from,
                compaction=compaction,
                schema=schemas.get(name),
                codecs=_as_codecs(codecs.get(name)),
                gate=gate,
            )
            for name, config in configs.items()
        }
        last = max((metadata.operator_metadata.epoch for metadata in restore_from), default=None)
        manager = cls(task_info, slots, gate=gate, last_epoch=last, backend=backend, clock=clock)
        manager._expect(epoch)
        return manager

    def get_global_keyed_state(self, name: str) -> GlobalKeyedView[Any, Any]:
        """Return the view of a global table. Raises ``StateError`` for a name or type that is not registered."""
        return self._slot(name).global_view()

    def get_expiring_time_key_table(self, name: str) -> ExpiringTimeKeyView:
        """Return the view by time of a time table. Raises ``StateError`` as ``get_global_keyed_state``."""
        return self._slot(name).time_view()

    def get_key_time_table(self, name: str) -> KeyTimeView[Any, Any]:
        """Return the view by key of a time table, loaded. Raises ``StateError`` as ``get_global_keyed_state``."""
        return self._slot(name).key_time_view()

    def checkpoint(
        self, epoch: int, min_epoch: int = 0, watermark: int | None = None, then_stop: bool = False
    ) -> pb.OperatorCheckpointMetadata:
        """Make all changes durable and return the metadata that restores them.

        1. Each table writes what changed, under names of this attempt; a table without changes writes nothing.
        2. The files' names, sizes and checksums are gathered into the metadata.
        3. The backend, if there is one, stores the metadata.
        4. Memory lets go of what is durable, expired, or was needed by epochs below ``min_epoch`` only.

        When a step fails, nothing in memory has changed and the earlier epoch restores as before. With ``then_stop``
        further writes are refused. Raises ``StateError`` for an epoch that is not above the last one.
        """
        self._check_epoch(epoch, min_epoch)
        start = self._clock()
        message = CheckpointMessage(epoch, start, watermark, then_stop, min_epoch)
        written: dict[str, tuple[pb.TableSubtaskCheckpointMetadata, int]] = {}
        for name, slot in self._slots.items():
            finished = slot.write(message)
            crash_point("state.table_written")
            if finished is not None:
                written[name] = finished
        metadata = self._metadata(message, written)
        crash_point("state.tables_written")
        if self._backend is not None:
            self._backend.write_operator_checkpoint_metadata(metadata)
            crash_point("state.operator_metadata_written")
        for name, slot in self._slots.items():
            slot.saved(written[name][0] if name in written else None, message)
        self._last_epoch = epoch
        self._expect(None)
        if then_stop:
            self._gate.close(f"the checkpoint of epoch {epoch} was the last")
            self._closed = f"the checkpoint of epoch {epoch} was made with then_stop"
        return metadata

    def continue_as(
        self, task_info: TaskInfo, *, epoch: int | None = None, schemas: Mapping[str, pa.Schema] = _NO_SCHEMAS
    ) -> TableManager:
        """Return a manager with the same tables for another attempt of this subtask; this one is closed.

        Views that were handed out stay valid and belong to the new one; views of time tables take batches of
        ``schemas`` from now on. Raises ``StateError`` when anything is not checkpointed, or the subtask is another one.
        """
        self._check_open()
        mine, other = self.task_info, task_info
        same = (mine.job_id, mine.operator_id, mine.subtask_index, mine.parallelism)
        if same != (other.job_id, other.operator_id, other.subtask_index, other.parallelism):
            raise StateError("ICEFLOE_STATE_OTHER_SUBTASK", f"state of {mine} cannot be continued as {other}")
        unsaved = [name for name, slot in self._slots.items() if slot.has_unsaved]
        if unsaved or mine.attempt_id == other.attempt_id:
            raise StateError(
                "ICEFLOE_STATE_NOT_CHECKPOINTED",
                f"state of attempt {mine.attempt_id} can be continued only by another attempt and after a checkpoint; "
                f"tables with changes: {unsaved}. Open a manager from the metadata instead",
            )
        self._closed = f"attempt {other.attempt_id} continues its state"
        for name, slot in self._slots.items():
            slot.continue_as(task_info, schemas.get(name))
        manager = TableManager(
            task_info,
            self._slots,
            gate=self._gate,
            last_epoch=self._last_epoch,
            backend=self._backend,
            clock=self._clock,
        )
        manager._expect(epoch)
        return manager

    def _expect(self, epoch: int | None) -> None:
        for slot in self._slots.values():
            slot.expect(epoch)

    def _slot(self, name: str) -> TableSlot:
        self._check_open()
        if name not in self._slots:
            raise StateError(
                "ICEFLOE_STATE_TABLE_UNKNOWN",
                f"operator {self.task_info.operator_id!r} has no table {name!r}; registered: {sorted(self._slots)}",
            )
        return self._slots[name]

    def _check_open(self) -> None:
        if self._closed is not None:
            raise StateError("ICEFLOE_STATE_CLOSED", f"attempt {self.task_info.attempt_id}: {self._closed}")

    def _check_epoch(self, epoch: int, min_epoch: int) -> None:
        self._check_open()
        expected = {slot.expected_epoch for slot in self._slots.values() if slot.expected_epoch is not None}
        wrong = (self._last_epoch is not None and epoch <= self._last_epoch) or (expected and expected != {epoch})
        if wrong or min_epoch > epoch or epoch < 0:
            raise StateError(
                "ICEFLOE_STATE_EPOCH_ORDER",
                f"checkpoint of epoch {epoch} (min epoch {min_epoch}) by attempt {self.task_info.attempt_id}: the last "
                f"was {self._last_epoch}, the one begun is {expected or 'any'}; epochs only grow",
            )

    def _metadata(
        self, message: CheckpointMessage, written: Mapping[str, tuple[pb.TableSubtaskCheckpointMetadata, int]]
    ) -> pb.OperatorCheckpointMetadata:
        info, finish = self.task_info, self._clock()
        operator = pb.OperatorMetadata(
            job_id=info.job_id,
            operator_id=info.operator_id,
            epoch=message.epoch,
            subtask_index=info.subtask_index,
            owner_subtask=info.subtask_index,
            parallelism=info.parallelism,
            watermark=message.watermark,
            attempt_id=info.attempt_id,
        )
        subtask = pb.SubtaskCheckpointMetadata(
            subtask_index=info.subtask_index,
            start_time=message.time,
            finish_time=finish,
            watermark=message.watermark,
            bytes=sum(size for _, size in written.values()),
            table_metadata={name: table for name, (table, _) in written.items()},
            then_stop=message.then_stop,
        )
        return pb.OperatorCheckpointMetadata(
            format_version=FORMAT_VERSION,
            operator_metadata=operator,
            start_time=message.time,
            finish_time=finish,
            subtask=subtask,
            table_configs={name: slot.config for name, slot in self._slots.items()},
        )


def _as_codecs(given: KeyedCodecs | tuple[Codec[Any], Codec[Any]] | None) -> KeyedCodecs:
    if given is None:
        return KeyedCodecs()
    return given if isinstance(given, KeyedCodecs) else KeyedCodecs(*given)
