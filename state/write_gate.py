"""The switch that all views of one manager share: closed by ``then_stop`` or by handing the state on."""

from __future__ import annotations

from icefloe.errors import StateError


class WriteGate:
    """Open until ``close`` is called; then every write is refused with the reason."""

    def __init__(self) -> None:
        self._reason: str | None = None

    def close(self, reason: str) -> None:
        """Refuse all writes from now on."""
        self._reason = reason

    def check(self, table: str) -> None:
        """Raise ``StateError`` when writes to ``table`` are refused."""
        if self._reason is not None:
            raise StateError("ICEFLOE_STATE_STOPPED", f"table {table!r} takes no more writes: {self._reason}")
