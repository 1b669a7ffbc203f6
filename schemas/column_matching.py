"""Which stream column is which table column: by exact name, else by a unique case-insensitive one."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from icefloe.errors import SchemaError
from icefloe.schemas.types import join_path


def match_columns(sources: Sequence[str], targets: Sequence[str], *, path: str = "") -> list[int | None]:
    """For each target the index of the source column that fills it, or None where there is none.

    An exact match is never given up for another; a source fills at most one target. ``path`` is the struct that the
    columns are in, for messages.

    Raises:
        SchemaError: ICEFLOE_COLUMN_AMBIGUOUS when only the case tells two candidates apart.
    """
    index_of = {name: index for index, name in enumerate(sources)}
    matched: list[int | None] = [index_of.get(target) for target in targets]
    taken = {index for index in matched if index is not None}
    free = [index for index in range(len(sources)) if index not in taken]
    if not free or None not in matched:
        return matched
    open_targets = [position for position, index in enumerate(matched) if index is None]
    for position in open_targets:
        folded = targets[position].casefold()
        candidates = [index for index in free if sources[index].casefold() == folded]
        rivals = [targets[other] for other in open_targets if targets[other].casefold() == folded]
        if candidates and (len(candidates) > 1 or len(rivals) > 1):
            raise _ambiguous(targets[position], [sources[index] for index in candidates], rivals, path)
        if candidates:
            matched[position] = candidates[0]
    return matched


def unmatched_sources(sources: Sequence[str], matched: Sequence[int | None]) -> list[str]:
    """The source columns that fill no target, in their order."""
    taken = set(matched)
    return [name for index, name in enumerate(sources) if index not in taken]


def name_with_hint(name: str, known: Sequence[str], *, path: str = "") -> str:
    """The quoted path of a column, with the nearest known name where one is near: a rename shows at once."""
    near = get_close_matches(name, known, n=1)
    hint = f" (is it {near[0]!r}?)" if near else ""
    return f"{join_path(path, name)!r}{hint}"


def _ambiguous(target: str, candidates: list[str], rivals: list[str], path: str) -> SchemaError:
    return SchemaError(
        "ICEFLOE_COLUMN_AMBIGUOUS",
        f"Column {join_path(path, target)!r} has no exact match, and {candidates} and {rivals} differ only in case: "
        "rename the stream's columns to the table's exact names.",
    )
