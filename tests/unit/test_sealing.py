"""The envelope tells damaged, foreign and newer objects from good ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from icefloe.errors import CorruptStateError, StateError, StateVersionError
from icefloe.proto.state_pb2 import CheckpointMetadata, OperatorCheckpointMetadata, OperatorMetadata, Sealed
from icefloe.state.sealing import FORMAT_VERSION, seal, unseal

MESSAGE = CheckpointMetadata(
    job_id="job",
    epoch=7,
    operators=[OperatorCheckpointMetadata(operator_metadata=OperatorMetadata(operator_id="sink", subtask_index=3))],
    payload=b"\x00\x01payload",
)
NAME = "s3://bucket/job/checkpoints/0000000007/checkpoint.metadata"


def test_a_sealed_message_comes_back_equal() -> None:
    assert unseal(seal(MESSAGE), CheckpointMetadata, NAME) == MESSAGE


def test_an_empty_message_comes_back_equal() -> None:
    assert unseal(seal(CheckpointMetadata()), CheckpointMetadata, NAME) == CheckpointMetadata()


def test_the_same_message_has_the_same_bytes_whatever_the_order_of_its_maps() -> None:
    one, other = OperatorCheckpointMetadata(), OperatorCheckpointMetadata()
    for table in ("a", "b", "c", "d"):
        one.table_configs[table].state_version = 1
    for table in ("d", "b", "a", "c"):
        other.table_configs[table].state_version = 1
    assert seal(one) == seal(other)


@given(st.integers(0, len(seal(MESSAGE)) - 1))
def test_cut_anywhere_it_is_corrupt_and_named(length: int) -> None:
    with pytest.raises(CorruptStateError, match=f"ICEFLOE_STATE_CORRUPT: {NAME}"):
        unseal(seal(MESSAGE)[:length], CheckpointMetadata, NAME)


@given(st.integers(0, len(seal(MESSAGE)) * 8 - 1))
def test_with_any_bit_flipped_it_is_refused(bit: int) -> None:
    data = bytearray(seal(MESSAGE))
    data[bit // 8] ^= 1 << (bit % 8)
    with pytest.raises(StateError, match=NAME):
        unseal(bytes(data), CheckpointMetadata, NAME)


@given(st.binary(max_size=200))
def test_foreign_bytes_are_corrupt(data: bytes) -> None:
    with pytest.raises(StateError, match=NAME):
        unseal(data, CheckpointMetadata, NAME)


@pytest.mark.parametrize("extra", [b"\x00", b"PAR1", seal(MESSAGE), Sealed(payload=b"x").SerializeToString()])
def test_bytes_after_the_end_are_corrupt(extra: bytes) -> None:
    with pytest.raises(CorruptStateError, match=NAME):
        unseal(seal(MESSAGE) + extra, CheckpointMetadata, NAME)


def test_another_kind_of_message_is_named_with_the_one_that_belongs_there() -> None:
    with pytest.raises(
        CorruptStateError, match=r"icefloe.state.CheckpointMetadata where a .*OperatorCheckpointMetadata"
    ):
        unseal(seal(MESSAGE), OperatorCheckpointMetadata, NAME)


def test_a_newer_format_is_refused_with_both_versions_and_the_object() -> None:
    newer = Sealed()
    newer.ParseFromString(seal(MESSAGE))
    newer.format_version = FORMAT_VERSION + 1
    with pytest.raises(StateVersionError, match=f"ICEFLOE_STATE_NEWER: {NAME}") as caught:
        unseal(newer.SerializeToString(), CheckpointMetadata, NAME)
    assert (caught.value.found, caught.value.supported) == (FORMAT_VERSION + 1, FORMAT_VERSION)
    assert caught.value.object_name == NAME
