"""How often and how long a storage call is tried again: the one place where the state layer waits."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TypeVar

_log = logging.getLogger(__name__)

T = TypeVar("T")


def _uniform(ceiling: float) -> float:
    return random.uniform(0.0, ceiling)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Bounds of the retries of one call: whichever is reached first ends them."""

    max_tries: int = 6
    first_delay: timedelta = timedelta(milliseconds=100)
    max_delay: timedelta = timedelta(seconds=5)
    # No try begins later than this after the first one began.
    give_up_after: timedelta = timedelta(minutes=2)

    def ceiling_seconds(self, failures: int) -> float:
        """Return the longest wait after ``failures`` failed tries: doubled each time, up to ``max_delay``."""
        doubled: float = self.first_delay.total_seconds() * 2 ** min(failures - 1, 30)
        return min(doubled, self.max_delay.total_seconds())


@dataclass(frozen=True, slots=True)
class Retrier:
    """Runs a call until it succeeds, fails for good, or the policy ends. Clock, sleep and jitter are injected by tests.

    Full jitter (a wait between zero and the ceiling), so that many tasks that failed together do not return together.
    """

    policy: RetryPolicy = field(default_factory=RetryPolicy)
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic
    jitter: Callable[[float], float] = _uniform

    def call(self, operation: Callable[[], T], *, is_transient: Callable[[Exception], bool], what: str) -> T:
        """Return what ``operation`` returns. Raises its last error, unchanged.

        ``operation`` must be safe to repeat after a try whose outcome is unknown.
        """
        began = self.clock()
        failures = 0
        while True:
            try:
                return operation()
            except Exception as error:
                failures += 1
                wait = self.jitter(self.policy.ceiling_seconds(failures))
                waited_enough = self.clock() + wait - began > self.policy.give_up_after.total_seconds()
                if not is_transient(error) or failures >= self.policy.max_tries or waited_enough:
                    raise
                _log.info(
                    "%s failed (try %d of %d), again in %.2f s: %s", what, failures, self.policy.max_tries, wait, error
                )
                self.sleep(wait)


NO_RETRIES = Retrier(RetryPolicy(max_tries=1))
