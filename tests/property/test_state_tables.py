"""State tables against plain dicts and lists, in any order of changes, checkpoints, merges, crashes and restores."""

from __future__ import annotations

import copy
import itertools
from dataclasses import dataclass, field

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from icefloe.errors import StorageError
from icefloe.proto import state_pb2 as pb
from icefloe.state import MsgpackCodec, TableManager, key_hash
from icefloe.state.memory_storage import MemoryStorage, forget_memory_storage
from icefloe.state.time_references import key_bounds
from support.faulty_storage import Fault, FaultKind, FaultyStorage
from support.state_tables import Row, batch, open_tables, remove_unnamed, scanned, task

NAMES = st.sampled_from(["a", "b", "c", "d"])
# Spread over the key space, the ends and a boundary of two subtasks included.
KEYS = [0, 7, 2**62, 2**63 - 1, 2**63, 3 * 2**62, 2**64 - 1]
RETENTION = 10
MERGE_AFTER = 3
Stamp = tuple[int, int]

_locations = itertools.count()


@dataclass
class Truth:
    """What the tables must hold: the oracle."""

    # Last write of a name, by (epoch, subtask); None removed it.
    counts: dict[str, tuple[Stamp, int | None]] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    pending: list[Row] = field(default_factory=list)
    latest: dict[str, tuple[int, int | None]] = field(default_factory=dict)


class ReDealtTables(RuleBasedStateMachine):
    """Subtasks that share the key space: global tables replicated, time tables dealt by key range."""

    @initialize(parallelism=st.integers(1, 3))
    def start(self, parallelism: int) -> None:
        self.location = f"property-{next(_locations)}"
        self.storage = FaultyStorage(MemoryStorage(self.location))
        self.epoch = 0
        self.watermark = 0
        self.sequence = 0
        self.committed = Truth()
        self.record: list[pb.OperatorCheckpointMetadata] = []
        self._open(parallelism)

    def teardown(self) -> None:
        if hasattr(self, "location"):
            forget_memory_storage(self.location)

    def _open(self, parallelism: int) -> None:
        self.parallelism = parallelism
        self.managers = [
            open_tables(
                self.storage,
                self.record,
                info=task(index, parallelism=parallelism),
                merge_after=MERGE_AFTER,
                epoch=self.epoch + 1,
            )
            for index in range(parallelism)
        ]
        self.truth = copy.deepcopy(self.committed)
        live = {name: value for name, (_, value) in self.truth.counts.items() if value is not None}
        self.seen = [dict(live) for _ in range(parallelism)]
        self.written: list[dict[str, int | None]] = [{} for _ in range(parallelism)]

    def _owner(self, key: int) -> int:
        bounds = [key_bounds(manager.task_info) for manager in self.managers]
        return next(index for index, (low, high) in enumerate(bounds) if low <= key <= high)

    @rule(subtask=st.integers(0, 2), name=NAMES, value=st.integers(0, 3))
    def insert(self, subtask: int, name: str, value: int) -> None:
        index = subtask % self.parallelism
        self.managers[index].get_global_keyed_state("counts").insert(name, value)
        self.seen[index][name] = value
        self.written[index][name] = value

    @rule(subtask=st.integers(0, 2), name=NAMES)
    def remove(self, subtask: int, name: str) -> None:
        index = subtask % self.parallelism
        expected = self.seen[index].pop(name, None)
        assert self.managers[index].get_global_keyed_state("counts").remove(name) == expected
        if expected is not None:
            self.written[index][name] = None

    @rule(table=st.sampled_from(["rows", "pending"]), keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=5))
    def insert_rows(self, table: str, keys: list[int]) -> None:
        for index, manager in enumerate(self.managers):
            rows = [self._next_row(key) for key in keys if self._owner(key) == index]
            if rows:
                manager.get_expiring_time_key_table(table).insert(batch(rows))
                floor = self.watermark - RETENTION if table == "rows" else 0
                getattr(self.truth, table).extend(row for row in rows if row[0] >= floor)

    def _next_row(self, key: int) -> Row:
        self.sequence += 1
        return self.sequence, key, f"row {self.sequence}"

    @rule(name=NAMES, value=st.none() | st.integers(0, 9), back=st.integers(0, 4))
    def set_latest(self, name: str, value: int | None, back: int) -> None:
        """The subtask whose range has the name's hash gets it, as a router would have it."""
        time = max(self.sequence - back, 0)
        view = self.managers[self._owner(key_hash(MsgpackCodec(str).encode(name)))].get_key_time_table("latest")
        if value is None:
            view.remove(time, name)
        else:
            view.insert(time, name, value)
        known = self.truth.latest.get(name)
        if time >= self.watermark - RETENTION and (known is None or time >= known[0]):
            self.truth.latest[name] = (time, value)

    @rule(key=st.sampled_from(KEYS), consumed=st.integers(0, 6))
    def cut_off(self, key: int, consumed: int) -> None:
        """The owner has consumed the first rows of a key."""
        mine = [row for row in self.truth.pending if row[1] == key]
        cutoff = mine[consumed][0] if consumed < len(mine) else self.sequence + 1
        self.managers[self._owner(key)].get_expiring_time_key_table("pending").set_cutoff(key, cutoff)
        self.truth.pending = [row for row in self.truth.pending if row[1] != key or row[0] >= cutoff]

    @rule(table=st.sampled_from(["rows", "pending"]))
    def flush(self, table: str) -> None:
        for manager in self.managers:
            manager.get_expiring_time_key_table(table).flush()

    @rule(advance=st.integers(0, 12))
    def checkpoint(self, advance: int) -> None:
        watermark = self.watermark + advance
        self.record = [manager.checkpoint(self.epoch + 1, 0, watermark) for manager in self.managers]
        self._recorded(watermark)

    def _recorded(self, watermark: int) -> None:
        self.epoch += 1
        self.watermark = watermark
        floor = watermark - RETENTION
        for index, written in enumerate(self.written):
            for name, value in written.items():
                known = self.truth.counts.get(name)
                stamp = (self.epoch, index)
                if known is None or known[0] < stamp:
                    self.truth.counts[name] = (stamp, value)
        self.written = [{} for _ in range(self.parallelism)]
        self.truth.rows = [row for row in self.truth.rows if row[0] >= floor]
        self.truth.latest = {name: entry for name, entry in self.truth.latest.items() if entry[0] >= floor}
        self.committed = copy.deepcopy(self.truth)
        for manager in self.managers:
            manager._expect(self.epoch + 1)

    @rule(skip=st.integers(0, 5), kind=st.sampled_from([FaultKind.ERROR_BEFORE, FaultKind.ERROR_AFTER]))
    def checkpoint_fails_and_is_repeated(self, skip: int, kind: FaultKind) -> None:
        fault = Fault(kind, operation="put_if_absent", skip=skip)
        self.storage.faults = [fault]
        record = []
        for manager in self.managers:
            try:
                record.append(manager.checkpoint(self.epoch + 1, 0, self.watermark))
            except StorageError:
                record.append(manager.checkpoint(self.epoch + 1, 0, self.watermark))
        self.storage.faults = []
        self.record = record
        self._recorded(self.watermark)

    @rule()
    def clean_up(self) -> None:
        unsaved = any(slot.has_unsaved for manager in self.managers for slot in manager._slots.values())
        if not unsaved:
            remove_unnamed(self.storage, self.record)

    @rule(parallelism=st.integers(1, 3))
    def crash_and_restore(self, parallelism: int) -> None:
        if self.record:
            self._open(parallelism)

    @precondition(lambda self: bool(self.record))
    @rule()
    def crash_in_a_checkpoint(self) -> None:
        self.storage.faults = [Fault(FaultKind.ERROR_BEFORE, operation="put_if_absent", skip=1, times=99)]
        for manager in self.managers:
            try:
                manager.checkpoint(self.epoch + 1, 0, self.watermark + 20)
            except StorageError:
                break
        self.storage.faults = []
        self._open(self.parallelism)

    @rule()
    def another_attempt_goes_on(self) -> None:
        for index, manager in enumerate(self.managers):
            if not any(slot.has_unsaved for slot in manager._slots.values()):
                info = task(index, parallelism=self.parallelism)
                self.managers[index] = manager.continue_as(info, epoch=self.epoch + 1)

    @invariant()
    def views_hold_the_truth(self) -> None:
        if not hasattr(self, "managers"):
            return
        for index, manager in enumerate(self.managers):
            assert dict(manager.get_global_keyed_state("counts").items()) == self.seen[index]
            low, high = key_bounds(manager.task_info)
            for table, rows in (("rows", self.truth.rows), ("pending", self.truth.pending)):
                mine = sorted(row for row in rows if low <= row[1] <= high)
                assert sorted(scanned(manager.get_expiring_time_key_table(table))) == mine
        found = {each.key: each.value for m in self.managers for each in m.get_key_time_table("latest").items()}
        assert found == {name: value for name, (_, value) in self.truth.latest.items() if value is not None}

    @invariant()
    def one_key_is_scanned_in_the_order_of_its_times(self) -> None:
        if not hasattr(self, "managers"):
            return
        for key in KEYS[:3]:
            view = self.managers[self._owner(key)].get_expiring_time_key_table("pending")
            assert scanned(view, key=key) == [row for row in self.truth.pending if row[1] == key]


@dataclass
class Entry:
    """The state of one subtask in the record: its owner, its metadata, and what it must hold."""

    owner: int
    metadata: pb.OperatorCheckpointMetadata
    counts: dict[str, int]
    pending: list[Row]


class AdoptedTables(RuleBasedStateMachine):
    """Subtasks whose owner deals the files by itself: the number of tasks changes, state of the absent is adopted."""

    @initialize(tasks=st.integers(1, 4))
    def start(self, tasks: int) -> None:
        self.location = f"property-{next(_locations)}"
        self.storage = MemoryStorage(self.location)
        self.epoch = 0
        self.sequence = 0
        self.record: list[Entry] = []
        self._open(tasks)

    def teardown(self) -> None:
        if hasattr(self, "location"):
            forget_memory_storage(self.location)

    def _open(self, tasks: int) -> None:
        self.managers: list[TableManager] = []
        self.counts: list[dict[str, int]] = []
        self.pending: list[list[Row]] = []
        for index in range(tasks):
            mine = [entry for entry in self.record if entry.owner == index]
            metadata = [entry.metadata for entry in mine]
            info = task(index)
            self.managers.append(
                open_tables(self.storage, metadata, info=info, merge_after=MERGE_AFTER, epoch=self.epoch + 1)
            )
            self.counts.append({name: value for entry in mine for name, value in entry.counts.items()})
            self.pending.append([row for entry in mine for row in entry.pending])

    @rule(subtask=st.integers(0, 3), keys=st.lists(st.integers(0, 3), min_size=1, max_size=4))
    def write(self, subtask: int, keys: list[int]) -> None:
        index = subtask % len(self.managers)
        rows = []
        for key in keys:
            self.sequence += 1
            rows.append((self.sequence, key, f"row {self.sequence}"))
        self.managers[index].get_expiring_time_key_table("pending").insert(batch(rows))
        self.pending[index].extend(rows)
        self.managers[index].get_global_keyed_state("counts").insert(f"file {self.sequence}", index)
        self.counts[index][f"file {self.sequence}"] = index

    @rule(subtask=st.integers(0, 3), key=st.integers(0, 3))
    def roll(self, subtask: int, key: int) -> None:
        index = subtask % len(self.managers)
        self.managers[index].get_expiring_time_key_table("pending").set_cutoff(key, self.sequence + 1)
        self.pending[index] = [row for row in self.pending[index] if row[1] != key]
        for name in list(self.counts[index])[:2]:
            del self.counts[index][name]
            self.managers[index].get_global_keyed_state("counts").remove(name)

    @rule(tasks=st.integers(1, 4), clean=st.booleans())
    def finish_the_epoch(self, tasks: int, clean: bool) -> None:
        n = len(self.managers)
        # A watermark far above every sequence: pending rows never expire by it.
        done = [manager.checkpoint(self.epoch + 1, 0, 10**15) for manager in self.managers]
        absent = [
            Entry(entry.owner % n, entry.metadata, entry.counts, entry.pending)
            for entry in self.record
            if entry.owner >= n
        ]
        present = [
            Entry(index, metadata, dict(self.counts[index]), list(self.pending[index]))
            for index, metadata in enumerate(done)
        ]
        self.record = present + absent
        self.epoch += 1
        if clean:
            remove_unnamed(self.storage, [entry.metadata for entry in self.record])
        self._open(tasks)

    @rule(tasks=st.integers(1, 4))
    def crash(self, tasks: int) -> None:
        self._open(tasks)

    @invariant()
    def every_task_has_what_it_owns(self) -> None:
        for index, manager in enumerate(getattr(self, "managers", [])):
            assert dict(manager.get_global_keyed_state("counts").items()) == self.counts[index]
            view = manager.get_expiring_time_key_table("pending")
            assert sorted(scanned(view)) == sorted(self.pending[index])
            for key in range(2):
                assert scanned(view, key=key) == sorted(row for row in self.pending[index] if row[1] == key)


_SETTINGS = settings(
    max_examples=25, stateful_step_count=25, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


@pytest.mark.parametrize("machine", [ReDealtTables, AdoptedTables])
def test_tables_hold_what_a_dict_and_a_list_would(machine: type[RuleBasedStateMachine]) -> None:
    run_state_machine_as_test(machine, settings=_SETTINGS)
