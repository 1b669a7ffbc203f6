"""The one background thread in which a task encodes, so that reading the input never waits for it needlessly."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol, TypeVar

Result = TypeVar("Result")


class Lane(Protocol):
    """Runs jobs one after the other, in the order they were given."""

    def submit(self, job: Callable[[], Result]) -> Future[Result]:
        """Give a job; may block until there is room."""
        ...


class EncodingLane:
    """One thread with one job waiting at most: a task holds no more than two row groups above its input.

    ``close`` waits for the thread; a task must not end before it.
    """

    def __init__(self, *, waiting: int = 1) -> None:
        self._room = threading.BoundedSemaphore(1 + waiting)
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="icefloe-encode")

    def submit(self, job: Callable[[], Result]) -> Future[Result]:
        """Run ``job`` after those given before. Blocks while one is running and another is waiting."""
        self._room.acquire()
        try:
            future = self._pool.submit(job)
        except BaseException:
            self._room.release()
            raise
        future.add_done_callback(lambda _: self._room.release())
        return future

    def close(self) -> None:
        """Wait until the thread has ended; what waits is dropped. May be repeated."""
        self._pool.shutdown(wait=True, cancel_futures=True)


class InlineLane:
    """Runs every job at once in the calling thread."""

    def submit(self, job: Callable[[], Result]) -> Future[Result]:
        """Run ``job`` now; its error is kept in the future, as a thread's would be."""
        future: Future[Result] = Future()
        try:
            future.set_result(job())
        except Exception as error:  # noqa: BLE001 - handed on by the future, as an executor does
            future.set_exception(error)
        return future
