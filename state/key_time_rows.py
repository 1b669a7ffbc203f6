"""The rows of a key-time table: encoded key and value beside the time, the key's hash and the epoch of the write."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

import pyarrow as pa

from icefloe.proto import state_pb2 as pb
from icefloe.state.table import BlindDataTuple


def key_hash(key: bytes) -> int:
    """Return the routing key of an encoded key: 64 bits that are the same in every process and release."""
    return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "big")


def key_time_schema(config: pb.ExpiringKeyedTimeTableConfig) -> pa.Schema:
    """Return the schema of the table's files. A null value says that the key was removed at that time."""
    return pa.schema(
        [
            pa.field(config.time_column, pa.int64()),
            pa.field(config.key_column, pa.uint64()),
            pa.field("key", pa.binary()),
            pa.field("value", pa.binary()),
            # Orders two writes of a key with equal times, whatever was merged since.
            pa.field("epoch", pa.uint64()),
        ]
    )


def tuples_to_batch(
    config: pb.ExpiringKeyedTimeTableConfig, tuples: Sequence[BlindDataTuple], epoch: int
) -> pa.RecordBatch:
    """Return the tuples as rows written in ``epoch``."""
    columns = [
        pa.array([each.timestamp for each in tuples], pa.int64()),
        pa.array([each.key_hash for each in tuples], pa.uint64()),
        pa.array([each.key for each in tuples], pa.binary()),
        pa.array([each.value for each in tuples], pa.binary()),
        pa.array([epoch] * len(tuples), pa.uint64()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=key_time_schema(config))


def batch_to_tuples(batch: pa.RecordBatch) -> Iterator[tuple[BlindDataTuple, int]]:
    """Yield each row with the epoch in which it was written."""
    for timestamp, hashed, key, value, epoch in zip(*(column.to_pylist() for column in batch.columns), strict=True):
        yield BlindDataTuple(hashed, timestamp, key, value), epoch
