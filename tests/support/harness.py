"""Drives tasks and commits as Spark does, without a JVM: a checkpoint folder, numbered batches, reports, retries."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from icefloe.connector.driver import Driver
from icefloe.connector.messages import OPERATOR_ID, TaskReport
from icefloe.connector.options import parse_options
from icefloe.connector.task import run_task
from icefloe.state.records import Record
from icefloe.state.task_info import TaskInfo

_SPARK_TYPES: dict[pa.DataType, str] = {
    pa.int64(): "long",
    pa.int32(): "integer",
    pa.string(): "string",
    pa.float64(): "double",
    pa.date32(): "date",
    pa.bool_(): "boolean",
    pa.timestamp("us", "UTC"): "timestamp",
}

EVENTS = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("region", pa.string()),
        pa.field("ts", pa.timestamp("us", "UTC")),
        pa.field("amount", pa.float64()),
    ]
)


def spark_json(schema: pa.Schema) -> str:
    """Return a flat Arrow schema as ``StructType.json()`` would give it."""
    fields: list[dict[str, Any]] = [
        {"name": f.name, "type": _SPARK_TYPES[f.type], "nullable": f.nullable, "metadata": {}} for f in schema
    ]
    return json.dumps({"type": "struct", "fields": fields})


def event_rows(start: int, count: int) -> pa.RecordBatch:
    """Return rows ``start`` to ``start + count``, each different from every other."""
    ids = range(start, start + count)
    return pa.record_batch(
        [
            pa.array(ids, pa.int64()),
            pa.array([None if i % 7 == 0 else f"region-{i % 3}" for i in ids], pa.string()),
            pa.array([1_700_000_000_000_000 + i * 3_600_000_000 for i in ids], pa.timestamp("us", "UTC")),
            pa.array([i / 4 for i in ids], pa.float64()),
        ],
        schema=EVENTS,
    )


@dataclass
class Harness:
    """One query: its checkpoint folder and options. Make a second one on the same folder to restart it."""

    checkpoint: Path
    options: Mapping[str, str]
    schema: pa.Schema = EVENTS
    job_id: str = field(default_factory=lambda: str(uuid.uuid4()))

    def __post_init__(self) -> None:
        metadata = self.checkpoint / "metadata"
        if metadata.exists():
            self.job_id = json.loads(metadata.read_text())["id"]
            return
        (self.checkpoint / "offsets").mkdir(parents=True, exist_ok=True)
        (self.checkpoint / "commits").mkdir(exist_ok=True)
        metadata.write_text(json.dumps({"id": self.job_id}))

    def driver(self, **changed: str) -> Driver:
        """Return the driver side, as Spark makes it anew for every call."""
        options = {"checkpointLocation": str(self.checkpoint), **self.options, **changed}
        return Driver(parse_options(options), spark_json(self.schema))

    def begin(self, batch_id: int, offsets: str = "", watermark_ms: int = 0) -> None:
        """Write the batch's entry of the offset log, as Spark does before anything runs."""
        header = json.dumps({"batchWatermarkMs": watermark_ms, "batchTimestampMs": 0})
        (self.checkpoint / "offsets" / str(batch_id)).write_text(f"v1\n{header}\n{offsets or batch_id}")

    def tasks(self, batch_id: int, inputs: Sequence[Sequence[pa.RecordBatch]], **changed: str) -> list[TaskReport]:
        """Run the tasks of a batch, one for each input, and return their reports."""
        settings = self.driver(**changed).prepare()
        return [
            run_task(settings, TaskInfo(self.job_id, OPERATOR_ID, subtask), batch_id, iter(batches))
            for subtask, batches in enumerate(inputs)
        ]

    def run(
        self, batch_id: int, inputs: Sequence[Sequence[pa.RecordBatch]], *, watermark_ms: int = 0, **changed: str
    ) -> Record:
        """Run a whole micro-batch: offsets, tasks, commit, and the entry of Spark's commit log."""
        self.begin(batch_id, watermark_ms=watermark_ms)
        record = self.driver(**changed).commit(list(self.tasks(batch_id, inputs, **changed)), batch_id)
        (self.checkpoint / "commits" / str(batch_id)).write_text("v1\n{}")
        return record
