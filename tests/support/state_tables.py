"""State tables for tests: a small set of tables, batches with a sequence, and what must hold of any checkpoint."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from icefloe.proto import state_pb2 as pb
from icefloe.state import (
    CompactionConfig,
    ExpiringTimeKeyView,
    MsgpackCodec,
    StorageProvider,
    TableManager,
    TaskInfo,
    expiring_time_key_config,
    global_keyed_config,
)

JOB = "job"
OPERATOR = "sink"
SCHEMA = pa.schema([("time", pa.int64()), ("key", pa.uint64()), ("value", pa.string())])
CONFIGS = {
    "counts": global_keyed_config("counts", "a number by name"),
    "ready": global_keyed_config("ready", "finished with the epoch", uses_two_phase_commit=True),
    "rows": expiring_time_key_config("rows", "rows by time", retention=10, time_column="time", key_column="key"),
    "pending": expiring_time_key_config(
        "pending", "rows that leave by cutoff", retention=None, time_column="time", key_column="key"
    ),
    "latest": expiring_time_key_config(
        "latest", "last value by name", retention=10, time_column="time", key_column="hash"
    ),
}
CODECS = {
    "counts": (MsgpackCodec(str), MsgpackCodec(int)),
    "latest": (MsgpackCodec(str), MsgpackCodec(int)),
}

Row = tuple[int, int, str]


def task(subtask: int = 0, *, parallelism: int = 0) -> TaskInfo:
    """Return a new attempt of a subtask."""
    return TaskInfo(JOB, OPERATOR, subtask, parallelism=parallelism)


def open_tables(
    storage: StorageProvider,
    restore_from: Sequence[pb.OperatorCheckpointMetadata] = (),
    *,
    info: TaskInfo | None = None,
    merge_after: int | None = None,
    **options: Any,
) -> TableManager:
    """Open ``CONFIGS`` for one attempt; ``merge_after`` files are merged."""
    compaction = None if merge_after is None else CompactionConfig(storage, min_compaction_epochs=merge_after)
    settings = {"compaction": compaction, "codecs": CODECS, **options}
    configs = settings.pop("configs", CONFIGS)
    return TableManager.open(info or task(), configs, storage, restore_from=restore_from, **settings)


def batch(rows: Iterable[Row]) -> pa.RecordBatch:
    """Return rows of (time, key, value) as a batch of ``SCHEMA``."""
    times, keys, values = zip(*rows, strict=True)
    return pa.record_batch(
        [pa.array(times, pa.int64()), pa.array(keys, pa.uint64()), pa.array(values, pa.string())], schema=SCHEMA
    )


def scanned(view: ExpiringTimeKeyView, **selection: Any) -> list[Row]:
    """Return what a scan yields, in its order."""
    return [tuple(row.values()) for found in view.scan(**selection) for row in found.to_pylist()]  # type: ignore[misc]


def table_files(metadata: pb.OperatorCheckpointMetadata, table: str) -> list[Any]:
    """Return the files that the metadata names for a table; none when it does not name the table."""
    stored = metadata.subtask.table_metadata.get(table)
    if stored is None:
        return []
    kind = {
        pb.TableEnum.GLOBAL_KEY_VALUE: pb.GlobalKeyedTableSubtaskCheckpointMetadata,
        pb.TableEnum.EXPIRING_KEYED_TIME_TABLE: pb.ExpiringKeyedTimeSubtaskCheckpointMetadata,
    }[stored.table_type]
    return list(kind.FromString(stored.data).files)


def files_named(metadata: Iterable[pb.OperatorCheckpointMetadata]) -> set[str]:
    """Return every table file that restoring the metadata may read."""
    return {file.file for each in metadata for name in each.subtask.table_metadata for file in table_files(each, name)}


def remove_unnamed(storage: StorageProvider, metadata: Iterable[pb.OperatorCheckpointMetadata]) -> None:
    """Delete every object that the metadata does not name: the hardest clean-up there can be."""
    kept = files_named(metadata)
    for info in list(storage.list()):
        if info.key not in kept:
            storage.delete_if_present(info.key)
