"""An in-flight file keeps its promises on local disk and on two S3 services, written straight or left and continued."""

from __future__ import annotations

import io
import os
import zlib
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from icefloe.connector.data_names import parse, parse_in_progress
from icefloe.connector.file_store import publish_file
from icefloe.connector.in_flight_file import InFlightFile
from icefloe.connector.parquet_format import ParquetCompression, ParquetFormat
from icefloe.errors import CorruptStateError, SchemaError, StateError, StorageError
from icefloe.proto import sink_pb2
from icefloe.state import crash_points
from icefloe.state.opening import open_storage
from icefloe.state.task_info import new_attempt_id
from support.in_flight import EVENTS, JOB, Carried, Place, assert_same_rows, begin, events, rows_of
from support.s3_service import Bucket

BATCHES = [events(start, 2000) for start in range(0, 20_000, 2000)]
MODES = [(straight, later) for straight in (True, False) for later in (True, False)]


class Killed(BaseException):
    """What a crash point raises in these tests: nothing catches it."""


class InFlightContract:
    """Subclasses say where."""

    @pytest.fixture
    def place(self) -> Place:
        raise NotImplementedError

    def read(self, place: Place, name: str) -> pa.Table:
        return pq.read_table(io.BytesIO(open_storage(place.files_url, place.options).get(name)))

    @pytest.mark.parametrize(("straight", "later"), MODES)
    def test_a_file_of_one_task_holds_all_rows_once(self, place: Place, straight: bool, later: bool) -> None:
        with place.task(straight=straight, publish_later=later) as ctx:
            file = begin(ctx, folder="region=eu")
            for batch in BATCHES:
                file.append(batch)
            data_file = file.roll()
        assert (place.files.exists(data_file.name) is None) == later
        assert bool(data_file.upload_id or data_file.in_progress) == later
        publish_file(place.files, place.state, data_file)
        publish_file(place.files, place.state, data_file)
        assert_same_rows(self.read(place, data_file.name), rows_of(BATCHES))
        assert place.files.exists(data_file.name) == data_file.length_bytes
        assert data_file.location == f"{place.files.url}/{data_file.name}"
        assert data_file.metadata.row_count == data_file.rows == 20_000
        assert data_file.metadata.nan_value_counts[3] == len(range(0, 20_000, 13))

    @pytest.mark.parametrize("later", [True, False])
    def test_a_file_is_begun_in_one_task_continued_in_two_and_rolled_in_a_fourth(
        self, place: Place, later: bool
    ) -> None:
        with place.task(1) as ctx:
            file = begin(ctx)
            file.append(BATCHES[0])
            carried = Carried.first(file.suspend())
        for epoch in (2, 3):
            with place.task(epoch) as ctx:
                file = carried.resume(ctx)
                for batch in BATCHES[1:5] if epoch == 2 else BATCHES[5:7]:
                    file.append(batch)
                carried = carried.then(file.suspend())
        with place.task(4, publish_later=later) as ctx:
            file = carried.resume(ctx)
            for batch in BATCHES[7:]:
                file.append(batch)
            data_file = file.roll()
        publish_file(place.files, place.state, data_file)
        assert_same_rows(self.read(place, data_file.name), rows_of(BATCHES))
        assert parse(data_file.name).epoch == 4  # type: ignore[union-attr]

    def test_a_second_recovery_from_the_same_cut_gives_the_same_rows(self, place: Place) -> None:
        with place.task(1) as ctx:
            file = begin(ctx)
            for batch in BATCHES[:6]:
                file.append(batch)
            carried = Carried.first(file.suspend())
        names = []
        for lost_rows in (BATCHES[6:8], BATCHES[8:]):
            with place.task(2) as ctx:
                file = carried.resume(ctx)
                for batch in lost_rows:
                    file.append(batch)
                file.suspend()
            with place.task(2) as ctx:
                names.append(carried.resume(ctx).roll().name)
        for name in names:
            assert_same_rows(self.read(place, name), rows_of(BATCHES[:6]))
        assert len(set(names)) == 2

    def test_an_attempt_writes_only_names_of_its_own(self, place: Place) -> None:
        with place.task(1) as ctx:
            file = begin(ctx)
            for batch in BATCHES:
                file.append(batch)
            carried = Carried.first(file.suspend())
        before = {info.key: place.state.get(info.key) for info in place.state.list()}
        with place.task(2, publish_later=True) as ctx:
            file = carried.resume(ctx)
            file.append(BATCHES[0])
            file.flush_row_group()
            data_file = file.roll()
        after = {info.key: place.state.get(info.key) for info in place.state.list()}
        assert {key: after[key] for key in before} == before
        assert all(ctx.info.attempt_id in key for key in after.keys() - before.keys())
        assert ctx.info.attempt_id in data_file.name

    def test_a_footer_that_did_not_change_is_not_handed_out_again(self, place: Place) -> None:
        with place.task(1) as ctx:
            file = begin(ctx)
            for batch in BATCHES:
                file.append(batch)
            first = file.suspend()
        assert first.footer is not None
        assert first.message.segments
        carried = Carried.first(first)
        with place.task(2) as ctx:
            file = carried.resume(ctx)
            file.append(events(0, 1))
            second = file.suspend()
        assert second.footer is None
        assert [batch.num_rows for batch in second.new_pending] == [1]
        assert second.consumed_pending_rows == 0

    def test_a_gone_segment_is_an_error_that_names_it(self, place: Place) -> None:
        with place.task(1) as ctx:
            file = begin(ctx)
            for batch in BATCHES:
                file.append(batch)
            suspended = file.suspend()
        gone = suspended.message.segments[0].name
        place.state.delete_if_present(gone)
        with place.task(2) as ctx, pytest.raises(CorruptStateError) as caught:
            Carried.first(suspended).resume(ctx).roll()
        assert gone in str(caught.value)


class KilledTasks(InFlightContract):
    """What a kill leaves; as many writes as there are crash points, so not on every service."""

    @pytest.mark.parametrize(("straight", "later"), MODES)
    def test_a_task_killed_at_any_point_is_simply_run_again(self, place: Place, straight: bool, later: bool) -> None:
        points: list[str] = []
        try:
            crash_points.arm(points.append)
            self._write(place, straight=straight, later=later)
            for point in dict.fromkeys(points):
                crash_points.arm(partial(_kill_at, point))
                with pytest.raises(Killed, match=point):
                    self._write(place, straight=straight, later=later)
                crash_points.arm(None)
                if later:
                    assert list(place.files.list()) == [], "only publishing may show a file"
                data_file = self._write(place, straight=straight, later=later)
        finally:
            crash_points.arm(None)
        assert points[-1] == "file.rolled"
        publish_file(place.files, place.state, data_file)
        assert_same_rows(self.read(place, data_file.name), rows_of(BATCHES))

    def _write(self, place: Place, *, straight: bool, later: bool) -> sink_pb2.DataFile:
        with place.task(straight=straight, publish_later=later) as ctx:
            file = begin(ctx)
            for batch in BATCHES:
                file.append(batch)
            return file.roll()


def append_all(file: InFlightFile, batches: list[pa.RecordBatch]) -> None:
    for batch in batches:
        file.append(batch)
    file.flush_row_group()


def _kill_at(point: str, reached: str) -> None:
    if reached == point:
        raise Killed(point)


class TestLocal(KilledTasks):
    @pytest.fixture
    def place(self, tmp_path: Path) -> Place:
        return Place(str(tmp_path / "data"), str(tmp_path / "state"))

    @pytest.mark.parametrize("later", [True, False])
    def test_a_file_begun_and_rolled_in_one_task_needs_no_segment(self, place: Place, later: bool) -> None:
        with place.task(publish_later=later) as ctx:
            file = begin(ctx)
            for batch in BATCHES:
                file.append(batch)
            assert file.roll().row_groups > 2
        assert list(place.state.list()) == []

    def test_a_file_that_is_left_becomes_one_segment_and_nothing_else(self, place: Place, tmp_path: Path) -> None:
        with place.task(publish_later=True) as ctx:
            file = begin(ctx, folder="a=1")
            for batch in BATCHES:
                file.append(batch)
            suspended = file.suspend()
        (segment,) = suspended.message.segments
        assert [info.key for info in place.state.list()] == [segment.name]
        data = place.state.get(segment.name)
        assert (len(data), zlib.crc32(data)) == (segment.length_bytes, segment.crc32)
        assert [path for path in (tmp_path / "data").rglob("*") if path.is_file()] == []

    def test_a_file_that_is_left_with_state_elsewhere_becomes_a_segment_per_row_group(self, place: Place) -> None:
        place.state_url = f"memory://{new_attempt_id()}"
        with place.task() as ctx:
            file = begin(ctx)
            for batch in BATCHES:
                file.append(batch)
            carried = Carried.first(file.suspend())
        assert len(sink_pb2.InFlightFile.FromString(carried.message).segments) > 2
        with place.task(2) as ctx:
            assert_same_rows(self.read(place, carried.resume(ctx).roll().name), rows_of(BATCHES))

    def test_an_unfinished_file_never_looks_like_a_parquet_file(self, place: Place, tmp_path: Path) -> None:
        with place.task(straight=True, publish_later=True) as ctx:
            file = begin(ctx, folder="region=eu")
            for batch in BATCHES:
                file.append(batch)
            data_file = file.roll()
        assert list(tmp_path.glob("data/**/*.parquet")) == []
        assert parse_in_progress(data_file.in_progress) == (JOB, parse(data_file.name))
        publish_file(place.files, place.state, data_file)
        assert [str(path.relative_to(tmp_path / "data")) for path in tmp_path.glob("data/**/*.parquet")] == [
            data_file.name
        ]
        assert list(place.files.list_unfinished()) == []

    def test_a_finished_file_that_vanished_is_named_and_not_passed_over(self, place: Place, tmp_path: Path) -> None:
        with place.task(straight=True, publish_later=True) as ctx:
            file = begin(ctx)
            file.append(BATCHES[0])
            data_file = file.roll()
        os.unlink(tmp_path / "data" / data_file.in_progress)
        with pytest.raises(StorageError, match="ICEFLOE_FILE_LOST") as caught:
            publish_file(place.files, place.state, data_file)
        assert data_file.name in str(caught.value)

    def test_a_cut_segment_is_an_error_that_names_it(self, place: Place, tmp_path: Path) -> None:
        with place.task(1) as ctx:
            file = begin(ctx)
            for batch in BATCHES:
                file.append(batch)
            suspended = file.suspend()
        name = suspended.message.segments[-1].name
        os.truncate(tmp_path / "state" / name, 10)
        with place.task(2) as ctx, pytest.raises(CorruptStateError, match=name):
            Carried.first(suspended).resume(ctx).roll()

    def test_a_footer_of_another_file_is_refused(self, place: Place) -> None:
        with place.task(1) as ctx:
            file = begin(ctx)
            for batch in BATCHES:
                file.append(batch)
            carried = Carried.first(file.suspend())
        for footer in (None, b"PAR1 something else"):
            carried.footer = footer
            with place.task(2) as ctx, pytest.raises(CorruptStateError, match="ICEFLOE_FOOTER_MISMATCH"):
                carried.resume(ctx)

    def test_missing_pending_rows_are_an_error_that_names_the_file(self, place: Place) -> None:
        with place.task(1) as ctx:
            file = begin(ctx)
            file.append(events(0, 10))
            file_id = file.file_id
            carried = Carried.first(file.suspend())
        carried.pending = [events(0, 9)]
        with place.task(2) as ctx, pytest.raises(CorruptStateError, match=file_id):
            carried.resume(ctx).roll()

    def test_a_batch_that_does_not_fit_is_refused_with_its_column(self, place: Place) -> None:
        wrong = events(0, 3).set_column(2, "amount", pa.array([1, 2, 3]))
        null = events(0, 3).set_column(0, EVENTS.field(0), pa.array([1, None, 3]))
        with place.task() as ctx:
            file = begin(ctx)
            with pytest.raises(SchemaError, match="amount"):
                file.append(wrong)
            with pytest.raises(SchemaError, match="'id' is required"):
                file.append(null)
            file.append(events(0, 3))
            assert file.roll().rows == 3

    def test_steps_after_the_end_are_refused(self, place: Place) -> None:
        with place.task() as ctx:
            file = begin(ctx)
            file.append(events(0, 3))
            file.roll()
            for step in (lambda: file.append(events(0, 1)), file.roll, file.suspend, file.flush_row_group):
                with pytest.raises(StateError, match="ICEFLOE_FILE_PHASE"):
                    step()

    def test_a_background_error_is_raised_again_and_again(self, place: Place, tmp_path: Path) -> None:
        (tmp_path / "data").write_text("a file where the target's folder should be")
        with place.task() as ctx:
            file = begin(ctx)
            for _ in range(2):
                with pytest.raises(StorageError):
                    append_all(file, BATCHES)
            with pytest.raises(StorageError):
                file.roll()
        assert ctx.events.snapshot().failures

    def test_a_segment_that_cannot_be_stored_is_an_error_again_and_again(self, place: Place, tmp_path: Path) -> None:
        with place.task(1) as ctx:
            file = begin(ctx)
            append_all(file, BATCHES[:2])
            carried = Carried.first(file.suspend())
        (tmp_path / "state").rename(tmp_path / "moved")
        (tmp_path / "state").write_text("a file where the state's folder should be")
        with place.task(2) as ctx:
            file = carried.resume(ctx)
            for _ in range(2):
                with pytest.raises(StorageError):
                    append_all(file, BATCHES)
            with pytest.raises(StorageError):
                file.roll()
        assert ctx.events.snapshot().failures

    def test_times_rows_and_estimates_are_kept_over_a_hand_over(self, place: Place) -> None:
        with place.task(1) as ctx:
            file = begin(ctx)
            file.append(BATCHES[0])
            size = file.size_bytes
            began, last = file.began_us, file.last_write_us
            carried = Carried.first(file.suspend())
        with place.task(2) as ctx:
            again = carried.resume(ctx)
            assert (again.began_us, again.last_write_us, again.rows) == (began, last, 2000)
            assert again.max_event_time_us == 1_700_000_000_000_000 + 1999 * 1_000_000
            assert again.size_bytes == pytest.approx(size, rel=0.1)
            assert again.buffered_bytes == 0
            again.append(BATCHES[1])
            assert again.last_write_us > last
            assert again.rows == 4000

    @pytest.mark.parametrize("target", [30_000, 200_000, 1_000_000])
    def test_a_file_rolled_at_its_size_has_that_size(self, place: Place, target: int) -> None:
        place.format = ParquetFormat(row_group_bytes=150_000)
        with place.task(straight=True) as ctx:
            file = begin(ctx)
            start = 0
            while file.size_bytes < target:
                file.append(events(start, 100))
                start += 100
            length = file.roll().length_bytes
        assert length == pytest.approx(target, rel=0.1)

    @pytest.mark.parametrize("codec", list(ParquetCompression))
    def test_every_codec_is_written_and_read(self, place: Place, codec: ParquetCompression) -> None:
        place.format = ParquetFormat(codec, row_group_bytes=64 * 1024)
        with place.task(straight=True) as ctx:
            file = begin(ctx)
            for batch in BATCHES:
                file.append(batch)
            data_file = file.roll()
        assert_same_rows(self.read(place, data_file.name), rows_of(BATCHES))
        footer = pq.read_metadata(Path(place.files_url) / data_file.name)
        found = footer.row_group(0).column(0).compression
        assert found == {"UNCOMPRESSED": "UNCOMPRESSED", "LZ4_RAW": "LZ4"}.get(codec.name, codec.name)


class S3Contract(InFlightContract):
    @pytest.fixture
    def bucket(self) -> Bucket:
        raise NotImplementedError

    @pytest.fixture
    def place(self, bucket: Bucket) -> Place:
        return Place(f"{bucket.url}/data", f"{bucket.url}/state", bucket.options)

    def test_large_segments_and_small_ones_are_put_together(self, place: Place) -> None:
        place.format = ParquetFormat(ParquetCompression.UNCOMPRESSED, row_group_bytes=6 * 1024 * 1024)
        batches = [events(start, 50_000) for start in range(0, 400_000, 50_000)]
        with place.task(1) as ctx:
            file = begin(ctx)
            for batch in batches[:5]:
                file.append(batch)
            file.flush_row_group()
            carried = Carried.first(file.suspend())
        with place.task(2, publish_later=True) as ctx:
            file = carried.resume(ctx)
            for batch in batches[5:]:
                file.append(batch)
            data_file = file.roll()
        assert len(data_file.parts) >= 2
        assert [part.number for part in data_file.parts] == list(range(1, len(data_file.parts) + 1))
        publish_file(place.files, place.state, data_file)
        assert_same_rows(self.read(place, data_file.name), rows_of(batches))


class TestMoto(S3Contract):
    @pytest.fixture
    def bucket(self, moto_bucket: Bucket) -> Bucket:
        return moto_bucket


class TestSeaweed(S3Contract, KilledTasks):
    @pytest.fixture
    def bucket(self, seaweed_bucket: Bucket) -> Bucket:
        return seaweed_bucket

    def test_an_ended_upload_is_composed_again_from_what_the_record_names(self, place: Place) -> None:
        with place.task(publish_later=True) as ctx:
            file = begin(ctx)
            for batch in BATCHES:
                file.append(batch)
            data_file = file.roll()
        assert [source.name for source in data_file.sources]
        for upload in place.files.list_unfinished():
            place.files.abort(upload)
        publish_file(place.files, place.state, data_file)
        publish_file(place.files, place.state, data_file)
        assert_same_rows(self.read(place, data_file.name), rows_of(BATCHES))

    def test_an_ended_upload_of_a_straight_file_is_an_error_that_names_it(self, place: Place) -> None:
        with place.task(straight=True, publish_later=True) as ctx:
            file = begin(ctx)
            file.append(BATCHES[0])
            data_file = file.roll()
        for upload in place.files.list_unfinished():
            place.files.abort(upload)
        with pytest.raises(StorageError, match="ICEFLOE_FILE_LOST") as caught:
            publish_file(place.files, place.state, data_file)
        assert data_file.name in str(caught.value)

    def test_data_on_s3_and_state_on_disk_go_together(self, bucket: Bucket, tmp_path: Path) -> None:
        place = Place(f"{bucket.url}/data", str(tmp_path / "state"), bucket.options)
        with place.task(1) as ctx:
            file = begin(ctx)
            for batch in BATCHES:
                file.append(batch)
            carried = Carried.first(file.suspend())
        with place.task(2, publish_later=True) as ctx:
            data_file = carried.resume(ctx).roll()
        publish_file(place.files, place.state, data_file)
        assert_same_rows(self.read(place, data_file.name), rows_of(BATCHES))
