"""Settings of Parquet files: from table properties, with keywords on top, refused where a codec cannot take them."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from icefloe.connector.parquet_format import ParquetCompression, ParquetFormat, writer_digest
from icefloe.errors import OptionError

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])


def test_defaults_are_zstd_and_128_megabytes() -> None:
    format = ParquetFormat()
    assert (format.compression, format.compression_level) == (ParquetCompression.ZSTD, None)
    assert format.row_group_bytes == 134_217_728
    assert ParquetFormat.from_table_properties({}) == format


def test_table_properties_are_read_and_keywords_win() -> None:
    properties = {
        "write.parquet.compression-codec": "GZIP",
        "write.parquet.compression-level": "7",
        "write.parquet.row-group-size-bytes": "1000000",
        "write.parquet.page-size-bytes": "65536",
        "write.parquet.page-row-limit": "5000",
        "write.parquet.dict-size-bytes": "4096",
        "unrelated": "x",
    }
    format = ParquetFormat.from_table_properties(properties)
    assert (format.compression, format.compression_level) == (ParquetCompression.GZIP, 7)
    assert (format.row_group_bytes, format.data_page_bytes) == (1_000_000, 65_536)
    assert (format.page_rows, format.dictionary_page_bytes) == (5000, 4096)
    changed = ParquetFormat.from_table_properties(properties, compression=ParquetCompression.SNAPPY, row_group_bytes=5)
    assert (changed.compression, changed.compression_level, changed.row_group_bytes) == ("snappy", None, 5)


def test_bloom_filters_are_asked_for_by_column() -> None:
    properties = {
        "write.parquet.bloom-filter-enabled.column.name": "true",
        "write.parquet.bloom-filter-fpp.column.name": "0.05",
        "write.parquet.bloom-filter-enabled.column.gone": "true",
        "write.parquet.bloom-filter-enabled.column.id": "false",
    }
    format = ParquetFormat.from_table_properties(properties)
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, SCHEMA, **format.writer_options(SCHEMA)) as writer:
        writer.write_table(pa.table({"id": [1], "name": ["a"]}, SCHEMA))
    columns = [pq.read_metadata(sink).row_group(0).column(index) for index in (0, 1)]
    assert [column.bloom_filter_offset is not None for column in columns] == [False, True]


@pytest.mark.parametrize(
    ("codec", "level"),
    [
        (ParquetCompression.SNAPPY, 1),
        (ParquetCompression.GZIP, 10),
        (ParquetCompression.ZSTD, 23),
        (ParquetCompression.LZ4, 1),
    ],
)
def test_a_level_that_the_codec_does_not_take_is_refused(codec: ParquetCompression, level: int) -> None:
    with pytest.raises(OptionError, match="ICEFLOE_COMPRESSION_LEVEL") as caught:
        ParquetFormat(codec, level)
    assert codec in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("write.parquet.compression-codec", "brotli9"),
        ("write.parquet.row-group-size-bytes", "large"),
        ("write.parquet.row-group-size-bytes", "-1"),
    ],
)
def test_a_property_that_cannot_be_used_is_refused(name: str, value: str) -> None:
    with pytest.raises(OptionError, match=value):
        ParquetFormat.from_table_properties({name: value})


def test_every_codec_is_one_that_pyarrow_writes() -> None:
    for codec in ParquetCompression:
        levels = codec.level_range
        format = ParquetFormat(codec, levels[0] if levels else None)
        with pq.ParquetWriter(io.BytesIO(), SCHEMA, **format.writer_options(SCHEMA)) as writer:
            writer.write_table(pa.table({"id": [1], "name": ["a"]}, SCHEMA))


def test_the_digest_changes_with_every_setting_field_id_and_type() -> None:
    with_id = pa.schema([pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "1"}), SCHEMA.field(1)])
    formats = [
        ParquetFormat(),
        ParquetFormat(ParquetCompression.GZIP),
        ParquetFormat(compression_level=3),
        ParquetFormat(row_group_bytes=1),
        ParquetFormat(data_page_bytes=1),
        ParquetFormat(page_rows=1),
        ParquetFormat(dictionary_page_bytes=1),
        ParquetFormat(bloom_filters={"id": {"fpp": 0.1}}),
    ]
    digests = [writer_digest(format, SCHEMA) for format in formats] + [writer_digest(formats[0], with_id)]
    assert len(set(digests)) == len(digests)
    assert writer_digest(ParquetFormat(), SCHEMA) == digests[0]
