"""The generic face of tables, and the contract that every kind keeps."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from icefloe.errors import CorruptStateError, StateError
from icefloe.proto import state_pb2 as pb
from icefloe.state import (
    CheckpointMessage,
    CommitData,
    CompactionConfig,
    ErasedTable,
    ExpiringTimeKeyTable,
    ExpiringTimeKeyTableCheckpointer,
    GlobalKeyedTable,
    GlobalKeyedTableCheckpointer,
    KeyedData,
    RecordBatchData,
    Table,
    TableOperations,
    TupleData,
    checked_proto_decode,
)
from icefloe.state.compaction import Compacted, check_files_follow
from icefloe.state.memory_storage import MemoryStorage
from support.state_tables import CONFIGS, batch, task

KINDS = {"counts": GlobalKeyedTable, "rows": ExpiringTimeKeyTable}
OTHER = {"counts": "rows", "rows": "counts"}
DATA = {"counts": KeyedData({b"k": b"v"}), "rows": RecordBatchData(batch([(1, 1, "x")]))}


def opened(name: str, merged: pb.TableCheckpointMetadata | None = None) -> ErasedTable:
    return ErasedTable.from_config(KINDS[name], CONFIGS[name], task(), MemoryStorage("erased"), merged)


def finished(name: str) -> pb.TableSubtaskCheckpointMetadata:
    checkpointer = opened(name).epoch_checkpointer(1, None)
    checkpointer.insert_data(DATA[name])
    result = checkpointer.finish(CheckpointMessage(1, 0))
    assert result is not None
    return result[0]


@pytest.mark.parametrize("name", KINDS)
def test_a_table_goes_through_generic_metadata_and_back(name: str) -> None:
    metadata = finished(name)
    assert metadata.table_type == KINDS[name].table_type()
    operations = TableOperations(KINDS[name])
    merged = operations.merge_checkpoint_metadata(CONFIGS[name], {0: metadata})
    assert merged is not None
    assert opened(name, merged).subtask_metadata_from_table(merged) == metadata
    (file,) = operations.decode_subtask(metadata).files
    assert operations.files_to_keep(CONFIGS[name], merged) == {file.file}
    assert operations.merge_checkpoint_metadata(CONFIGS[name], {}) is None


@pytest.mark.parametrize("name", KINDS)
def test_every_method_refuses_metadata_of_another_table_type(name: str) -> None:
    operations, table = TableOperations(KINDS[name]), opened(name)
    config, wrong_config = CONFIGS[name], CONFIGS[OTHER[name]]
    right, wrong = finished(name), finished(OTHER[name])
    merged = operations.merge_checkpoint_metadata(config, {0: right})
    wrong_merged = TableOperations(KINDS[OTHER[name]]).merge_checkpoint_metadata(wrong_config, {0: wrong})
    assert merged is not None
    assert wrong_merged is not None
    storage = MemoryStorage("erased")
    calls: list[Callable[[], Any]] = [
        lambda: ErasedTable.from_config(KINDS[name], wrong_config, task(), storage, None),
        lambda: opened(name, wrong_merged),
        lambda: table.epoch_checkpointer(2, wrong),
        lambda: table.subtask_metadata_from_table(wrong_merged),
        lambda: table.compact_data(CompactionConfig(storage), 2, wrong),
        lambda: operations.merge_checkpoint_metadata(wrong_config, {0: right}),
        lambda: operations.merge_checkpoint_metadata(config, {0: wrong}),
        lambda: operations.join([merged, wrong_merged]),
        lambda: operations.files_to_keep(config, wrong_merged),
        lambda: operations.files_to_keep(wrong_config, merged),
        lambda: operations.committing_data(config, wrong_merged),
        lambda: operations.apply_compacted_checkpoint(Compacted(frozenset(), wrong, 0), right),
        lambda: operations.apply_compacted_checkpoint(Compacted(frozenset(), right, 0), wrong),
    ]
    for call in calls:
        with pytest.raises(CorruptStateError, match="ICEFLOE_STATE_TABLE_TYPE"):
            call()


def test_a_number_that_is_no_table_type_is_named() -> None:
    with pytest.raises(CorruptStateError, match="type MISSING_TABLE_TYPE and was opened as GLOBAL_KEY_VALUE"):
        checked_proto_decode(
            pb.TableEnum.GLOBAL_KEY_VALUE, pb.TableEnum.MISSING_TABLE_TYPE, pb.KeyRange, b"", what="this"
        )


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("counts", RecordBatchData(batch([(1, 1, "x")]))),
        ("counts", TupleData([])),
        ("rows", KeyedData({})),
        ("rows", CommitData(b"")),
    ],
)
def test_a_wrong_kind_of_data_is_refused(name: str, wrong: Any) -> None:
    with pytest.raises(StateError, match=f"ICEFLOE_STATE_DATA_KIND: table '{name}' takes .* {type(wrong).__name__}"):
        opened(name).epoch_checkpointer(1, None).insert_data(wrong)


@pytest.mark.parametrize("name", KINDS)
def test_a_checkpointer_without_data_has_nothing_to_restore(name: str) -> None:
    assert opened(name).epoch_checkpointer(1, None).finish(CheckpointMessage(1, 0)) is None


def test_commit_data_is_taken_once_and_found_by_subtask() -> None:
    config = CONFIGS["ready"]
    by_subtask = {}
    for subtask in (0, 3):
        table = ErasedTable.from_config(GlobalKeyedTable, config, task(subtask), MemoryStorage("erased"), None)
        checkpointer = table.epoch_checkpointer(1, None)
        checkpointer.insert_data(CommitData(b"files %d" % subtask, 2))
        with pytest.raises(StateError, match="ICEFLOE_STATE_COMMIT_DATA"):
            checkpointer.insert_data(CommitData(b"again", 2))
        result = checkpointer.finish(CheckpointMessage(1, 0))
        assert result is not None
        by_subtask[subtask] = result[0]
    operations = TableOperations(GlobalKeyedTable)
    merged = operations.merge_checkpoint_metadata(config, by_subtask)
    assert merged is not None
    expected = {0: CommitData(b"files 0", 2), 3: CommitData(b"files 3", 2)}
    assert operations.committing_data(config, merged) == expected
    assert operations.committing_data(CONFIGS["counts"], merged) is None
    other = operations.decode_subtask(by_subtask[3])
    other.commit_data_version = 3
    by_subtask[3].data = other.SerializeToString()
    with pytest.raises(CorruptStateError, match=r"ICEFLOE_STATE_COMMIT_DATA: .*versions \[2, 3\]"):
        operations.merge_checkpoint_metadata(config, by_subtask)


@pytest.mark.parametrize(
    ("kind", "checkpointer"),
    [(GlobalKeyedTable, GlobalKeyedTableCheckpointer), (ExpiringTimeKeyTable, ExpiringTimeKeyTableCheckpointer)],
)
def test_each_kind_names_its_messages_and_its_checkpointer(
    kind: type[Table[Any, Any, Any]], checkpointer: type
) -> None:
    assert kind.Checkpointer is checkpointer
    messages = (kind.ConfigMessage, kind.TableCheckpointMessage, kind.TableSubtaskCheckpointMetadata)
    assert all(message.DESCRIPTOR.full_name.startswith("icefloe.state.") for message in messages)
    assert not inspect.isabstract(kind)


def test_lists_of_files_that_do_not_follow_from_the_last_are_refused() -> None:
    follow = {"before": ["a", "b", "c"], "expired": ["a"], "compacted": ["b"], "new": ["d"]}
    check_files_follow("t", after=["c", "d"], **follow)  # type: ignore[arg-type]
    for after in (["d"], ["c"], ["c", "d", "b"], ["c", "d", "x"]):
        with pytest.raises(StateError, match="ICEFLOE_STATE_FILES_INVARIANT: table 't'"):
            check_files_follow("t", after=after, **follow)  # type: ignore[arg-type]
    with pytest.raises(StateError, match="ICEFLOE_STATE_FILES_INVARIANT"):
        check_files_follow("t", before=["a"], after=["a", "n"], expired=[], compacted=["gone"], new=["n"])
