"""Typed state tables, checkpointed by epoch: the durable memory of the sink, and a library of its own.

Names are imported when they are first used: a program that only reads names of objects loads neither PyArrow nor S3.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from icefloe.errors import CorruptStateError, StateError, StateVersionError

if TYPE_CHECKING:
    from icefloe.state.backing_store import BackingStore
    from icefloe.state.compaction import CompactionConfig
    from icefloe.state.encoding import BytesCodec, Codec, KeyedCodecs, MsgpackCodec, ProtobufCodec
    from icefloe.state.erased_table import ErasedCheckpointer, ErasedTable, TableOperations, checked_proto_decode
    from icefloe.state.expiring_time_key_table import ExpiringTimeKeyTable, ExpiringTimeKeyTableCheckpointer
    from icefloe.state.global_keyed_checkpointer import GlobalKeyedTableCheckpointer
    from icefloe.state.global_keyed_files import GLOBAL_KEY_VALUE_SCHEMA
    from icefloe.state.global_keyed_table import GlobalKeyedTable
    from icefloe.state.global_keyed_view import GlobalKeyedView
    from icefloe.state.key_time_rows import key_hash
    from icefloe.state.key_time_view import KeyTimeView
    from icefloe.state.migration import MigratableState
    from icefloe.state.object_names import table_checkpoint_path
    from icefloe.state.opening import open_storage
    from icefloe.state.parquet_backend import ParquetBackend
    from icefloe.state.parquet_metadata import CheckpointParquetMetadata
    from icefloe.state.storage import ObjectInfo, StorageProvider
    from icefloe.state.table import (
        BlindDataTuple,
        CheckpointMessage,
        CommitData,
        DataTuple,
        KeyedData,
        RecordBatchData,
        Table,
        TableData,
        TableEpochCheckpointer,
        TupleData,
    )
    from icefloe.state.table_configs import expiring_time_key_config, global_keyed_config
    from icefloe.state.table_manager import TableManager
    from icefloe.state.task_info import TaskInfo, new_attempt_id
    from icefloe.state.time_references import MAX_TIME
    from icefloe.state.time_view import ExpiringTimeKeyView

_MODULES = {
    "BackingStore": "backing_store",
    "BlindDataTuple": "table",
    "BytesCodec": "encoding",
    "CheckpointMessage": "table",
    "CheckpointParquetMetadata": "parquet_metadata",
    "Codec": "encoding",
    "CommitData": "table",
    "CompactionConfig": "compaction",
    "DataTuple": "table",
    "ErasedCheckpointer": "erased_table",
    "ErasedTable": "erased_table",
    "ExpiringTimeKeyTable": "expiring_time_key_table",
    "ExpiringTimeKeyTableCheckpointer": "expiring_time_key_table",
    "ExpiringTimeKeyView": "time_view",
    "GLOBAL_KEY_VALUE_SCHEMA": "global_keyed_files",
    "GlobalKeyedTable": "global_keyed_table",
    "GlobalKeyedTableCheckpointer": "global_keyed_checkpointer",
    "GlobalKeyedView": "global_keyed_view",
    "KeyTimeView": "key_time_view",
    "KeyedCodecs": "encoding",
    "KeyedData": "table",
    "MAX_TIME": "time_references",
    "MigratableState": "migration",
    "MsgpackCodec": "encoding",
    "ObjectInfo": "storage",
    "ParquetBackend": "parquet_backend",
    "ProtobufCodec": "encoding",
    "RecordBatchData": "table",
    "StorageProvider": "storage",
    "Table": "table",
    "TableData": "table",
    "TableEpochCheckpointer": "table",
    "TableManager": "table_manager",
    "TableOperations": "erased_table",
    "TaskInfo": "task_info",
    "TupleData": "table",
    "checked_proto_decode": "erased_table",
    "expiring_time_key_config": "table_configs",
    "global_keyed_config": "table_configs",
    "key_hash": "key_time_rows",
    "new_attempt_id": "task_info",
    "open_storage": "opening",
    "table_checkpoint_path": "object_names",
}

__all__ = [
    "GLOBAL_KEY_VALUE_SCHEMA",
    "MAX_TIME",
    "BackingStore",
    "BlindDataTuple",
    "BytesCodec",
    "CheckpointMessage",
    "CheckpointParquetMetadata",
    "Codec",
    "CommitData",
    "CompactionConfig",
    "CorruptStateError",
    "DataTuple",
    "ErasedCheckpointer",
    "ErasedTable",
    "ExpiringTimeKeyTable",
    "ExpiringTimeKeyTableCheckpointer",
    "ExpiringTimeKeyView",
    "GlobalKeyedTable",
    "GlobalKeyedTableCheckpointer",
    "GlobalKeyedView",
    "KeyTimeView",
    "KeyedCodecs",
    "KeyedData",
    "MigratableState",
    "MsgpackCodec",
    "ObjectInfo",
    "ParquetBackend",
    "ProtobufCodec",
    "RecordBatchData",
    "StateError",
    "StateVersionError",
    "StorageProvider",
    "Table",
    "TableData",
    "TableEpochCheckpointer",
    "TableManager",
    "TableOperations",
    "TaskInfo",
    "TupleData",
    "checked_proto_decode",
    "expiring_time_key_config",
    "global_keyed_config",
    "key_hash",
    "new_attempt_id",
    "open_storage",
    "table_checkpoint_path",
]


def __getattr__(name: str) -> Any:
    """Import a public name on its first use."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
