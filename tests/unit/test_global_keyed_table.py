"""Global tables: a delta log with tombstones, merged without losing order, replicated on restore."""

from __future__ import annotations

import io

import pyarrow.parquet as pq
import pytest

from icefloe.errors import CorruptStateError, StateError
from icefloe.proto import state_pb2 as pb
from icefloe.state import (
    GLOBAL_KEY_VALUE_SCHEMA,
    CompactionConfig,
    GlobalKeyedTable,
    KeyedCodecs,
    MsgpackCodec,
    TableManager,
    TableOperations,
    table_checkpoint_path,
)
from icefloe.state import global_keyed_table as module
from icefloe.state.memory_storage import MemoryStorage
from support.faulty_storage import FaultyStorage
from support.state_tables import CONFIGS, open_tables, remove_unnamed, table_files, task

Metadata = pb.GlobalKeyedTableSubtaskCheckpointMetadata
CODECS = KeyedCodecs(MsgpackCodec(str), MsgpackCodec(int))


@pytest.fixture
def storage(request: pytest.FixtureRequest) -> FaultyStorage:
    return FaultyStorage(MemoryStorage(request.node.nodeid))


def counts(manager: TableManager) -> dict[str, int]:
    return dict(manager.get_global_keyed_state("counts").items())


def test_get_insert_remove_items(storage: FaultyStorage) -> None:
    view = open_tables(storage).get_global_keyed_state("counts")
    view.insert("a", 1)
    view.insert("a", 2)
    view.insert("b", 3)
    assert (view.get("a"), view.get("gone"), len(view), "b" in view) == (2, None, 2, True)
    assert view.remove("a") == 2
    assert view.remove("a") is None
    assert (dict(view.items()), list(view.keys())) == ({"b": 3}, ["b"])
    assert storage.calls == []


def test_a_value_that_its_reader_changes_stays_as_it_was(storage: FaultyStorage) -> None:
    manager = open_tables(storage, codecs={"counts": (MsgpackCodec(str), MsgpackCodec(list[int]))})
    view = manager.get_global_keyed_state("counts")
    mine = [1]
    view.insert("a", mine)
    mine.append(2)
    view.get("a").append(3)
    assert view.get("a") == [1]


def test_the_table_may_change_while_its_items_are_read(storage: FaultyStorage) -> None:
    view = open_tables(storage).get_global_keyed_state("counts")
    for name in "abc":
        view.insert(name, 1)
    for name, _ in view.items():
        view.remove(name)
        view.insert(name * 2, 2)
    assert dict(view.items()) == {"aa": 2, "bb": 2, "cc": 2}


def test_a_delta_holds_only_what_changed_with_null_for_what_was_removed(storage: FaultyStorage) -> None:
    manager = open_tables(storage)
    view = manager.get_global_keyed_state("counts")
    for name in "abcd":
        view.insert(name, 1)
    manager.checkpoint(1)
    view.insert("a", 1)
    view.insert("b", 2)
    view.remove("c")
    view.insert("new", 1)
    view.remove("new")
    _, delta = table_files(manager.checkpoint(2), "counts")
    table = pq.read_table(io.BytesIO(storage.get(delta.file)))
    assert table.schema.remove_metadata() == GLOBAL_KEY_VALUE_SCHEMA
    encode = MsgpackCodec(str).encode
    assert dict(zip(*(column.to_pylist() for column in table.columns), strict=True)) == {
        encode("b"): MsgpackCodec(int).encode(2),
        encode("c"): None,
    }
    column = pq.read_metadata(io.BytesIO(storage.get(delta.file))).row_group(0).column(0)
    assert column.compression == "ZSTD"
    info = manager.task_info
    assert delta.file == table_checkpoint_path("job", 2, "counts", 0, info.attempt_id)


def test_a_removed_key_stays_removed_after_a_restore(storage: FaultyStorage) -> None:
    manager = open_tables(storage)
    view = manager.get_global_keyed_state("counts")
    view.insert("a", 1)
    view.insert("b", 1)
    manager.checkpoint(1)
    view.remove("a")
    assert counts(open_tables(storage, [manager.checkpoint(2)])) == {"b": 1}


def test_deltas_become_one_merged_file_that_replaces_exactly_its_inputs(storage: FaultyStorage) -> None:
    manager = open_tables(storage, merge_after=4)
    view = manager.get_global_keyed_state("counts")
    carried: list[set[str]] = []
    for epoch in range(1, 9):
        view.insert(f"k{epoch}", epoch)
        view.remove(f"k{epoch - 2}")
        metadata = manager.checkpoint(epoch)
        carried.append({file.file for file in table_files(metadata, "counts")})
    assert [len(files) for files in carried] == [1, 2, 3, 1, 2, 3, 1, 2]
    assert not carried[3] & carried[2]
    assert storage.count("get") == 0
    remove_unnamed(storage, [metadata])
    assert counts(open_tables(storage, [metadata])) == {"k7": 7, "k8": 8}


def test_a_table_that_was_emptied_leaves_nothing_to_restore(storage: FaultyStorage) -> None:
    manager = open_tables(storage, merge_after=2)
    view = manager.get_global_keyed_state("counts")
    view.insert("a", 1)
    manager.checkpoint(1)
    view.remove("a")
    assert "counts" not in manager.checkpoint(2).subtask.table_metadata


def test_a_large_file_is_left_alone_while_the_changes_after_it_are_small(
    storage: FaultyStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_SMALL_TABLE_BYTES", 0)
    manager = open_tables(storage, merge_after=3)
    view = manager.get_global_keyed_state("counts")
    for number in range(1000):
        view.insert(f"k{number}", number)
    (first,) = table_files(manager.checkpoint(1), "counts")
    expected = counts(manager)
    for epoch in range(2, 12):
        view.insert(f"k{epoch}", -epoch)
        view.remove(f"k{500 + epoch}")
        expected |= {f"k{epoch}": -epoch}
        expected.pop(f"k{500 + epoch}")
        files = table_files(manager.checkpoint(epoch), "counts")
        assert files[0].file == first.file
        assert len(files) <= 3
        assert sum(file.bytes for file in files[1:]) < first.bytes / 2
    metadata = manager.checkpoint(12)
    restored = open_tables(storage, [metadata], merge_after=3)
    assert counts(restored) == expected
    # A restored view does not know which keys stand in which file: the next merge takes in all of them.
    restored.get_global_keyed_state("counts").insert("k1", 0)
    restored.checkpoint(13)
    restored.get_global_keyed_state("counts").insert("k2", 0)
    assert counts(open_tables(storage, [restored.checkpoint(14)])) == expected | {"k1": 0, "k2": 0}


def subtasks(
    storage: FaultyStorage, parallelism: int, restore_from: list[pb.OperatorCheckpointMetadata], **options: int
) -> list[TableManager]:
    infos = [task(index, parallelism=parallelism) for index in range(parallelism)]
    return [open_tables(storage, restore_from, info=info, **options) for info in infos]


def test_every_subtask_sees_the_keys_of_all_and_the_highest_epoch_and_subtask_wins(storage: FaultyStorage) -> None:
    managers = subtasks(storage, 3, [])
    for index, manager in enumerate(managers):
        manager.get_global_keyed_state("counts").insert(f"own {index}", index)
        manager.get_global_keyed_state("counts").insert("shared", index)
    record = [manager.checkpoint(1) for manager in managers]
    managers[0].get_global_keyed_state("counts").insert("later", 0)
    managers[0].get_global_keyed_state("counts").insert("shared", 7)
    record = [manager.checkpoint(2) for manager in managers]
    for parallelism in (1, 2, 5):
        for manager in subtasks(storage, parallelism, record):
            assert counts(manager) == {"own 0": 0, "own 1": 1, "own 2": 2, "shared": 7, "later": 0}


def test_only_own_writes_enter_a_subtasks_files(storage: FaultyStorage) -> None:
    first = [manager.checkpoint(1) for manager in _with_own_keys(subtasks(storage, 2, []))]
    managers = subtasks(storage, 2, first)
    managers[0].get_global_keyed_state("counts").insert("x", 1)
    second = [manager.checkpoint(2) for manager in managers]
    assert [len(table_files(metadata, "counts")) for metadata in second] == [2, 1]
    assert [file.rows for file in table_files(second[0], "counts")] == [1, 1]


def _with_own_keys(managers: list[TableManager]) -> list[TableManager]:
    for index, manager in enumerate(managers):
        manager.get_global_keyed_state("counts").insert(f"own {index}", index)
    return managers


def test_a_merge_of_one_subtask_does_not_hide_a_later_write_of_another(storage: FaultyStorage) -> None:
    managers = subtasks(storage, 2, [], merge_after=3)
    views = [manager.get_global_keyed_state("counts") for manager in managers]
    views[0].insert("shared", 1)
    views[0].insert("removed", 1)
    [manager.checkpoint(1) for manager in managers]
    views[1].insert("shared", 2)
    views[1].insert("removed", 2)
    [manager.checkpoint(2) for manager in managers]
    # Subtask 0 merges its older write of both keys in a later epoch.
    for epoch in (3, 4, 5):
        views[0].insert("mine", epoch)
        record = [manager.checkpoint(epoch) for manager in managers]
    assert len(table_files(record[0], "counts")) < 3
    for manager in subtasks(storage, 2, record, merge_after=3):
        assert counts(manager) == {"shared": 2, "removed": 2, "mine": 5}


def test_tombstones_beside_other_subtasks_stay_while_they_hide_something_and_then_go(storage: FaultyStorage) -> None:
    managers = subtasks(storage, 2, [], merge_after=2)
    managers[1].get_global_keyed_state("counts").insert("foreign", 1)
    managers[0].get_global_keyed_state("counts").insert("own", 1)
    managers[0].get_global_keyed_state("counts").insert("stays", 1)
    record = [manager.checkpoint(1) for manager in managers]
    managers = subtasks(storage, 2, record, merge_after=2)
    for name in ("foreign", "own"):
        managers[0].get_global_keyed_state("counts").remove(name)
    record = [manager.checkpoint(2) for manager in managers]
    assert [file.rows for file in table_files(record[0], "counts")] == [3]
    managers = subtasks(storage, 2, record, merge_after=2)
    managers[0].get_global_keyed_state("counts").insert("x", 1)
    record = [manager.checkpoint(3) for manager in managers]
    # "own" hid nothing any more; "foreign" still hides the other subtask's value.
    assert [file.rows for file in table_files(record[0], "counts")] == [3]
    for manager in subtasks(storage, 1, record):
        assert counts(manager) == {"stays": 1, "x": 1}


def test_a_missing_file_is_an_error_that_names_it(storage: FaultyStorage) -> None:
    manager = open_tables(storage)
    manager.get_global_keyed_state("counts").insert("a", 1)
    metadata = manager.checkpoint(1)
    (file,) = table_files(metadata, "counts")
    storage.delete_if_present(file.file)
    with pytest.raises(CorruptStateError, match=f"ICEFLOE_STATE_FILE_MISSING: {file.file}"):
        open_tables(storage, [metadata])


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-7],
        lambda data: b"",
        lambda data: data[:40] + bytes([data[40] ^ 1]) + data[41:],
        lambda data: data * 2,
    ],
    ids=["truncated", "empty", "one bit", "twice"],
)
def test_a_damaged_file_is_an_error_that_names_it(storage: FaultyStorage, damage: object) -> None:
    manager = open_tables(storage)
    manager.get_global_keyed_state("counts").insert("a", 1)
    metadata = manager.checkpoint(1)
    (file,) = table_files(metadata, "counts")
    storage.put(file.file, damage(storage.get(file.file)))  # type: ignore[operator]
    with pytest.raises(CorruptStateError, match=f"ICEFLOE_STATE_FILE_CORRUPT: {file.file}"):
        open_tables(storage, [metadata])


def test_a_file_of_another_table_is_refused_although_its_checksum_is_right(storage: FaultyStorage) -> None:
    manager = open_tables(storage)
    view = manager.get_key_time_table("latest")
    view.insert(1, "a", 1)
    (file,) = table_files(manager.checkpoint(1), "latest")
    foreign = pb.GlobalKeyedFile(file=file.file, epoch=1, bytes=file.bytes, rows=1, crc32=file.crc32)
    merged = pb.GlobalKeyedTableTaskCheckpointMetadata(files=[foreign])
    config = pb.GlobalKeyedTableConfig(table_name="counts")
    with pytest.raises(CorruptStateError, match="ICEFLOE_STATE_FILE_FOREIGN"):
        GlobalKeyedTable.from_config(config, task(), storage, merged, 0)


def test_values_of_another_type_are_an_error_that_names_the_table(storage: FaultyStorage) -> None:
    manager = open_tables(storage)
    manager.get_global_keyed_state("counts").insert("a", 1)
    metadata = manager.checkpoint(1)
    view = open_tables(
        storage, [metadata], codecs={"counts": (MsgpackCodec(str), MsgpackCodec(str))}
    ).get_global_keyed_state("counts")
    with pytest.raises(CorruptStateError, match="ICEFLOE_STATE_VALUE_UNREADABLE: table 'counts' of job job"):
        view.get("a")


def test_compacted_data_replaces_exactly_its_inputs_also_when_newer_files_came(storage: FaultyStorage) -> None:
    manager = open_tables(storage)
    view = manager.get_global_keyed_state("counts")
    for epoch in (1, 2, 3):
        view.insert(f"k{epoch}", epoch)
        if epoch == 2:
            view.remove("k1")
        metadata = manager.checkpoint(epoch)
    current = Metadata.FromString(metadata.subtask.table_metadata["counts"].data)
    config = TableOperations(GlobalKeyedTable).decode_config(CONFIGS["counts"])
    table = GlobalKeyedTable.from_config(
        config, task(), storage, pb.GlobalKeyedTableTaskCheckpointMetadata(files=current.files), 0
    )
    older = Metadata(files=current.files[:2])
    compacted = table.compact_data(CompactionConfig(storage), 2, older)
    assert compacted is not None
    assert compacted.inputs == {file.file for file in older.files}
    applied = GlobalKeyedTable.apply_compacted_checkpoint(compacted, current)
    assert [file.file for file in applied.files] == [compacted.outputs.files[0].file, current.files[2].file]
    merged = pb.GlobalKeyedTableTaskCheckpointMetadata(files=applied.files)
    assert GlobalKeyedTable.files_to_keep(config, merged) == {file.file for file in applied.files}
    loaded = GlobalKeyedTable.from_config(config, task(), storage, merged, 0).load_with_version(CODECS)
    assert loaded == {MsgpackCodec(str).encode(f"k{n}"): MsgpackCodec(int).encode(n) for n in (2, 3)}
    with pytest.raises(StateError, match="ICEFLOE_STATE_FILES_INVARIANT"):
        GlobalKeyedTable.apply_compacted_checkpoint(compacted, applied)
    assert table.compact_data(CompactionConfig(storage), 4, Metadata(files=current.files[:1])) is None


def test_a_restore_reads_each_file_once_and_nothing_else(storage: FaultyStorage) -> None:
    manager = open_tables(storage)
    for epoch in (1, 2):
        manager.get_global_keyed_state("counts").insert(f"k{epoch}", epoch)
        metadata = manager.checkpoint(epoch)
    storage.calls.clear()
    open_tables(storage, [metadata]).get_global_keyed_state("counts")
    assert sorted((call.operation, call.key) for call in storage.calls) == [
        ("get", file.file) for file in table_files(metadata, "counts")
    ]


def test_a_valid_file_of_the_same_length_with_other_content_is_told_by_its_checksum(storage: FaultyStorage) -> None:
    written = []
    for value in (1, 2):
        manager = open_tables(storage)
        manager.get_global_keyed_state("counts").insert("a", value)
        written.append(manager.checkpoint(1))
    (mine,), (other,) = (table_files(metadata, "counts") for metadata in written)
    assert mine.bytes == other.bytes
    storage.put(mine.file, storage.get(other.file))
    with pytest.raises(CorruptStateError, match=f"ICEFLOE_STATE_FILE_CORRUPT: {mine.file} .* CRC-32"):
        open_tables(storage, [written[0]])
