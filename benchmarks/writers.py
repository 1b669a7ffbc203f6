"""Encoding through the writers against one plain ``pyarrow.parquet.write_table``: time, memory, idle files.

``python benchmarks/writers.py [--rows N] [--rounds N] [--json FILE] [--cpu]``. The goal is 0.9 of the plain writer's
speed, that is a ratio of 1.11 or less, with and without a hand-over after every tenth batch.
"""

from __future__ import annotations

import argparse
import random
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from runner import run

from icefloe.connector.batch_buffering_writer import ParquetBatchBufferingWriter
from icefloe.connector.data_names import data_name
from icefloe.connector.encoding_lane import EncodingLane
from icefloe.connector.file_context import FileContext
from icefloe.connector.file_store import open_file_store
from icefloe.connector.in_flight_file import InFlightFile
from icefloe.connector.local_writer import ParquetLocalWriter
from icefloe.connector.parquet_format import ParquetFormat
from icefloe.proto import sink_pb2
from icefloe.schemas.sink_schema import SinkSchema
from icefloe.state.opening import open_storage
from icefloe.state.task_info import TaskInfo

BATCH_ROWS = 10_000
HAND_OVER_EVERY = 10


def field(number: int, name: str, kind: pa.DataType) -> pa.Field:
    return pa.field(name, kind, metadata={"PARQUET:field_id": str(number)})


SCHEMA = pa.schema(
    [
        field(1, "id", pa.int64()),
        field(2, "user", pa.string()),
        field(3, "amount", pa.float64()),
        field(4, "note", pa.string()),
        field(5, "ts", pa.timestamp("us", "UTC")),
    ]
)


def make_batches(rows: int) -> list[pa.RecordBatch]:
    """Ids, a column with few values, random doubles and text, times: about 90 Arrow bytes to a row."""
    rng = random.Random(7)
    words = [f"{rng.getrandbits(64):016x}" for _ in range(50_000)]
    batches = []
    for start in range(0, rows, BATCH_ROWS):
        count = min(BATCH_ROWS, rows - start)
        columns = [
            pa.array(range(start, start + count), pa.int64()),
            pa.array([f"user-{rng.randrange(5000)}" for _ in range(count)]),
            pa.array([rng.random() for _ in range(count)]),
            pa.array([f"{rng.choice(words)} {rng.choice(words)}" for _ in range(count)]),
            pa.array([1_700_000_000_000_000 + (start + i) * 1000 for i in range(count)], pa.timestamp("us", "UTC")),
        ]
        batches.append(pa.RecordBatch.from_arrays(columns, schema=SCHEMA))
    return batches


@dataclass(frozen=True, slots=True)
class Bench:
    """The arms, on one set of rows."""

    root: Path
    batches: list[pa.RecordBatch]
    format: ParquetFormat
    row_group_rows: int

    def plain(self) -> None:
        """One call of PyArrow's own writer, with the same settings and rows per row group."""
        table = pa.Table.from_batches(self.batches, SCHEMA)
        options = self.format.writer_options(SCHEMA)
        pq.write_table(table, self.root / "plain.parquet", row_group_size=self.row_group_rows, **options)

    def buffering(self) -> None:
        writer = ParquetBatchBufferingWriter(self.format, SinkSchema(SCHEMA))
        with open(self.root / "buffering.parquet", "wb") as out:
            for batch in self.batches:
                writer.add_batch_data(batch)
                out.write(writer.split_to(writer.buffered_bytes))
            out.write(writer.close()[0])

    def local(self) -> None:
        lane = EncodingLane()
        path = self.root / "local.parquet"
        path.unlink(missing_ok=True)
        writer = ParquetLocalWriter(path, path, self.format, SinkSchema(SCHEMA), lane=lane)
        for batch in self.batches:
            writer.write_batch(batch)
        writer.close()
        lane.close()

    def in_flight(self, *, straight: bool) -> None:
        with self._context(straight=straight) as ctx:
            file = self._begin(ctx)
            for batch in self.batches:
                file.append(batch)
            file.roll()

    def handed_over(self) -> None:
        """Another process (here: another object) goes on after every tenth batch."""
        suspended, footer, pending = None, None, []
        for start in range(0, len(self.batches), HAND_OVER_EVERY):
            with self._context(straight=False) as ctx:
                if suspended is None:
                    file = self._begin(ctx)
                else:
                    held = list(pending)
                    name = data_name(ctx.info, 1, 0)
                    file = InFlightFile.resume(ctx, suspended.message, footer, lambda held=held: held, name=name)
                for batch in self.batches[start : start + HAND_OVER_EVERY]:
                    file.append(batch)
                if start + HAND_OVER_EVERY >= len(self.batches):
                    file.roll()
                    return
                suspended = file.suspend()
                footer = suspended.footer or footer
                kept = pa.Table.from_batches(pending, SCHEMA).slice(suspended.consumed_pending_rows).to_batches()
                pending = kept + suspended.new_pending

    def open_idle(self, count: int) -> int:
        """Open files with a few rows each and return what they add to the process' memory, in bytes."""
        process = psutil.Process()
        before = process.memory_info().rss
        with self._context(straight=True) as ctx:
            files = [self._begin(ctx, number) for number in range(count)]
            for file in files:
                file.append(self.batches[0].slice(0, 100))
                file.flush_row_group()
            added = process.memory_info().rss - before
            for file in files:
                file.roll()
        return added

    def _begin(self, ctx: FileContext, number: int = 0) -> InFlightFile:
        name = data_name(ctx.info, 1, number)
        return InFlightFile.begin(
            ctx, file_id=str(number), name=name, partition=sink_pb2.PartitionKey(), pending_key=number
        )

    def _context(self, *, straight: bool) -> FileContext:
        info = TaskInfo("benchmark", "sink", 0)
        return FileContext(
            info=info,
            epoch=1,
            state=open_storage(str(self.root / "state")),
            files=open_file_store(str(self.root / "data"), {}, job_id=info.job_id),
            format=self.format,
            schema=SinkSchema(SCHEMA),
            fingerprint=sink_pb2.Fingerprint(schema_id=1),
            straight=straight,
            publish_later=False,
        )


def peak_above_input(body: Callable[[], object]) -> int:
    """Run ``body`` and return the highest Arrow memory above what was held before, in bytes."""
    pool = pa.default_memory_pool()
    pool.release_unused()
    before = pool.bytes_allocated()
    body()
    return max(0, pool.max_memory() - before)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--row-group-bytes", type=int, default=16 * 1024 * 1024)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--cpu", action="store_true", help="count CPU seconds: for a machine that others use as well")
    arguments = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="icefloe-benchmark-"))
    try:
        format = ParquetFormat(row_group_bytes=arguments.row_group_bytes)
        bench = Bench(root, make_batches(arguments.rows), format, 0)
        bench.local()
        rows = pq.read_metadata(root / "local.parquet").row_group(0).num_rows
        bench = Bench(root, bench.batches, format, rows)
        arms = {
            "write_table": bench.plain,
            "buffering writer": bench.buffering,
            "local writer": bench.local,
            "in-flight, straight": lambda: bench.in_flight(straight=True),
            "in-flight, segments": lambda: bench.in_flight(straight=False),
            "in-flight, handed over": bench.handed_over,
        }
        timer = time.process_time if arguments.cpu else time.perf_counter
        report = run("writers", arms, reference="write_table", rounds=arguments.rounds, timer=timer)
        print(report.to_text())
        print(f"  row groups of {rows} rows, {arguments.row_group_bytes} bytes asked for")
        print(f"  Arrow memory above the input: {peak_above_input(bench.local) / 2**20:.1f} MB")
        print(f"  200 open idle files: {bench.open_idle(200) / 2**20:.1f} MB")
        if arguments.json:
            report.save(arguments.json)
    finally:
        shutil.rmtree(root)


if __name__ == "__main__":
    main()
