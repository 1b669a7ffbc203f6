"""Data file names say who made them for which epoch, and are read back exactly."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from icefloe.connector.data_names import (
    DataName,
    data_name,
    file_id,
    in_progress_name,
    job8,
    parse,
    parse_in_progress,
)
from icefloe.state.task_info import TaskInfo

ATTEMPT = "0123456789abcdef0123456789abcdef"
INFO = TaskInfo("c0ffee00-1111-2222-3333-444444444444", "sink", 7, ATTEMPT)


def test_a_name_carries_job_epoch_subtask_attempt_and_number() -> None:
    name = data_name(INFO, 42, 3, folder="day=2026-01-01/region=eu", prefix="events-")
    assert name == f"day=2026-01-01/region=eu/events-c0ffee00-42-7-{ATTEMPT}-3.parquet"
    assert parse(name) == DataName("day=2026-01-01/region=eu", "events-", "c0ffee00", 42, 7, ATTEMPT, 3)
    assert file_id(INFO, 42, 3) == f"42-7-{ATTEMPT}-3"


@given(
    folder=st.lists(st.text(st.characters(blacklist_characters="/", codec="utf-8"), min_size=1), max_size=3).map(
        "/".join
    ),
    prefix=st.text(st.characters(blacklist_characters="/", codec="utf-8"), max_size=20),
    epoch=st.integers(0, 10**12),
    subtask=st.integers(0, 65_535),
    number=st.integers(0, 65_535),
)
def test_parsing_is_the_inverse_of_building(folder: str, prefix: str, epoch: int, subtask: int, number: int) -> None:
    parsed = DataName(folder, prefix, "c0ffee00", epoch, subtask, ATTEMPT, number)
    assert parse(str(parsed)) == parsed
    assert parse_in_progress(in_progress_name("some-job", str(parsed))) == ("some-job", parsed)


@pytest.mark.parametrize(
    "name",
    [
        "part-00000-8d0d.snappy.parquet",
        f"c0ffee00-42-7-{ATTEMPT}-3.parquet.inprogress",
        f"c0ffee00-42-7-{ATTEMPT.upper()}-3.parquet",
        f"c0ffee00-42-7-{ATTEMPT[1:]}-3.parquet",
        "_icefloe/job/00000000000000000001.ledger",
        "",
    ],
)
def test_a_name_of_somebody_else_is_not_parsed(name: str) -> None:
    assert parse(name) is None


def test_an_unfinished_file_has_no_name_that_readers_take() -> None:
    hidden = in_progress_name(INFO.job_id, data_name(INFO, 1, 0, folder="a=1"))
    assert hidden.startswith("_icefloe/")
    assert not hidden.endswith(".parquet")
    assert parse(hidden) is None
    assert parse_in_progress("_icefloe/job/whatever.inprogress") is None


def test_eight_characters_stand_for_a_job() -> None:
    assert job8("c0ffee00-1111") == "c0ffee00"
    assert job8("a-b") == "ab000000"
