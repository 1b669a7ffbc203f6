"""A task's side of the protocol: restore, write rows to in-flight files, roll those that are due, checkpoint.

Everything here takes a ``TaskInfo`` and plain values: Spark is met only in data_source.py.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable
from types import TracebackType

import pyarrow as pa

from icefloe.connector.committer import now_us
from icefloe.connector.data_names import file_id
from icefloe.connector.file_store import FileStore
from icefloe.connector.in_flight_file import InFlightFile
from icefloe.connector.messages import Base
from icefloe.connector.partitioner import PartitionKey
from icefloe.connector.roll_policy import RollReason
from icefloe.connector.subtask_state import StoredFile, SubtaskState
from icefloe.connector.write_plan import WritePlan, writer_fingerprint
from icefloe.connector.writer_stats import FsEventLogger
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
        self._fingerprint = writer_fingerprint(self._writer)
        self._partitioner = plan.partitioner()
        self._normalizer: BatchNormalizer | None = None
        self._context = self._new_context(self._writer, straight=plan.roll.every_batch)
        self._state = SubtaskState(
            info,
            state,
            epoch=self._epoch,
            restore_from=base.owned_by(info.subtask_index),
            data_schema=plan.data_schema().arrow,
        )
        crash_point("task.state-restored")
        # Files that take rows, those written longest ago first; several of one partition after an adoption (R8).
        self._open: OrderedDict[PartitionKey, list[InFlightFile]] = OrderedDict()
        self._retired: list[InFlightFile] = []
        self._rolled: list[sink.DataFile] = []
        self._began = 0
        self.input_rows = 0
        self.input_bytes = 0
        for stored in self._state.files():
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
        if self._normalizer is None:
            self._normalizer = BatchNormalizer(batch.schema, self._plan.schema)
        for key, part in self._partitioner.split(self._normalizer.apply(batch)):
            file = self._file_for(key)
            file.append(part)
            if self._plan.roll.is_full(file):
                self._roll(key, file, RollReason.SIZE)
        self._keep_budgets()

    def checkpoint(self) -> pb.OperatorCheckpointMetadata:
        """Roll what is due, make the rest durable, and return what the record must hold."""
        for file in self._retired:
            self._finish(file, RollReason.FINGERPRINT)
        now = self._clock()
        for key, file in self._files():
            reason = self._plan.roll.due(file, now_us=now, watermark_us=self._watermark_us)
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
            due = self._plan.roll.due(file, now_us=now, watermark_us=self._watermark_us)
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
        crash_point("task.suspended")
        return self._state.checkpoint(
            min_epoch=self._base.min_epoch,
            watermark_us=self._watermark_us,
            rolled=self._rolled,
            then_stop=then_stop,
        )

    def _files(self) -> list[tuple[PartitionKey, InFlightFile]]:
        return [(key, file) for key, files in self._open.items() for file in files]

    def _file_for(self, key: PartitionKey) -> InFlightFile:
        files = self._open.get(key)
        if files:
            self._open.move_to_end(key)
            return files[0]
        number = self._began
        self._began += 1
        file = InFlightFile.begin(
            self._context,
            file_id=file_id(self._info, self._epoch, number),
            name=self._name(key),
            partition=key,
            pending_key=pending_key(self._epoch, self._info.subtask_index, number),
        )
        self._open[key] = [file]
        return file

    def _resume(self, stored: StoredFile) -> None:
        key = PartitionKey.from_proto(stored.message.partition)
        same = stored.message.fingerprint == self._fingerprint
        file = InFlightFile.resume(
            self._context if same and not self._context.straight else self._new_context(stored.writer, straight=False),
            stored.message,
            stored.footer,
            load_pending=lambda: self._state.pending_rows(stored.message),
            name=self._name(key),
        )
        if not same:
            self._retired.append(file)
            return
        files = self._open.setdefault(key, [])
        files.append(file)
        files.sort(key=lambda f: f.size_bytes, reverse=True)

    def _roll(self, key: PartitionKey, file: InFlightFile, reason: RollReason) -> None:
        files = self._open[key]
        files.remove(file)
        if not files:
            del self._open[key]
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
        message = suspended.message
        if suspended.consumed_pending:
            message.pending_from = self._state.next_sequence()
        self._state.park(file.pending_key, suspended.new_pending)
        self._state.keep(message, suspended.footer, file.writer)

    def _keep_budgets(self) -> None:
        while len(self._open) > self._plan.max_open_files:
            self._close_longest_unwritten()
        files = [file for _, file in self._files()]
        while sum(file.buffered_bytes for file in files) > self._plan.memory_budget_bytes:
            max(files, key=lambda f: f.buffered_bytes).flush_row_group()
