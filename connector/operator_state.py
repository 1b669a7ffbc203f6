"""What a record says about one subtask: its pre-commits, and its state as another subtask would continue it."""

from __future__ import annotations

from typing import Final, TypeVar

from google.protobuf.message import DecodeError, Message

from icefloe.errors import CorruptStateError, StateVersionError
from icefloe.proto import sink_pb2 as sink
from icefloe.proto import state_pb2 as pb

RECOVERY: Final = "recovery"
PRECOMMIT: Final = "precommit"
PENDING: Final = "pending"
PRECOMMIT_VERSION: Final = 1

M = TypeVar("M", bound=Message)


def parsed(message_type: type[M], data: bytes, what: str) -> M:
    """Parse a message that stands inside a record. Raises ``CorruptStateError`` naming what it is."""
    try:
        return message_type.FromString(data)
    except DecodeError as error:
        raise CorruptStateError(
            "ICEFLOE_STATE_CORRUPT",
            f"{what} is no {message_type.DESCRIPTOR.full_name}: restore the state location from a copy",
        ) from error


def pre_commits(operator: pb.OperatorCheckpointMetadata) -> list[sink.DataFile]:
    """Return the finished files that this operator's record makes visible when it is published."""
    table = operator.subtask.table_metadata.get(PRECOMMIT)
    if table is None:
        return []
    what = f"the pre-commit table of epoch {operator.operator_metadata.epoch}"
    message = parsed(pb.GlobalKeyedTableSubtaskCheckpointMetadata, table.data, what)
    if not message.HasField("commit_data"):
        return []
    if message.commit_data_version > PRECOMMIT_VERSION:
        raise StateVersionError(
            "ICEFLOE_STATE_NEWER",
            f"the pre-commits of epoch {operator.operator_metadata.epoch} are of version "
            f"{message.commit_data_version}, "
            f"this release reads up to {PRECOMMIT_VERSION}: use the release that wrote them",
            found=message.commit_data_version,
            supported=PRECOMMIT_VERSION,
            object_name=f"epoch {operator.operator_metadata.epoch}",
        )
    return list(parsed(sink.PreCommits, message.commit_data, what).files)


def carried_to(operator: pb.OperatorCheckpointMetadata, owner: int) -> pb.OperatorCheckpointMetadata | None:
    """Return the state of a subtask that had no task, given to ``owner`` (R8); None where nothing is in flight.

    Its pre-commits stay behind: they belong to the record that made them.
    """
    carried = pb.OperatorCheckpointMetadata()
    carried.CopyFrom(operator)
    carried.operator_metadata.owner_subtask = owner
    carried.subtask.table_metadata.pop(PRECOMMIT, None)
    return carried if has_state(carried) else None


def has_state(operator: pb.OperatorCheckpointMetadata) -> bool:
    """Whether the operator has anything that a later epoch must restore."""
    recovery = operator.subtask.table_metadata.get(RECOVERY)
    if recovery is None:
        return False
    what = f"the recovery table of epoch {operator.operator_metadata.epoch}"
    return bool(parsed(pb.GlobalKeyedTableSubtaskCheckpointMetadata, recovery.data, what).files)
