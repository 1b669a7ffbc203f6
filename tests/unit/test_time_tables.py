"""Time tables: rows by time and key, read lazily, expired by watermark or cutoff, merged by generation."""

from __future__ import annotations

import io
import itertools
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from icefloe.errors import CorruptStateError, StateError, StateVersionError
from icefloe.proto import state_pb2 as pb
from icefloe.state import (
    MAX_TIME,
    CompactionConfig,
    ExpiringTimeKeyTable,
    ExpiringTimeKeyView,
    TableManager,
    expiring_time_key_config,
    time_files,
)
from icefloe.state.memory_storage import MemoryStorage
from icefloe.state.time_compaction import choose_rewrite
from icefloe.state.time_files import MAX_LISTED_KEYS
from icefloe.state.time_references import join_adjacent, key_bounds, narrowed
from support.faulty_storage import FaultyStorage
from support.state_tables import SCHEMA, Row, batch, open_tables, remove_unnamed, scanned, table_files, task


@pytest.fixture
def storage(request: pytest.FixtureRequest) -> FaultyStorage:
    return FaultyStorage(MemoryStorage(request.node.nodeid))


def rows_of(manager: TableManager, table: str = "rows") -> ExpiringTimeKeyView:
    return manager.get_expiring_time_key_table(table)


def checkpointed(
    storage: FaultyStorage, *epochs: list[Row], table: str = "pending"
) -> tuple[TableManager, pb.OperatorCheckpointMetadata]:
    """A manager that has written the rows of each epoch, and its last metadata."""
    manager = open_tables(storage)
    metadata = pb.OperatorCheckpointMetadata()
    for epoch, rows in enumerate(epochs, start=1):
        rows_of(manager, table).insert(batch(rows))
        metadata = manager.checkpoint(epoch)
    return manager, metadata


def test_inserted_rows_are_seen_before_and_after_the_checkpoint(storage: FaultyStorage) -> None:
    manager = open_tables(storage)
    rows_of(manager).insert(batch([(3, 2, "b"), (1, 1, "a")]))
    assert scanned(rows_of(manager)) == [(3, 2, "b"), (1, 1, "a")]
    metadata = manager.checkpoint(1)
    assert scanned(rows_of(manager)) == [(1, 1, "a"), (3, 2, "b")]
    assert scanned(rows_of(open_tables(storage, [metadata]))) == [(1, 1, "a"), (3, 2, "b")]


def test_only_new_batches_are_written_and_older_files_are_carried(storage: FaultyStorage) -> None:
    manager, _ = checkpointed(storage, [(1, 1, "a")], [(2, 1, "b")])
    first, second = table_files(manager.checkpoint(3), "pending")
    assert (first.epoch, first.rows, second.epoch, second.rows) == (1, 1, 2, 1)
    assert storage.count("put_if_absent") == 2


def test_files_expire_against_the_watermark_minus_the_retention(storage: FaultyStorage) -> None:
    manager = open_tables(storage)
    for epoch, time in enumerate((1, 20, 40), start=1):
        rows_of(manager).insert(batch([(time, 1, "old"), (time + 5, 1, "new")]))
        manager.checkpoint(epoch)
    metadata = manager.checkpoint(4, watermark=35)
    assert [file.epoch for file in table_files(metadata, "rows")] == [2, 3]
    assert scanned(rows_of(manager)) == [(25, 1, "new"), (40, 1, "old"), (45, 1, "new")]
    restored = open_tables(storage, [metadata])
    assert scanned(rows_of(restored)) == scanned(rows_of(manager))
    assert "rows" not in restored.checkpoint(5, watermark=1000).subtask.table_metadata


def test_a_watermark_that_goes_back_brings_nothing_back(storage: FaultyStorage) -> None:
    manager = open_tables(storage)
    rows_of(manager).insert(batch([(1, 1, "a"), (50, 1, "b")]))
    manager.checkpoint(1, watermark=30)
    rows_of(manager).insert(batch([(5, 1, "late")]))
    metadata = manager.checkpoint(2, watermark=5)
    assert scanned(rows_of(open_tables(storage, [metadata]))) == [(50, 1, "b")]


def test_without_a_retention_no_watermark_expires_a_row(storage: FaultyStorage) -> None:
    manager, _ = checkpointed(storage, [(1, 1, "a")])
    metadata = manager.checkpoint(2, watermark=MAX_TIME)
    assert scanned(rows_of(open_tables(storage, [metadata]), "pending")) == [(1, 1, "a")]


def test_a_scan_of_one_key_comes_in_the_order_of_time_across_files_and_memory(storage: FaultyStorage) -> None:
    manager, _ = checkpointed(storage, [(1, 7, ""), (9, 7, ""), (2, 8, "")], [(4, 7, ""), (12, 7, "")], [(20, 7, "")])
    view = rows_of(manager, "pending")
    view.insert(batch([(30, 7, ""), (10, 7, ""), (31, 8, "")]))
    assert [row[0] for row in scanned(view, key=7)] == [1, 4, 9, 10, 12, 20, 30]
    assert [row[0] for row in scanned(view, key=7, min_time=10)] == [10, 12, 20, 30]
    assert scanned(view, key_range=(8, 2**64 - 1), columns=["time"]) == [(2,), (31,)]
    assert scanned(view, key=7, min_time=20, columns=["value", "key"]) == [("", 7), ("", 7)]


def test_a_scan_shows_the_moment_of_its_call(storage: FaultyStorage) -> None:
    manager, _ = checkpointed(storage, [(1, 1, "file")])
    view = rows_of(manager, "pending")
    view.insert(batch([(2, 1, "memory")]))
    scans = [view.scan(), view.scan(key=1)]
    view.flush(2)
    view.set_cutoff(1, 10)
    view.insert(batch([(11, 1, "later")]))
    for scan in scans:
        assert [row["time"] for found in scan for row in found.to_pylist()] == [1, 2]
    assert scanned(view) == [(11, 1, "later")]


def test_cutoffs_by_key_end_rows_and_then_files(storage: FaultyStorage) -> None:
    manager, _ = checkpointed(storage, [(1, 1, ""), (2, 2, ""), (3, 1, "")], [(4, 2, "")])
    view = rows_of(manager, "pending")
    view.set_cutoff(1, 3)
    view.set_cutoff(1, 2)
    assert sorted(scanned(view)) == [(2, 2, ""), (3, 1, ""), (4, 2, "")]
    metadata = manager.checkpoint(3)
    restored = open_tables(storage, [metadata])
    assert sorted(scanned(rows_of(restored, "pending"))) == [(2, 2, ""), (3, 1, ""), (4, 2, "")]
    rows_of(restored, "pending").remove_key(1)
    rows_of(restored, "pending").set_cutoff(2, 4)
    last = restored.checkpoint(4)
    assert [file.epoch for file in table_files(last, "pending")] == [2]
    assert storage.count("put_if_absent") == 2


def test_a_flush_frees_memory_under_names_of_its_own(storage: FaultyStorage) -> None:
    manager = open_tables(storage, epoch=1)
    view = rows_of(manager, "pending")
    for number in range(3):
        view.insert(batch([(number, 1, "x")]))
        assert view.buffered_bytes > 0
        view.flush()
        assert view.buffered_bytes == 0
    view.insert(batch([(3, 1, "x")]))
    assert [row[0] for row in scanned(view, key=1)] == [0, 1, 2, 3]
    files = table_files(manager.checkpoint(1), "pending")
    attempt = manager.task_info.attempt_id
    assert sorted(file.file.rsplit("/", 1)[1] for file in files) == [
        f"table-pending-0-{attempt}{n}.parquet" for n in ("-1", "-2", "-3", "")
    ]


def test_a_flush_needs_the_epoch_and_binds_the_checkpoint_to_it(storage: FaultyStorage) -> None:
    manager = open_tables(storage)
    view = rows_of(manager, "pending")
    view.insert(batch([(1, 1, "x")]))
    with pytest.raises(StateError, match="ICEFLOE_STATE_EPOCH_UNKNOWN"):
        view.flush()
    view.flush(5)
    with pytest.raises(StateError, match="ICEFLOE_STATE_EPOCH_ORDER"):
        manager.checkpoint(6)
    assert scanned(rows_of(open_tables(storage, [manager.checkpoint(5)]), "pending")) == [(1, 1, "x")]


def wide_rows(keys: int, rows: int) -> pa.RecordBatch:
    """Rows with 1 KB of text that does not compress well, by key, and times that grow."""
    rng = random.Random(5)
    times = list(range(keys * rows))
    return pa.record_batch(
        [
            pa.array(times, pa.int64()),
            pa.array([time // rows for time in times], pa.uint64()),
            pa.array([rng.randbytes(512).hex() for _ in times]),
        ],
        schema=SCHEMA,
    )


def test_a_scan_reads_only_row_groups_and_columns_that_can_match(storage: FaultyStorage) -> None:
    manager = open_tables(storage)
    rows_of(manager, "pending").insert(wide_rows(keys=20, rows=500))
    metadata = manager.checkpoint(1)
    (file,) = table_files(metadata, "pending")
    assert file.bytes > 4_000_000
    restored = open_tables(storage, [metadata])
    storage.calls.clear()
    view = rows_of(restored, "pending")
    assert storage.calls == []

    def read_bytes(**selection: object) -> int:
        storage.calls.clear()
        list(view.scan(**selection))  # type: ignore[arg-type]
        return storage.bytes_of("get", "get_range")

    whole = read_bytes()
    assert whole > 0.9 * file.bytes
    assert read_bytes(key=3) < whole / 10
    assert read_bytes(key_range=(3, 6)) < whole / 3
    assert read_bytes(min_time=9500) < whole / 10
    assert read_bytes(columns=["time"]) < whole / 10
    assert read_bytes(key=77) == 0
    assert storage.count("get") == 0


def test_row_groups_are_cut_at_keys_and_bounded_in_number(storage: FaultyStorage) -> None:
    manager = open_tables(storage)
    rows_of(manager, "pending").insert(wide_rows(keys=2000, rows=5))
    (file,) = table_files(manager.checkpoint(1), "pending")
    metadata = pq.read_metadata(io.BytesIO(storage.get(file.file)))
    assert 10 < metadata.num_row_groups <= 256
    stats = [metadata.row_group(index).column(1).statistics for index in range(metadata.num_row_groups)]
    assert all(left.max < right.min for left, right in itertools.pairwise(stats))
    assert metadata.row_group(0).column(0).compression == "ZSTD"


def test_many_rows_become_files_of_a_bounded_size_and_equal_rows_stay_in_one(
    storage: FaultyStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time_files, "MAX_FILE_ARROW_BYTES", 1000)
    rows: list[Row] = [(time // 3, key, f"{key}-{time}") for key in (1, 2, 3) for time in range(50)]
    _, metadata = checkpointed(storage, rows)
    files = table_files(metadata, "pending")
    assert len(files) > 3
    assert sum(file.rows for file in files) == len(rows)
    restored = rows_of(open_tables(storage, [metadata]), "pending")
    for key in (1, 2, 3):
        assert scanned(restored, key=key) == [row for row in rows if row[1] == key]


def test_a_file_with_very_many_keys_is_cut_off_when_the_owner_says_so_again(storage: FaultyStorage) -> None:
    manager = open_tables(storage, merge_after=2)
    view = rows_of(manager, "pending")
    view.insert(batch([(key, key, "x") for key in range(MAX_LISTED_KEYS + 1)]))
    manager.checkpoint(1)
    for key in range(MAX_LISTED_KEYS):
        view.remove_key(key)
    metadata = manager.checkpoint(2)
    (file,) = table_files(metadata, "pending")
    assert not file.keys
    assert scanned(view) == [(MAX_LISTED_KEYS, MAX_LISTED_KEYS, "x")]
    restored = open_tables(storage, [metadata], merge_after=2)
    again = rows_of(restored, "pending")
    assert len(scanned(again)) == MAX_LISTED_KEYS + 1
    for key in range(MAX_LISTED_KEYS):
        again.remove_key(key)
    assert scanned(again, key=5) == []
    again.insert(batch([(2000, 5000, "y")]))
    restored.checkpoint(3)
    (merged,) = table_files(restored.checkpoint(4), "pending")
    assert (merged.rows, merged.generation) == (2, 1)
    assert scanned(rows_of(open_tables(storage, [restored.checkpoint(5)]), "pending")) == [
        (MAX_LISTED_KEYS, MAX_LISTED_KEYS, "x"),
        (2000, 5000, "y"),
    ]


def test_files_are_merged_by_generation_and_inputs_are_left_to_clean_up(storage: FaultyStorage) -> None:
    manager = open_tables(storage, merge_after=3)
    view = rows_of(manager, "pending")
    everything, generations = set(), []
    for epoch in range(1, 24):
        view.insert(batch([(epoch, epoch % 3, f"{epoch}")]))
        metadata = manager.checkpoint(epoch)
        files = table_files(metadata, "pending")
        everything |= {file.file for file in files}
        generations.append(max(file.generation for file in files))
        assert len(files) <= 8
    assert generations[-1] == 2
    assert everything <= {info.key for info in storage.list()}
    assert storage.count("get") == 0
    remove_unnamed(storage, [metadata])
    restored = rows_of(open_tables(storage, [metadata]), "pending")
    assert sorted(scanned(restored)) == [(epoch, epoch % 3, f"{epoch}") for epoch in range(1, 24)]


def test_mostly_dead_files_are_rewritten_and_mostly_live_ones_are_not(storage: FaultyStorage) -> None:
    manager = open_tables(storage, merge_after=50)
    view = rows_of(manager, "pending")
    view.insert(batch([(time, time % 10, "x") for time in range(100)]))
    manager.checkpoint(1)
    for key in range(4):
        view.remove_key(key)
    assert [file.epoch for file in table_files(manager.checkpoint(2), "pending")] == [1]
    for key in range(4, 8):
        view.remove_key(key)
    (file,) = table_files(manager.checkpoint(3), "pending")
    assert (file.epoch, file.rows) == (3, 20)
    assert sorted(scanned(view)) == sorted((time, time % 10, "x") for time in range(100) if time % 10 > 7)


def test_a_merge_leaves_alone_what_is_too_large_for_it(storage: FaultyStorage) -> None:
    files = [pb.ParquetTimeFile(file=f"f{n}", epoch=n, bytes=size, rows=1) for n, size in enumerate((5, 500, 5, 5))]
    config = CompactionConfig(storage, min_compaction_epochs=3, max_bytes=100)
    assert choose_rewrite(config, files, generational=True).names == {"f0", "f2", "f3"}
    settled = [pb.ParquetTimeFile(file=f"f{n}", bytes=1, rows=1, generation=4) for n in range(9)]
    assert not choose_rewrite(config, settled, generational=True).names
    assert not choose_rewrite(None, files, generational=True).names


def test_files_of_several_schemas_are_never_merged_into_one(storage: FaultyStorage) -> None:
    manager = open_tables(storage, merge_after=2)
    view = rows_of(manager, "pending")
    wider = batch([(2, 1, "b")]).append_column("more", pa.array([1]))
    view.insert(batch([(1, 1, "a")]))
    manager.checkpoint(1)
    view.insert(wider)
    manager.checkpoint(2)
    view.insert(batch([(3, 1, "c")]))
    metadata = manager.checkpoint(3)
    assert [file.generation for file in table_files(metadata, "pending")] == [1, 1]
    found = [each.schema for each in rows_of(open_tables(storage, [metadata]), "pending").scan()]
    assert sorted(found, key=len) == [SCHEMA, wider.schema]


def test_every_arrow_type_comes_back_as_it_was_inserted(storage: FaultyStorage) -> None:
    columns = {
        "time": pa.array([1, 2], pa.int64()),
        "key": pa.array([1, 2], pa.uint64()),
        "zoned": pa.array([0, None], pa.timestamp("us", "UTC")),
        "nested": pa.array([{"a": [1, None]}, None], pa.struct([("a", pa.large_list(pa.int8()))])),
        "decimal": pa.array([None, 1], pa.decimal128(38, 9)),
        "text": pa.array(["x", "y"], pa.large_string()),
        "map": pa.array([[("k", 1)], []], pa.map_(pa.string(), pa.int32())),
        "seconds": pa.array([1, None], pa.timestamp("s")),
        "day": pa.array([86_400_000, 0], pa.date64()),
        "word": pa.array(["a", "b"]).dictionary_encode(),
        "half": pa.array([1.5, float("nan")], pa.float32()),
    }
    fields = [pa.field(n, c.type, nullable=n not in ("time", "key"), metadata={"id": n}) for n, c in columns.items()]
    given = pa.RecordBatch.from_arrays(list(columns.values()), schema=pa.schema(fields, metadata={"own": "metadata"}))
    manager = open_tables(storage)
    rows_of(manager, "pending").insert(given)
    (found,) = rows_of(open_tables(storage, [manager.checkpoint(1)]), "pending").scan()
    assert found.schema.equals(given.schema, check_metadata=True)
    assert str(found.to_pylist()) == str(given.to_pylist())


@pytest.mark.parametrize(
    "wrong",
    [
        pa.record_batch({"time": pa.array([1], pa.int64())}),
        pa.record_batch({"time": pa.array([1], pa.int32()), "key": pa.array([1], pa.uint64())}),
        pa.record_batch({"time": pa.array([1], pa.int64()), "key": pa.array([1], pa.int64())}),
    ],
)
def test_a_batch_without_time_and_key_is_refused(storage: FaultyStorage, wrong: pa.RecordBatch) -> None:
    with pytest.raises(StateError, match="ICEFLOE_STATE_BATCH_SCHEMA: table 'rows' needs a column"):
        rows_of(open_tables(storage)).insert(wrong)


def test_a_row_without_a_time_or_a_key_is_refused(storage: FaultyStorage) -> None:
    nulls = pa.record_batch([pa.array([1, None]), pa.array([1, 2], pa.uint64()), pa.array(["", ""])], schema=SCHEMA)
    with pytest.raises(StateError, match=r"ICEFLOE_STATE_BATCH_NULLS: .*1 rows have a null in 'time'"):
        rows_of(open_tables(storage)).insert(nulls)


@pytest.mark.parametrize("size", ["small", "large"])
def test_a_lost_or_damaged_file_is_an_error_that_names_it(storage: FaultyStorage, size: str) -> None:
    manager = open_tables(storage)
    rows_of(manager, "pending").insert(wide_rows(2, 1) if size == "small" else wide_rows(4, 500))
    metadata = manager.checkpoint(1)
    (file,) = table_files(metadata, "pending")
    data = storage.get(file.file)
    middle = len(data) // 2
    for damaged in (data[:middle], data[:middle] + bytes(64) + data[middle + 64 :], data[:-8] + bytes(8)):
        storage.put(file.file, damaged)
        with pytest.raises(CorruptStateError, match=f"ICEFLOE_STATE_FILE_CORRUPT: {file.file}"):
            scanned(rows_of(open_tables(storage, [metadata]), "pending"))
    storage.delete_if_present(file.file)
    with pytest.raises(CorruptStateError, match=f"ICEFLOE_STATE_FILE_MISSING: {file.file}"):
        scanned(rows_of(open_tables(storage, [metadata]), "pending"))


def test_lost_files_can_be_found_without_reading_them(storage: FaultyStorage) -> None:
    _, metadata = checkpointed(storage, [(1, 1, "a")])
    (file,) = table_files(metadata, "pending")
    config = pb.ExpiringKeyedTimeTableConfig(table_name="pending", time_column="time", key_column="key")
    merged = pb.ExpiringKeyedTimeTableCheckpointMetadata(files=[file])
    table = ExpiringTimeKeyTable.from_config(config, task(), storage, merged, 0)
    table.check_files()
    storage.put(file.file, b"short")
    with pytest.raises(CorruptStateError, match="it has 5 bytes"):
        table.check_files()
    storage.delete_if_present(file.file)
    with pytest.raises(CorruptStateError, match="ICEFLOE_STATE_FILE_MISSING"):
        table.check_files()


def test_a_file_of_a_newer_version_is_refused(storage: FaultyStorage) -> None:
    def configs(version: int) -> dict[str, pb.TableConfig]:
        return {
            "t": expiring_time_key_config(
                "t", "", retention=None, time_column="time", key_column="key", state_version=version
            )
        }

    manager = open_tables(storage, configs=configs(2))
    rows_of(manager, "t").insert(batch([(1, 1, "a")]))
    metadata = manager.checkpoint(1)
    with pytest.raises(StateVersionError, match="table 't'"):
        open_tables(storage, [metadata], configs=configs(1))
    metadata.table_configs["t"].state_version = 1
    with pytest.raises(StateVersionError, match=r"table-t-0-.*\.parquet holds state of version 2"):
        scanned(rows_of(open_tables(storage, [metadata], configs=configs(1)), "t"))


@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 1), (3, 2), (2, 5)])
def test_rows_are_dealt_anew_by_key_range_none_lost_none_double(
    storage: FaultyStorage, before: int, after: int
) -> None:
    rows = [(time, time * (2**64 // 50), f"{time}") for time in range(50)]
    record: list[pb.OperatorCheckpointMetadata] = []
    for epoch, parallelism in enumerate((before, after, before), start=1):
        infos = [task(index, parallelism=parallelism) for index in range(parallelism)]
        managers = [open_tables(storage, record, info=info, merge_after=2) for info in infos]
        if epoch == 1:
            rows_of(managers[0], "pending").insert(batch(rows))
        else:
            found = [scanned(rows_of(manager, "pending")) for manager in managers]
            for info, mine in zip(infos, found, strict=True):
                low, high = key_bounds(info)
                assert mine
                assert all(low <= row[1] <= high for row in mine)
            assert sorted(row for mine in found for row in mine) == rows
        record = [manager.checkpoint(epoch) for manager in managers]


def test_references_that_overlap_are_refused() -> None:
    left = pb.ParquetTimeFile(file="f", min_routing_key=0, max_routing_key=10)
    right = pb.ParquetTimeFile(file="f", min_routing_key=10, max_routing_key=20)
    with pytest.raises(CorruptStateError, match=r"ICEFLOE_STATE_FILE_TWICE: .*both cover the key 10"):
        join_adjacent("t", [right, left])
    right.min_routing_key = 11
    (joined,) = join_adjacent("t", [right, left])
    assert (joined.min_routing_key, joined.max_routing_key) == (0, 20)
    right.min_routing_key = 12
    assert len(join_adjacent("t", [right, left])) == 2


def test_a_reference_is_narrowed_to_nothing_or_stays_the_same_object() -> None:
    keys = [pb.KeyRange(key=key, min_time=0, max_time=9, rows=10) for key in (1, 5)]
    file = pb.ParquetTimeFile(min_routing_key=1, max_routing_key=5, min_time=0, max_time=9, rows=20, keys=keys)
    assert narrowed(file) is file
    assert narrowed(file, keys=(2, 4)) is None
    assert narrowed(file, min_time=10) is None
    assert narrowed(file, cutoffs={1: MAX_TIME, 5: 10}) is None
    cut = narrowed(file, cutoffs={1: 5})
    assert cut is not None
    assert [(entry.key, entry.min_time, entry.rows) for entry in cut.keys] == [(1, 5, 5), (5, 0, 10)]


def test_a_file_that_does_not_list_its_keys_is_still_read_by_row_group(storage: FaultyStorage) -> None:
    manager = open_tables(storage)
    rows_of(manager, "pending").insert(wide_rows(keys=MAX_LISTED_KEYS + 200, rows=4))
    metadata = manager.checkpoint(1)
    (file,) = table_files(metadata, "pending")
    assert not file.keys
    storage.calls.clear()
    found = scanned(rows_of(open_tables(storage, [metadata]), "pending"), key=700)
    assert [row[0] for row in found] == [2800, 2801, 2802, 2803]
    assert storage.bytes_of("get", "get_range") < file.bytes / 4
