"""A small query over a replayable source, run as Spark would: each batch again until the commit log has it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from icefloe.connector.finish import finish
from icefloe.connector.local_file_store import LocalFileStore
from icefloe.connector.messages import OPERATOR_ID
from icefloe.connector.task import run_task
from icefloe.state.local_storage import LocalStorage
from icefloe.state.task_info import TaskInfo
from support.crashing import Crash, arm, passages
from support.harness import EVENTS, Harness, event_rows

# How many tasks a batch has; a restart moves on by one, so that a replay meets another number.
_TASKS = (2, 1, 2)
NOTE = pa.field("note", pa.string())


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryPlan:
    """What the query is and where it lies. Everything that a restart reads again is derived from it."""

    target: Literal["path", "table"]
    visibility: Literal["batch", "roll"]
    # Local folder for Spark's checkpoint and the catalog.
    root: str
    # Where state and data go: a local folder or an S3 prefix.
    location: str
    s3: Mapping[str, str] = field(default_factory=dict, repr=False)
    batches: int = 3
    rows: int = 24
    # From this batch on, rows have one more column.
    widened_from: int = 2
    changed: Mapping[str, str] = field(default_factory=dict)

    @property
    def checkpoint(self) -> Path:
        return Path(self.root) / "checkpoint"

    @property
    def state(self) -> str:
        return f"{self.location}/state"

    @property
    def data(self) -> str:
        return f"{self.location}/out"

    def options(self) -> dict[str, str]:
        """Return the options of the sink: sizes so small that every batch makes row groups and some files roll."""
        common = {
            "stateLocation": self.state,
            "visibility": self.visibility,
            "rowGroupSize": "300",
            "rollFileSize": "3KB",
            "keepEpochs": "2",
            "mergeSchema": "true",
            **self.s3,
        }
        if self.target == "path":
            return {**common, "path": self.data, "partitionBy": "region", **self.changed}
        table = {"table": "db.events", "partitionBy": "region", "catalog": "crashes", **self.catalog()}
        kept = {"keepSnapshots": "1"} if self.visibility == "batch" else {}
        return {**common, **table, **kept, **self.changed}

    def catalog(self) -> dict[str, str]:
        """Return what reaches the catalog: never in state, so ``finish`` must be given it."""
        if self.target == "path":
            return {}
        uri = f"sqlite:///{self.root}/catalog.db"
        return {"catalog.type": "sql", "catalog.uri": uri, "catalog.warehouse": self.data}

    def schema(self, batch_id: int) -> pa.Schema:
        """Return the stream's schema as of a batch."""
        return EVENTS.append(NOTE) if batch_id >= self.widened_from else EVENTS

    def rows_of(self, batch_id: int) -> pa.RecordBatch:
        """Return all rows of a batch: the same at every replay."""
        rows = event_rows(batch_id * self.rows, self.rows)
        if batch_id < self.widened_from:
            return rows
        notes = pa.array([f"note {i}" for i in rows["id"].to_pylist()], pa.string())
        return pa.RecordBatch.from_arrays([*rows.columns, notes], schema=self.schema(batch_id))

    def source(self) -> Iterator[pa.RecordBatch]:
        """Yield every row that the query reads."""
        return (self.rows_of(batch_id) for batch_id in range(self.batches))

    def harness(self, batch_id: int) -> Harness:
        """Return the query as its driver sees it at a batch."""
        return Harness(self.checkpoint, self.options(), schema=self.schema(batch_id))


def record_passages(plan: QueryPlan) -> list[str]:
    """Run the whole query without a crash and return the crash points that it passed."""
    with passages() as passed:
        run_query(plan, restart=0)
    return list(passed)


def run_query(plan: QueryPlan, *, restart: int, crash: Crash | None = None) -> None:
    """Go on with the query where its commit log ends, to its last batch and a last ``finish``."""
    if crash is not None:
        arm(crash)
    for batch_id in range(plan.batches):
        if not (plan.checkpoint / "commits" / str(batch_id)).exists():
            run_batch(plan, batch_id, restart)
        # In the middle, and at the end: nothing stays in flight.
        if batch_id in (1, plan.batches - 1):
            finish(plan.state, options={**plan.s3, **plan.catalog()})


def run_batch(plan: QueryPlan, batch_id: int, restart: int) -> None:
    """Run one micro-batch; from batch 1 on with a speculative twin of task 0 that loses."""
    query = plan.harness(batch_id)
    query.begin(batch_id, offsets=json.dumps({"rows": plan.rows * (batch_id + 1)}))
    inputs = partitions(plan.rows_of(batch_id), _TASKS[(batch_id + restart) % len(_TASKS)], restart)
    if batch_id >= 1:
        settings = query.driver().prepare()
        run_task(settings, TaskInfo(query.job_id, OPERATOR_ID, 0), batch_id, iter(inputs[0]))
    reports = query.tasks(batch_id, inputs)
    query.driver().commit(list(reports), batch_id)
    (plan.checkpoint / "commits" / str(batch_id)).write_text("v1\n{}")


def partitions(rows: pa.RecordBatch, tasks: int, turn: int) -> list[list[pa.RecordBatch]]:
    """Deal rows to tasks; another ``turn`` deals them to others. Each task gets its rows in two batches."""
    step = -(-rows.num_rows // tasks)
    parts = [rows.slice(start, step) for start in range(0, rows.num_rows, step)]
    turned = parts[turn % tasks :] + parts[: turn % tasks]
    return [[part.slice(0, part.num_rows // 2), part.slice(part.num_rows // 2)] for part in turned]


def record_mutations(plan: QueryPlan) -> list[str]:
    """Like ``record_passages``, with every change of the storage among the points, as ``+operation key``."""
    with passages() as passed:
        for method in ("put", "put_if_absent", "delete_if_present"):
            _log_calls(LocalStorage, method, passed)
        for method in ("begin", "seal", "complete", "abort"):
            _log_calls(LocalFileStore, method, passed)
        run_query(plan, restart=0)
    return list(passed)


def _log_calls(owner: type, method: str, log: list[str]) -> None:
    """Let every call of a method be in the log. Only for a child that ends after it: nothing is put back."""
    original = getattr(owner, method)

    def logged(self: Any, name: Any, *arguments: Any, **named: Any) -> Any:
        log.append(f"+{method} {getattr(name, 'name', name)}")
        return original(self, name, *arguments, **named)

    setattr(owner, method, logged)
