"""Key-time tables: the latest value of each key, typed, until the watermark expires it."""

from __future__ import annotations

import pytest

from icefloe.errors import CorruptStateError, StateError
from icefloe.proto import state_pb2 as pb
from icefloe.state import (
    BlindDataTuple,
    CheckpointMessage,
    DataTuple,
    ExpiringTimeKeyTable,
    MsgpackCodec,
    ProtobufCodec,
    TupleData,
    key_hash,
)
from icefloe.state.memory_storage import MemoryStorage
from support.faulty_storage import FaultyStorage
from support.state_tables import batch, open_tables, table_files, task


@pytest.fixture
def storage(request: pytest.FixtureRequest) -> FaultyStorage:
    return FaultyStorage(MemoryStorage(request.node.nodeid))


def test_the_latest_value_by_time_wins_whatever_the_order_of_inserts(storage: FaultyStorage) -> None:
    manager = open_tables(storage)
    view = manager.get_key_time_table("latest")
    view.insert(5, "a", 1)
    view.insert(3, "a", 2)
    view.insert_tuple(DataTuple(4, "b", 7))
    assert (view.get("a"), view.get_tuple("b"), view.get("gone")) == (1, DataTuple(4, "b", 7), None)
    restored = open_tables(storage, [manager.checkpoint(1)]).get_key_time_table("latest")
    assert set(restored.items()) == {DataTuple(5, "a", 1), DataTuple(4, "b", 7)}


def test_of_two_values_at_one_time_the_later_write_wins_also_after_merges(storage: FaultyStorage) -> None:
    manager = open_tables(storage, merge_after=2)
    view = manager.get_key_time_table("latest")
    for epoch in range(1, 8):
        view.insert(5, "a", epoch)
        metadata = manager.checkpoint(epoch)
        assert open_tables(storage, [metadata]).get_key_time_table("latest").get("a") == epoch


def test_a_removed_key_is_gone_and_comes_back_only_with_a_later_time(storage: FaultyStorage) -> None:
    manager = open_tables(storage)
    view = manager.get_key_time_table("latest")
    view.insert(5, "a", 1)
    manager.checkpoint(1)
    view.remove(6, "a")
    view.insert(4, "a", 2)
    restored = open_tables(storage, [manager.checkpoint(2)]).get_key_time_table("latest")
    assert (view.get("a"), restored.get("a"), list(restored.items())) == (None, None, [])
    restored.insert(7, "a", 3)
    assert restored.get("a") == 3


def test_only_the_last_change_of_a_key_is_written_and_expired_ones_leave_memory(storage: FaultyStorage) -> None:
    manager = open_tables(storage)
    view = manager.get_key_time_table("latest")
    for time in range(5):
        view.insert(time, "a", time)
    view.insert(40, "b", 1)
    metadata = manager.checkpoint(1, watermark=1)
    assert [file.rows for file in table_files(metadata, "latest")] == [2]
    manager.checkpoint(2, watermark=30)
    assert list(view.items()) == [DataTuple(40, "b", 1)]
    view.insert(19, "late", 1)
    assert view.get("late") is None
    assert not view.has_unsaved


def test_the_checkpointer_takes_blind_tuples(storage: FaultyStorage) -> None:
    config = pb.ExpiringKeyedTimeTableConfig(table_name="t", time_column="time", key_column="hash")
    table = ExpiringTimeKeyTable.from_config(config, task(), storage, None, 0)
    checkpointer = table.epoch_checkpointer(3, None)
    checkpointer.insert_data(
        TupleData([BlindDataTuple(key_hash(b"k"), 9, b"k", b"v"), BlindDataTuple(1, 8, b"x", None)])
    )
    finished = checkpointer.finish(CheckpointMessage(3, 0))
    assert finished is not None
    metadata, size = finished
    (file,) = metadata.files
    assert (size, file.rows, file.min_time, file.max_time) == (file.bytes, 2, 8, 9)
    rows = [row for found in table.read(file, {}) for row in found.to_pylist()]
    assert sorted((row["key"], row["value"], row["epoch"]) for row in rows) == [(b"k", b"v", 3), (b"x", None, 3)]


def test_the_hash_of_a_key_never_changes() -> None:
    assert key_hash(b"icefloe") == 0x762009C80E6BC1A9


def test_files_of_a_plain_time_table_are_not_read_as_keys(storage: FaultyStorage) -> None:
    manager = open_tables(storage)
    manager.get_expiring_time_key_table("rows").insert(batch([(1, 1, "x")]))
    metadata = manager.checkpoint(1)
    with pytest.raises(CorruptStateError, match="ICEFLOE_STATE_FILE_FOREIGN"):
        open_tables(storage, [metadata]).get_key_time_table("rows")


def test_a_lost_file_is_found_on_opening(storage: FaultyStorage) -> None:
    manager = open_tables(storage)
    manager.get_key_time_table("latest").insert(1, "a", 1)
    metadata = manager.checkpoint(1)
    storage.delete_if_present(table_files(metadata, "latest")[0].file)
    with pytest.raises(CorruptStateError, match="ICEFLOE_STATE_FILE_MISSING"):
        open_tables(storage, [metadata]).get_key_time_table("latest")


def test_types_with_versions_are_refused(storage: FaultyStorage) -> None:
    codecs = {"latest": (MsgpackCodec(str), ProtobufCodec(pb.KeyRange, version=2))}
    with pytest.raises(StateError, match="ICEFLOE_STATE_VERSION_CONFIG"):
        open_tables(storage, codecs=codecs).get_key_time_table("latest")
