"""Runs actors one step at a time in an order that a seed decides: every storage call is one step.

An actor is a thread, but only one of them ever runs: at each step the running one draws who goes on and hands over.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any


class Killed(BaseException):
    """Unwinds an actor that was killed. What it does while it unwinds has no effect: each step raises again."""


class StuckError(AssertionError):
    """No actor can go on, or they never end."""


class Actor:
    """One process of the model. ``ready`` says when it can go on; None: always."""

    def __init__(self, name: str, body: Callable[[], Any]) -> None:
        self.name = name
        self.body = body
        self.ready: Callable[[], bool] | None = None
        self.asleep_until = 0
        self.dead = False
        self.done = False
        self.result: Any = None
        self.error: BaseException | None = None
        self._turn = threading.Semaphore(0)

    @property
    def alive(self) -> bool:
        return not self.done and not self.dead

    def __repr__(self) -> str:
        return self.name


class Scheduler:
    """Holds the actors of one schedule and the dice."""

    def __init__(self, seed: int, *, max_steps: int = 20_000) -> None:
        self.dice = random.Random(seed)
        self.steps = 0
        self.trace: list[str] = []
        # Called at each step before the next actor is drawn: kills, spawns, puts to sleep.
        self.before_step: Callable[[], None] = lambda: None
        self._max_steps = max_steps
        self._actors: list[Actor] = []
        self._current = threading.local()
        self._ended = threading.Semaphore(0)
        self._threads: list[threading.Thread] = []

    @property
    def actors(self) -> list[Actor]:
        return self._actors

    @property
    def current(self) -> Actor:
        return self._current.actor  # type: ignore[no-any-return]

    def spawn(self, name: str, body: Callable[[], Any]) -> Actor:
        """Add an actor; it begins when it is drawn."""
        actor = Actor(name, body)
        self._actors.append(actor)
        thread = threading.Thread(target=self._run, args=(actor,), daemon=True)
        self._threads.append(thread)
        thread.start()
        return actor

    def run(self) -> None:
        """Let the actors go on until all have ended. Raises ``StuckError`` when they do not."""
        first = self._draw()
        if first is not None:
            first._turn.release()
            self._ended.acquire()
        for thread in self._threads:
            thread.join(10)
        self._actors.clear()
        self._threads.clear()
        if self.steps > self._max_steps:
            raise StuckError(f"{self.steps} steps; the last: {self.trace[-20:]}")

    def step(self, what: str) -> None:
        """Let others go on; returns when it is this actor's turn again, which then may do one thing. May kill it."""
        me = self.current
        if me.dead:
            raise Killed
        self.steps += 1
        if self.steps > self._max_steps:
            for actor in self._actors:
                actor.dead = True
        else:
            self.before_step()
        self._hand_over(me)
        if me.dead:
            raise Killed
        self.trace.append(f"{me.name}: {what}")

    def wait(self, ready: Callable[[], bool]) -> None:
        """Let others go on until ``ready``."""
        me = self.current
        me.ready = ready
        self.step("waits")
        me.ready = None

    def _hand_over(self, me: Actor) -> None:
        following = self._draw()
        if following is me:
            return
        assert following is not None
        following._turn.release()
        me._turn.acquire()

    def _draw(self) -> Actor | None:
        candidates = [a for a in self._actors if not a.done and (a.dead or a.ready is None or a.ready())]
        if not candidates:
            waiting = [a for a in self._actors if not a.done]
            # Nobody can go on: whoever waits for what will not come is killed, and the schedule ends as wrong.
            for actor in waiting:
                actor.dead = True
            return waiting[0] if waiting else None
        # The dead unwind at once, so that they are out of the way.
        dead = [a for a in candidates if a.dead]
        if dead:
            return dead[0]
        awake = [a for a in candidates if a.asleep_until <= self.steps]
        if not awake:
            return min(candidates, key=lambda a: a.asleep_until)
        # Mostly go on with the same one: then interleavings differ in few places, as real ones do.
        me = getattr(self._current, "actor", None)
        if me in awake and self.dice.random() < 0.7:
            return me  # type: ignore[no-any-return]
        return self.dice.choice(awake)

    def _run(self, actor: Actor) -> None:
        self._current.actor = actor
        actor._turn.acquire()
        try:
            if not actor.dead:
                actor.result = actor.body()
        except Killed:
            pass
        except BaseException as error:  # noqa: BLE001 - the model looks at it
            actor.error = error
        actor.done = True
        self._current.actor = None
        following = self._draw()
        (following._turn if following is not None else self._ended).release()
