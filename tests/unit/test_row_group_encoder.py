"""Row groups encoded at an offset, one behind the other and closed by the merged footer, are a plain Parquet file."""

from __future__ import annotations

import errno
import io
import os
from decimal import Decimal
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from icefloe.connector.parquet_format import ParquetCompression, ParquetFormat
from icefloe.connector.row_group_encoder import (
    MAGIC,
    append_row_group,
    closing_bytes,
    empty_footer,
    encode_row_group,
    merge_footers,
    parse_footer,
    serialize_footer,
)
from icefloe.errors import CorruptStateError, SchemaError
from support.in_flight import EVENTS, assert_same_rows, events, rows_of


def _id(number: int) -> dict[str, str]:
    return {"PARQUET:field_id": str(number)}


NESTED = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False, metadata=_id(1)),
        pa.field(
            "place",
            pa.struct(
                [
                    pa.field("name", pa.string(), metadata=_id(3)),
                    pa.field("tags", pa.list_(pa.field("element", pa.string(), metadata=_id(5))), metadata=_id(4)),
                ]
            ),
            metadata=_id(2),
        ),
        pa.field(
            "scores",
            pa.map_(
                pa.field("key", pa.string(), nullable=False, metadata=_id(7)),
                pa.field("value", pa.list_(pa.field("element", pa.float64(), metadata=_id(9))), metadata=_id(8)),
            ),
            metadata=_id(6),
        ),
        pa.field("price", pa.decimal128(18, 4), metadata=_id(10)),
    ]
)


def nested_rows(start: int, count: int) -> pa.Table:
    rows = [
        {
            "id": i,
            "place": None if i % 5 == 0 else {"name": f"n{i}", "tags": None if i % 3 == 0 else ["a", f"t{i}"]},
            "scores": [(f"k{i}", [i / 2, None]), ("none", None)],
            "price": None if i % 7 == 0 else Decimal(i),
        }
        for i in range(start, start + count)
    ]
    return pa.Table.from_pylist(rows, schema=NESTED)


def assembled(tables: list[pa.Table], schema: pa.Schema, format: ParquetFormat) -> bytes:
    """Each table as a row group of its own encoding, with the footer carried as bytes in between."""
    data, footer = b"", None
    for table in tables:
        piece = encode_row_group(table, position_bytes=len(data), schema=schema, format=format)
        data += piece.data
        footer = piece.footer if footer is None else merge_footers([parse_footer(footer), piece.footer])
        footer = serialize_footer(footer)
    assert footer is not None
    return data + closing_bytes(parse_footer(footer))


def plain(tables: list[pa.Table], schema: pa.Schema, format: ParquetFormat) -> bytes:
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, schema, **format.writer_options(schema)) as writer:
        for table in tables:
            writer.write_table(table, row_group_size=table.num_rows)
    return sink.getvalue()


@pytest.mark.parametrize("codec", list(ParquetCompression))
def test_pieces_are_as_long_as_a_plain_file_and_read_back_equal(codec: ParquetCompression) -> None:
    format = ParquetFormat(codec, bloom_filters={"user": {"fpp": 0.05}}, page_rows=500)
    tables = [rows_of([events(0, 3000)]), rows_of([events(3000, 10)]), rows_of([events(3010, 5000)])]
    data = assembled(tables, EVENTS, format)
    assert len(data) == pytest.approx(len(plain(tables, EVENTS, format)), abs=64)
    assert_same_rows(pq.read_table(io.BytesIO(data)), pa.concat_tables(tables))


def test_page_indexes_bloom_filters_and_offsets_are_those_of_the_whole_file() -> None:
    format = ParquetFormat(bloom_filters={"user": {"fpp": 0.05}})
    data = assembled([rows_of([events(start, 2000)]) for start in (0, 2000)], EVENTS, format)
    footer = pq.read_metadata(io.BytesIO(data))
    last = footer.row_group(1)
    assert last.column(0).dictionary_page_offset > footer.row_group(0).column(3).data_page_offset
    for index in range(last.num_columns):
        assert last.column(index).has_offset_index
        assert last.column(index).is_stats_set
    assert last.column(1).bloom_filter_offset > last.column(0).data_page_offset


def test_nested_columns_keep_values_and_field_ids_in_every_reader(tmp_path: Path) -> None:
    tables = [nested_rows(0, 40), nested_rows(40, 3), nested_rows(43, 60)]
    path = tmp_path / "nested.parquet"
    path.write_bytes(assembled(tables, NESTED, ParquetFormat()))
    expected = pa.concat_tables(tables)
    assert pq.read_table(path).equals(expected)
    schema = str(pq.ParquetFile(path).metadata.schema)
    assert all(f"field_id={number} " in schema for number in range(1, 11))
    assert pl.read_parquet(path)["id"].to_list() == list(range(103))
    assert pl.read_parquet(path)["place"].to_list()[1] == {"name": "n1", "tags": ["a", "t1"]}
    with duckdb.connect() as connection:
        found = connection.execute("select count(*), sum(id), max(price) from read_parquet(?)", [str(path)]).fetchone()
    assert found == (103, sum(range(103)), 102)


def test_a_file_without_rows_is_magic_and_footer() -> None:
    data = MAGIC + closing_bytes(empty_footer(EVENTS, ParquetFormat()))
    assert pq.read_table(io.BytesIO(data)).schema.equals(EVENTS)


def test_an_offset_past_five_gigabytes_costs_nothing_and_is_right() -> None:
    position = 5 * 1024**3 + 12_345
    piece = encode_row_group(rows_of([events(0, 10)]), position_bytes=position, schema=EVENTS, format=ParquetFormat())
    assert len(piece.data) < 10_000
    assert piece.footer.row_group(0).column(0).dictionary_page_offset == position


def test_it_works_where_there_is_no_memory_file(monkeypatch: pytest.MonkeyPatch) -> None:
    with_memory = assembled([rows_of([events(0, 500)])] * 2, EVENTS, ParquetFormat())
    monkeypatch.delattr(os, "memfd_create")
    assert assembled([rows_of([events(0, 500)])] * 2, EVENTS, ParquetFormat()) == with_memory


def test_no_descriptor_is_left_open() -> None:
    encode_row_group(rows_of([events(0, 10)]), position_bytes=0, schema=EVENTS, format=ParquetFormat())
    before = len(os.listdir("/dev/fd"))
    for _ in range(20):
        encode_row_group(rows_of([events(0, 10)]), position_bytes=0, schema=EVENTS, format=ParquetFormat())
    assert len(os.listdir("/dev/fd")) == before


def test_rows_that_arrow_refuses_are_a_typed_error() -> None:
    schema = pa.schema([pa.field("a", pa.int64(), nullable=False)])
    table = pa.table({"a": pa.array([1, None])}, schema)
    with pytest.raises(SchemaError, match="ICEFLOE_ENCODE_REFUSED"):
        encode_row_group(table, position_bytes=0, schema=schema, format=ParquetFormat())


@pytest.mark.parametrize("damage", [b"", b"PAR1", b"PAR1 not a footer PAR1"])
def test_a_damaged_footer_is_refused_by_name(damage: bytes) -> None:
    with pytest.raises(CorruptStateError, match="footer of file 7"):
        parse_footer(damage, object_name="footer of file 7")


def test_merging_changes_neither_argument() -> None:
    pieces = [
        encode_row_group(rows_of([events(0, 10)]), position_bytes=0, schema=EVENTS, format=ParquetFormat()).footer
        for _ in range(2)
    ]
    assert merge_footers(pieces).num_row_groups == 2
    assert [footer.num_row_groups for footer in pieces] == [1, 1]


def test_row_groups_appended_to_a_file_are_the_bytes_that_are_encoded_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    path.touch()
    tables = [pa.Table.from_batches([events(start, 1000)]) for start in (0, 1000, 2000)]
    expected, position = b"", 0
    for table in tables:
        encoded = encode_row_group(table, position_bytes=position, schema=EVENTS, format=ParquetFormat())
        placed = append_row_group(path, table, position_bytes=position, schema=EVENTS, format=ParquetFormat())
        assert (placed.length_bytes, placed.rows) == (len(encoded.data), 1000)
        assert serialize_footer(placed.footer) == serialize_footer(encoded.footer)
        expected += bytes(encoded.data)
        position += placed.length_bytes
        assert path.read_bytes() == expected


def test_what_a_failed_append_left_is_written_over_by_the_next_one(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(b"half a row group that was cut off by a full disk" * 10_000)
    table = pa.Table.from_batches([events(0, 1000)])
    append_row_group(path, table, position_bytes=0, schema=EVENTS, format=ParquetFormat())
    encoded = encode_row_group(table, position_bytes=0, schema=EVENTS, format=ParquetFormat())
    assert path.read_bytes() == bytes(encoded.data)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_is_told_with_its_number() -> None:
    table = pa.Table.from_batches([events(0, 1000)])
    with pytest.raises(OSError, match="No space left") as caught:
        append_row_group(Path("/dev/full"), table, position_bytes=0, schema=EVENTS, format=ParquetFormat())
    assert caught.value.errno == errno.ENOSPC
