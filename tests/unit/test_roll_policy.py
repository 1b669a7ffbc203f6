"""A policy means what it says: size counts what is buffered, age and silence are measured from the file's own times."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta

import pytest

from icefloe.connector.roll_policy import RollPolicy, RollReason

SECOND = 1_000_000
POLICY = RollPolicy(
    file_size_bytes=1000,
    interval=timedelta(seconds=60),
    inactivity=timedelta(seconds=20),
    by_watermark=True,
    every_batch=False,
)


@dataclass
class File:
    size_bytes: int = 10
    began_us: int = 0
    last_write_us: int = 0
    max_event_time_us: int | None = None


@pytest.mark.parametrize(
    ("file", "now_us", "watermark_us", "reason"),
    [
        (File(), 0, None, None),
        (File(size_bytes=999), 0, None, None),
        (File(size_bytes=1000), 0, None, RollReason.SIZE),
        (File(last_write_us=59 * SECOND), 60 * SECOND, None, RollReason.INTERVAL),
        (File(last_write_us=59 * SECOND), 60 * SECOND - 1, None, None),
        (File(last_write_us=10 * SECOND), 30 * SECOND, None, RollReason.INACTIVITY),
        (File(last_write_us=10 * SECOND), 30 * SECOND - 1, None, None),
        (File(max_event_time_us=5), 0, 5, None),
        (File(max_event_time_us=5), 0, 6, RollReason.WATERMARK),
        (File(max_event_time_us=None), 0, 6, None),
        (File(max_event_time_us=5), 0, None, None),
    ],
)
def test_a_file_is_due_exactly_when_its_policy_says_so(
    file: File, now_us: int, watermark_us: int | None, reason: RollReason | None
) -> None:
    assert POLICY.due(file, now_us=now_us, watermark_us=watermark_us) == reason


def test_batch_visibility_finishes_every_file() -> None:
    policy = replace(POLICY, every_batch=True)
    assert policy.due(File(), now_us=0, watermark_us=None) is RollReason.BATCH


def test_the_watermark_counts_only_where_it_was_asked_for() -> None:
    policy = replace(POLICY, by_watermark=False)
    assert policy.due(File(max_event_time_us=5), now_us=0, watermark_us=6) is None
