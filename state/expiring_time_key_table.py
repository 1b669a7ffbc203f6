"""Time tables: record batches by time and routing key, written once, carried forward until they expire."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import ClassVar, Self

import pyarrow as pa

from icefloe.proto import state_pb2 as pb
from icefloe.state.compaction import Compacted, CompactionConfig, check_files_follow
from icefloe.state.key_time_rows import tuples_to_batch
from icefloe.state.parquet_files import ParquetSource, TableFileWriter
from icefloe.state.storage import StorageProvider
from icefloe.state.table import CheckpointMessage, RecordBatchData, Table, TableData, TupleData, wrong_kind
from icefloe.state.task_info import TaskInfo
from icefloe.state.time_compaction import Rewrite, choose_rewrite
from icefloe.state.time_files import by_schema, cut_into_files, drop_dead, encode_time_file, read_rows, sorted_by_key
from icefloe.state.time_references import MIN_TIME, join_adjacent, key_bounds, narrowed, refuse_repeated

Metadata = pb.ExpiringKeyedTimeSubtaskCheckpointMetadata
MergedMetadata = pb.ExpiringKeyedTimeTableCheckpointMetadata


class ExpiringTimeKeyTable(Table[pb.ExpiringKeyedTimeTableConfig, MergedMetadata, Metadata]):
    """Restoring takes the list of files only; rows are read when they are asked for, and a lost file is found then.

    ``files`` are the references that this subtask carries, ``flushed`` the files written for the epoch to come,
    ``cutoffs`` the first live time by key.
    """

    ConfigMessage = pb.ExpiringKeyedTimeTableConfig
    TableCheckpointMessage = MergedMetadata
    TableSubtaskCheckpointMetadata = Metadata
    Checkpointer: ClassVar[type[ExpiringTimeKeyTableCheckpointer]]

    def __init__(
        self,
        config: pb.ExpiringKeyedTimeTableConfig,
        task_info: TaskInfo,
        storage_provider: StorageProvider,
        *,
        files: tuple[pb.ParquetTimeFile, ...],
        state_version: int,
    ) -> None:
        self.config = config
        self.table_name = config.table_name
        self.task_info = task_info
        self.storage_provider = storage_provider
        self.files = files
        self.state_version = state_version
        self.flushed: list[pb.ParquetTimeFile] = []
        self.cutoffs: dict[int, int] = {}
        self.floor = MIN_TIME
        self.writer = TableFileWriter(storage_provider, task_info, config.table_name)
        self.source = ParquetSource(storage_provider)

    @classmethod
    def table_type(cls) -> pb.TableEnum:
        return pb.TableEnum.EXPIRING_KEYED_TIME_TABLE

    @classmethod
    def from_config(
        cls,
        config: pb.ExpiringKeyedTimeTableConfig,
        task_info: TaskInfo,
        storage_provider: StorageProvider,
        checkpoint_message: MergedMetadata | None,
        state_version: int,
    ) -> Self:
        """See ``Table.from_config``; ``check_files`` finds lost files without waiting for a read."""
        table = cls(config, task_info, storage_provider, files=(), state_version=state_version)
        mine = None if checkpoint_message is None else table.subtask_metadata_from_table(checkpoint_message)
        table.files = tuple(mine.files) if mine else ()
        return table

    def check_files(self) -> None:
        """Raise ``CorruptStateError`` when a file is gone or has another length. One request for each file."""
        for name, size_bytes in {file.file: file.bytes for file in self.files}.items():
            self.source.check_length(name, size_bytes)

    def epoch_checkpointer(self, epoch: int, previous_metadata: Metadata | None) -> ExpiringTimeKeyTableCheckpointer:
        return ExpiringTimeKeyTableCheckpointer(self, epoch, previous_metadata)

    @classmethod
    def merge_checkpoint_metadata(
        cls, config: pb.ExpiringKeyedTimeTableConfig, by_subtask: Mapping[int, Metadata]
    ) -> MergedMetadata | None:
        merged = MergedMetadata()
        for _, message in sorted(by_subtask.items()):
            merged.files.extend(message.files)
        return merged if merged.files else None

    def subtask_metadata_from_table(self, table_metadata: MergedMetadata) -> Metadata | None:
        """Take the references within this subtask's key range; all of them where the owner deals files by itself."""
        if self.task_info.parallelism == 0:
            refuse_repeated(self.table_name, table_metadata.files)
            mine = _in_order(table_metadata.files)
        else:
            bounds = key_bounds(self.task_info)
            joined = join_adjacent(self.table_name, table_metadata.files)
            mine = [part for file in joined if (part := narrowed(file, keys=bounds)) is not None]
        return Metadata(subtask_index=self.task_info.subtask_index, files=mine) if mine else None

    def expires_below(self, watermark: int | None) -> int:
        """Return the first time that is not expired once the watermark is there; it never goes back."""
        if watermark is None or not self.config.HasField("retention"):
            return self.floor
        return max(self.floor, watermark - self.config.retention)

    def write_rows(
        self, epoch: int, batches: Iterable[pa.RecordBatch], *, generation: int = 0, floor: int | None = None
    ) -> list[pb.ParquetTimeFile]:
        """Store the live rows, by schema and key, in files of a bounded size."""
        least = self.floor if floor is None else floor
        live = (drop_dead(self.config, batch, min_time=least, cutoffs=self.cutoffs) for batch in batches)
        files = []
        for group in by_schema(live):
            for rows in cut_into_files(self.config, sorted_by_key(self.config, group)):
                files.append(self._write_file(epoch, rows, generation))
        return files

    def _write_file(self, epoch: int, rows: pa.Table, generation: int) -> pb.ParquetTimeFile:
        data, reference = encode_time_file(self.config, rows, state_version=self.state_version)
        written = self.writer.store(epoch, data)
        self.source.remember(written.name, data)
        reference.file, reference.epoch, reference.generation = written.name, epoch, generation
        reference.bytes, reference.crc32 = written.size_bytes, written.crc32
        return reference

    def read(
        self, file: pb.ParquetTimeFile, cutoffs: Mapping[int, int], *, only: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the live rows of a reference; see ``time_files.read_rows``."""
        return read_rows(self.source, self.config, file, cutoffs=cutoffs, state_version=self.state_version, only=only)

    def saved(self, metadata: Metadata | None, message: CheckpointMessage) -> None:
        """Go on from a checkpoint that is complete; cutoffs that its references hold are forgotten."""
        self.files = tuple(metadata.files) if metadata else ()
        self.flushed = []
        self.floor = self.expires_below(message.watermark)
        self.source.keep_only({file.file for file in self.files})
        unlisted = [(file.min_routing_key, file.max_routing_key) for file in self.files if not file.keys]
        self.cutoffs = {
            key: time for key, time in self.cutoffs.items() if any(low <= key <= high for low, high in unlisted)
        }

    def compact_data(self, config: CompactionConfig, epoch: int, current: Metadata) -> Compacted[Metadata] | None:
        """Merge as a checkpoint would; inputs are chosen by ``config``."""
        rewrite = choose_rewrite(config, current.files, generational=self.config.generational)
        if not rewrite.names:
            return None
        outputs = self.rewrite(epoch, rewrite, current.files, (), floor=self.floor)
        written = sum(file.bytes for file in outputs)
        return Compacted(rewrite.names, Metadata(subtask_index=current.subtask_index, files=outputs), written)

    def rewrite(
        self,
        epoch: int,
        rewrite: Rewrite,
        files: Iterable[pb.ParquetTimeFile],
        more: Iterable[pa.RecordBatch],
        *,
        floor: int,
    ) -> list[pb.ParquetTimeFile]:
        """Write the live rows of the chosen files, in their order, and ``more`` after them."""
        rows = [
            batch for file in _in_order(files) if file.file in rewrite.names for batch in self.read(file, self.cutoffs)
        ]
        return self.write_rows(epoch, [*rows, *more], generation=rewrite.generation, floor=floor)

    @classmethod
    def apply_compacted_checkpoint(cls, compacted: Compacted[Metadata], current: Metadata) -> Metadata:
        kept = [file for file in current.files if file.file not in compacted.inputs]
        result = Metadata()
        result.CopyFrom(current)
        del result.files[:]
        result.files.extend(_in_order([*kept, *compacted.outputs.files]))
        check_files_follow(
            f"subtask {current.subtask_index}",
            before=_names(current.files),
            after=_names(result.files),
            expired=(),
            compacted=compacted.inputs,
            new=_names(compacted.outputs.files),
        )
        return result

    @classmethod
    def files_to_keep(cls, config: pb.ExpiringKeyedTimeTableConfig, checkpoint: MergedMetadata) -> set[str]:
        return set(_names(checkpoint.files))


class ExpiringTimeKeyTableCheckpointer:
    """Writes one epoch's new rows, narrows and carries older files, drops expired ones, merges what is due."""

    def __init__(self, table: ExpiringTimeKeyTable, epoch: int, previous: Metadata | None) -> None:
        self._table = table
        self._epoch = epoch
        self._carried = list(previous.files) if previous else []
        self._batches: list[pa.RecordBatch] = []

    def insert_data(self, data: TableData) -> None:
        """Take rows. Raises ``StateError`` for keyed data and commit data."""
        if isinstance(data, RecordBatchData):
            self._batches.append(data.batch)
        elif isinstance(data, TupleData):
            self._batches.append(tuples_to_batch(self._table.config, data.tuples, self._epoch))
        else:
            raise wrong_kind(self._table.table_name, data, "record batches")

    def finish(self, checkpoint: CheckpointMessage) -> tuple[Metadata, int] | None:
        """See ``TableEpochCheckpointer.finish``. Nothing is written when nothing was inserted and nothing is merged."""
        table = self._table
        floor = table.expires_below(checkpoint.watermark)
        kept, flushed = self._live(self._carried, floor), self._live(table.flushed, floor)
        rewrite = choose_rewrite(table.compaction, [*kept, *flushed], generational=table.config.generational)
        outputs = table.rewrite(self._epoch, rewrite, [*kept, *flushed], self._batches, floor=floor)
        new = [*(file for file in flushed if file.file not in rewrite.names), *outputs]
        files = _in_order([*(file for file in kept if file.file not in rewrite.names), *new])
        before = set(_names(self._carried))
        check_files_follow(
            table.table_name,
            before=before,
            after=_names(files),
            expired=before.difference(_names(kept)),
            compacted=rewrite.names & before,
            new=_names(new),
        )
        if not files:
            return None
        metadata = Metadata(subtask_index=table.task_info.subtask_index, watermark=checkpoint.watermark, files=files)
        return metadata, sum(file.bytes for file in [*table.flushed, *outputs])

    def _live(self, files: Iterable[pb.ParquetTimeFile], floor: int) -> list[pb.ParquetTimeFile]:
        cutoffs = self._table.cutoffs
        return [live for file in files if (live := narrowed(file, min_time=floor, cutoffs=cutoffs)) is not None]


ExpiringTimeKeyTable.Checkpointer = ExpiringTimeKeyTableCheckpointer


def _names(files: Iterable[pb.ParquetTimeFile]) -> list[str]:
    return [file.file for file in files]


def _in_order(files: Iterable[pb.ParquetTimeFile]) -> list[pb.ParquetTimeFile]:
    return sorted(files, key=lambda file: (file.epoch, file.file, file.min_routing_key))
