"""One table of a manager: the erased table, its metadata as of the last checkpoint, and the one view on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from icefloe.errors import CorruptStateError, StateError
from icefloe.proto import state_pb2 as pb
from icefloe.state.compaction import CompactionConfig
from icefloe.state.encoding import KeyedCodecs
from icefloe.state.erased_table import AnyTable, ErasedTable, TableOperations
from icefloe.state.expiring_time_key_table import ExpiringTimeKeyTable
from icefloe.state.global_keyed_table import GlobalKeyedTable
from icefloe.state.global_keyed_view import GlobalKeyedView
from icefloe.state.key_time_view import KeyTimeView
from icefloe.state.migration import check_version
from icefloe.state.parquet_files import TableFileWriter
from icefloe.state.storage import StorageProvider
from icefloe.state.table import CheckpointMessage
from icefloe.state.task_info import TaskInfo
from icefloe.state.time_view import ExpiringTimeKeyView
from icefloe.state.write_gate import WriteGate

TABLE_KINDS: Final[Mapping[int, type[AnyTable]]] = {
    kind.table_type(): kind for kind in (GlobalKeyedTable, ExpiringTimeKeyTable)
}
AnyView = GlobalKeyedView[Any, Any] | ExpiringTimeKeyView | KeyTimeView[Any, Any]


class TableSlot:
    """Keeps a table, its metadata and its view in step. Used by ``TableManager`` alone."""

    def __init__(
        self,
        config: pb.TableConfig,
        table: ErasedTable,
        current: pb.TableSubtaskCheckpointMetadata | None,
        *,
        codecs: KeyedCodecs,
        schema: pa.Schema | None,
        gate: WriteGate,
    ) -> None:
        self.config = config
        self._table = table
        self._current = current
        self._codecs = codecs
        self._schema = schema
        self._gate = gate
        self._view: AnyView | None = None
        self._epoch: int | None = None
        if isinstance(table.inner, GlobalKeyedTable):
            # Loaded on opening: what cannot be read must stop the start, not the first use.
            self._view = GlobalKeyedView(table.inner, codecs, gate)

    def global_view(self) -> GlobalKeyedView[Any, Any]:
        """Return the view, or raise ``StateError`` for a table that is no global one."""
        return self._view if isinstance(self._view, GlobalKeyedView) else self._refuse("a global keyed table")

    def time_view(self) -> ExpiringTimeKeyView:
        """Return the view, or raise ``StateError`` for a table that has no view by time."""
        if self._view is None and isinstance(self._table.inner, ExpiringTimeKeyTable):
            self._view = ExpiringTimeKeyView(self._table.inner, self._gate, schema=self._schema)
            self._view.epoch = self._epoch
        return self._view if isinstance(self._view, ExpiringTimeKeyView) else self._refuse("a time table")

    def key_time_view(self) -> KeyTimeView[Any, Any]:
        """Return the view, or raise ``StateError`` for a table that has no view by key."""
        if self._view is None and isinstance(self._table.inner, ExpiringTimeKeyTable):
            self._view = KeyTimeView(self._table.inner, self._codecs, self._gate)
        return self._view if isinstance(self._view, KeyTimeView) else self._refuse("a key-time table")

    def _refuse(self, wanted: str) -> Any:
        table = self._table.inner
        used = "" if self._view is None else f" and is used as {type(self._view).__name__}"
        raise StateError(
            "ICEFLOE_STATE_TABLE_TYPE",
            f"table {table.table_name!r} was asked for as {wanted}; it is a {type(table).__name__}{used}",
        )

    @property
    def has_unsaved(self) -> bool:
        """Whether the table has changes that no checkpoint took."""
        return self._view is not None and self._view.has_unsaved

    @property
    def expected_epoch(self) -> int | None:
        """The epoch for which files were already written, or which the owner has said is next."""
        return self._view.epoch if isinstance(self._view, ExpiringTimeKeyView) else self._epoch

    def expect(self, epoch: int | None) -> None:
        """Say which epoch is next; None: any."""
        self._epoch = epoch
        if isinstance(self._view, ExpiringTimeKeyView):
            self._view.epoch = epoch

    def write(self, message: CheckpointMessage) -> tuple[pb.TableSubtaskCheckpointMetadata, int] | None:
        """Write the changes; nothing in memory changes."""
        checkpointer = self._table.epoch_checkpointer(message.epoch, self._current)
        if self._view is not None:
            for data in self._view.unsaved(self._decoded(self._current)):
                checkpointer.insert_data(data)
        return checkpointer.finish(message)

    def saved(self, metadata: pb.TableSubtaskCheckpointMetadata | None, message: CheckpointMessage) -> None:
        """Take over what ``write`` returned: the checkpoint is complete."""
        self._current = metadata
        own = self._decoded(metadata)
        table = self._table.inner
        if isinstance(table, ExpiringTimeKeyTable):
            table.saved(own, message)
        if self._view is not None:
            self._view.saved(own)

    def _decoded(self, metadata: pb.TableSubtaskCheckpointMetadata | None) -> Any:
        return None if metadata is None else self._table.operations.decode_subtask(metadata)

    def continue_as(self, task_info: TaskInfo, schema: pa.Schema | None) -> None:
        """Write under another attempt's names from now on."""
        table = self._table.inner
        table.task_info = task_info
        table.writer = TableFileWriter(table.storage_provider, task_info, table.table_name)
        if schema is not None:
            self._schema = schema
            if isinstance(self._view, ExpiringTimeKeyView):
                self._view.set_schema(schema)


def open_slot(
    name: str,
    config: pb.TableConfig,
    task_info: TaskInfo,
    storage: StorageProvider,
    *,
    restore_from: Sequence[pb.OperatorCheckpointMetadata],
    compaction: CompactionConfig | None,
    schema: pa.Schema | None,
    codecs: KeyedCodecs,
    gate: WriteGate,
) -> TableSlot:
    """Open one table from what all given subtasks stored about it. See ``TableManager.open`` for what it raises."""
    kind = TABLE_KINDS.get(config.table_type)
    if kind is None:
        raise StateError("ICEFLOE_STATE_TABLE_TYPE", f"table {name!r} is declared with type {config.table_type}")
    operations = TableOperations(kind)
    merged = _merged(operations, name, config, restore_from)
    table = ErasedTable.from_config(kind, config, task_info, storage, merged)
    table.inner.compaction = compaction
    current = None if merged is None else table.subtask_metadata_from_table(merged)
    if isinstance(table.inner, ExpiringTimeKeyTable):
        table.inner.floor = table.inner.expires_below(_watermark(restore_from))
    if schema is None and isinstance(table.inner, ExpiringTimeKeyTable) and table.inner.config.arrow_schema:
        schema = pa.ipc.read_schema(pa.py_buffer(table.inner.config.arrow_schema))
    return TableSlot(config, table, current, codecs=codecs, schema=schema, gate=gate)


def _watermark(restore_from: Sequence[pb.OperatorCheckpointMetadata]) -> int | None:
    """Return the lowest watermark of all subtasks; None while one has none: what it may still hold is not expired."""
    operators = [metadata.operator_metadata for metadata in restore_from]
    if not all(operator.HasField("watermark") for operator in operators):
        return None
    return min((operator.watermark for operator in operators), default=None)


def _merged(
    operations: TableOperations,
    name: str,
    config: pb.TableConfig,
    restore_from: Sequence[pb.OperatorCheckpointMetadata],
) -> pb.TableCheckpointMetadata | None:
    # A subtask that lost its task, came back and lost it again has left state at two epochs: one round for each.
    rounds: list[dict[int, pb.TableSubtaskCheckpointMetadata]] = []
    for metadata in restore_from:
        table = metadata.subtask.table_metadata.get(name)
        if table is None:
            continue
        stored = metadata.table_configs.get(name)
        if stored is not None:
            operations.decode_config(stored)
        subtask = metadata.operator_metadata.subtask_index
        target = next((each for each in rounds if subtask not in each), None)
        if target is None:
            target = {}
            rounds.append(target)
        target[subtask] = table
    parts = [operations.merge_checkpoint_metadata(config, each) for each in rounds]
    return operations.join([part for part in parts if part is not None])


def check_restorable(
    task_info: TaskInfo,
    configs: Mapping[str, pb.TableConfig],
    restore_from: Sequence[pb.OperatorCheckpointMetadata],
) -> None:
    """Refuse metadata of another job or operator, of newer tables, or with tables that nobody registered.

    Where key ranges are dealt anew, also a set of metadata that is not one whole epoch: rows would be missing.
    """
    if task_info.parallelism and restore_from:
        _check_whole_epoch(restore_from)
    for metadata in restore_from:
        operator = metadata.operator_metadata
        where = f"metadata of epoch {operator.epoch}, subtask {operator.subtask_index}, of job {operator.job_id!r}"
        if (operator.job_id, operator.operator_id) != (task_info.job_id, task_info.operator_id):
            raise CorruptStateError(
                "ICEFLOE_STATE_FOREIGN",
                f"{where} and operator {operator.operator_id!r} cannot restore job {task_info.job_id!r}, operator "
                f"{task_info.operator_id!r}",
            )
        unknown = sorted(set(metadata.subtask.table_metadata) - set(configs))
        if unknown:
            raise StateError(
                "ICEFLOE_STATE_TABLE_UNKNOWN",
                f"{where} has the tables {unknown}, which are not registered (registered: {sorted(configs)}): opening "
                "without them would drop their state",
            )
        for name, stored in metadata.table_configs.items():
            if name in configs:
                supported = configs[name].state_version
                check_version(
                    stored.state_version, oldest=0, supported=supported, object_name=f"table {name!r} in {where}"
                )


def _check_whole_epoch(restore_from: Sequence[pb.OperatorCheckpointMetadata]) -> None:
    operators = [metadata.operator_metadata for metadata in restore_from]
    epochs = sorted({operator.epoch for operator in operators})
    found = sorted(operator.subtask_index for operator in operators)
    parallelism = max(operator.parallelism for operator in operators)
    if len(epochs) > 1 or (parallelism and found != list(range(parallelism))):
        raise StateError(
            "ICEFLOE_STATE_EPOCH_INCOMPLETE",
            f"the metadata to restore is of the epochs {epochs} and the subtasks {found} of {parallelism}: pass that "
            "of every subtask of one epoch, once",
        )
