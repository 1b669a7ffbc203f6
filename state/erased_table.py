"""One adapter for every kind of table, over the generic messages in which metadata stores all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from google.protobuf.message import DecodeError, Message

from icefloe.errors import CorruptStateError
from icefloe.proto import state_pb2 as pb
from icefloe.state.compaction import Compacted, CompactionConfig
from icefloe.state.storage import StorageProvider
from icefloe.state.table import CheckpointMessage, CommitData, Table, TableData, TableEpochCheckpointer
from icefloe.state.task_info import TaskInfo

M = TypeVar("M", bound=Message)
AnyTable = Table[Any, Any, Any]


def checked_proto_decode(expected: pb.TableEnum, found: pb.TableEnum, message: type[M], data: bytes, *, what: str) -> M:
    """Decode ``data`` as ``message`` after checking that it is of the expected table type.

    Raises ``CorruptStateError`` for another type or for bytes that are no such message; ``what`` names the object.
    """
    if expected != found:
        names = [_type_name(number) for number in (found, expected)]
        raise CorruptStateError(
            "ICEFLOE_STATE_TABLE_TYPE", f"{what} is of a table of type {names[0]} and was opened as {names[1]}"
        )
    try:
        return message.FromString(data)
    except DecodeError as error:
        raise CorruptStateError(
            "ICEFLOE_STATE_METADATA_CORRUPT", f"{what} is not a {message.DESCRIPTOR.name}: {error}"
        ) from error


def _type_name(number: pb.TableEnum) -> str:
    known: Mapping[int, str] = {value: name for name, value in pb.TableEnum.items()}
    return known.get(number, str(number))


class ErasedCheckpointer:
    """A checkpointer whose result is the generic metadata of a table."""

    def __init__(self, inner: TableEpochCheckpointer[Message], table_type: pb.TableEnum, subtask: int) -> None:
        self._inner = inner
        self._table_type = table_type
        self._subtask = subtask

    def insert_data(self, data: TableData) -> None:
        """See ``TableEpochCheckpointer.insert_data``."""
        self._inner.insert_data(data)

    def finish(self, checkpoint: CheckpointMessage) -> tuple[pb.TableSubtaskCheckpointMetadata, int] | None:
        """See ``TableEpochCheckpointer.finish``."""
        finished = self._inner.finish(checkpoint)
        if finished is None:
            return None
        message, size = finished
        return wrap_subtask(self._table_type, self._subtask, message), size


def wrap_subtask(table_type: pb.TableEnum, subtask: int, message: Message) -> pb.TableSubtaskCheckpointMetadata:
    """Return a table's own metadata as metadata stores it."""
    return pb.TableSubtaskCheckpointMetadata(
        subtask_index=subtask, table_type=table_type, data=message.SerializeToString(deterministic=True)
    )


class TableOperations:
    """What can be asked about a kind of table without opening one: the driver's and the clean-up's side."""

    def __init__(self, kind: type[AnyTable]) -> None:
        self.kind = kind

    @property
    def table_type(self) -> pb.TableEnum:
        """The number of this kind in stored metadata."""
        return self.kind.table_type()

    def decode_config(self, config: pb.TableConfig) -> Any:
        """Return the table's own configuration."""
        return self._decode(config.table_type, self.kind.ConfigMessage, config.config, "a table's configuration")

    def decode_merged(self, metadata: pb.TableCheckpointMetadata) -> Any:
        """Return the table's own joined metadata."""
        return self._decode(
            metadata.table_type, self.kind.TableCheckpointMessage, metadata.data, "a table's joined metadata"
        )

    def decode_subtask(self, metadata: pb.TableSubtaskCheckpointMetadata) -> Any:
        """Return the table's own metadata of one subtask."""
        return self._decode(
            metadata.table_type,
            self.kind.TableSubtaskCheckpointMetadata,
            metadata.data,
            f"a table's metadata of subtask {metadata.subtask_index}",
        )

    def _decode(self, found: pb.TableEnum, message: type[M], data: bytes, what: str) -> M:
        return checked_proto_decode(self.table_type, found, message, data, what=what)

    def merge_checkpoint_metadata(
        self, config: pb.TableConfig, by_subtask: Mapping[int, pb.TableSubtaskCheckpointMetadata]
    ) -> pb.TableCheckpointMetadata | None:
        """See ``Table.merge_checkpoint_metadata``."""
        decoded = {subtask: self.decode_subtask(message) for subtask, message in by_subtask.items()}
        merged = self.kind.merge_checkpoint_metadata(self.decode_config(config), decoded)
        return None if merged is None else self.wrap_merged(merged)

    def join(self, merged: Sequence[pb.TableCheckpointMetadata]) -> pb.TableCheckpointMetadata | None:
        """Return the files of several joined metadata as one: one subtask may have left state at several epochs."""
        if not merged:
            return None
        whole = self.decode_merged(merged[0])
        for more in merged[1:]:
            whole.MergeFrom(self.decode_merged(more))
        return self.wrap_merged(whole)

    def wrap_merged(self, message: Message) -> pb.TableCheckpointMetadata:
        """Return a table's own joined metadata as metadata stores it."""
        return pb.TableCheckpointMetadata(
            table_type=self.table_type, data=message.SerializeToString(deterministic=True)
        )

    def files_to_keep(self, config: pb.TableConfig, checkpoint: pb.TableCheckpointMetadata) -> set[str]:
        """See ``Table.files_to_keep``."""
        return self.kind.files_to_keep(self.decode_config(config), self.decode_merged(checkpoint))

    def committing_data(
        self, config: pb.TableConfig, checkpoint: pb.TableCheckpointMetadata
    ) -> dict[int, CommitData] | None:
        """See ``Table.committing_data``."""
        return self.kind.committing_data(self.decode_config(config), self.decode_merged(checkpoint))

    def apply_compacted_checkpoint(
        self, compacted: Compacted[pb.TableSubtaskCheckpointMetadata], current: pb.TableSubtaskCheckpointMetadata
    ) -> pb.TableSubtaskCheckpointMetadata:
        """See ``Table.apply_compacted_checkpoint``."""
        inner = Compacted(compacted.inputs, self.decode_subtask(compacted.outputs), compacted.bytes_written)
        applied = self.kind.apply_compacted_checkpoint(inner, self.decode_subtask(current))
        return wrap_subtask(self.table_type, current.subtask_index, applied)


class ErasedTable:
    """One open table of any kind."""

    def __init__(self, operations: TableOperations, inner: AnyTable) -> None:
        self.operations = operations
        self.inner = inner

    @classmethod
    def from_config(
        cls,
        kind: type[AnyTable],
        config: pb.TableConfig,
        task_info: TaskInfo,
        storage_provider: StorageProvider,
        checkpoint_message: pb.TableCheckpointMetadata | None,
    ) -> ErasedTable:
        """See ``Table.from_config``."""
        operations = TableOperations(kind)
        merged = None if checkpoint_message is None else operations.decode_merged(checkpoint_message)
        own_config = operations.decode_config(config)
        inner = kind.from_config(own_config, task_info, storage_provider, merged, config.state_version)
        return cls(operations, inner)

    def epoch_checkpointer(
        self, epoch: int, previous_metadata: pb.TableSubtaskCheckpointMetadata | None
    ) -> ErasedCheckpointer:
        """See ``Table.epoch_checkpointer``."""
        previous = None if previous_metadata is None else self.operations.decode_subtask(previous_metadata)
        inner = self.inner.epoch_checkpointer(epoch, previous)
        return ErasedCheckpointer(inner, self.operations.table_type, self.inner.task_info.subtask_index)

    def subtask_metadata_from_table(
        self, table_metadata: pb.TableCheckpointMetadata
    ) -> pb.TableSubtaskCheckpointMetadata | None:
        """See ``Table.subtask_metadata_from_table``."""
        mine = self.inner.subtask_metadata_from_table(self.operations.decode_merged(table_metadata))
        return None if mine is None else self._wrap(mine)

    def compact_data(
        self, config: CompactionConfig, epoch: int, current: pb.TableSubtaskCheckpointMetadata
    ) -> Compacted[pb.TableSubtaskCheckpointMetadata] | None:
        """See ``Table.compact_data``."""
        compacted = self.inner.compact_data(config, epoch, self.operations.decode_subtask(current))
        if compacted is None:
            return None
        return Compacted(compacted.inputs, self._wrap(compacted.outputs), compacted.bytes_written)

    def _wrap(self, message: Message) -> pb.TableSubtaskCheckpointMetadata:
        return wrap_subtask(self.operations.table_type, self.inner.task_info.subtask_index, message)
