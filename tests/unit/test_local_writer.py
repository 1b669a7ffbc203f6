"""The local writer: row groups reach the disk as they are finished, and a checkpoint is enough to finish the file."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from icefloe.connector import local_writer
from icefloe.connector.local_writer import (
    CurrentFileRecovery,
    ParquetLocalWriter,
    publish_pre_commit,
    recover_local_file,
)
from icefloe.connector.parquet_format import ParquetFormat
from icefloe.errors import CorruptStateError, StorageError
from icefloe.schemas.sink_schema import SinkSchema
from support.in_flight import EVENTS, assert_same_rows, events, rows_of

FORMAT = ParquetFormat(row_group_bytes=32 * 1024)


@pytest.fixture
def writer(tmp_path: Path) -> ParquetLocalWriter:
    return ParquetLocalWriter(tmp_path / "a.tmp", tmp_path / "out" / "a.parquet", FORMAT, SinkSchema(EVENTS, 3))


def finished(recovery: CurrentFileRecovery, tmp_path: Path, name: str = "again.tmp") -> Path:
    pre_commit = recover_local_file(recovery, tmp_path / name)
    return pre_commit.tmp_path


def test_a_closed_file_waits_under_its_temporary_name_until_it_is_published(
    writer: ParquetLocalWriter, tmp_path: Path
) -> None:
    assert writer.file_suffix() == "parquet"
    assert [writer.write_batch(events(start, 3000)) for start in (0, 3000)] == [3000, 3000]
    pre_commit = writer.close()
    assert writer.close() == pre_commit
    assert pre_commit.length_bytes == os.path.getsize(tmp_path / "a.tmp")
    assert not pre_commit.final_path.exists()
    publish_pre_commit(pre_commit)
    publish_pre_commit(pre_commit)
    assert not pre_commit.tmp_path.exists()
    assert_same_rows(pq.read_table(pre_commit.final_path), rows_of([events(0, 6000)]))


def test_synced_bytes_are_whole_row_groups_and_grow(writer: ParquetLocalWriter, tmp_path: Path) -> None:
    assert writer.sync() == 0
    lengths = []
    for start in range(0, 12_000, 2000):
        writer.write_batch(events(start, 2000))
        lengths.append(writer.sync())
        assert lengths[-1] == (os.path.getsize(tmp_path / "a.tmp") if lengths[-1] else 0)
    assert lengths == sorted(lengths)
    assert len(set(lengths)) > 2


def test_nothing_written_is_nothing_to_recover(writer: ParquetLocalWriter) -> None:
    assert writer.checkpoint() is None
    assert writer.stats() is None


def test_a_recovered_file_keeps_the_tail(writer: ParquetLocalWriter, tmp_path: Path) -> None:
    writer.write_batch(events(0, 5000))
    recovery = writer.checkpoint()
    assert recovery is not None
    assert recovery.trailing_bytes
    assert_same_rows(pq.read_table(finished(recovery, tmp_path)), rows_of([events(0, 5000)]))


def test_rows_after_the_last_checkpoint_are_not_recovered(writer: ParquetLocalWriter, tmp_path: Path) -> None:
    writer.write_batch(events(0, 5000))
    recovery = writer.checkpoint()
    writer.write_batch(events(5000, 9000))
    writer.sync()
    assert recovery is not None
    assert_same_rows(pq.read_table(finished(recovery, tmp_path)), rows_of([events(0, 5000)]))


def test_a_second_recovery_works_and_the_old_file_is_not_touched(writer: ParquetLocalWriter, tmp_path: Path) -> None:
    writer.write_batch(events(0, 5000))
    recovery = writer.checkpoint()
    assert recovery is not None
    before = recovery.tmp_path.read_bytes()
    first, second = finished(recovery, tmp_path, "1.tmp"), finished(recovery, tmp_path, "2.tmp")
    assert first.read_bytes() == second.read_bytes()
    assert recovery.tmp_path.read_bytes() == before


def test_the_writer_goes_on_after_a_checkpoint_as_if_never_asked(writer: ParquetLocalWriter, tmp_path: Path) -> None:
    other = ParquetLocalWriter(tmp_path / "b.tmp", tmp_path / "b.parquet", FORMAT, SinkSchema(EVENTS, 3))
    for start in range(0, 10_000, 1000):
        writer.write_batch(events(start, 1000))
        other.write_batch(events(start, 1000))
        writer.checkpoint()
    groups = [
        [footer.row_group(index).num_rows for index in range(footer.num_row_groups)]
        for footer in (pq.read_metadata(closed.close().tmp_path) for closed in (writer, other))
    ]
    assert sum(groups[0]) == 10_000
    assert len(groups[0]) == len(groups[1])


def test_a_file_shorter_than_its_checkpoint_is_refused_by_name(writer: ParquetLocalWriter, tmp_path: Path) -> None:
    writer.write_batch(events(0, 5000))
    recovery = writer.checkpoint()
    assert recovery is not None
    os.truncate(recovery.tmp_path, recovery.position_bytes - 1)
    with pytest.raises(CorruptStateError, match=r"a\.tmp"):
        recover_local_file(recovery, tmp_path / "again.tmp")


def test_a_file_that_is_gone_is_refused_by_name(writer: ParquetLocalWriter, tmp_path: Path) -> None:
    writer.write_batch(events(0, 5000))
    recovery = writer.checkpoint()
    assert recovery is not None
    recovery.tmp_path.unlink()
    with pytest.raises(CorruptStateError, match=r"a\.tmp"):
        recover_local_file(recovery, tmp_path / "again.tmp")


def test_a_closed_file_is_recovered_as_it_is(writer: ParquetLocalWriter, tmp_path: Path) -> None:
    writer.write_batch(events(0, 100))
    writer.close()
    recovery = writer.checkpoint()
    assert recovery is not None
    assert recovery.trailing_bytes == b""
    assert_same_rows(pq.read_table(finished(recovery, tmp_path)), rows_of([events(0, 100)]))


def test_a_file_without_rows_is_a_valid_one(writer: ParquetLocalWriter) -> None:
    assert pq.read_table(writer.close().tmp_path).num_rows == 0


def test_stats_say_what_was_written_when(tmp_path: Path) -> None:
    clock = iter(range(100, 1000, 10))
    path = tmp_path / "c.tmp"
    writer = ParquetLocalWriter(path, path, FORMAT, SinkSchema(EVENTS, 3), clock=lambda: next(clock))
    writer.write_batch(events(5, 10))
    writer.write_batch(events(15, 10))
    writer.close()
    stats = writer.stats()
    assert stats is not None
    assert (stats.first_write_us, stats.last_write_us) == (100, 110)
    assert stats.representative_timestamp_us == 1_700_000_005_000_000
    assert stats.bytes_written == path.stat().st_size


def test_a_full_disk_is_a_typed_error_and_what_was_synced_stays_finishable(
    writer: ParquetLocalWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer.write_batch(events(0, 5000))
    recovery = writer.checkpoint()

    def full(path: Path, *args: object, **named: object) -> None:
        with open(path, "ab") as file:
            file.write(b"half a row group")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(local_writer, "append_row_group", full)
    with pytest.raises(StorageError, match="ICEFLOE_STORAGE_FULL"):
        writer.write_batch(events(5000, 50_000))
    with pytest.raises(StorageError, match="ICEFLOE_STORAGE_FULL"):
        writer.close()
    monkeypatch.undo()
    assert recovery is not None
    assert_same_rows(pq.read_table(finished(recovery, tmp_path)), rows_of([events(0, 5000)]))


def test_a_temporary_name_belongs_to_one_writer(writer: ParquetLocalWriter, tmp_path: Path) -> None:
    writer.close()
    other = ParquetLocalWriter(tmp_path / "a.tmp", tmp_path / "x.parquet", FORMAT, SinkSchema(EVENTS, 3))
    other.write_batch(events(0, 10))
    with pytest.raises(StorageError):
        other.close()


def test_a_file_is_made_only_when_there_is_something_in_it(writer: ParquetLocalWriter, tmp_path: Path) -> None:
    writer.write_batch(events(0, 10))
    recovery = writer.checkpoint()
    assert list(tmp_path.iterdir()) == []
    assert recovery is not None
    assert_same_rows(pq.read_table(finished(recovery, tmp_path)), rows_of([events(0, 10)]))
