"""The backend that keeps checkpoints as objects: sealed protobuf metadata beside Parquet table files."""

from __future__ import annotations

import zlib
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor

from icefloe.errors import CorruptStateError, StateError, StorageError
from icefloe.proto.state_pb2 import CheckpointMetadata, OperatorCheckpointMetadata
from icefloe.state.clean_up import CleanUpReport, clean_up
from icefloe.state.crash_points import crash_point
from icefloe.state.object_names import operator_metadata_name
from icefloe.state.records import Record, RecordLog
from icefloe.state.sealing import FORMAT_VERSION, newer_format, seal, unseal
from icefloe.state.storage import StorageProvider

# Small requests that wait for the store, not for this process.
_WRITERS = 16


class ParquetBackend:
    """A ``BackingStore`` over any storage provider. Holds no state; any number may be open on one job."""

    def __init__(self, storage: StorageProvider, job_id: str) -> None:
        self._storage = storage
        self._job_id = job_id
        self._records = RecordLog(storage, job_id)

    @property
    def records(self) -> RecordLog:
        """The job's records, for callers that follow the chain themselves."""
        return self._records

    def write_operator_checkpoint_metadata(self, metadata: OperatorCheckpointMetadata) -> None:
        """Store the metadata at ``{job}/checkpoints/{epoch}/operator-{operator}-{subtask}.metadata``; repeatable.

        Returns only after the stored object was read back with the same length and checksum. Raises ``StorageError``
        when it was not, ``StateError`` for metadata of another job.
        """
        name = self._operator_name(metadata)
        data = seal(metadata)
        self._storage.put(name, data)
        stored = self._storage.get(name)
        if (len(stored), zlib.crc32(stored)) != (len(data), zlib.crc32(data)):
            raise StorageError(
                "ICEFLOE_STORAGE_UNVERIFIED",
                f"{self._where(name)} was written with {len(data)} bytes, CRC-32 {zlib.crc32(data):08x}, and reads "
                f"back with {len(stored)} bytes, {zlib.crc32(stored):08x}: something else writes there, or the store "
                "is broken",
            )

    def write_operators(self, record: Record) -> None:
        """Copy the metadata of the subtasks that changed out of the record, several at a time; repeatable.

        Raises what ``write_operator_checkpoint_metadata`` raises; others may have been written then.
        """
        changed = [o for o in record.metadata.operators if o.operator_metadata.epoch == record.epoch]
        with ThreadPoolExecutor(min(_WRITERS, len(changed)) or 1, "icefloe-operators") as writers:
            for _ in writers.map(self.write_operator_checkpoint_metadata, changed):
                crash_point("state.operator-written")

    def read_operator_checkpoint_metadata(
        self, epoch: int, operator_id: str, subtask_index: int
    ) -> OperatorCheckpointMetadata:
        """Return what was stored. Raises ``NotFoundError``, ``CorruptStateError``, ``StateVersionError``."""
        name = operator_metadata_name(self._job_id, epoch, operator_id, subtask_index)
        metadata = unseal(self._storage.get(name), OperatorCheckpointMetadata, self._where(name))
        return self._checked(metadata, name)

    def put_record(self, metadata: CheckpointMetadata) -> Record:
        """Create the record (R4), then make sure that it is the head (R5).

        Raises ``ConflictError`` when the epoch has another record, ``FencedError`` when a higher one exists.
        """
        record = self._records.put(metadata)
        crash_point("state.record-put")
        self._records.ensure_head(record)
        return record

    def read_record(self, epoch: int) -> Record:
        """Return the record of ``epoch``. Raises ``NotFoundError``, ``CorruptStateError``, ``StateVersionError``."""
        return self._records.read(epoch)

    def list_records(self) -> list[int]:
        """Return the epochs that have a record, lowest first."""
        return self._records.epochs()

    def prepare_restore(self, epoch: int) -> list[OperatorCheckpointMetadata]:
        """Return the state of every subtask at ``epoch``, from the record itself: the copies beside it may be missing.

        Raises ``StateError`` when the epoch is not part of the head's history, ``CorruptStateError`` or
        ``StateVersionError`` when a record on the way to it is missing, damaged or newer.
        """
        head = self._records.head()
        if head is None or epoch > head.epoch:
            there = "none" if head is None else f"0 to {head.epoch}"
            raise StateError(
                "ICEFLOE_EPOCH_UNKNOWN",
                f"epoch {epoch} of job {self._job_id} has no record in {self._storage.url} (there: {there}): check the "
                "job and the state location",
            )
        record = head if epoch == head.epoch else self._in_chain(head, epoch)
        return [self._checked(operator, f"epoch {epoch}") for operator in record.metadata.operators]

    def clean_up(self, *, also_referenced: Collection[str] = (), seconds: float | None = None) -> CleanUpReport:
        """Delete what no record of the chain names (R9), then void records. Nothing happens before the first record."""
        head = self._records.head()
        chain = self._records.chain(head) if head else []
        return clean_up(self._storage, self._job_id, chain, also_referenced=also_referenced, seconds=seconds)

    def _in_chain(self, head: Record, epoch: int) -> Record:
        chain = self._records.chain(head)
        for record in chain:
            if record.epoch == epoch:
                return record
        raise StateError(
            "ICEFLOE_EPOCH_VOID",
            f"epoch {epoch} of job {self._job_id} is below {chain[-1].epoch}, the oldest one that is kept: restore "
            f"that one or a later one, up to {head.epoch}",
        )

    def _checked(self, metadata: OperatorCheckpointMetadata, where: str) -> OperatorCheckpointMetadata:
        if metadata.format_version > FORMAT_VERSION:
            raise newer_format(metadata.format_version, self._where(where))
        if metadata.operator_metadata.job_id != self._job_id:
            raise CorruptStateError(
                "ICEFLOE_STATE_CORRUPT",
                f"{self._where(where)} has metadata of job {metadata.operator_metadata.job_id!r}: objects were moved "
                "or copied by hand; restore them from a copy",
            )
        return metadata

    def _operator_name(self, metadata: OperatorCheckpointMetadata) -> str:
        operator = metadata.operator_metadata
        if operator.job_id != self._job_id:
            raise StateError(
                "ICEFLOE_OPERATOR_INVALID",
                f"metadata of job {operator.job_id!r} was given to the backend of job {self._job_id!r}",
            )
        return operator_metadata_name(self._job_id, operator.epoch, operator.operator_id, operator.subtask_index)

    def _where(self, name: str) -> str:
        return f"{self._storage.url}/{name}"
