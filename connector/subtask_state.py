"""The state of one subtask of the sink: its in-flight files, their pending rows, and what it pre-commits."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from icefloe.connector.operator_state import PENDING, PRECOMMIT, PRECOMMIT_VERSION, RECOVERY
from icefloe.errors import CorruptStateError, StateError
from icefloe.proto import sink_pb2 as sink
from icefloe.proto import state_pb2 as pb
from icefloe.state import (
    Codec,
    CompactionConfig,
    MsgpackCodec,
    ProtobufCodec,
    StorageProvider,
    TableManager,
    TaskInfo,
    expiring_time_key_config,
    global_keyed_config,
)

SEQUENCE: Final = "_icefloe_sequence"
KEY: Final = "_icefloe_key"
# A row's sequence is its epoch, then its position among the rows that one attempt parks: it grows along the chain of
# records without a counter that anyone would have to keep.
_POSITION_BITS: Final = 32
# The deltas of the recovery table are merged after so many epochs, which bounds what a restore reads.
_COMPACT_AFTER_EPOCHS: Final = 16

_CONFIGS: Final = {
    RECOVERY: global_keyed_config(RECOVERY, "in-flight files, their footers and writers"),
    PRECOMMIT: global_keyed_config(PRECOMMIT, "finished files of this epoch", uses_two_phase_commit=True),
    PENDING: expiring_time_key_config(
        PENDING, "rows that are not encoded yet", retention=None, time_column=SEQUENCE, key_column=KEY
    ),
}
_CODECS: Final[dict[str, tuple[Codec[Any], Codec[Any]]]] = {
    RECOVERY: (MsgpackCodec(str), ProtobufCodec(sink.RecoveryEntry)),
    PRECOMMIT: (MsgpackCodec(str), ProtobufCodec(sink.PreCommits)),
}

# What attempts in this process left, by place of the state, job and subtask: a cache that saves reading the recovery
# table, never the truth. Another process may serve the subtask next time.
_MAX_LEFT_IN_MEMORY: Final = 64
_left_in_memory: dict[tuple[Hashable, str, int], TableManager] = {}


@dataclass(frozen=True, slots=True)
class StoredFile:
    """An in-flight file as the base record left it."""

    message: sink.InFlightFile
    footer: bytes | None
    writer: sink.WriterDescription


@dataclass(slots=True)
class ParkedRows:
    """The rows of one file in the pending table: runs of sequence numbers, in order."""

    key: int
    # First sequence that counts; rows of the key below it are encoded.
    first: int
    runs: list[tuple[int, int]] = field(default_factory=list)

    @classmethod
    def of(cls, message: sink.InFlightFile) -> ParkedRows:
        """Return what the base record says of a file: one run, however many state files it stands in."""
        runs = [(message.pending_from, message.pending_rows)] if message.pending_rows else []
        return cls(message.pending_key, message.pending_from, runs)

    def consume(self, rows: int, *, next_sequence: int) -> None:
        """Drop the first ``rows``, which are in row groups now. A row group always takes whole runs."""
        while rows and self.runs:
            _, length = self.runs.pop(0)
            rows -= length
        if rows:
            raise StateError("ICEFLOE_PENDING_ROWS", f"{rows} pending rows of key {self.key} were taken in part")
        self.first = self.runs[0][0] if self.runs else next_sequence


class SubtaskState:
    """Restores, changes and checkpoints the sink's three state tables for one attempt of one subtask (R1, R8)."""

    def __init__(
        self,
        info: TaskInfo,
        storage: StorageProvider,
        *,
        epoch: int,
        restore_from: Sequence[pb.OperatorCheckpointMetadata],
        data_schema: pa.Schema,
        cache_key: Hashable | None = None,
    ) -> None:
        """Restore from the base record; with a ``cache_key``, from memory where this process left just that state."""
        self._epoch = epoch
        self._schema = _pending_schema(data_schema)
        self._position = 0
        # Arrow bytes that were parked and are still in memory.
        self.unflushed_bytes = 0
        self._cache_key = cache_key
        self._manager = self._remembered(info, restore_from) or TableManager.open(
            info,
            _CONFIGS,
            storage,
            restore_from=restore_from,
            schemas={PENDING: self._schema},
            codecs=_CODECS,
            compaction=CompactionConfig(storage_provider=storage, min_compaction_epochs=_COMPACT_AFTER_EPOCHS),
            epoch=epoch,
        )
        self._recovery = self._manager.get_global_keyed_state(RECOVERY)
        self._pending = self._manager.get_expiring_time_key_table(PENDING)
        self._writers = {
            key: entry.writer for key, entry in self._recovery.items() if entry.WhichOneof("entry") == "writer"
        }

    def _remembered(self, info: TaskInfo, restore_from: Sequence[pb.OperatorCheckpointMetadata]) -> TableManager | None:
        """Return the tables that this process kept, if the base record names the attempt that left them (R11)."""
        left = _left_in_memory.pop((self._cache_key, info.job_id, info.subtask_index), None)
        if left is None or [o.operator_metadata.attempt_id for o in restore_from] != [left.task_info.attempt_id]:
            return None
        return left.continue_as(info, epoch=self._epoch, schemas={PENDING: self._schema})

    def files(self) -> list[StoredFile]:
        """Return the in-flight files that the base record gives to this subtask, oldest first."""
        found = [entry.file for _, entry in self._recovery.items() if entry.WhichOneof("entry") == "file"]
        for message in found:
            # Rows that are encoded already may still stand in state files that other rows keep alive.
            self._pending.set_cutoff(message.pending_key, message.pending_from)
        return [self._stored(message) for message in sorted(found, key=lambda m: (m.began_us, m.file_id))]

    def _stored(self, message: sink.InFlightFile) -> StoredFile:
        writer = self._writer(message.fingerprint.writer_digest)
        if writer is None:
            raise CorruptStateError(
                "ICEFLOE_STATE_INCOMPLETE",
                f"in-flight file {message.file_id} names a writer {message.fingerprint.writer_digest[:12]} that its "
                "recovery table does not have",
            )
        footer = self._recovery.get(_footer_key(message.file_id))
        return StoredFile(message, footer.footer if footer is not None else None, writer)

    def parked(self, rows: ParkedRows) -> Iterator[pa.RecordBatch]:
        """Yield the parked rows of a file in the order in which they came; only what can hold them is read."""
        for batch in self._pending.scan(min_time=rows.first, key=rows.key):
            yield batch.drop_columns([SEQUENCE, KEY])

    def next_sequence(self) -> int:
        """Return the sequence that the next parked row gets: above every one that an earlier epoch gave."""
        return (self._epoch << _POSITION_BITS) + self._position

    def park(self, rows: ParkedRows, batches: Iterable[pa.RecordBatch]) -> None:
        """Add rows of a file to its pending rows; durable with the next checkpoint, or with ``flush``."""
        for batch in batches:
            rows.runs.append((self.next_sequence(), batch.num_rows))
            start = self.next_sequence()
            self._position += batch.num_rows
            if self._position >= 1 << _POSITION_BITS:
                raise StateError("ICEFLOE_PENDING_FULL", "one task parked more than 4 billion rows: use more tasks")
            columns = [
                *batch.columns,
                pa.arange(start, start + batch.num_rows),
                pa.repeat(pa.scalar(rows.key, pa.uint64()), batch.num_rows),
            ]
            self._pending.insert(pa.RecordBatch.from_arrays(columns, schema=self._schema))
            self.unflushed_bytes += batch.nbytes

    def flush(self) -> None:
        """Write what was parked to storage and let go of it: memory is needed."""
        self._pending.flush()
        self.unflushed_bytes = 0

    def keep(self, message: sink.InFlightFile, footer: bytes | None, writer: sink.WriterDescription) -> None:
        """Record how far an in-flight file has come; a footer of None has not changed."""
        digest = message.fingerprint.writer_digest
        if self._writer(digest) is None:
            key = _writer_key(digest, self._epoch, self._manager.task_info.subtask_index)
            self._writers[key] = writer
            self._recovery.insert(key, sink.RecoveryEntry(writer=writer))
        self._recovery.insert(_file_key(message.file_id), sink.RecoveryEntry(file=message))
        if footer is not None:
            self._recovery.insert(_footer_key(message.file_id), sink.RecoveryEntry(footer=footer))
        self._pending.set_cutoff(message.pending_key, message.pending_from)

    def forget(self, file_id: str, pending_key: int) -> None:
        """Drop a file that has been rolled: its rows are in a data file that this epoch pre-commits."""
        self._recovery.remove(_file_key(file_id))
        self._recovery.remove(_footer_key(file_id))
        self._pending.remove_key(pending_key)

    def checkpoint(
        self, *, min_epoch: int, rolled: Sequence[sink.DataFile], then_stop: bool
    ) -> pb.OperatorCheckpointMetadata:
        """Write what changed and return the metadata that the record takes up; names every segment still needed."""
        live = [entry.file for _, entry in self._recovery.items() if entry.WhichOneof("entry") == "file"]
        self._forget_writers({message.fingerprint.writer_digest for message in live})
        if rolled:
            data = sink.PreCommits(files=rolled).SerializeToString(deterministic=True)
            self._manager.get_global_keyed_state(PRECOMMIT).set_commit_data(data, PRECOMMIT_VERSION)
        # No watermark: pending rows leave with the record that names the file they are in, never by event time.
        metadata = self._manager.checkpoint(self._epoch, min_epoch, None, then_stop)
        segments = [segment.name for message in live for segment in message.segments]
        sources = [segment.name for file in rolled for segment in file.sources]
        metadata.referenced_names.extend(sorted({*segments, *sources}))
        if live and not then_stop and self._cache_key is not None:
            self._remember()
        return metadata

    def _remember(self) -> None:
        info = self._manager.task_info
        _left_in_memory[(self._cache_key, info.job_id, info.subtask_index)] = self._manager
        while len(_left_in_memory) > _MAX_LEFT_IN_MEMORY:
            del _left_in_memory[next(iter(_left_in_memory))]

    def _writer(self, digest: str) -> sink.WriterDescription | None:
        return next((writer for key, writer in self._writers.items() if _digest_of(key) == digest), None)

    def _forget_writers(self, used: set[str]) -> None:
        for key in [key for key in self._writers if _digest_of(key) not in used]:
            self._recovery.remove(key)
            del self._writers[key]


def _pending_schema(data_schema: pa.Schema) -> pa.Schema:
    return pa.schema([*data_schema, pa.field(SEQUENCE, pa.int64()), pa.field(KEY, pa.uint64())])


def _file_key(file_id: str) -> str:
    return f"file/{file_id}"


def _footer_key(file_id: str) -> str:
    return f"footer/{file_id}"


def _writer_key(digest: str, epoch: int, subtask: int) -> str:
    """Return a key of this subtask's own: when it forgets a writer, a subtask whose state is merged with its own later
    (R8) must not lose the same one.
    """
    return f"writer/{digest}/{epoch}-{subtask}"


def _digest_of(writer_key: str) -> str:
    return writer_key.split("/")[1]
