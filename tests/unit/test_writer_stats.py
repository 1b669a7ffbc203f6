"""Counters of files and tasks."""

from __future__ import annotations

import threading

import pytest

from icefloe.connector.writer_stats import FsEventLogger, MultiPartWriterStats


def test_a_files_first_and_last_write_and_its_parts_are_kept() -> None:
    stats = MultiPartWriterStats()
    stats.wrote(now_us=5)
    stats.wrote(now_us=9)
    stats.flushed(100)
    stats.flushed(20)
    assert (stats.first_write_us, stats.last_write_us) == (5, 9)
    assert (stats.bytes_written, stats.parts_written) == (120, 2)


def test_events_of_several_threads_are_all_counted() -> None:
    events = FsEventLogger()
    threads = [threading.Thread(target=lambda: [events.log(rows=1, parts=2) for _ in range(500)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (events.snapshot().rows, events.as_dict()["parts"]) == (2000, 4000)


def test_a_timed_block_that_raises_is_a_failure() -> None:
    events = FsEventLogger()
    with pytest.raises(RuntimeError), events.timing("encode_us"):
        raise RuntimeError
    with events.timing("upload_us"):
        pass
    assert events.snapshot().failures == 1


def test_an_unknown_counter_is_a_mistake_that_shows() -> None:
    with pytest.raises(AttributeError):
        FsEventLogger().log(rowz=1)


def test_a_record_takes_over_what_was_measured() -> None:
    events = FsEventLogger()
    events.log(rows=3, encoded_bytes=10, row_groups=2, files=1, parts=4, encode_us=5, upload_us=6)
    metrics = events.epoch_metrics()
    assert (metrics.rows, metrics.encoded_bytes, metrics.row_groups, metrics.files_rolled) == (3, 10, 2, 1)
    assert (metrics.parts, metrics.encode_us, metrics.upload_us) == (4, 5, 6)
