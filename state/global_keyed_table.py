"""Global keyed tables: a delta log of key and value, carried from epoch to epoch, replicated on restore."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

from icefloe.errors import CorruptStateError, StateError
from icefloe.proto import state_pb2 as pb
from icefloe.state.compaction import Compacted, CompactionConfig, check_files_follow
from icefloe.state.encoding import KeyedCodecs
from icefloe.state.global_keyed_checkpointer import GlobalKeyedTableCheckpointer
from icefloe.state.global_keyed_files import (
    KeyedRows,
    encode_changes,
    encode_stamped,
    live_values,
    newest,
    read_rows,
    stamp_of,
    upgraded,
)
from icefloe.state.parquet_files import TableFileWriter
from icefloe.state.storage import StorageProvider
from icefloe.state.table import CommitData, Table
from icefloe.state.task_info import TaskInfo

Metadata = pb.GlobalKeyedTableSubtaskCheckpointMetadata
MergedMetadata = pb.GlobalKeyedTableTaskCheckpointMetadata

# A table this small is merged whole, from memory: fewer files are worth more than the bytes.
_SMALL_TABLE_BYTES = 1 << 20


class GlobalKeyedTable(Table[pb.GlobalKeyedTableConfig, MergedMetadata, Metadata]):
    """Every subtask sees the keys of all subtasks as of the restore; only its own writes enter its files.

    ``files`` are all files that were restored, in the order in which they apply.
    """

    ConfigMessage = pb.GlobalKeyedTableConfig
    TableCheckpointMessage = MergedMetadata
    TableSubtaskCheckpointMetadata = Metadata
    Checkpointer = GlobalKeyedTableCheckpointer

    def __init__(
        self,
        config: pb.GlobalKeyedTableConfig,
        task_info: TaskInfo,
        storage_provider: StorageProvider,
        *,
        files: tuple[pb.GlobalKeyedFile, ...],
        state_version: int,
    ) -> None:
        self.config = config
        self.table_name = config.table_name
        self.task_info = task_info
        self.storage_provider = storage_provider
        self.files = files
        self.state_version = state_version
        self.codecs: KeyedCodecs | None = None
        self.writer = TableFileWriter(storage_provider, task_info, config.table_name)
        self._restored: list[KeyedRows] = []
        self._settled: frozenset[bytes] = frozenset()

    @classmethod
    def table_type(cls) -> pb.TableEnum:
        return pb.TableEnum.GLOBAL_KEY_VALUE

    @classmethod
    def from_config(
        cls,
        config: pb.GlobalKeyedTableConfig,
        task_info: TaskInfo,
        storage_provider: StorageProvider,
        checkpoint_message: MergedMetadata | None,
        state_version: int,
    ) -> Self:
        """Read all files of the checkpoint; see ``Table.from_config``."""
        files = tuple(sorted(checkpoint_message.files, key=stamp_of)) if checkpoint_message else ()
        _refuse_repeated(config.table_name, [file.file for file in files])
        table = cls(config, task_info, storage_provider, files=files, state_version=state_version)
        table._restored = [read_rows(storage_provider, file) for file in files]
        return table

    def load_with_version(self, codecs: KeyedCodecs) -> dict[bytes, bytes]:
        """Return the encoded values by encoded key, migrated to the version of ``codecs``. Works once.

        Raises ``StateVersionError`` for files of a newer version, ``StateError`` when the configured version is not
        that of the codecs.
        """
        if codecs.version != self.state_version:
            raise StateError(
                "ICEFLOE_STATE_VERSION_CONFIG",
                f"table {self.table_name!r} is configured with state version {self.state_version} and its codecs write "
                f"version {codecs.version}: use one number",
            )
        self.codecs = codecs
        restored, self._restored = [upgraded(rows, codecs) for rows in self._restored], []
        if self.shares_keys:
            self._settled = self._settled_removals(restored)
        return live_values(restored)

    def _settled_removals(self, restored: list[KeyedRows]) -> frozenset[bytes]:
        """Return the keys that this subtask removed and that no other has a file with: nothing is left to hide."""
        own = [rows for rows in restored if self._carries(rows.file)]
        removed = {key for rows in own for key, value in zip(rows.keys, rows.values, strict=True) if value is None}
        for rows in restored:
            if removed and not self._carries(rows.file):
                removed.difference_update(rows.keys)
        return frozenset(removed)

    def epoch_checkpointer(self, epoch: int, previous_metadata: Metadata | None) -> GlobalKeyedTableCheckpointer:
        return GlobalKeyedTableCheckpointer(self, epoch, previous_metadata)

    @classmethod
    def merge_checkpoint_metadata(
        cls, config: pb.GlobalKeyedTableConfig, by_subtask: Mapping[int, Metadata]
    ) -> MergedMetadata | None:
        merged = MergedMetadata()
        versions = {message.commit_data_version for message in by_subtask.values() if message.HasField("commit_data")}
        if len(versions) > 1:
            raise CorruptStateError(
                "ICEFLOE_STATE_COMMIT_DATA",
                f"table {config.table_name!r}: one epoch holds commit data of the versions {sorted(versions)}",
            )
        for subtask, message in sorted(by_subtask.items()):
            merged.files.extend(message.files)
            if message.HasField("commit_data"):
                merged.commit_data_by_subtask[subtask] = message.commit_data
        merged.commit_data_version = versions.pop() if versions else 0
        return merged if merged.files or merged.commit_data_by_subtask else None

    def subtask_metadata_from_table(self, table_metadata: MergedMetadata) -> Metadata | None:
        mine = Metadata(subtask_index=self.task_info.subtask_index)
        mine.files.extend(sorted((file for file in table_metadata.files if self._carries(file)), key=stamp_of))
        return mine if mine.files else None

    def _carries(self, file: pb.GlobalKeyedFile) -> bool:
        parallelism = self.task_info.parallelism
        return parallelism == 0 or file.subtask_index % parallelism == self.task_info.subtask_index

    @property
    def shares_keys(self) -> bool:
        """Whether other subtasks may hold other writes of the same keys."""
        return self.task_info.parallelism > 1

    def merge_inputs(self, carried: list[pb.GlobalKeyedFile], new_rows: int) -> list[pb.GlobalKeyedFile]:
        """Return the files that the next delta should take in: the last ones of ``carried``, all of them, or none.

        A large file at the start is left alone while what follows it is small: bytes written follow what changed.
        """
        config = self.compaction
        if config is None or len(carried) + 1 < config.min_compaction_epochs:
            return []
        largest = max(carried, key=lambda file: file.bytes)
        after = carried[1:]
        small = sum(file.bytes for file in carried) <= _SMALL_TABLE_BYTES
        growing = 4 * (sum(file.rows for file in after) + new_rows) >= largest.rows
        return after if after and largest is carried[0] and not small and not growing else carried

    def write_file(self, epoch: int, data: bytes, rows: int) -> pb.GlobalKeyedFile:
        """Store a file and describe it."""
        written = self.writer.store(epoch, data)
        return pb.GlobalKeyedFile(
            file=written.name,
            epoch=epoch,
            subtask_index=self.task_info.subtask_index,
            bytes=written.size_bytes,
            rows=rows,
            crc32=written.crc32,
        )

    def compact_data(self, config: CompactionConfig, epoch: int, current: Metadata) -> Compacted[Metadata] | None:
        """Merge all files of ``current`` into one, read from storage."""
        if len(current.files) < 2:
            return None
        output, size = self.merge_from_storage(config.storage_provider, epoch, list(current.files), {}, every_file=True)
        outputs = Metadata(subtask_index=current.subtask_index, files=[output] if output else [])
        return Compacted(frozenset(file.file for file in current.files), outputs, size)

    def merge_from_storage(
        self,
        storage: StorageProvider,
        epoch: int,
        inputs: list[pb.GlobalKeyedFile],
        changes: Mapping[bytes, bytes | None],
        *,
        every_file: bool,
    ) -> tuple[pb.GlobalKeyedFile | None, int]:
        """Write the last write of every key in ``inputs`` and ``changes``; return the file and its size.

        Where other subtasks may hold the same keys, rows keep their stamps and tombstones stay while they hide
        anything: a restore still sees which write was last. Otherwise removed keys are gone. ``every_file`` says that
        ``inputs`` are all files of this subtask. Raises ``StateError`` for files of several versions when no codecs
        can migrate them.
        """
        rows = [read_rows(storage, file) for file in sorted(inputs, key=stamp_of)]
        if self.codecs is not None:
            rows = [upgraded(each, self.codecs) for each in rows]
        versions = {each.state_version for each in rows} | ({self.state_version} if changes else set())
        if len(versions) > 1:
            raise StateError(
                "ICEFLOE_STATE_VERSIONS_MIXED",
                f"table {self.table_name!r}: files of the versions {sorted(versions)} need their codecs to be merged",
            )
        latest = newest(rows)
        stamp = (epoch, self.task_info.subtask_index)
        latest.update((key, (stamp, value)) for key, value in changes.items())
        version = versions.pop()
        if self.shares_keys:
            restored = max((stamp_of(file)[0] for file in self.files), default=-1)
            kept = {
                key: (stamp, value)
                for key, (stamp, value) in latest.items()
                if not (every_file and value is None and stamp[0] <= restored and key in self._settled)
            }
            data, count = encode_stamped(kept, version), len(kept)
        else:
            live = {key: value for key, (_, value) in latest.items() if value is not None}
            data, count = encode_changes(live, version), len(live)
        if not count:
            return None, 0
        return self.write_file(epoch, data, count), len(data)

    @classmethod
    def apply_compacted_checkpoint(cls, compacted: Compacted[Metadata], current: Metadata) -> Metadata:
        names = {file.file for file in current.files}
        kept = [file for file in current.files if file.file not in compacted.inputs]
        result = Metadata()
        result.CopyFrom(current)
        del result.files[:]
        result.files.extend(sorted([*compacted.outputs.files, *kept], key=stamp_of))
        check_files_follow(
            f"subtask {current.subtask_index}",
            before=names,
            after=[file.file for file in result.files],
            expired=(),
            compacted=compacted.inputs,
            new=[file.file for file in compacted.outputs.files],
        )
        return result

    @classmethod
    def files_to_keep(cls, config: pb.GlobalKeyedTableConfig, checkpoint: MergedMetadata) -> set[str]:
        return {file.file for file in checkpoint.files}

    @classmethod
    def committing_data(
        cls, config: pb.GlobalKeyedTableConfig, table_metadata: MergedMetadata
    ) -> dict[int, CommitData] | None:
        if not config.uses_two_phase_commit:
            return None
        version = table_metadata.commit_data_version
        return {subtask: CommitData(data, version) for subtask, data in table_metadata.commit_data_by_subtask.items()}


def _refuse_repeated(table: str, names: list[str]) -> None:
    repeated = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) != len(names) else []
    if repeated:
        raise CorruptStateError(
            "ICEFLOE_STATE_FILE_TWICE", f"table {table!r}: the metadata to restore names {repeated} more than once"
        )
