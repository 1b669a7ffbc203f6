"""Where checkpoints are kept, as the state layer sees it: the contract between tables, their owner and a backend."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from icefloe.proto.state_pb2 import CheckpointMetadata, OperatorCheckpointMetadata
from icefloe.state.clean_up import CleanUpReport
from icefloe.state.records import Record


class OperatorMetadataWriter(Protocol):
    """What a table manager hands the metadata of its checkpoint to.

    A backend stores it. The sink's tasks pass one that puts it into the commit message instead, because only a record
    makes it count.
    """

    def write_operator_checkpoint_metadata(self, metadata: OperatorCheckpointMetadata) -> None:
        """Take the metadata of one subtask; returns only once it is where it belongs."""
        ...


class BackingStore(OperatorMetadataWriter, Protocol):
    """The checkpoints of one job: records, the operator metadata below them, and what nothing names any more."""

    def read_operator_checkpoint_metadata(
        self, epoch: int, operator_id: str, subtask_index: int
    ) -> OperatorCheckpointMetadata:
        """Return what was stored. Raises ``NotFoundError``, ``CorruptStateError``, ``StateVersionError``."""
        ...

    def put_record(self, metadata: CheckpointMetadata) -> Record:
        """Create the record of an epoch and make sure that it is the head.

        Raises ``ConflictError`` when the epoch has another record, ``FencedError`` when a higher one exists.
        """
        ...

    def read_record(self, epoch: int) -> Record:
        """Return the record of ``epoch``. Raises ``NotFoundError``, ``CorruptStateError``, ``StateVersionError``."""
        ...

    def list_records(self) -> list[int]:
        """Return the epochs that have a record, lowest first."""
        ...

    def prepare_restore(self, epoch: int) -> list[OperatorCheckpointMetadata]:
        """Return the state of every subtask at ``epoch``, checked to be part of the head's history.

        Raises ``StateError`` (or one below it) when the epoch is void, missing or damaged: never an empty list instead.
        """
        ...

    def clean_up(self, *, also_referenced: Collection[str] = (), seconds: float | None = None) -> CleanUpReport:
        """Delete what no record names any more, for at most ``seconds``. Repeatable; may race tasks and drivers."""
        ...
