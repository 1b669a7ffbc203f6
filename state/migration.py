"""How stored values of older versions become values of today: one step for each version, never a jump."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Self

from icefloe.errors import StateError, StateVersionError


class MigratableState:
    """Mixed into a key or value type whose form has changed (a msgspec struct or a dataclass).

    ``VERSION`` counts up by one with each change. ``PreviousVersion`` is the type of version ``VERSION - 1``: another
    ``MigratableState``, or any plain type for the version before there were any. A type without ``PreviousVersion``
    starts the chain.
    """

    __slots__ = ()

    VERSION: ClassVar[int]
    PreviousVersion: ClassVar[Any] = None

    @classmethod
    def migrate(cls, previous: Any) -> Self:
        """Return this version of ``previous``, a value of ``PreviousVersion``. Must be a pure function."""
        raise NotImplementedError(f"{cls.__name__} has a PreviousVersion and no migrate()")


def version_of(kind: Any) -> int:
    """Return the version that values of ``kind`` are stored with; 0 for a type that has never changed."""
    return kind.VERSION if isinstance(kind, type) and issubclass(kind, MigratableState) else 0


def version_chain(kind: Any) -> dict[int, Any]:
    """Return the type of every version that can be read, newest first.

    Raises ``StateError`` for a chain whose numbers do not count down by one.
    """
    chain = {version_of(kind): kind}
    while isinstance(kind, type) and issubclass(kind, MigratableState) and kind.PreviousVersion is not None:
        older, expected = kind.PreviousVersion, kind.VERSION - 1
        versioned = isinstance(older, type) and issubclass(older, MigratableState)
        if expected < 0 or (versioned and expected != older.VERSION):
            raise StateError(
                "ICEFLOE_STATE_MIGRATION_CHAIN",
                f"{kind.__name__} is version {kind.VERSION} but its PreviousVersion {older!r} is version "
                f"{version_of(older)}: versions must count up by one",
            )
        chain[expected] = older
        kind = older
    return chain


def migration_steps(chain: dict[int, Any]) -> dict[int, Callable[[Any], Any]]:
    """Return, for each version but the newest, the function that makes the next version from it."""
    return {version - 1: kind.migrate for version, kind in chain.items() if version - 1 in chain}


def check_version(found: int, *, oldest: int, supported: int, object_name: str) -> None:
    """Raise ``StateVersionError`` unless a program that reads ``oldest`` to ``supported`` can read ``found``."""
    if oldest <= found <= supported:
        return
    if found > supported:
        advice = "it was written by a newer program: run that one, or start from state of this version"
    else:
        advice = f"the chain of migrations starts at version {oldest}: run a release that still migrates it first"
    raise StateVersionError(
        "ICEFLOE_STATE_VERSION",
        f"{object_name} holds state of version {found}, this program reads {oldest} to {supported}; {advice}",
        found=found,
        supported=supported,
        object_name=object_name,
    )
