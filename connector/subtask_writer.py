"""A task's side of the protocol: restore, write rows to in-flight files, roll those that are due, checkpoint.

Everything here takes a ``TaskInfo`` and plain values: Spark is met only in data_source.py.
"""

from __future__ import annotations

import dataclasses
import logging
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable
from types import TracebackType

import pyarrow as pa

from icefloe.connector.data_names import data_name, file_id
from icefloe.connector.file_context import FileContext
from icefloe.connector.file_store import FileStore
from icefloe.connector.in_flight_file import InFlightFile
from icefloe.connector.messages import Base
from icefloe.connector.partitioner import PartitionKey
from icefloe.connector.roll_policy import RollReason
from icefloe.connector.subtask_state import ParkedRows, StoredFile, SubtaskState
from icefloe.connector.write_plan import WritePlan, described_format, described_schema, writer_fingerprint
from icefloe.connector.writer_stats import FsEventLogger, now_us
from icefloe.errors import StateError
from icefloe.proto import sink_pb2 as sink
from icefloe.proto import state_pb2 as pb
from icefloe.schemas.normalize import BatchNormalizer
from icefloe.state.crash_points import crash_point
from icefloe.state.storage import StorageProvider
from icefloe.state.task_info import TaskInfo

logger = logging.getLogger("icefloe.task")

# pending_key = epoch of birth, subtask, number: no two files of one history can share it.
_SUBTASK_BITS = 16
_NUMBER_BITS = 16

_STAGED_BYTES = 16 << 20
# A part that is smaller than this share of the batch it was cut from is copied, so that it does not keep all of it.
_PINNING_SHARE = 8


def _unpinned(part: pa.RecordBatch, whole: pa.RecordBatch) -> pa.RecordBatch:
    """Return the part with buffers of its own, where it would keep a much larger batch in memory."""
    if part.num_rows * _PINNING_SHARE >= whole.num_rows:
        return part
    return pa.concat_batches([part, part.slice(0, 0)])


def pending_key(epoch: int, subtask: int, number: int) -> int:
    """Return the routing key of a file's pending rows. One attempt per epoch and subtask is ever recorded (R1)."""
    if subtask >= 1 << _SUBTASK_BITS or number >= 1 << _NUMBER_BITS:
        raise StateError(
            "ICEFLOE_TOO_MANY_FILES",
            f"subtask {subtask} began {number} files in one batch; at most {(1 << _NUMBER_BITS) - 1} are possible: "
            "partition more coarsely, or distribute the rows by partition (icefloe.distribute)",
        )
    return (epoch << (_SUBTASK_BITS + _NUMBER_BITS)) + (subtask << _NUMBER_BITS) + number


class SubtaskWriter:
    """Writes the rows of one attempt of one subtask.

    Delivery: exactly-once if the metadata that ``checkpoint`` returns goes into the record after ``base``. An attempt
    that is lost leaves only objects under names of its own (R1).
    """

    def __init__(
        self,
        info: TaskInfo,
        base: Base,
        plan: WritePlan,
        *,
        state: StorageProvider,
        files: FileStore,
        watermark_us: int | None = None,
        clock: Callable[[], int] = now_us,
        cache_key: Hashable | None = None,
        give_up: Collection[str] = (),
    ) -> None:
        self._info = info
        self._base = base
        self._plan = plan
        self._epoch = base.epoch + 1
        self._storage = state
        self._store = files
        self._watermark_us = watermark_us
        self._clock = clock
        self._events = FsEventLogger()
        self._writer = plan.writer()
        self._partitioner = plan.partitioner()
        self._normalizer: BatchNormalizer | None = None
        self._context = FileContext(
            info=info,
            epoch=self._epoch,
            state=state,
            files=files,
            format=plan.format,
            schema=plan.data_schema(),
            fingerprint=writer_fingerprint(self._writer),
            straight=plan.roll.every_batch,
            publish_later=plan.table is None,
            metrics_config=plan.properties,
            part_size_bytes=plan.part_size_bytes,
            clock=clock,
            events=self._events,
        )
        self._state = SubtaskState(
            info,
            state,
            epoch=self._epoch,
            restore_from=base.owned_by(info.subtask_index),
            data_schema=plan.data_schema().arrow,
            cache_key=cache_key,
        )
        crash_point("task.state-restored")
        # Files that take rows, those written longest ago first; several of one partition after an adoption (R8).
        self._open: OrderedDict[PartitionKey, list[InFlightFile]] = OrderedDict()
        # Partitions whose rows are parked in state, because too many files were open.
        self._idle: dict[PartitionKey, list[InFlightFile]] = {}
        # Files whose fingerprint is another one: they take no more rows.
        self._retired: list[InFlightFile] = []
        self._rolled: list[sink.DataFile] = []
        self._parked: dict[str, ParkedRows] = {}
        self._writers: dict[str, sink.WriterDescription] = {}
        self._began = 0
        self._named = 0
        self._staged: list[pa.RecordBatch] = []
        self._staged_bytes = 0
        self._staging_limit_bytes = min(_STAGED_BYTES, plan.memory_budget_bytes // 4, plan.roll.file_size_bytes // 4)
        self.input_rows = 0
        self.input_bytes = 0
        for stored in self._state.files():
            if stored.message.file_id in give_up:
                self._state.forget(stored.message.file_id, stored.message.pending_key)
            else:
                self._resume(stored)

    def __enter__(self) -> SubtaskWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        # R11: write() ends only after its threads have ended.
        self._context.close()

    def write(self, batch: pa.RecordBatch) -> None:
        """Take one batch of the stream: normalise, split by partition, buffer; encode and roll what is full."""
        self.input_rows += batch.num_rows
        self.input_bytes += batch.nbytes
        if self._plan.dropped_columns:
            batch = batch.drop_columns(list(self._plan.dropped_columns))
        if self._normalizer is None:
            self._normalizer = BatchNormalizer(batch.schema, self._plan.schema)
        self._staged.append(self._normalizer.apply(batch))
        self._staged_bytes += batch.nbytes
        # Batches are split by partition a few at a time: a part of each would be a handful of rows.
        if not self._plan.partition_fields or self._staged_bytes >= self._staging_limit_bytes:
            self._distribute()

    def checkpoint(self) -> pb.OperatorCheckpointMetadata:
        """Roll what is due, make the rest durable, and return what the record must hold."""
        self._distribute()
        for file in self._retired:
            self._finish(file, RollReason.FINGERPRINT)
        now = self._clock()
        for key, file in self._files():
            reason = self._due(file, now)
            if reason is not None:
                self._roll(key, file, reason)
        crash_point("task.rolled")
        return self._checkpoint(then_stop=False)

    def finish(self, *, due_only: bool) -> pb.OperatorCheckpointMetadata:
        """Roll everything in flight, or what is due, for ``icefloe finish``; no row is taken after it."""
        now = self._clock()
        # Another writer's description is no reason to roll here: the query that comes back decides that.
        for file in self._retired:
            self._open.setdefault(file.partition, []).append(file)
        self._retired.clear()
        for key, file in self._files():
            due = self._due(file, now)
            reason = due if due_only else RollReason.FINISH
            if reason is not None:
                self._roll(key, file, reason)
        return self._checkpoint(then_stop=True)

    def metrics(self) -> sink.EpochMetrics:
        """Return what this attempt did, for the record."""
        in_flight = [file for _, file in self._files()]
        metrics = self._events.epoch_metrics()
        metrics.rows = self.input_rows
        metrics.arrow_bytes = self.input_bytes
        metrics.files_rolled = len(self._rolled)
        metrics.files_in_flight = len(in_flight)
        metrics.rows_in_flight = sum(file.rows for file in in_flight)
        metrics.bytes_in_flight = sum(file.size_bytes for file in in_flight)
        return metrics

    def _checkpoint(self, *, then_stop: bool) -> pb.OperatorCheckpointMetadata:
        for _, file in self._files():
            self._suspend(file)
        pa.default_memory_pool().release_unused()
        crash_point("task.suspended")
        return self._state.checkpoint(min_epoch=self._base.min_epoch, rolled=self._rolled, then_stop=then_stop)

    def _distribute(self) -> None:
        """Give the staged rows to the files of their partitions."""
        if not self._staged:
            return
        whole = self._staged[0] if len(self._staged) == 1 else pa.concat_batches(self._staged)
        self._staged, self._staged_bytes = [], 0
        for key, part in self._partitioner.split(whole):
            file = self._file_for(key)
            file.append(_unpinned(part, whole))
            if self._is_full(file):
                self._roll(key, file, RollReason.SIZE)
        self._keep_budgets()

    def _due(self, file: InFlightFile, now_us: int) -> RollReason | None:
        if self._is_full(file) and not self._plan.roll.every_batch:
            return RollReason.SIZE
        return self._plan.roll.due(file, now_us=now_us, watermark_us=self._watermark_us)

    def _is_full(self, file: InFlightFile) -> bool:
        """Whether a file has its size. From half-way on that is no guess from a few rows, unless the batch ends it."""
        roll = self._plan.roll
        if not roll.every_batch and file.size_bytes * 2 >= roll.file_size_bytes:
            file.measure()
        return roll.is_full(file)

    def _files(self) -> list[tuple[PartitionKey, InFlightFile]]:
        return [(key, file) for held in (self._open, self._idle) for key, files in held.items() for file in files]

    def _file_for(self, key: PartitionKey) -> InFlightFile:
        if key in self._idle:
            self._open[key] = self._idle.pop(key)
        if key in self._open:
            self._open.move_to_end(key)
            return self._open[key][0]
        number = self._began
        self._began += 1
        key_of_rows = pending_key(self._epoch, self._info.subtask_index, number)
        identity = file_id(self._info, self._epoch, number)
        parked = self._parked[identity] = ParkedRows(key_of_rows, self._state.next_sequence())
        file = InFlightFile.begin(
            self._context,
            file_id=identity,
            name=self._name(key),
            partition=key,
            pending_key=key_of_rows,
            load_pending=lambda: self._state.parked(parked),
        )
        self._writers[identity] = self._writer
        self._open[key] = [file]
        return file

    def _name(self, key: PartitionKey) -> str:
        number = self._named
        self._named += 1
        name = data_name(self._info, self._epoch, number, prefix=self._plan.file_prefix)
        return self._plan.relative_name(name, key)

    def _resume(self, stored: StoredFile) -> None:
        message = stored.message
        key = PartitionKey.from_proto(message.partition)
        parked = self._parked[message.file_id] = ParkedRows.of(message)
        file = InFlightFile.resume(
            self._context_of(stored),
            message,
            stored.footer,
            lambda: self._state.parked(parked),
            name=self._name(key),
            partition=key,
        )
        self._writers[message.file_id] = stored.writer
        if message.fingerprint != self._context.fingerprint:
            self._retired.append(file)
            return
        # The fullest takes the rows, so that it is finished first.
        files = self._open.setdefault(key, [])
        files.append(file)
        files.sort(key=lambda f: f.size_bytes, reverse=True)

    def _context_of(self, stored: StoredFile) -> FileContext:
        if stored.message.fingerprint == self._context.fingerprint:
            return self._context
        return dataclasses.replace(
            self._context,
            format=described_format(stored.writer),
            schema=described_schema(stored.writer),
            fingerprint=stored.message.fingerprint,
            metrics_config=dict(stored.writer.properties),
        )

    def _roll(self, key: PartitionKey, file: InFlightFile, reason: RollReason) -> None:
        held = self._open if key in self._open else self._idle
        held[key].remove(file)
        if not held[key]:
            del held[key]
        self._finish(file, reason)

    def _finish(self, file: InFlightFile, reason: RollReason) -> None:
        rolled = file.roll()
        crash_point("task.file-rolled")
        logger.debug(
            "job %s epoch %d subtask %d: %s finished (%s), %d rows, %d bytes",
            self._info.job_id,
            self._epoch,
            self._info.subtask_index,
            rolled.name,
            reason,
            rolled.rows,
            rolled.length_bytes,
        )
        self._rolled.append(rolled)
        self._state.forget(file.file_id, file.pending_key)

    def _suspend(self, file: InFlightFile) -> None:
        suspended = file.suspend()
        parked = self._parked[file.file_id]
        parked.consume(suspended.consumed_pending_rows, next_sequence=self._state.next_sequence())
        self._state.park(parked, suspended.new_pending)
        message = suspended.message
        message.pending_from = parked.first
        self._state.keep(message, suspended.footer, self._writers[file.file_id])

    def _keep_budgets(self) -> None:
        while len(self._open) > self._plan.max_open_files:
            self._leave_memory(*self._open.popitem(last=False))
        if not self._over_budget():
            return
        self._state.flush()
        for _, file in self._files():
            # Rows that are being encoded leave memory by themselves, and waiting for them forces no small row group.
            if self._over_budget():
                file.settle()
        while self._over_budget():
            max((file for _, file in self._files()), key=lambda f: f.buffered_bytes).flush_row_group()
        # The pool keeps what was freed, for its next use: a third of the budget with hundreds of files.
        pa.default_memory_pool().release_unused()

    def _leave_memory(self, key: PartitionKey, files: list[InFlightFile]) -> None:
        """Take the partition that was written longest ago out of memory: finish its files, or park their rows."""
        if self._plan.roll.every_batch:
            for file in files:
                self._finish(file, RollReason.MAX_OPEN_FILES)
            return
        for file in files:
            self._state.park(self._parked[file.file_id], file.spill())
        self._idle[key] = files

    def _over_budget(self) -> bool:
        # An eighth is for what the pool loses between rows of many files (measured: up to a quarter at 1 GB).
        return self._buffered_bytes() > self._plan.memory_budget_bytes * 7 // 8

    def _buffered_bytes(self) -> int:
        return self._state.unflushed_bytes + sum(file.buffered_bytes for _, file in self._files())
