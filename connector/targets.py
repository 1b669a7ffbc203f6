"""What the committer asks of a target: who it is, what its ledger says, and to make one record's files visible."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from icefloe.proto import sink_pb2 as sink


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """One record's files, and the ledger value that must stand before they become visible."""

    job_id: str
    epoch: int
    digest: str
    batch_id: int
    expected_ledger: str
    files: Sequence[sink.DataFile]
    source_offsets: str = ""
    # Whether the files were written a moment ago; otherwise they are looked for before they are published.
    fresh: bool = True
    # False for a batch write: no later record of the job will ever ask, and the snapshot's summary proves this one.
    keeps_ledger: bool = True

    @property
    def ledger(self) -> str:
        """The value that the ledger has once this is published."""
        return ledger_value(self.epoch, self.digest)


def ledger_value(epoch: int, digest: str) -> str:
    """Return the ledger's text for a record."""
    return f"{epoch}:{digest}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishOutcome:
    """What publishing did, for the log."""

    already: bool
    snapshot_id: int | None = None
    conflicts: int = 0
    retries: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerState:
    """What a target says about a job, for people. ``complete`` is False for a claim whose files may not all be "
    "there."""

    value: str
    complete: bool
    committed_us: int | None


class Target(Protocol):
    """A table or a directory. Used by the driver and by ``icefloe finish``, never by tasks."""

    def identity(self) -> sink.Target:
        """Return what ``job.metadata`` keeps and every later run must find again."""
        ...

    def ledger(self, job_id: str) -> str:
        """Return the ledger's value for this job; empty where nothing was ever published."""
        ...

    def ledger_state(self, job_id: str) -> LedgerState:
        """Return the ledger with the time of the last commit, where the target still knows it; for ``status``."""
        ...

    def publish(self, publication: Publication) -> PublishOutcome:
        """Make the files visible, all of them once. Repeatable by anyone, from any process.

        Delivery: exactly-once if the ledger is compared and set in the same atomic step that makes the files visible
        (tables), or is claimed before the first file appears (directories).
        Raises ``ConflictError`` where the ledger is neither this record's nor the one it expects.
        """
        ...

    def clean_up(self, job_id: str, *, head_epoch: int, named: frozenset[str]) -> int:
        """Remove unfinished data of epochs up to ``head_epoch`` that is not in ``named``; return how many went.

        Only for who has just published ``head_epoch``: the ledger at it is the proof that no copy of this job's state
        will publish anything up to there.
        """
        ...
