"""State object names and their inverse."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from icefloe.errors import StateError
from icefloe.state import object_names as names
from icefloe.state.object_names import ObjectKind, StateObject

JOB = "0b6d62f5-7f2c-4d3e-9a55-1c2f6d1f7a10"
ATTEMPT = "0123456789abcdef0123456789abcdef"

name = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.=-]{0,20}", fullmatch=True)
epoch = st.integers(0, names.MAX_EPOCH)
number = st.integers(0, 999_999_999)
attempt = st.from_regex(r"[0-9a-f]{32}", fullmatch=True)


def test_the_layout_is_the_documented_one() -> None:
    assert names.job_metadata_name(JOB) == f"{JOB}/job.metadata"
    assert names.checkpoints_prefix(JOB) == f"{JOB}/checkpoints/"
    at = f"{JOB}/checkpoints/0000000042"
    assert names.record_name(JOB, 42) == f"{at}/checkpoint.metadata"
    assert names.publish_log_name(JOB, 42) == f"{at}/publish.metadata"
    assert names.operator_metadata_name(JOB, 42, "sink", 7) == f"{at}/operator-sink-7.metadata"
    assert names.table_checkpoint_path(JOB, 42, "pending", 7, ATTEMPT) == f"{at}/table-pending-7-{ATTEMPT}.parquet"
    assert names.table_checkpoint_path(JOB, 42, "a", 7, ATTEMPT, n=1) == f"{at}/table-a-7-{ATTEMPT}-1.parquet"
    assert names.segment_name(JOB, 42, 7, ATTEMPT, 3) == f"{at}/segment-7-{ATTEMPT}-3"


@given(name, epoch, name, number, attempt, st.none() | number)
def test_a_table_file_says_what_it_was_named_for(
    job: str, epoch: int, table: str, subtask: int, attempt: str, n: int | None
) -> None:
    key = names.table_checkpoint_path(job, epoch, table, subtask, attempt, n=n)
    expected = StateObject(ObjectKind.TABLE_FILE, job, epoch, table=table, subtask=subtask, attempt=attempt, n=n)
    assert names.parse(key) == expected


@given(name, epoch, name, number, attempt, number)
def test_every_other_name_says_what_it_was_named_for(
    job: str, epoch: int, operator: str, subtask: int, attempt: str, n: int
) -> None:
    assert names.parse(names.job_metadata_name(job)) == StateObject(ObjectKind.JOB_METADATA, job)
    assert names.parse(names.record_name(job, epoch)) == StateObject(ObjectKind.RECORD, job, epoch)
    assert names.parse(names.publish_log_name(job, epoch)) == StateObject(ObjectKind.PUBLISH_LOG, job, epoch)
    assert names.parse(names.operator_metadata_name(job, epoch, operator, subtask)) == StateObject(
        ObjectKind.OPERATOR_METADATA, job, epoch, operator=operator, subtask=subtask
    )
    assert names.parse(names.segment_name(job, epoch, subtask, attempt, n)) == StateObject(
        ObjectKind.SEGMENT, job, epoch, subtask=subtask, attempt=attempt, n=n
    )


@given(epoch, epoch)
def test_key_order_is_epoch_order(one: int, other: int) -> None:
    assert (names.record_name(JOB, one) < names.record_name(JOB, other)) == (one < other)


@pytest.mark.parametrize(
    "key",
    [
        "",
        "job.metadata",
        f"{JOB}/job.metadata/x",
        f"{JOB}/other",
        f"{JOB}/checkpoints/42/checkpoint.metadata",
        f"{JOB}/checkpoints/00000000042/checkpoint.metadata",
        f"{JOB}/checkpoints/000000004२/checkpoint.metadata",
        f"{JOB}/checkpoints/0000000042/checkpoint.metadata\n",
        f"{JOB}/checkpoints/0000000042/checkpoint.metadata.bak",
        f"{JOB}/checkpoints/0000000042/operator-sink-07.metadata",
        f"{JOB}/checkpoints/0000000042/table-pending-7-{ATTEMPT.upper()}.parquet",
        f"{JOB}/checkpoints/0000000042/segment-7-{ATTEMPT}",
        f"{JOB}/checkpoints/0000000042/segment-7-{ATTEMPT[:-1]}-3",
        f"copy of {JOB}/checkpoints/0000000042/checkpoint.metadata",
    ],
)
def test_a_key_that_no_function_makes_is_not_recognised(key: str) -> None:
    assert names.parse(key) is None


@given(st.text(max_size=80))
def test_what_is_recognised_is_built_again_exactly(text: str) -> None:
    for key in (text, f"{JOB}/checkpoints/0000000042/{text}"):
        found = names.parse(key)
        assert found is None or _build(found) == key


@pytest.mark.parametrize("bad", ["", ".", "..", "a/b", "a b", ".hidden", "-a", "ü", "a\n", "x" * 129])
def test_a_part_that_would_make_a_wrong_name_is_refused(bad: str) -> None:
    for build in (
        lambda: names.job_metadata_name(bad),
        lambda: names.record_name(bad, 0),
        lambda: names.operator_metadata_name(JOB, 0, bad, 0),
        lambda: names.table_checkpoint_path(JOB, 0, bad, 0, ATTEMPT),
        lambda: names.segment_name(JOB, 0, 0, bad, 0),
    ):
        with pytest.raises(StateError, match=f"ICEFLOE_STATE_NAME_INVALID: {re.escape(repr(bad))}"):
            build()


@pytest.mark.parametrize("bad", [-1, 10**10])
def test_an_epoch_that_would_break_the_order_is_refused(bad: int) -> None:
    with pytest.raises(StateError, match="ICEFLOE_STATE_NAME_INVALID"):
        names.record_name(JOB, bad)


def _build(found: StateObject) -> str:
    job, at, subtask, attempt = found.job, found.epoch or 0, found.subtask or 0, found.attempt or ""
    match found.kind:
        case ObjectKind.JOB_METADATA:
            return names.job_metadata_name(job)
        case ObjectKind.RECORD:
            return names.record_name(job, at)
        case ObjectKind.PUBLISH_LOG:
            return names.publish_log_name(job, at)
        case ObjectKind.OPERATOR_METADATA:
            return names.operator_metadata_name(job, at, found.operator or "", subtask)
        case ObjectKind.TABLE_FILE:
            return names.table_checkpoint_path(job, at, found.table or "", subtask, attempt, n=found.n)
        case ObjectKind.SEGMENT:
            return names.segment_name(job, at, subtask, attempt, found.n or 0)
