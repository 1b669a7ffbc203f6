"""State tables against their goals: small deltas of a large table, restoring it, memory, and tiny checkpoints.

``python benchmarks/state_tables.py [--keys N] [--rounds N] [--json FILE]``. Goals, at 1,000,000 keys of which 1,000
change: a delta is below 1/200 of the bytes and 1/20 of the time of the first full checkpoint; a restore takes no more
than 3 times as long as reading the same Parquet with PyArrow into a dict.
"""

from __future__ import annotations

import argparse
import io
import itertools
import json
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
from runner import Report, run

from icefloe.proto import state_pb2 as pb
from icefloe.state import MsgpackCodec, TableManager, TaskInfo, global_keyed_config
from icefloe.state.memory_storage import MemoryStorage

CONFIGS = {"counts": global_keyed_config("counts", "a number by name")}
CODECS = {"counts": (MsgpackCodec(str), MsgpackCodec(int))}
CHANGED_KEYS = 1000
_locations = itertools.count()


def opened(storage: MemoryStorage, restore_from: list[pb.OperatorCheckpointMetadata] | None = None) -> TableManager:
    info = TaskInfo("job", "benchmark", 0)
    return TableManager.open(info, CONFIGS, storage, codecs=CODECS, restore_from=restore_from or [])


def filled(keys: int) -> tuple[MemoryStorage, TableManager]:
    storage = MemoryStorage(f"benchmark-{next(_locations)}")
    manager = opened(storage)
    view = manager.get_global_keyed_state("counts")
    for number in range(keys):
        view.insert(f"user-{number:09d}", number)
    return storage, manager


def measure_bytes(keys: int) -> dict[str, float]:
    """Bytes of the first checkpoint and of a small delta, and what a checkpoint leaves in memory."""
    _, manager = filled(keys)
    full = manager.checkpoint(1).subtask.bytes
    view = manager.get_global_keyed_state("counts")
    for number in range(CHANGED_KEYS):
        view.insert(f"user-{number * (keys // CHANGED_KEYS):09d}", -number)
    tracemalloc.start()
    delta = manager.checkpoint(2).subtask.bytes
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return {"full_bytes": full, "delta_bytes": delta, "ratio": delta / full, "kept_by_a_checkpoint_bytes": kept}


def checkpoint_arms(keys: int, rounds: int) -> Report:
    """A checkpoint after every key changed, and one after a few did. Making the changes is not timed."""
    _, manager = filled(keys)
    view = manager.get_global_keyed_state("counts")
    manager.checkpoint(1)
    epochs, values = itertools.count(2), itertools.count(1)

    def change(count: int) -> None:
        value = next(values)
        for number in range(count):
            view.insert(f"user-{number:09d}", value * 1000 + number)

    def checkpoint() -> None:
        manager.checkpoint(next(epochs))

    timings: dict[str, Callable[[], object]] = {"full": checkpoint, "delta": checkpoint}
    counts = {"full": keys, "delta": CHANGED_KEYS}
    return run_prepared("state-checkpoint", timings, lambda name: change(counts[name]), rounds)


def run_prepared(
    benchmark: str,
    arms: dict[str, Callable[[], object]],
    prepare: Callable[[str], None],
    rounds: int,
) -> Report:
    """Run arms whose preparation must not be timed: the clock stands still while they prepare."""
    paused = 0.0

    def timer() -> float:
        return time.perf_counter() - paused

    def prepared(name: str, arm: Callable[[], object]) -> Callable[[], object]:
        def both() -> object:
            nonlocal paused
            begin = time.perf_counter()
            prepare(name)
            paused += time.perf_counter() - begin
            return arm()

        return both

    wrapped = {name: prepared(name, arm) for name, arm in arms.items()}
    return run(benchmark, wrapped, reference="full", rounds=rounds, timer=timer)


def restore_arms(keys: int, rounds: int) -> Report:
    """Restoring the table against PyArrow reading the same file into a dict."""
    storage, manager = filled(keys)
    metadata = manager.checkpoint(1)
    stored = pb.GlobalKeyedTableSubtaskCheckpointMetadata.FromString(metadata.subtask.table_metadata["counts"].data)
    data = storage.get(stored.files[0].file)

    def plain() -> int:
        table = pq.read_table(io.BytesIO(data))
        return len(dict(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True)))

    def restored() -> int:
        return len(opened(storage, [metadata]).get_global_keyed_state("counts"))

    assert plain() == restored() == keys
    return run("state-restore", {"pyarrow": plain, "restore": restored}, reference="pyarrow", rounds=rounds)


def tiny_arms(rounds: int) -> Report:
    """One changed key in a table of ten: what a checkpoint costs besides the storage."""
    _, manager = filled(10)
    view = manager.get_global_keyed_state("counts")
    epochs = itertools.count(1)

    def tiny() -> None:
        epoch = next(epochs)
        view.insert("user-000000001", epoch)
        manager.checkpoint(epoch)

    return run("state-tiny-checkpoint", {"tiny": tiny}, reference="tiny", rounds=max(rounds, 50))


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    sizes = measure_bytes(options.keys)
    print(
        f"delta of {CHANGED_KEYS} in {options.keys} keys: 1/{1 / sizes['ratio']:.0f} of the bytes of a full checkpoint"
    )
    print(f"  kept in memory by the checkpoint: {sizes['kept_by_a_checkpoint_bytes']:.0f} bytes")
    reports = [checkpoint_arms(options.keys, options.rounds), restore_arms(options.keys, options.rounds)]
    reports.append(tiny_arms(options.rounds))
    for report in reports:
        print(report.to_text())
    if options.json is not None:
        whole = {"sizes": sizes, "reports": [json.loads(report.to_json()) for report in reports]}
        options.json.write_text(json.dumps(whole, indent=2, sort_keys=True) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
