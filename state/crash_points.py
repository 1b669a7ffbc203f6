"""Named places between two steps of the protocol where a test may kill the process; free unless a test arms one."""

from __future__ import annotations

from collections.abc import Callable

_armed: Callable[[str], None] | None = None


def crash_point(name: str) -> None:
    """Do nothing, or what a test armed. The name says what has just been done."""
    if _armed is not None:
        _armed(name)


def arm(action: Callable[[str], None] | None) -> None:
    """Call ``action`` with the name at every crash point from now on in this process; None disarms. For tests only."""
    global _armed
    _armed = action
