"""One manager: names, epochs, stopping, handing on, and metadata that must not be trusted."""

from __future__ import annotations

import subprocess
import sys

import pyarrow as pa
import pytest

from icefloe.errors import ConflictError, CorruptStateError, OptionError, StateError, StorageError
from icefloe.proto import state_pb2 as pb
from icefloe.state import CompactionConfig, TableManager, TaskInfo, expiring_time_key_config, global_keyed_config
from icefloe.state.crash_points import arm
from icefloe.state.memory_storage import MemoryStorage
from icefloe.state.parquet_backend import ParquetBackend
from icefloe.state.storage import StorageProvider
from support.faulty_storage import Fault, FaultKind, FaultyStorage
from support.state_tables import CONFIGS, SCHEMA, batch, files_named, open_tables, scanned, table_files, task


@pytest.fixture
def storage(request: pytest.FixtureRequest) -> FaultyStorage:
    return FaultyStorage(MemoryStorage(request.node.nodeid))


def filled(storage: StorageProvider) -> TableManager:
    """A manager with something in every table."""
    manager = open_tables(storage)
    manager.get_global_keyed_state("counts").insert("a", 1)
    manager.get_global_keyed_state("ready").set_commit_data(b"files", 2)
    manager.get_expiring_time_key_table("rows").insert(batch([(5, 1, "x")]))
    manager.get_key_time_table("latest").insert(5, "n", 9)
    return manager


def test_a_checkpoint_gathers_files_sizes_and_configurations(storage: FaultyStorage) -> None:
    manager = filled(storage)
    metadata = manager.checkpoint(3, 1, 7)
    operator, subtask = metadata.operator_metadata, metadata.subtask
    assert (operator.job_id, operator.operator_id, operator.epoch, operator.watermark) == ("job", "sink", 3, 7)
    assert operator.attempt_id == manager.task_info.attempt_id
    assert set(subtask.table_metadata) == {"counts", "ready", "rows", "latest"}
    assert set(metadata.table_configs) == set(CONFIGS)
    stored = {info.key: info.size_bytes for info in storage.list()}
    assert set(stored) == files_named([metadata])
    assert all(key.startswith("job/checkpoints/0000000003/table-") for key in stored)
    assert sum(stored.values()) == subtask.bytes
    assert 0 < metadata.start_time <= metadata.finish_time


def test_a_checkpoint_without_changes_writes_nothing_and_restores_the_same(storage: FaultyStorage) -> None:
    manager = filled(storage)
    manager.checkpoint(1)
    before = storage.count("put_if_absent")
    again = manager.checkpoint(2)
    assert storage.count("put_if_absent") == before
    assert again.subtask.bytes == 0
    restored = open_tables(storage, [again])
    assert dict(restored.get_global_keyed_state("counts").items()) == {"a": 1}
    assert scanned(restored.get_expiring_time_key_table("rows")) == [(5, 1, "x")]
    assert restored.get_key_time_table("latest").get("n") == 9


def test_commit_data_belongs_to_one_epoch_and_is_given_once(storage: FaultyStorage) -> None:
    manager = open_tables(storage)
    view = manager.get_global_keyed_state("ready")
    view.set_commit_data(b"one", 2)
    with pytest.raises(StateError, match=r"ICEFLOE_STATE_COMMIT_DATA.*already"):
        view.set_commit_data(b"two", 2)
    with pytest.raises(StateError, match="uses_two_phase_commit"):
        manager.get_global_keyed_state("counts").set_commit_data(b"x")
    stored = pb.GlobalKeyedTableSubtaskCheckpointMetadata.FromString(
        manager.checkpoint(1).subtask.table_metadata["ready"].data
    )
    assert (stored.commit_data, stored.commit_data_version) == (b"one", 2)
    assert storage.count("put_if_absent") == 0
    assert "ready" not in manager.checkpoint(2).subtask.table_metadata


def test_an_unregistered_name_is_an_error_that_lists_the_registered_ones(storage: FaultyStorage) -> None:
    with pytest.raises(StateError, match=r"ICEFLOE_STATE_TABLE_UNKNOWN: .*'count'; registered: \['counts', 'latest'"):
        open_tables(storage).get_global_keyed_state("count")


def test_a_table_is_not_given_out_as_another_kind(storage: FaultyStorage) -> None:
    manager = open_tables(storage)
    for ask in (manager.get_expiring_time_key_table, manager.get_key_time_table):
        with pytest.raises(StateError, match=r"ICEFLOE_STATE_TABLE_TYPE.*GlobalKeyedTable"):
            ask("counts")
    with pytest.raises(StateError, match="ICEFLOE_STATE_TABLE_TYPE"):
        manager.get_global_keyed_state("rows")
    manager.get_expiring_time_key_table("rows")
    with pytest.raises(StateError, match="is used as ExpiringTimeKeyView"):
        manager.get_key_time_table("rows")


def test_after_then_stop_every_write_is_refused_and_reading_goes_on(storage: FaultyStorage) -> None:
    manager = filled(storage)
    counts, rows = manager.get_global_keyed_state("counts"), manager.get_expiring_time_key_table("rows")
    latest = manager.get_key_time_table("latest")
    metadata = manager.checkpoint(1, then_stop=True)
    assert metadata.subtask.then_stop
    writes = [
        lambda: counts.insert("b", 1),
        lambda: counts.remove("a"),
        lambda: rows.insert(batch([(1, 1, "")])),
        lambda: rows.set_cutoff(1, 1),
        lambda: rows.flush(2),
        lambda: latest.insert(9, "n", 1),
    ]
    for write in writes:
        with pytest.raises(StateError, match="ICEFLOE_STATE_STOPPED"):
            write()
    with pytest.raises(StateError, match="ICEFLOE_STATE_CLOSED"):
        manager.checkpoint(2)
    assert counts.get("a") == 1
    assert scanned(rows) == [(5, 1, "x")]


@pytest.mark.parametrize(("epoch", "min_epoch"), [(4, 0), (3, 0), (-1, 0), (5, 6)])
def test_epochs_only_grow(storage: FaultyStorage, epoch: int, min_epoch: int) -> None:
    manager = filled(storage)
    manager.checkpoint(4)
    with pytest.raises(StateError, match="ICEFLOE_STATE_EPOCH_ORDER"):
        manager.checkpoint(epoch, min_epoch)


def test_a_restored_manager_goes_on_above_the_restored_epoch(storage: FaultyStorage) -> None:
    restored = open_tables(storage, [filled(storage).checkpoint(4)])
    with pytest.raises(StateError, match="ICEFLOE_STATE_EPOCH_ORDER"):
        restored.checkpoint(4)
    assert restored.checkpoint(6).operator_metadata.epoch == 6


@pytest.mark.parametrize("kind", [FaultKind.ERROR_BEFORE, FaultKind.ERROR_AFTER, FaultKind.DISK_FULL])
@pytest.mark.parametrize("skip", [0, 1, 2])
def test_a_failing_put_leaves_the_earlier_epoch_restorable_and_can_be_repeated(
    storage: FaultyStorage, kind: FaultKind, skip: int
) -> None:
    manager = filled(storage)
    first = manager.checkpoint(1)
    manager.get_global_keyed_state("counts").insert("b", 2)
    manager.get_expiring_time_key_table("rows").insert(batch([(6, 1, "y")]))
    manager.get_key_time_table("latest").insert(6, "n", 10)
    storage.plan(Fault(kind, operation="put_if_absent", skip=skip))
    with pytest.raises(StorageError):
        manager.checkpoint(2)
    earlier = open_tables(storage, [first])
    assert dict(earlier.get_global_keyed_state("counts").items()) == {"a": 1}
    assert scanned(earlier.get_expiring_time_key_table("rows")) == [(5, 1, "x")]
    later = open_tables(storage, [manager.checkpoint(2)])
    assert dict(later.get_global_keyed_state("counts").items()) == {"a": 1, "b": 2}
    assert scanned(later.get_expiring_time_key_table("rows")) == [(5, 1, "x"), (6, 1, "y")]
    assert later.get_key_time_table("latest").get("n") == 10


@pytest.mark.parametrize("point", ["state.table_written", "state.tables_written", "state.operator_metadata_written"])
def test_a_kill_at_any_point_of_a_checkpoint_leaves_the_earlier_epoch_restorable(
    storage: FaultyStorage, point: str
) -> None:
    first = filled(storage).checkpoint(1)

    class Killed(BaseException):
        pass

    def kill(name: str) -> None:
        if name == point:
            raise Killed

    doomed = open_tables(storage, [first], backend=ParquetBackend(storage, "job"))
    doomed.get_global_keyed_state("counts").insert("b", 2)
    doomed.get_expiring_time_key_table("rows").insert(batch([(6, 1, "y")]))
    arm(kill)
    try:
        with pytest.raises(Killed):
            doomed.checkpoint(2)
    finally:
        arm(None)
    again = open_tables(storage, [first])
    assert dict(again.get_global_keyed_state("counts").items()) == {"a": 1}
    assert scanned(again.get_expiring_time_key_table("rows")) == [(5, 1, "x")]


def test_the_backend_stores_the_metadata_that_is_returned(storage: FaultyStorage) -> None:
    backend = ParquetBackend(storage, "job")
    manager = open_tables(storage, backend=backend)
    manager.get_global_keyed_state("counts").insert("a", 1)
    metadata = manager.checkpoint(1)
    assert backend.read_operator_checkpoint_metadata(1, "sink", 0) == metadata


def test_two_managers_under_one_attempt_are_told_apart(storage: FaultyStorage) -> None:
    info = task()
    for value in (1, 2):
        manager = open_tables(storage, info=info)
        manager.get_global_keyed_state("counts").insert("a", value)
        if value == 1:
            manager.checkpoint(1)
        else:
            with pytest.raises(ConflictError, match="ICEFLOE_STATE_TWO_MANAGERS"):
                manager.checkpoint(1)


def test_an_attempt_goes_on_with_what_the_last_one_has_in_memory(storage: FaultyStorage) -> None:
    manager = filled(storage)
    view = manager.get_global_keyed_state("counts")
    manager.checkpoint(1)
    reads = storage.count("get")
    info = task()
    next_one = manager.continue_as(info, epoch=2)
    view.insert("b", 2)
    next_one.get_expiring_time_key_table("rows").insert(batch([(6, 1, "y")]))
    metadata = next_one.checkpoint(2)
    assert storage.count("get") == reads
    assert {file.file.rsplit("-", 1)[1] for file in table_files(metadata, "rows")[1:]} == {f"{info.attempt_id}.parquet"}
    assert dict(open_tables(storage, [metadata]).get_global_keyed_state("counts").items()) == {"a": 1, "b": 2}
    with pytest.raises(StateError, match=f"ICEFLOE_STATE_CLOSED: .*{info.attempt_id}"):
        manager.get_global_keyed_state("counts")


def test_unsaved_changes_are_not_handed_on(storage: FaultyStorage) -> None:
    for change in (
        lambda m: m.get_global_keyed_state("counts").insert("b", 1),
        lambda m: m.get_expiring_time_key_table("rows").insert(batch([(6, 1, "y")])),
        lambda m: m.get_expiring_time_key_table("rows").set_cutoff(1, 6),
        lambda m: m.get_key_time_table("latest").insert(9, "n", 1),
    ):
        manager = open_tables(storage, [filled(storage).checkpoint(1)])
        change(manager)
        with pytest.raises(StateError, match="ICEFLOE_STATE_NOT_CHECKPOINTED"):
            manager.continue_as(task())
    manager = open_tables(storage)
    with pytest.raises(StateError, match="ICEFLOE_STATE_OTHER_SUBTASK"):
        manager.continue_as(task(1))


def test_a_new_schema_may_come_with_a_new_attempt(storage: FaultyStorage) -> None:
    wider = SCHEMA.append(pa.field("more", pa.int64()))
    manager = open_tables(storage, schemas={"rows": SCHEMA})
    manager.get_expiring_time_key_table("rows").insert(batch([(1, 1, "x")]))
    manager.checkpoint(1)
    view = (going_on := manager.continue_as(task(), schemas={"rows": wider})).get_expiring_time_key_table("rows")
    with pytest.raises(StateError, match="ICEFLOE_STATE_BATCH_SCHEMA"):
        view.insert(batch([(2, 1, "y")]))
    view.insert(batch([(2, 1, "y")]).append_column("more", pa.array([4])))
    restored = open_tables(storage, [going_on.checkpoint(2)]).get_expiring_time_key_table("rows")
    assert [found.schema for found in restored.scan(key=1)] == [SCHEMA, wider]


def test_metadata_of_another_job_or_operator_is_refused(storage: FaultyStorage) -> None:
    metadata = filled(storage).checkpoint(1)
    for info in (TaskInfo("other", "sink", 0), TaskInfo("job", "other", 0)):
        with pytest.raises(CorruptStateError, match=r"ICEFLOE_STATE_FOREIGN: .*epoch 1"):
            open_tables(storage, [metadata], info=info)


def test_stored_tables_that_nobody_registered_are_not_dropped(storage: FaultyStorage) -> None:
    metadata = filled(storage).checkpoint(1)
    with pytest.raises(StateError, match=r"ICEFLOE_STATE_TABLE_UNKNOWN: .*\['latest', 'ready', 'rows'\]"):
        open_tables(storage, [metadata], configs={"counts": CONFIGS["counts"]})


def test_a_table_whose_type_has_changed_is_refused(storage: FaultyStorage) -> None:
    metadata = filled(storage).checkpoint(1)
    changed = {
        **CONFIGS,
        "counts": expiring_time_key_config("counts", "", retention=1, time_column="t", key_column="k"),
    }
    with pytest.raises(CorruptStateError, match=r"ICEFLOE_STATE_TABLE_TYPE.*GLOBAL_KEY_VALUE"):
        open_tables(storage, [metadata], configs=changed)
    with pytest.raises(StateError, match="ICEFLOE_STATE_TABLE_TYPE"):
        open_tables(storage, configs={"x": pb.TableConfig(table_type=pb.TableEnum.MISSING_TABLE_TYPE)})


@pytest.mark.parametrize("table", ["counts", "rows"])
def test_garbled_metadata_of_a_table_is_refused(storage: FaultyStorage, table: str) -> None:
    metadata = filled(storage).checkpoint(1)
    metadata.subtask.table_metadata[table].data = b"\xff\xff garbled"
    with pytest.raises(CorruptStateError, match="ICEFLOE_STATE_METADATA_CORRUPT"):
        open_tables(storage, [metadata])


def test_an_epoch_is_restored_whole_where_keys_are_dealt(storage: FaultyStorage) -> None:
    managers = [open_tables(storage, info=task(index, parallelism=2)) for index in range(2)]
    first = [manager.checkpoint(1) for manager in managers]
    second = [manager.checkpoint(2) for manager in managers]
    for wrong in ([first[0]], [first[0], second[1]], [first[0], first[0]]):
        with pytest.raises(StateError, match="ICEFLOE_STATE_EPOCH_INCOMPLETE"):
            open_tables(storage, wrong, info=task(0, parallelism=3))


def test_a_file_named_twice_is_refused(storage: FaultyStorage) -> None:
    metadata = filled(storage).checkpoint(1)
    for table in ("counts", "rows"):
        doubled = pb.OperatorCheckpointMetadata()
        doubled.CopyFrom(metadata)
        for name in list(doubled.subtask.table_metadata):
            if name != table:
                del doubled.subtask.table_metadata[name]
        with pytest.raises(CorruptStateError, match="ICEFLOE_STATE_FILE_TWICE"):
            open_tables(storage, [doubled, doubled])


def test_compaction_that_would_never_end_is_refused(storage: FaultyStorage) -> None:
    with pytest.raises(OptionError, match="min_compaction_epochs"):
        CompactionConfig(storage, min_compaction_epochs=1)
    with pytest.raises(OptionError, match="retention"):
        expiring_time_key_config("t", "", retention=-1, time_column="t", key_column="k")


def test_a_small_checkpoint_is_one_small_object_for_each_changed_table(storage: FaultyStorage) -> None:
    manager = filled(storage)
    manager.checkpoint(1)
    storage.calls.clear()
    manager.get_global_keyed_state("counts").insert("b", 2)
    manager.get_expiring_time_key_table("rows").insert(batch([(6, 1, "y")]))
    manager.checkpoint(2)
    assert [call.operation for call in storage.calls] == ["put_if_absent"] * 2
    assert storage.bytes_of("put_if_absent") < 4096


def test_importing_the_state_layer_loads_neither_s3_nor_spark_nor_arrow() -> None:
    code = (
        "import sys, icefloe.state; "
        "found = {'s3fs', 'pyspark', 'pyarrow', 'pyiceberg'} & set(sys.modules); assert not found, found; "
        "missing = [n for n in icefloe.state.__all__ if getattr(icefloe.state, n, None) is None]; assert not missing; "
        "found = {'s3fs', 'pyspark', 'pyiceberg'} & set(sys.modules); assert not found, found"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_declared_schema_is_kept_in_the_configuration(storage: FaultyStorage) -> None:
    config = expiring_time_key_config("t", "", retention=1, time_column="time", key_column="key", schema=SCHEMA)
    view = open_tables(storage, configs={"t": config, "g": global_keyed_config("g", "")}).get_expiring_time_key_table(
        "t"
    )
    with pytest.raises(StateError, match="ICEFLOE_STATE_BATCH_SCHEMA"):
        view.insert(batch([(1, 1, "x")]).append_column("more", pa.array([4])))
