"""What a state table's Parquet file says about itself in its key-value metadata."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from icefloe.errors import CorruptStateError

_STATE_VERSION = b"icefloe.state_version"


@dataclass(frozen=True, slots=True)
class CheckpointParquetMetadata:
    """The version of the keys and values in a file: the ``state_version`` of the table that wrote it."""

    state_version: int

    def to_key_values(self) -> dict[bytes, bytes]:
        """Return the entries to put into the file's key-value metadata."""
        return {_STATE_VERSION: str(self.state_version).encode()}

    @classmethod
    def from_key_values(cls, metadata: Mapping[bytes, bytes] | None, *, object_name: str) -> CheckpointParquetMetadata:
        """Read the entries back. Raises ``CorruptStateError`` for a file that no state table wrote."""
        text = (metadata or {}).get(_STATE_VERSION, b"")
        if not text.isdigit():
            raise CorruptStateError(
                "ICEFLOE_STATE_FILE_FOREIGN",
                f"{object_name} is Parquet but has no {_STATE_VERSION.decode()} in its metadata (found {text!r}): no "
                "state table wrote it. Restore the object from a backup of the state location",
            )
        return cls(int(text))

    @staticmethod
    def without(metadata: Mapping[bytes, bytes] | None) -> dict[bytes, bytes] | None:
        """Return the entries that the owner of the data had, without those of this class."""
        rest = {key: value for key, value in (metadata or {}).items() if key != _STATE_VERSION}
        return rest or None
