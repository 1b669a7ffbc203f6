"""What travels between driver and tasks by value: the base of an epoch going out, the report of a task coming back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from icefloe.connector.operator_state import parsed
from icefloe.proto import sink_pb2 as sink
from icefloe.proto import state_pb2 as pb
from icefloe.state.records import Record

NO_EPOCH: Final = -1
OPERATOR_ID: Final = "sink"


def sink_record(record: Record) -> sink.SinkRecord:
    """Return the sink's own part of a record. Raises ``CorruptStateError`` where it is something else."""
    return parsed(sink.SinkRecord, record.metadata.payload, f"the payload of record {record.epoch}")


@dataclass(frozen=True, slots=True)
class Base:
    """The record that an epoch starts from, as tasks need it. Messages travel as bytes: names and numbers only."""

    job_id: str
    epoch: int
    digest: str
    # None: there is no record yet, and `first_batch_id` says which batch may be the first (None: any).
    batch_id: int | None
    first_batch_id: int | None
    min_epoch: int
    operators: tuple[bytes, ...]

    @classmethod
    def of(cls, job_id: str, head: Record | None, first_batch_id: int | None) -> Base:
        """Return the base that the head record of a job makes."""
        if head is None:
            return cls(job_id, NO_EPOCH, "", None, first_batch_id, 0, ())
        return cls(
            job_id=job_id,
            epoch=head.epoch,
            digest=head.digest,
            batch_id=sink_record(head).batch_id,
            first_batch_id=first_batch_id,
            min_epoch=head.metadata.min_epoch,
            operators=tuple(o.SerializeToString() for o in head.metadata.operators),
        )

    def owned_by(self, subtask: int) -> list[pb.OperatorCheckpointMetadata]:
        """Return the state that the record gives to one subtask (R8)."""
        operators = [pb.OperatorCheckpointMetadata.FromString(data) for data in self.operators]
        return [o for o in operators if o.operator_metadata.owner_subtask == subtask]


@dataclass(frozen=True, slots=True)
class TaskReport:
    """What one task did, or that its batch was recorded already and its input dropped."""

    job_id: str
    batch_id: int
    base_epoch: int
    base_digest: str
    subtask: int
    attempt_id: str
    input_rows: int
    # None: the batch has a record, and nothing was written.
    operator_metadata: bytes | None
    metrics: bytes = b""

    @property
    def recorded(self) -> bool:
        """Whether the task found its batch recorded and only read its input to the end."""
        return self.operator_metadata is None
