"""The estimate of encoded sizes is right before the first row group and follows the data after it."""

from __future__ import annotations

import pytest

from icefloe.connector.parquet_format import ParquetCompression, ParquetFormat
from icefloe.connector.row_group_encoder import encode_row_group
from icefloe.connector.size_estimate import EncodedRatio, shared_ratio
from support.in_flight import EVENTS, events, rows_of

FORMAT = ParquetFormat()


@pytest.mark.parametrize("rows", [100, 5000, 60_000])
@pytest.mark.parametrize("codec", [ParquetCompression.ZSTD, ParquetCompression.UNCOMPRESSED])
def test_a_first_estimate_is_within_a_tenth_of_the_encoded_size(rows: int, codec: ParquetCompression) -> None:
    format = ParquetFormat(codec)
    batch = events(0, rows)
    ratio = EncodedRatio(format, EVENTS)
    for start in range(0, rows, max(1, rows // 20)):
        ratio.estimate(batch.slice(0, start).nbytes, [batch.slice(0, start)])
    actual = encode_row_group(rows_of([batch]), position_bytes=0, schema=EVENTS, format=format)
    assert ratio.estimate(batch.nbytes, [batch]) == pytest.approx(len(actual.data), rel=0.1)


def test_row_groups_that_were_encoded_move_the_estimate() -> None:
    ratio = EncodedRatio(FORMAT, EVENTS)
    ratio.observe(1_000_000, 500_000)
    assert ratio.estimate(2_000_000) == 1_000_000
    ratio.observe(1_000_000, 100_000)
    assert ratio.estimate(1_000_000) == 300_000
    ratio.observe(0, 0)
    assert ratio.estimate(1_000_000) == 300_000


def test_a_larger_row_group_tells_more_than_smaller_ones() -> None:
    ratio = EncodedRatio(FORMAT, EVENTS)
    ratio.observe(1000, 900)
    ratio.observe(1_000_000, 200_000)
    assert ratio.estimate(100) == 20


def test_nothing_is_encoded_on_trial_once_enough_is_known() -> None:
    ratio = EncodedRatio(FORMAT, EVENTS)
    ratio.observe(64 * 1024 * 1024, 1024)
    assert ratio.estimate(16 * 1024 * 1024, [events(0, 10)]) == 256


def test_a_process_keeps_one_ratio_for_a_schema_and_format() -> None:
    assert shared_ratio(FORMAT, EVENTS) is shared_ratio(ParquetFormat(), EVENTS)
    assert shared_ratio(FORMAT, EVENTS) is not shared_ratio(ParquetFormat(row_group_bytes=1), EVENTS)
