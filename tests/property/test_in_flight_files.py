"""Any sequence of batches, hand-overs, spills, flushes and rolls gives the rows that went in, in files as one plain
writer would have made them."""

from __future__ import annotations

import io
import itertools
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from icefloe.connector.batch_buffering_writer import ParquetBatchBufferingWriter
from icefloe.connector.file_store import publish_file
from icefloe.connector.in_flight_file import InFlightFile
from icefloe.connector.parquet_format import ParquetCompression, ParquetFormat
from icefloe.connector.pending_rows import PendingRows
from icefloe.connector.row_group_assembler import EncodedSoFar
from icefloe.connector.row_group_encoder import parse_footer
from icefloe.connector.size_estimate import EncodedRatio
from icefloe.proto import sink_pb2
from icefloe.schemas.sink_schema import SinkSchema
from icefloe.state.task_info import new_attempt_id
from support.in_flight import EVENTS, Carried, Place, assert_same_rows, begin, events, rows_of

ROW_GROUP_BYTES = 48 * 1024

appends = st.tuples(st.just("append"), st.integers(1, 1500))
file_steps = st.lists(
    st.one_of(appends, appends, st.tuples(st.sampled_from(["hand over", "spill", "flush", "roll"]), st.just(0))),
    min_size=1,
    max_size=14,
)
quick = settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)


@dataclass
class Model:
    """Drives one subtask through epochs, and knows what every file must hold."""

    place: Place
    publish_later: bool
    epoch: int = 0
    written: list[pa.RecordBatch] = field(default_factory=list)
    rolled: list[tuple[sink_pb2.DataFile, pa.Table]] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=itertools.count)
    ids: int = 0
    forced: bool = False
    carried: Carried | None = None
    stored: list[pa.RecordBatch] = field(default_factory=list)

    def start(self) -> None:
        """A task of a new process begins, or goes on with what was carried over."""
        self.epoch += 1
        self.stack = ExitStack()
        self.ctx = self.stack.enter_context(self.place.task(self.epoch, publish_later=self.publish_later))
        self.stored = list(self.carried.pending) if self.carried else []
        if self.carried is None:
            self._begin()
            return
        message = sink_pb2.InFlightFile.FromString(self.carried.message)
        name = f"resumed-{self.epoch}-{next(self.numbers)}-{self.ctx.info.attempt_id}.parquet"
        stored = self.stored
        self.file = InFlightFile.resume(self.ctx, message, self.carried.footer, lambda: stored, name=name)

    def _begin(self) -> None:
        self.stored = stored = []
        number = next(self.numbers)
        self.file = InFlightFile.begin(
            self.ctx,
            file_id=f"{self.epoch}-{number}",
            name=f"begun-{self.epoch}-{number}-{self.ctx.info.attempt_id}.parquet",
            partition=sink_pb2.PartitionKey(),
            pending_key=number,
            load_pending=lambda: stored,
        )

    def append(self, count: int) -> None:
        batch = events(self.ids, count)
        self.ids += count
        self.written.append(batch)
        self.file.append(batch)

    def hand_over(self) -> None:
        suspended = self.file.suspend()
        kept = pa.Table.from_batches(self.stored, EVENTS).slice(suspended.consumed_pending_rows).to_batches()
        footer = suspended.footer if suspended.footer is not None else self.carried.footer if self.carried else None
        self.carried = Carried(suspended.message.SerializeToString(), footer, kept + suspended.new_pending)
        assert suspended.message.pending_rows == sum(batch.num_rows for batch in self.carried.pending)
        assert suspended.message.encoded_rows + suspended.message.pending_rows == rows_of(self.written).num_rows
        self.stack.close()
        self.start()

    def spill(self) -> None:
        self.stored.extend(self.file.spill())
        assert self.file.buffered_bytes == 0

    def flush(self) -> None:
        self.forced = True
        self.file.flush_row_group()
        assert self.file.buffered_bytes == 0

    def roll(self) -> None:
        rows = rows_of(self.written)
        assert self.file.rows == rows.num_rows
        data_file = self.file.roll()
        if self.publish_later:
            assert self.place.files.exists(data_file.name) is None
        publish_file(self.place.files, self.place.state, data_file)
        publish_file(self.place.files, self.place.state, data_file)
        self.check(data_file, rows)
        self.written, self.carried, self.forced = [], None, False
        self._begin()

    def check(self, data_file: sink_pb2.DataFile, rows: pa.Table) -> None:
        path = Path(self.place.files_url) / data_file.name
        assert_same_rows(pq.read_table(path, partitioning=None), rows)
        footer = pq.read_metadata(path)
        groups = [footer.row_group(index) for index in range(footer.num_row_groups)]
        assert data_file.length_bytes == path.stat().st_size
        assert (data_file.rows, data_file.row_groups) == (rows.num_rows, len(groups))
        plain = plain_size(rows, [group.num_rows for group in groups], self.place.format)
        assert abs(path.stat().st_size - plain) <= 0.01 * plain + 64
        for group in groups:
            assert group.column(0).has_column_index
            assert all(group.column(index).has_offset_index for index in range(group.num_columns))
        if not self.forced:
            for group in groups[1:-1]:
                assert encoded_size(group) == pytest.approx(ROW_GROUP_BYTES, rel=0.15)


def encoded_size(group: pq.RowGroupMetaData) -> int:
    return sum(group.column(index).total_compressed_size for index in range(group.num_columns))


def plain_size(rows: pa.Table, group_rows: list[int], format: ParquetFormat) -> int:
    """The length of the file that one plain writer makes of the same row groups."""
    sink = io.BytesIO()
    start = 0
    with pq.ParquetWriter(sink, EVENTS, **format.writer_options(EVENTS)) as writer:
        for count in group_rows:
            writer.write_table(rows.slice(start, count), row_group_size=count)
            start += count
    return sink.tell()


@quick
@given(steps=file_steps, publish_later=st.booleans(), codec=st.sampled_from(ParquetCompression))
def test_any_sequence_of_steps_keeps_rows_sizes_and_row_groups(
    steps: list[tuple[str, int]], publish_later: bool, codec: ParquetCompression
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        format = ParquetFormat(codec, row_group_bytes=ROW_GROUP_BYTES)
        place = Place(f"{folder}/data", f"memory://{new_attempt_id()}", format=format)
        model = Model(place, publish_later)
        model.start()
        for step, count in steps:
            match step:
                case "append":
                    model.append(count)
                case "hand over":
                    model.hand_over()
                case "spill":
                    model.spill()
                case "flush":
                    model.flush()
                case "roll":
                    model.roll()
        model.roll()
        model.stack.close()


writer_steps = st.lists(
    st.one_of(appends, appends, st.tuples(st.sampled_from(["trailing", "split", "hand over"]), st.integers(0, 100))),
    min_size=1,
    max_size=14,
)


@quick
@given(steps=writer_steps)
def test_parts_and_trailing_bytes_are_a_valid_file_at_any_moment(steps: list[tuple[str, int]]) -> None:
    format = ParquetFormat(row_group_bytes=ROW_GROUP_BYTES)
    schema = SinkSchema(EVENTS, 3)
    writer = ParquetBatchBufferingWriter(format, schema, ratio=EncodedRatio(format, EVENTS))
    undisturbed = ParquetBatchBufferingWriter(format, schema, ratio=EncodedRatio(format, EVENTS))
    taken, added, kept, start = b"", [], [], 0
    for step, number in steps:
        if step == "append":
            batch = events(start, number)
            start += number
            added.append(batch)
            writer.add_batch_data(batch)
            undisturbed.add_batch_data(batch)
        elif step == "split":
            taken += writer.split_to(writer.buffered_bytes * number // 100)
        elif step == "trailing":
            trailing, _ = writer.get_trailing_bytes_for_checkpoint()
            assert_same_rows(pq.read_table(io.BytesIO(taken + trailing)), rows_of(added))
        else:
            over = writer.hand_over()
            kept = kept_pending(kept, writer) + over.new_pending
            taken += over.unsplit
            writer = continued(writer, over.position_bytes, over.footer, kept, format, schema)
    taken += writer.close()[0]
    assert_same_rows(pq.read_table(io.BytesIO(taken)), rows_of(added))
    undisturbed_file = undisturbed.close()[0]
    if "hand over" not in [step for step, _ in steps]:
        assert row_counts(taken) == row_counts(undisturbed_file)
    # A process that takes over guesses the first ratio anew, which may cut one more row group: about 1 KB of metadata.
    assert len(taken) == pytest.approx(len(undisturbed_file), rel=0.05, abs=2048)


def kept_pending(kept: list[pa.RecordBatch], writer: ParquetBatchBufferingWriter) -> list[pa.RecordBatch]:
    """What was handed over before and is still in no row group."""
    return pa.Table.from_batches(kept, EVENTS).slice(writer.pending.consumed_rows).to_batches()


def continued(
    writer: ParquetBatchBufferingWriter,
    position: int,
    footer: bytes | None,
    pending: list[pa.RecordBatch],
    format: ParquetFormat,
    schema: SinkSchema,
) -> ParquetBatchBufferingWriter:
    """Another process goes on from plain values."""
    encoded = EncodedSoFar(
        position_bytes=position,
        footer=parse_footer(footer) if footer else None,
        rows=writer.encoded.rows,
        arrow_bytes=writer.encoded.arrow_bytes,
    )
    rows = PendingRows(
        EVENTS,
        owner="test",
        stored_rows=sum(batch.num_rows for batch in pending),
        stored_arrow_bytes=sum(batch.nbytes for batch in pending),
        load=lambda: pending,
    )
    return ParquetBatchBufferingWriter(format, schema, encoded=encoded, pending=rows)


def row_counts(data: bytes) -> list[int]:
    footer = pq.read_metadata(io.BytesIO(data))
    return [footer.row_group(index).num_rows for index in range(footer.num_row_groups)]


def test_the_model_itself_notices_a_lost_row(tmp_path: Path) -> None:
    place = Place(str(tmp_path / "data"), str(tmp_path / "state"))
    with place.task() as ctx:
        file = begin(ctx)
        file.append(events(0, 10))
        data_file = file.roll()
    with pytest.raises(AssertionError):
        Model(place, False).check(data_file, rows_of([events(0, 9)]))
