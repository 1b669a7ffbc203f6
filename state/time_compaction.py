"""Which carried time files a checkpoint rewrites: many small ones, and those whose rows are mostly dead."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from icefloe.proto import state_pb2 as pb
from icefloe.state.compaction import CompactionConfig
from icefloe.state.time_references import live_rows


@dataclass(frozen=True, slots=True)
class Rewrite:
    """The files whose live rows go into a new file of ``generation``."""

    names: frozenset[str] = frozenset()
    generation: int = 0


def choose_rewrite(
    config: CompactionConfig | None, files: Sequence[pb.ParquetTimeFile], *, generational: bool
) -> Rewrite:
    """Choose from the narrowed references of a checkpoint. Merging by number goes before making room."""
    if config is None or not files:
        return Rewrite()
    by_generation: dict[int, list[pb.ParquetTimeFile]] = {}
    for file in files:
        by_generation.setdefault(file.generation if generational else 0, []).append(file)
    for generation, group in sorted(by_generation.items()):
        if (
            generation >= config.compact_generations
            or len({file.file for file in group}) < config.min_compaction_epochs
        ):
            continue
        chosen = _within(config.max_bytes, sorted(group, key=lambda file: (file.epoch, file.file)))
        if len(chosen) > 1:
            return Rewrite(chosen, max(file.generation for file in group) + 1)
    if 2 * sum(map(live_rows, files)) >= sum({file.file: file.rows for file in files}.values()):
        return Rewrite()
    worst = sorted((file for file in files if 2 * live_rows(file) < file.rows), key=lambda f: live_rows(f) / f.rows)
    chosen = _within(config.max_bytes, worst)
    return Rewrite(chosen, max((file.generation for file in files if file.file in chosen), default=0))


def _within(max_bytes: int, files: Iterable[pb.ParquetTimeFile]) -> frozenset[str]:
    names: set[str] = set()
    total = 0
    for file in files:
        live_bytes = file.bytes * live_rows(file) // max(file.rows, 1)
        if total + live_bytes <= max_bytes:
            total += live_bytes
            names.add(file.file)
    return frozenset(names)
