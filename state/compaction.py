"""When files of earlier epochs are merged, and the rule that every checkpoint's list of files must keep."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from icefloe.errors import OptionError, StateError
from icefloe.state.storage import StorageProvider

S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class CompactionConfig:
    """Files are merged once ``min_compaction_epochs`` of them are carried (time tables: of one generation).

    Only files of a generation below ``compact_generations`` are merged further, so a row is rewritten a bounded number
    of times.
    A merge that would read more than ``max_bytes`` leaves the largest files alone. Merged inputs stay in storage until
    clean-up proves that no record names them. Raises ``OptionError`` for values that would never end.
    """

    storage_provider: StorageProvider
    compact_generations: int = 4
    min_compaction_epochs: int = 8
    max_bytes: int = 64 << 20

    def __post_init__(self) -> None:
        if self.min_compaction_epochs < 2 or self.max_bytes < 1:
            raise OptionError(
                "ICEFLOE_OPTION_INVALID",
                f"compaction needs min_compaction_epochs of 2 or more (is {self.min_compaction_epochs}) and max_bytes "
                f"of 1 or more (is {self.max_bytes})",
            )


@dataclass(frozen=True, slots=True)
class Compacted(Generic[S]):
    """The result of one merge: ``outputs`` holds the new files only and stands for exactly the files ``inputs``."""

    inputs: frozenset[str]
    outputs: S
    bytes_written: int


def check_files_follow(
    table: str,
    *,
    before: Iterable[str],
    after: Iterable[str],
    expired: Iterable[str],
    compacted: Iterable[str],
    new: Iterable[str],
) -> None:
    """Check the invariant: files of n+1 = files of n, minus expired, minus compacted inputs, plus new.

    Raises ``StateError``: writing such metadata would lose or double rows.
    """
    carried, gone, added = set(before), set(expired) | set(compacted), set(new)
    unknown = gone - carried
    if unknown or added & carried or (carried - gone) | added != set(after):
        raise StateError(
            "ICEFLOE_STATE_FILES_INVARIANT",
            f"table {table!r}: the files {sorted(set(after))} do not follow from {sorted(carried)} minus "
            f"{sorted(gone)} plus {sorted(added)}; the checkpoint is refused, the earlier epoch stays restorable",
        )
