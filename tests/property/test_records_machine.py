"""Drivers that race, sleep, wake up and clean up in any order, against a plain list of what was recorded."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, multiple, rule

from icefloe.errors import ConflictError, FencedError
from icefloe.state import records as records_module
from icefloe.state.clean_up import Removable, classify, remove
from icefloe.state.memory_storage import MemoryStorage, forget_memory_storage
from icefloe.state.object_names import parse, record_name
from icefloe.state.record_cache import DigestCache
from icefloe.state.records import Record, RecordLog
from support.checkpoints import JOB, file_name, metadata, operator

_numbers = itertools.count()


@dataclass(eq=False)
class Driver:
    """One driver: the record it starts from, the state files it carries, and those that its tasks wrote since."""

    base: Record | None
    carried: frozenset[str]
    written: set[str] = field(default_factory=set)

    @property
    def next_epoch(self) -> int:
        return self.base.epoch + 1 if self.base else 0


class Drivers(RuleBasedStateMachine):
    """The oracle is ``history``: for every epoch the record that won it, and the files it names."""

    drivers = Bundle("drivers")
    classified = Bundle("classified")

    @initialize(keep=st.integers(1, 4))
    def begin(self, keep: int) -> None:
        self.name = f"machine-{next(_numbers)}"
        self.storage = MemoryStorage(self.name)
        self.log = RecordLog(self.storage, JOB)
        self.keep = keep
        self.history: list[tuple[Record, frozenset[str]]] = []
        self.tagged: dict[str, int] = {}
        # Without what this process knows by heart, as after a restart.
        records_module._seen = DigestCache(max_bytes=0)

    @rule(target=drivers)
    def start(self) -> Driver:
        head = self.log.head()
        assert head == (self.history[-1][0] if self.history else None)
        return Driver(head, self.history[-1][1] if self.history else frozenset())

    @rule(driver=drivers)
    def run_a_task(self, driver: Driver) -> None:
        key = file_name(driver.next_epoch, next(_numbers))
        self.storage.put(key, b"state")
        self.tagged[key] = driver.next_epoch
        driver.written.add(key)

    @rule(driver=drivers, drop=st.integers(0, 2))
    def record(self, driver: Driver, drop: int) -> None:
        epoch = driver.next_epoch
        files = frozenset(sorted(driver.carried)[drop:]) | driver.written
        min_epoch = max(driver.base.metadata.min_epoch if driver.base else 0, epoch + 1 - self.keep)
        operators = [operator(epoch, files=sorted(files))]
        expected_to_win = epoch == len(self.history)
        try:
            record = self.log.put(metadata(epoch, driver.base, min_epoch=min_epoch, operators=operators))
            self.log.ensure_head(record)
        except FencedError:
            assert not expected_to_win
        except ConflictError:
            assert not expected_to_win
        else:
            assert expected_to_win
            self.history.append((record, files))
            driver.base, driver.carried, driver.written = record, files, set()

    @rule(target=classified, driver=drivers)
    def classify(self, driver: Driver) -> object:
        # Any record that was the head once will do: a driver that is void by now may still be cleaning up.
        if driver.base is None:
            return multiple()
        return classify(self.storage, JOB, self.log.chain(driver.base))

    @rule(removables=classified, skip=st.integers(0, 3), count=st.integers(1, 10))
    def remove_some(self, removables: list[Removable], skip: int, count: int) -> None:
        assert remove(self.storage, removables[skip : skip + count]).failures == ()

    @invariant()
    def everything_that_the_kept_records_name_is_there(self) -> None:
        if not self.history:
            return
        head = self.history[-1][0]
        there = {info.key for info in self.storage.list()}
        for record, files in self.history[head.metadata.min_epoch :]:
            assert record_name(JOB, record.epoch) in there
            assert files <= there
        assert self.log.head() == head
        assert self.log.chain(head) == [record for record, _ in self.history[head.metadata.min_epoch :]][::-1]

    @invariant()
    def what_tasks_write_for_a_coming_epoch_is_there(self) -> None:
        there = {info.key for info in self.storage.list()}
        assert {key for key, epoch in self.tagged.items() if epoch >= len(self.history)} <= there

    def teardown(self) -> None:
        """One whole pass of the newest driver leaves nothing that is not needed."""
        head = self.log.head()
        if head is not None:
            remove(self.storage, classify(self.storage, JOB, self.log.chain(head)))
            kept = self.history[head.metadata.min_epoch :]
            needed = {key for _, files in kept for key in files} | {record_name(JOB, r.epoch) for r, _ in kept}
            left = {info.key for info in self.storage.list()} - needed
            assert all((found := parse(key)) and (found.epoch or 0) > head.epoch for key in left), left
        forget_memory_storage(self.name)
        records_module._seen = DigestCache(max_bytes=16 * 1024**2)


TestDrivers = Drivers.TestCase
TestDrivers.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
