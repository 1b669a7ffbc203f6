"""The random-schedule model: real drivers, tasks, ``finish`` and clean-up on memory storage, interleaved by a seed.

Between any two storage calls of any process, another may go on, be killed, sleep for long and wake as a zombie; twins
of tasks and drivers and a ``finish`` appear at any moment; in some schedules checkpoint and state are copied while the
query runs and the copy is started later.
"""

from __future__ import annotations

import io
import os
import shutil
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq

from icefloe.connector import driver, encoding_lane, file_outlets, finish, jobs, task
from icefloe.connector.messages import OPERATOR_ID, TaskReport
from icefloe.errors import IcefloeError
from icefloe.state import parquet_backend
from icefloe.state.clean_up import referenced_names
from icefloe.state.memory_storage import MemoryStorage, forget_memory_storage
from icefloe.state.object_names import job_metadata_name, parse
from icefloe.state.records import RecordLog
from icefloe.state.task_info import TaskInfo
from support.harness import Harness
from support.memory_files import MemoryFileStore, MemoryTable, MemoryWorld, Step, SteppedStorage
from support.rows import assert_no_row_lost_or_doubled
from support.scheduler import Actor, Scheduler, StuckError

IDS = pa.schema([pa.field("id", pa.int64())])
TARGET = "/model/out"
_TASK_TRIES = 3
_QUIET_AFTER_STEPS = 600


class TaskGivenUpError(Exception):
    """Spark gave a task up after its tries."""


class InlineExecutor:
    """A thread pool without threads: a model's process does one thing at a time."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def submit(self, job: Any, *arguments: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(job(*arguments))
        except Exception as error:  # noqa: BLE001 - as the real one does
            future.set_exception(error)
        return future

    def map(self, job: Any, items: Any) -> Iterator[Any]:
        return iter([job(item) for item in items])

    def shutdown(self, **_: Any) -> None: ...

    def __enter__(self) -> InlineExecutor:
        return self

    def __exit__(self, *_: object) -> None: ...


@dataclass
class History:
    """A checkpoint with the state that belongs to it; a copy is a second one of the same job."""

    checkpoint: Path
    state: str
    refused: str = ""


@dataclass
class Schedule:
    """One schedule: what the dice chose, and the world it plays in."""

    seed: int
    root: Path
    world: MemoryWorld = field(default_factory=MemoryWorld)
    restarts: int = 0
    finishes: int = 0
    kills: int = 0
    copied: History | None = None

    def __post_init__(self) -> None:
        self.scheduler = Scheduler(self.seed)
        dice = self.scheduler.dice
        self.table = dice.random() < 0.4
        self.visibility = dice.choice(["batch", "roll", "roll"])
        self.batches = dice.randint(2, 4)
        self.rows = dice.randint(2, 5)
        self.keep_epochs = dice.choice([1, 2, 10])
        self.uploads_expire = dice.random() < 0.5
        self.copies = dice.random() < 0.15
        self.main = History(self.root / "checkpoint", f"memory://model-{self.seed}")
        self.harness(self.main)

    def harness(self, history: History) -> Harness:
        options = {
            "path": TARGET,
            "stateLocation": history.state,
            "visibility": self.visibility,
            "rowGroupSize": "40",
            "rollFileSize": "700",
            "keepEpochs": str(self.keep_epochs),
        }
        return Harness(history.checkpoint, options, schema=IDS)

    def rows_of(self, batch_id: int, tasks: int) -> list[list[pa.RecordBatch]]:
        ids = [batch_id * self.rows + i for i in range(self.rows)]
        return [[pa.record_batch([pa.array(ids[t::tasks], pa.int64())], schema=IDS)] for t in range(tasks)]

    # What processes do.

    def run_query(self, history: History) -> None:
        """One incarnation of the query's driver: every batch that its commit log does not have."""
        dice = self.scheduler.dice
        for batch_id in range(self.batches):
            committed = history.checkpoint / "commits" / str(batch_id)
            if committed.exists():
                continue
            query = self.harness(history)
            query.begin(batch_id)
            settings = query.driver().prepare()
            inputs = self.rows_of(batch_id, dice.randint(1, 2))
            reports = self._run_tasks(query.job_id, settings, batch_id, inputs)
            query.driver().commit(list(reports), batch_id)
            self.scheduler.step("write commit log")
            committed.write_text("v1\n{}")

    def _run_tasks(self, job_id: str, settings: Any, batch_id: int, inputs: list[Any]) -> list[TaskReport]:
        """Run the tasks as processes of their own; the first report of a subtask counts, twins go on."""
        attempts: dict[int, list[Actor]] = {subtask: [] for subtask in range(len(inputs))}
        for subtask in attempts:
            for _ in range(1 + (self.scheduler.dice.random() < 0.15)):
                self._launch(attempts, job_id, settings, subtask, batch_id, inputs)
        while True:
            self.scheduler.wait(lambda: all(_settled(tried) for tried in attempts.values()))
            lost = [subtask for subtask, tried in attempts.items() if not _reports(tried)]
            if not lost:
                return [_reports(tried)[0] for tried in attempts.values()]
            for subtask in lost:
                if len(attempts[subtask]) >= _TASK_TRIES:
                    raise TaskGivenUpError(f"subtask {subtask}: {attempts[subtask][-1].error!r}")
                self._launch(attempts, job_id, settings, subtask, batch_id, inputs)

    def _launch(
        self, attempts: dict[int, list[Actor]], job_id: str, settings: Any, subtask: int, batch_id: int, inputs: Any
    ) -> None:
        info = TaskInfo(job_id, OPERATOR_ID, subtask)
        name = f"task {batch_id}/{subtask}/{len(attempts[subtask])}"
        run = lambda: task.run_task(settings, info, batch_id, iter(inputs[subtask]))  # noqa: E731
        attempts[subtask].append(self.scheduler.spawn(name, run))

    def run_finish(self) -> None:
        finish.finish(self.main.state)

    # What happens to them.

    def disturb(self) -> None:
        """Roll the dice before a step: kill, put to sleep, start a twin or a ``finish``, copy the state."""
        scheduler, dice = self.scheduler, self.scheduler.dice
        if scheduler.steps > _QUIET_AFTER_STEPS:
            return
        roll = dice.random()
        alive = [actor for actor in scheduler.actors if actor.alive]
        if roll < 0.015 and self.kills < 6 and alive:
            self.kills += 1
            dice.choice(alive).dead = True
        elif roll < 0.045 and alive:
            dice.choice(alive).asleep_until = scheduler.steps + dice.randint(10, 300)
        elif roll < 0.055 and self.finishes < 3:
            self.finishes += 1
            scheduler.spawn(f"finish {self.finishes}", self.run_finish)
        elif roll < 0.063 and self.restarts < 8:
            self.start(self.main)
        elif roll < 0.083 and self.copies and self.copied is None:
            self.copied = self._copy()
        elif roll < 0.120 and self.copied is not None and not self.copied.refused:
            self.copied.refused = "started"
            self.start(self.copied)

    def start(self, history: History) -> Actor:
        self.restarts += 1
        return self.scheduler.spawn(f"driver {self.restarts}", lambda: self.run_query(history))

    def _copy(self) -> History:
        """Copy checkpoint and state as they are now, as somebody who clones a folder would."""
        copy = History(self.root / "copied", f"{self.main.state}-copied")
        shutil.copytree(self.main.checkpoint, copy.checkpoint)
        there, here = _memory(copy.state), _memory(self.main.state)
        for info in here.list():
            there.put(info.key, here.get(info.key))
        return copy

    def play(self) -> None:
        """Run the schedule to its end, then restart until the query is done, and verify."""
        self.scheduler.before_step = self.disturb
        last = self.start(self.main)
        for _ in range(12):
            self.scheduler.run()
            ended = last
            self.scheduler.before_step = lambda: None
            if all((self.main.checkpoint / "commits" / str(batch)).exists() for batch in range(self.batches)):
                break
            # A copy that runs may have won for ever; without one, a driver that was fenced by a finish is restarted.
            rival = self.copied is not None and bool(self.copied.refused)
            if rival and isinstance(last.error, IcefloeError | TaskGivenUpError):
                break
            last = self.start(self.main)
        else:
            raise StuckError(f"the query does not end: {ended.error!r}")
        self._finish_all()
        self.verify()

    def _finish_all(self) -> None:
        for _ in range(2):
            ended = self.scheduler.spawn("last finish", self.run_finish)
            self.scheduler.run()
            if self.copied is None or self.copied.refused == "":
                assert ended.error is None, f"finish fails: {ended.error!r}"

    def verify(self) -> None:
        """Every row once; with a copied history, none twice: one of the two was refused."""
        found = [i for name in self._visible_names() for i in ids_in(self.world.visible[name][1])]
        everything = range(self.batches * self.rows)
        if self.copied is not None and self.copied.refused:
            doubled = [i for i, count in Counter(found).items() if count > 1]
            assert not doubled, f"rows of two histories: {sorted(doubled)}"
            return
        assert_no_row_lost_or_doubled(found, everything)
        self._verify_nothing_left()

    def _visible_names(self) -> list[str]:
        if not self.table:
            return sorted(self.world.visible)
        return [name for _, names in self.world.snapshots for name in names]

    def _verify_nothing_left(self) -> None:
        state = _memory(self.main.state)
        job_id = self.harness(self.main).job_id
        log = RecordLog(state, job_id)
        head = log.head()
        assert head is not None
        named = {job_metadata_name(job_id), *referenced_names(log.chain(head))}
        for info in state.list():
            epoch = name.epoch if (name := parse(info.key)) is not None else None
            assert info.key in named or (epoch or 0) > head.epoch, f"nothing names {info.key} (head {head.epoch})"
        if not self.table:
            left = [name for name, _, _ in self.world.uploads.values() if f"-{head.epoch + 1}-" not in name]
            assert not left, f"unfinished files that no record names: {left}"


def play_schedules(seeds: list[int], root: str) -> dict[int, str]:
    """Play schedules one after the other; returns what was wrong, by seed. For a child process: it patches modules."""
    wrong = {}
    for seed in seeds:
        folder = Path(root) / str(seed)
        try:
            with playing(Schedule(seed, folder)) as schedule:
                schedule.play()
        except Exception as error:  # noqa: BLE001 - told with its seed
            trace = "\n".join(schedule.scheduler.trace[-60:])
            wrong[seed] = f"{type(error).__name__}: {error}\n{trace}"
        shutil.rmtree(folder, ignore_errors=True)
        forget_memory_storage(f"model-{seed}")
        forget_memory_storage(f"model-{seed}-copied")
        forget_memory_storage(f"target-{seed}")
    return wrong


@contextmanager
def playing(schedule: Schedule) -> Iterator[Schedule]:
    """Let the product take its steps in the order of a schedule, with random ids from its dice."""
    step = schedule.scheduler.step
    with (
        mock.patch.object(os, "urandom", schedule.scheduler.dice.randbytes),
        in_memory(
            schedule.world,
            step,
            ledgers=f"target-{schedule.seed}",
            table=schedule.table,
            uploads_expire=schedule.uploads_expire,
        ),
    ):
        yield schedule


@contextmanager
def in_memory(
    world: MemoryWorld,
    step: Step,
    *,
    ledgers: str,
    table: bool,
    uploads_expire: bool,
    after: Step = lambda _: None,
) -> Iterator[None]:
    """Let the product open storage in memory wherever it would open its own, and do one thing at a time."""

    def open_storage(url: str, *_: Any) -> SteppedStorage:
        return SteppedStorage(_memory(f"memory://{ledgers}" if url == TARGET else url), step, after)

    def open_files(*_: Any, **__: Any) -> MemoryFileStore:
        return MemoryFileStore(world, step, after, uploads_expire=uploads_expire)

    def open_target(options: Any, state: Any, job_id: str, columns: Any) -> Any:
        if not table:
            return real_open_target(options, state, job_id, columns)
        return MemoryTable(world, open_files(), state, step)

    real_open_target = driver.open_target
    with (
        _patched("open_storage", open_storage, driver, task, jobs),
        _patched("open_file_store", open_files, driver, task, finish),
        _patched("open_target", open_target, driver, jobs),
        _patched("ThreadPoolExecutor", InlineExecutor, encoding_lane, file_outlets, parquet_backend),
    ):
        yield


@contextmanager
def _patched(name: str, value: Any, *modules: Any) -> Iterator[None]:
    before = [getattr(module, name) for module in modules]
    for module in modules:
        setattr(module, name, value)
    try:
        yield
    finally:
        for module, original in zip(modules, before, strict=True):
            setattr(module, name, original)


def _memory(url: str) -> MemoryStorage:
    return MemoryStorage(url.removeprefix("memory://"))


def ids_in(data: bytes) -> list[int]:
    ids: list[int] = pq.read_table(io.BytesIO(data), use_threads=False)["id"].to_pylist()
    return ids


def _settled(tried: list[Actor]) -> bool:
    return bool(_reports(tried)) or not any(actor.alive for actor in tried)


def _reports(tried: list[Actor]) -> list[TaskReport]:
    return [actor.result for actor in tried if actor.result is not None]
