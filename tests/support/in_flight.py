"""In-flight files without Spark and without state tables: a context, rows, and hand-overs by value."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import pyarrow as pa

from icefloe.connector.data_names import data_name, file_id
from icefloe.connector.file_context import FileContext
from icefloe.connector.file_store import open_file_store
from icefloe.connector.in_flight_file import InFlightFile, Suspended
from icefloe.connector.parquet_format import ParquetFormat
from icefloe.proto import sink_pb2
from icefloe.schemas.sink_schema import SinkSchema
from icefloe.state.opening import open_storage
from icefloe.state.task_info import TaskInfo

JOB = "5e1f0000-aaaa-bbbb-cccc-000000000001"


def _field(number: int, name: str, kind: pa.DataType, *, nullable: bool = True) -> pa.Field:
    return pa.field(name, kind, nullable=nullable, metadata={"PARQUET:field_id": str(number)})


EVENTS = pa.schema(
    [
        _field(1, "id", pa.int64(), nullable=False),
        _field(2, "user", pa.string()),
        _field(3, "amount", pa.float64()),
        _field(4, "ts", pa.timestamp("us", "UTC")),
    ]
)


def events(start: int, count: int) -> pa.RecordBatch:
    """Rows ``start`` to ``start + count``: hard to compress, each different, some nulls and NaNs."""
    ids = range(start, start + count)
    columns = [
        pa.array(ids, pa.int64()),
        pa.array([None if i % 11 == 0 else f"user-{(i * 2654435761) % 4294967291}" for i in ids]),
        pa.array([float("nan") if i % 13 == 0 else ((i * 40503) % 65521) / 7 for i in ids], pa.float64()),
        pa.array([1_700_000_000_000_000 + i * 1_000_000 for i in ids], pa.timestamp("us", "UTC")),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=EVENTS)


@dataclass
class Place:
    """Where a test's files and state are."""

    files_url: str
    state_url: str
    options: Mapping[str, str] = field(default_factory=dict)
    format: ParquetFormat = field(default_factory=lambda: ParquetFormat(row_group_bytes=64 * 1024))
    schema: SinkSchema = field(default_factory=lambda: SinkSchema(EVENTS, 3))
    part_size_bytes: int = 5 * 1024 * 1024

    @property
    def files(self):  # type: ignore[no-untyped-def]
        return open_file_store(self.files_url, self.options, job_id=JOB)

    @property
    def state(self):  # type: ignore[no-untyped-def]
        return open_storage(self.state_url, self.options)

    @contextmanager
    def task(self, epoch: int = 1, *, straight: bool = False, publish_later: bool = False) -> Iterator[FileContext]:
        """One attempt of subtask 0, with threads of its own."""
        clock = itertools.count(1_000_000 * epoch, 10)
        with FileContext(
            info=TaskInfo(JOB, "sink", 0),
            epoch=epoch,
            state=self.state,
            files=self.files,
            format=self.format,
            schema=self.schema,
            fingerprint=sink_pb2.Fingerprint(schema_id=1),
            straight=straight,
            publish_later=publish_later,
            part_size_bytes=self.part_size_bytes,
            clock=lambda: next(clock),
        ) as ctx:
            yield ctx


def begin(ctx: FileContext, number: int = 0, *, folder: str = "") -> InFlightFile:
    """Begin a file of the attempt."""
    return InFlightFile.begin(
        ctx,
        file_id=file_id(ctx.info, ctx.epoch, number),
        name=data_name(ctx.info, ctx.epoch, number, folder=folder),
        partition=sink_pb2.PartitionKey(),
        pending_key=number,
    )


@dataclass
class Carried:
    """What a record and the pending table carry from one task to the next: bytes and rows, never objects."""

    message: bytes
    footer: bytes | None
    pending: list[pa.RecordBatch]

    @classmethod
    def first(cls, suspended: Suspended) -> Carried:
        assert suspended.consumed_pending_rows == 0
        return cls(suspended.message.SerializeToString(), suspended.footer, list(suspended.new_pending))

    def then(self, suspended: Suspended) -> Carried:
        """Apply a suspension: consumed rows leave from the front, new ones come behind."""
        kept = pa.Table.from_batches(self.pending, EVENTS).slice(suspended.consumed_pending_rows).to_batches()
        footer = suspended.footer if suspended.footer is not None else self.footer
        return Carried(suspended.message.SerializeToString(), footer, kept + suspended.new_pending)

    def resume(self, ctx: FileContext, number: int = 0, *, folder: str = "") -> InFlightFile:
        name = data_name(ctx.info, ctx.epoch, number, folder=folder)
        message = sink_pb2.InFlightFile.FromString(self.message)
        return InFlightFile.resume(ctx, message, self.footer, lambda: self.pending, name=name)


def assert_same_rows(found: pa.Table, expected: pa.Table) -> None:
    """Compare values, order, types and nulls; a NaN equals itself."""
    assert found.schema.equals(expected.schema), (found.schema, expected.schema)
    assert found.num_rows == expected.num_rows
    for name in expected.column_names:
        assert _bits(found[name]).equals(_bits(expected[name])), f"column {name!r} differs"


def _bits(column: pa.ChunkedArray) -> pa.Array:
    array = column.combine_chunks()
    return array.view(pa.int64()) if pa.types.is_float64(array.type) else array


def rows_of(batches: Sequence[pa.RecordBatch]) -> pa.Table:
    """The batches as one table."""
    return pa.Table.from_batches(batches, EVENTS).combine_chunks()


def continue_elsewhere(place: Place, carried: Carried, epoch: int, batches: list[pa.RecordBatch]) -> Carried:
    """One task of another process: resume, append, suspend. Top level, so that it can be sent there."""
    with place.task(epoch) as ctx:
        file = carried.resume(ctx)
        for batch in batches:
            file.append(batch)
        return carried.then(file.suspend())
