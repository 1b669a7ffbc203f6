"""One epoch of a global table: the delta of what changed, or the merge that replaces carried files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from icefloe.errors import StateError
from icefloe.proto import state_pb2 as pb
from icefloe.state.compaction import check_files_follow
from icefloe.state.global_keyed_files import encode_changes, stamp_of
from icefloe.state.table import CheckpointMessage, CommitData, KeyedData, TableData, wrong_kind

if TYPE_CHECKING:
    from icefloe.state.global_keyed_table import GlobalKeyedTable

Metadata = pb.GlobalKeyedTableSubtaskCheckpointMetadata


class GlobalKeyedTableCheckpointer:
    """Writes one epoch's delta of a global table, or the merge that replaces carried files."""

    def __init__(self, table: GlobalKeyedTable, epoch: int, previous: Metadata | None) -> None:
        self._table = table
        self._epoch = epoch
        self._carried = list(previous.files) if previous else []
        self._changes: dict[bytes, bytes | None] = {}
        self._snapshot: KeyedData | None = None
        self._commit_data: CommitData | None = None

    def insert_data(self, data: TableData) -> None:
        """Take keyed data any number of times and commit data once. Raises ``StateError`` for anything else."""
        name = self._table.table_name
        if isinstance(data, KeyedData):
            if data.replaces:
                self._snapshot = data
            else:
                self._changes.update(data.changes)
        elif isinstance(data, CommitData):
            if not self._table.config.uses_two_phase_commit or self._commit_data is not None:
                raise commit_data_refused(name, again=self._commit_data is not None)
            self._commit_data = data
        else:
            raise wrong_kind(name, data, "keyed data and commit data")

    def finish(self, checkpoint: CheckpointMessage) -> tuple[Metadata, int] | None:
        """See ``TableEpochCheckpointer.finish``. Nothing is written when nothing changed."""
        new, inputs = self._write()
        files = sorted([*(f for f in self._carried if f.file not in inputs), *new], key=stamp_of)
        check_files_follow(
            self._table.table_name,
            before=[file.file for file in self._carried],
            after=[file.file for file in files],
            expired=(),
            compacted=inputs,
            new=[file.file for file in new],
        )
        metadata = Metadata(subtask_index=self._table.task_info.subtask_index, files=files)
        if self._commit_data is not None:
            metadata.commit_data = self._commit_data.data
            metadata.commit_data_version = self._commit_data.version
        if not files and self._commit_data is None:
            return None
        return metadata, sum(file.bytes for file in new)

    def _write(self) -> tuple[list[pb.GlobalKeyedFile], set[str]]:
        table = self._table
        if self._snapshot is not None:
            return self._write_changes(self._snapshot.changes), set(self._snapshot.replaces)
        if not self._changes:
            return [], set()
        inputs = table.merge_inputs(self._carried, len(self._changes)) if table.shares_keys else []
        if not inputs:
            return self._write_changes(self._changes), set()
        # With stamps the order of files does not matter, so a merge of any of them is right.
        output, _ = table.merge_from_storage(
            table.storage_provider, self._epoch, inputs, self._changes, every_file=len(inputs) == len(self._carried)
        )
        return [output] if output else [], {file.file for file in inputs}

    def _write_changes(self, changes: Mapping[bytes, bytes | None]) -> list[pb.GlobalKeyedFile]:
        if not changes:
            return []
        data = encode_changes(changes, self._table.state_version)
        return [self._table.write_file(self._epoch, data, len(changes))]


def commit_data_refused(table: str, *, again: bool) -> StateError:
    """Return the error for commit data that a table does not take, or not twice in an epoch."""
    reason = "it has commit data for this epoch already" if again else "it was not declared with uses_two_phase_commit"
    return StateError("ICEFLOE_STATE_COMMIT_DATA", f"table {table!r} takes no commit data: {reason}")
