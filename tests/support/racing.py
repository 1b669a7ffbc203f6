"""Processes that all try to create the same objects at the same moment."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import Any

from icefloe.state.storage import StorageProvider
from support.child_process import forking

RACERS = 8
_STEP_SECONDS = 60

_barrier: Any = None


@contextmanager
def racing_processes() -> Iterator[ProcessPoolExecutor]:
    """Eight processes that share nothing, waiting for work; gone when the block ends."""
    context = forking()
    barrier = context.Barrier(RACERS)
    with ProcessPoolExecutor(RACERS, mp_context=context, initializer=_keep, initargs=(barrier,)) as pool:
        yield pool


def race(pool: ProcessPoolExecutor, storage: StorageProvider, keys: list[str]) -> list[list[bool]]:
    """Let every process try to create every key with its own bytes; returns for each process what it was told."""
    # The barrier holds each process until all have a task, so no process can take two.
    tasks = [pool.submit(_create, storage, keys, f"racer {number}".encode()) for number in range(RACERS)]
    return [task.result() for task in tasks]


def _keep(barrier: Any) -> None:
    global _barrier
    _barrier = barrier


def _create(storage: StorageProvider, keys: list[str], mine: bytes) -> list[bool]:
    won = []
    for key in keys:
        _barrier.wait(_STEP_SECONDS)
        won.append(storage.put_if_absent(key, mine))
    return won
