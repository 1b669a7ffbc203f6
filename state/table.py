"""The contract of a state table: how its changes become files of an epoch, and how files become the table again."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Protocol, Self, TypeAlias, TypeVar

import pyarrow as pa
from google.protobuf.message import Message

from icefloe.errors import StateError
from icefloe.proto import state_pb2 as pb
from icefloe.state.compaction import Compacted, CompactionConfig
from icefloe.state.parquet_files import TableFileWriter
from icefloe.state.storage import StorageProvider
from icefloe.state.task_info import TaskInfo

K = TypeVar("K")
V = TypeVar("V")
# Invariant on purpose: a table reads and writes exactly its own messages.
Config = TypeVar("Config", bound=Message)
Merged = TypeVar("Merged", bound=Message)
Subtask = TypeVar("Subtask", bound=Message)
Finished = TypeVar("Finished", covariant=True)


@dataclass(frozen=True, slots=True)
class DataTuple(Generic[K, V]):
    """What the owner of a key-time table inserts: a value of a key at a time; None removes the key as of that time."""

    timestamp: int
    key: K
    value: V | None


@dataclass(frozen=True, slots=True)
class BlindDataTuple:
    """A ``DataTuple`` as its checkpointer sees it: encoded, with the routing hash of its key."""

    key_hash: int
    timestamp: int
    key: bytes
    value: bytes | None


@dataclass(frozen=True, slots=True)
class RecordBatchData:
    """Rows of a time table."""

    batch: pa.RecordBatch


@dataclass(frozen=True, slots=True)
class KeyedData:
    """Encoded values of a global table by encoded key; None is a tombstone.

    ``replaces`` names the carried files that these values stand for together with the changes: a merge from memory.
    """

    changes: Mapping[bytes, bytes | None]
    replaces: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TupleData:
    """Changes of a key-time table."""

    tuples: Sequence[BlindDataTuple]


@dataclass(frozen=True, slots=True)
class CommitData:
    """What becomes final with this epoch's record; at most one for each table and epoch."""

    data: bytes
    version: int = 0


TableData: TypeAlias = RecordBatchData | KeyedData | TupleData | CommitData


@dataclass(frozen=True, slots=True)
class CheckpointMessage:
    """The cut that a checkpointer finishes. ``time`` is the wall clock in microseconds."""

    epoch: int
    time: int
    watermark: int | None = None
    then_stop: bool = False
    min_epoch: int = 0


class TableEpochCheckpointer(Protocol[Finished]):
    """Gathers one table's changes of one epoch and writes them. Used once."""

    def insert_data(self, data: TableData) -> None:
        """Take changes. Raises ``StateError`` for a kind of data that the table does not have."""
        ...

    def finish(self, checkpoint: CheckpointMessage) -> tuple[Finished, int] | None:
        """Write what changed and return the table's metadata and the bytes written; None: there is nothing to restore.

        The table itself is unchanged: a failed checkpoint leaves the earlier epoch as it was.
        """
        ...


class Table(ABC, Generic[Config, Merged, Subtask]):
    """One kind of state table. An instance is one table of one subtask."""

    Checkpointer: ClassVar[type[Any]]
    ConfigMessage: ClassVar[type[Message]]
    TableCheckpointMessage: ClassVar[type[Message]]
    TableSubtaskCheckpointMetadata: ClassVar[type[Message]]

    table_name: str
    task_info: TaskInfo
    storage_provider: StorageProvider
    state_version: int
    writer: TableFileWriter
    # None: carried files are never merged.
    compaction: CompactionConfig | None = None

    @classmethod
    @abstractmethod
    def table_type(cls) -> pb.TableEnum:
        """Return the number of this kind in stored metadata."""

    @classmethod
    @abstractmethod
    def from_config(
        cls,
        config: Config,
        task_info: TaskInfo,
        storage_provider: StorageProvider,
        checkpoint_message: Merged | None,
        state_version: int,
    ) -> Self:
        """Return the table as ``checkpoint_message`` describes it, or a new one for None.

        Raises ``CorruptStateError`` when it names a file that is gone or garbled, ``StateVersionError`` when a file is
        of a newer version.
        """

    @abstractmethod
    def epoch_checkpointer(self, epoch: int, previous_metadata: Subtask | None) -> TableEpochCheckpointer[Subtask]:
        """Return the checkpointer of ``epoch``, which carries forward what ``previous_metadata`` names."""

    @classmethod
    @abstractmethod
    def merge_checkpoint_metadata(cls, config: Config, by_subtask: Mapping[int, Subtask]) -> Merged | None:
        """Join what the subtasks wrote; None when no subtask has anything to restore."""

    @abstractmethod
    def subtask_metadata_from_table(self, table_metadata: Merged) -> Subtask | None:
        """Return the part of the joined metadata that this subtask carries forward: each file by one, or in parts."""

    @abstractmethod
    def compact_data(self, config: CompactionConfig, epoch: int, current: Subtask) -> Compacted[Subtask] | None:
        """Merge carried files into fewer under ``epoch``; None when it would not help. Inputs are not deleted."""

    @classmethod
    @abstractmethod
    def apply_compacted_checkpoint(cls, compacted: Compacted[Subtask], current: Subtask) -> Subtask:
        """Put the outputs in place of exactly the inputs; other files of ``current``, newer ones too, stay.

        Raises ``StateError`` when an input is not there any more.
        """

    @classmethod
    @abstractmethod
    def files_to_keep(cls, config: Config, checkpoint: Merged) -> set[str]:
        """Return the names of all files that restoring ``checkpoint`` reads."""

    @classmethod
    def committing_data(cls, config: Config, table_metadata: Merged) -> dict[int, CommitData] | None:
        """Return the two-phase commit data by subtask; None for a table without."""
        return None


def wrong_kind(table: str, data: TableData, accepted: str) -> StateError:
    """Return the error for a kind of data that the table named ``table`` does not take."""
    return StateError(
        "ICEFLOE_STATE_DATA_KIND", f"table {table!r} takes {accepted}, it was given {type(data).__name__}"
    )
