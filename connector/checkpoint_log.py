"""What the sink reads of Spark's own checkpoint: the job's id, a batch's offsets and its watermark. It never writes."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True)
class OffsetEntry:
    """One entry of Spark's offset log: there before the tasks of its batch run, and never changed after."""

    batch_id: int
    # SHA-256 of the whole entry. A file source's offsets alone are bare counters and would not tell two batches apart.
    digest: str
    # The sources' offsets, one JSON text each.
    offsets: tuple[str, ...]
    watermark_ms: int


class CheckpointLog:
    """Spark's checkpoint folder, as far as this process can read it.

    A location that is not on a local disk, or that is not there, reads as empty: callers decide whether they can do
    without.
    """

    def __init__(self, location: str | None) -> None:
        self._root = Path(location) if location is not None and not urlsplit(location).scheme else None

    def job_id(self) -> str | None:
        """Return the query id that Spark keeps in the checkpoint, stable across restarts."""
        text = self._read("metadata")
        if text is None:
            return None
        job = json.loads(text).get("id")
        return job if isinstance(job, str) else None

    def latest(self) -> OffsetEntry | None:
        """Return the entry of the batch that is running, or that a restart would run."""
        if self._root is None:
            return None
        folder = self._root / "offsets"
        try:
            numbers = [int(path.name) for path in folder.iterdir() if path.name.isdecimal()]
        except OSError:
            return None
        return self.entry(max(numbers)) if numbers else None

    def runs_a_micro_batch(self) -> bool | None:
        """Whether the newest batch has its offsets logged and is not committed; None where that cannot be read.

        True whenever Spark plans or runs a micro-batch: it logs the offsets before, and the commit after.
        """
        if self._root is None or self.job_id() is None:
            return None
        entry = self.latest()
        return entry is not None and not (self._root / "commits" / str(entry.batch_id)).exists()

    def is_committed(self, batch_id: int) -> bool:
        """Whether Spark's commit log has this batch."""
        return self._root is not None and (self._root / "commits" / str(batch_id)).exists()

    def entry(self, batch_id: int) -> OffsetEntry | None:
        """Return the entry of one batch, or None where it cannot be read."""
        text = self._read(f"offsets/{batch_id}")
        if text is None:
            return None
        # Line 1 is the log's version, line 2 the batch's metadata, then one line per source.
        lines = text.splitlines()
        metadata = json.loads(lines[1]) if len(lines) > 1 and lines[1].startswith("{") else {}
        return OffsetEntry(
            batch_id=batch_id,
            digest=hashlib.sha256(text.encode()).hexdigest(),
            offsets=tuple(lines[2:]),
            watermark_ms=int(metadata.get("batchWatermarkMs", 0)),
        )

    def _read(self, name: str) -> str | None:
        if self._root is None:
            return None
        try:
            return (self._root / name).read_text(encoding="utf-8")
        except OSError:
            return None
