"""The buffering writer: exact splits, valid trailing bytes, row groups by encoded size, cheap hand-overs."""

from __future__ import annotations

import io
import math

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from icefloe.connector.batch_buffering_writer import ParquetBatchBufferingWriter
from icefloe.connector.parquet_format import ParquetFormat
from icefloe.connector.size_estimate import EncodedRatio
from icefloe.connector.writer_stats import FsEventLogger
from icefloe.errors import SchemaError, StateError
from icefloe.schemas.sink_schema import SinkSchema
from support.in_flight import EVENTS, assert_same_rows, events, rows_of

TARGET = 100_000
FORMAT = ParquetFormat(row_group_bytes=TARGET)
ICEBERG = {
    "type": "struct",
    "schema-id": 0,
    "fields": [
        {"id": 11, "name": "a", "required": False, "type": "long"},
        {"id": 12, "name": "b", "required": False, "type": "double"},
    ],
}


@pytest.fixture
def writer() -> ParquetBatchBufferingWriter:
    return ParquetBatchBufferingWriter(FORMAT, SinkSchema(EVENTS, 3), ratio=EncodedRatio(FORMAT, EVENTS))


def groups(data: bytes) -> list[int]:
    footer = pq.read_metadata(io.BytesIO(data))
    found = [footer.row_group(index) for index in range(footer.num_row_groups)]
    return [sum(group.column(index).total_compressed_size for index in range(group.num_columns)) for group in found]


def test_row_groups_have_the_target_size_whatever_the_batches(writer: ParquetBatchBufferingWriter) -> None:
    start = 0
    for count in (1, 50_000, 3, 700, 20_000, 900) * 2:
        writer.add_batch_data(events(start, count))
        start += count
    sizes = groups(writer.close()[0])
    assert len(sizes) > 10
    assert sizes[1:-1] == pytest.approx([TARGET] * len(sizes[1:-1]), rel=0.15)
    assert sizes[0] == pytest.approx(TARGET, rel=0.3)
    assert sizes[-1] <= TARGET * 1.15


def test_slices_of_one_large_batch_are_not_counted_at_its_size(writer: ParquetBatchBufferingWriter) -> None:
    large = events(0, 50_000)
    for start in range(0, 1000, 10):
        writer.add_batch_data(large.slice(start, 10))
    assert writer.encoded.rows == 0
    assert writer.unflushed_bytes < TARGET / 2


def test_a_split_gives_exactly_what_is_asked_for(writer: ParquetBatchBufferingWriter) -> None:
    while writer.buffered_bytes < 1000:
        writer.add_batch_data(events(writer.rows, 2000))
    before = writer.buffered_bytes
    assert len(writer.split_to(700)) == 700
    assert writer.buffered_bytes == before - 700
    with pytest.raises(StateError):
        writer.split_to(writer.buffered_bytes + 1)


def test_trailing_bytes_hold_every_row_and_change_nothing(writer: ParquetBatchBufferingWriter) -> None:
    undisturbed = ParquetBatchBufferingWriter(FORMAT, SinkSchema(EVENTS, 3), ratio=EncodedRatio(FORMAT, EVENTS))
    taken, batches = b"", []
    for start in range(0, 30_000, 1500):
        batches.append(events(start, 1500))
        writer.add_batch_data(batches[-1])
        undisturbed.add_batch_data(batches[-1])
        taken += writer.split_to(writer.buffered_bytes // 2)
        trailing, metadata = writer.get_trailing_bytes_for_checkpoint()
        assert_same_rows(pq.read_table(io.BytesIO(taken + trailing)), rows_of(batches))
        assert metadata is not None
        assert metadata.row_count == start + 1500
        assert metadata.nan_value_counts[3] == len(range(0, start + 1500, 13))
    assert taken + writer.close()[0] == undisturbed.close()[0]


def test_trailing_bytes_of_nothing_are_a_valid_file(writer: ParquetBatchBufferingWriter) -> None:
    trailing, metadata = writer.get_trailing_bytes_for_checkpoint()
    assert pq.read_table(io.BytesIO(trailing)).num_rows == 0
    assert metadata is None
    assert pq.read_table(io.BytesIO(writer.close()[0])).num_rows == 0


def test_a_hand_over_holds_only_rows_that_no_earlier_one_held(writer: ParquetBatchBufferingWriter) -> None:
    writer.add_batch_data(events(0, 100))
    first = writer.hand_over()
    writer.add_batch_data(events(100, 50))
    second = writer.hand_over()
    third = writer.hand_over()
    assert [over.footer for over in (first, second, third)] == [None] * 3
    assert_same_rows(rows_of(first.new_pending), rows_of([events(0, 100)]))
    assert_same_rows(rows_of(second.new_pending), rows_of([events(100, 50)]))
    assert third.new_pending == []
    assert_same_rows(pq.read_table(io.BytesIO(writer.close()[0])), rows_of([events(0, 150)]))


def test_a_hand_over_gives_position_footer_and_bytes_that_were_not_split(writer: ParquetBatchBufferingWriter) -> None:
    while writer.buffered_bytes == 0:
        writer.add_batch_data(events(writer.rows, 2000))
    taken = writer.split_to(10)
    over = writer.hand_over()
    assert over.footer is not None
    assert over.position_bytes == len(taken) + len(over.unsplit)
    footer = pq.read_metadata(io.BytesIO(over.footer))
    assert footer.num_rows == writer.rows - sum(batch.num_rows for batch in over.new_pending)


def test_the_tables_field_ids_and_metrics_go_into_the_file() -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.float64())])
    writer = ParquetBatchBufferingWriter(FORMAT, SinkSchema(schema), ICEBERG)
    writer.add_batch_data(pa.record_batch([pa.array([3, 1, None]), pa.array([math.nan, 2.0, 1.0])], schema=schema))
    data, metadata = writer.close()
    assert metadata is not None
    assert metadata.null_value_counts == {11: 1, 12: 0}
    assert metadata.nan_value_counts == {12: 1}
    assert int.from_bytes(metadata.lower_bounds[11], "little") == 1
    assert "field_id=12" in str(pq.ParquetFile(io.BytesIO(data)).metadata.schema)


def test_a_schema_without_field_ids_has_no_metrics() -> None:
    schema = pa.schema([("a", pa.int64())])
    writer = ParquetBatchBufferingWriter(FORMAT, SinkSchema(schema))
    writer.add_batch_data(pa.record_batch([pa.array([1])], schema=schema))
    assert writer.suffix() == "parquet"
    assert writer.close()[1] is None


def test_wrong_batches_are_refused_and_leave_the_writer_as_it_was(writer: ParquetBatchBufferingWriter) -> None:
    with pytest.raises(SchemaError, match=r"\['id', 'user', 'amount'\]"):
        writer.add_batch_data(events(0, 1).remove_column(3))
    with pytest.raises(SchemaError, match="'user' is int64"):
        writer.add_batch_data(events(0, 1).set_column(1, "user", pa.array([1])))
    writer.add_batch_data(events(0, 0))
    writer.add_batch_data(events(0, 5))
    assert writer.rows == 5
    writer.close()
    with pytest.raises(StateError, match="ICEFLOE_WRITER_CLOSED"):
        writer.add_batch_data(events(0, 1))


def test_events_are_logged() -> None:
    logger = FsEventLogger()
    writer = ParquetBatchBufferingWriter(FORMAT, SinkSchema(EVENTS, 3), event_logger=logger)
    writer.add_batch_data(events(0, 20_000))
    data, _ = writer.close()
    counted = logger.snapshot()
    assert (counted.rows, counted.row_groups) == (20_000, len(groups(data)))
    assert counted.uncompressed_bytes >= events(0, 20_000).nbytes
    assert 0 < counted.encoded_bytes < len(data)
    assert counted.encode_us > 0
