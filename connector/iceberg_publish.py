"""Driver only: publish a record to a table exactly once, whatever other drivers, writers and lost replies do."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from icefloe.connector.iceberg_catalog import DENIED
from icefloe.connector.iceberg_commit import Append, to_data_files
from icefloe.connector.targets import Publication, PublishOutcome, ledger_value
from icefloe.errors import CommitUnknownError, ConflictError, IcefloeError, NotFoundError, SchemaError, StorageError
from icefloe.state.crash_points import crash_point

log = logging.getLogger(__name__)

LEDGER_PROPERTY = "icefloe.ledger."
JOB_SUMMARY = "icefloe.job-id"
EPOCH_SUMMARY = "icefloe.epoch"
BATCH_SUMMARY = "icefloe.batch-id"
DIGEST_SUMMARY = "icefloe.record-digest"
OFFSETS_SUMMARY = "icefloe.source-offsets"
LONGEST_OFFSETS = 4096


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and how fast to try again. Conflicts are other writers' progress; failures are nobody's."""

    conflicts: int = 100
    failures: int = 10
    first_wait_ms: float = 50
    longest_wait_ms: float = 10_000
    sleep: Callable[[float], None] = time.sleep
    jitter: Callable[[], float] = random.random

    def wait(self, tries: int) -> None:
        """Sleep between half and all of an exponentially growing time, so that rivals fall out of step."""
        longest = min(self.longest_wait_ms, self.first_wait_ms * 2 ** min(tries, 16))
        self.sleep(longest * (0.5 + self.jitter() / 2) / 1000)


@dataclass(slots=True)
class Publisher:
    """Publishes one record. ``load`` returns the table as the catalog has it now and raises Icefloe's errors.

    Delivery: exactly-once if every driver of the job publishes through this class. Two drivers that pass the check at
    the same time both require the same head of ``main``, and every publication moves it: one of them is refused, looks
    again and finds the ledger changed. A try that lands late is refused for the same reason, or is found by the next
    look.
    """

    load: Callable[[], Table]
    # Takes secrets out of an error's text.
    redact: Callable[[str], str]
    policy: RetryPolicy = field(default_factory=RetryPolicy)
    _conflicts: int = 0
    _failures: int = 0
    _unknown: Exception | None = None
    _refused: Append | None = None
    _denied: StorageError | None = None

    def publish(self, publication: Publication, table_uuid: str) -> tuple[PublishOutcome, Table]:
        """Append all files and set the ledger in one commit, unless that has been done.

        Each try:
        1. load the table; it must be the one with ``table_uuid``
        2. the ledger is this record's: done. It is not the one that the record expects: ``ConflictError``
        3. write manifests on top of the head that was just looked at
        4. ask the catalog, which refuses if the head has moved since: back to 1

        Raises ``ConflictError`` with both ledger values; ``CommitUnknownError`` when a try may have landed and the
        table cannot be read any more; ``StorageError`` when nothing has landed and the environment keeps failing.
        """
        while True:
            table = self._loaded(table_uuid)  # 1
            if table is None:
                continue
            crash_point("catalog.loaded")
            if self._is_published(table.metadata, publication):  # 2
                snapshot = find_snapshot(table.metadata, publication.job_id, publication.ledger)
                return self._outcome(snapshot.snapshot_id if snapshot else None, already=True), table
            if self._denied is not None:
                raise self._denied
            crash_point("catalog.checked")
            append = self._built(table, publication)  # 3
            if append is None:
                continue
            crash_point("catalog.built")
            if self._sent(append):  # 4
                crash_point("catalog.committed")
                return self._outcome(append.snapshot_id, already=False), table

    def _outcome(self, snapshot_id: int | None, *, already: bool) -> PublishOutcome:
        retries = self._conflicts + self._failures
        # Seen as done after a try of this very call: the reply was lost, the work was ours.
        already = already and retries == 0
        return PublishOutcome(snapshot_id=snapshot_id, already=already, conflicts=self._conflicts, retries=retries)

    def _loaded(self, table_uuid: str) -> Table | None:
        try:
            table = self.load()
        except ConflictError:
            raise
        except StorageError as e:
            self._failed(e)
            return None
        found = str(table.metadata.table_uuid)
        if found != table_uuid:
            raise ConflictError(
                "ICEFLOE_TABLE_REPLACED",
                f"the table {'.'.join(table.name())} was replaced: this job writes to uuid {table_uuid}, the catalog "
                f"now has {found}; start the query with a new checkpoint to write to the new table",
            )
        refused, self._refused = self._refused, None
        if refused is not None and refused.is_overtaken(table.metadata):
            refused.discard()
        return table

    def _is_published(self, metadata: TableMetadata, publication: Publication) -> bool:
        found = read_ledger(metadata, publication.job_id)
        if found in (publication.ledger, publication.expected_ledger or None):
            _warn_of_rollback(metadata, publication.job_id, found)
            return found == publication.ledger
        raise ConflictError(
            "ICEFLOE_LEDGER",
            f"record {publication.ledger} of job {publication.job_id} expects the table's ledger at "
            f"{publication.expected_ledger or 'nothing'}, and it is at {found or 'nothing'}: checkpoint or state "
            "were restored, copied or removed, or the table property was. Nothing was appended. Restore state and "
            "checkpoint of the same moment, or start with a new checkpoint",
        )

    def _built(self, table: Table, publication: Publication) -> Append | None:
        try:
            files = to_data_files(table.metadata, publication.files)
            ledger = {LEDGER_PROPERTY + publication.job_id: publication.ledger} if publication.keeps_ledger else {}
            return Append(table, files, _summary(publication), ledger)
        except SchemaError:
            raise
        except Exception as e:  # noqa: BLE001 - file systems raise what their client library raises; nothing was sent
            self._failed(e)
            return None

    def _sent(self, append: Append) -> bool:
        try:
            append.send()
        except CommitFailedException as e:
            self._refused = append
            self._conflicted(e)
            return False
        except DENIED as e:
            # Said only after one more look at the ledger.
            self._denied = _denial(self.redact(str(e)))
            self._failures += 1
            return False
        except Exception as e:  # noqa: BLE001 - whatever it is, only the table can tell whether the commit landed
            self._unknown = e
            self._failed(e)
            return False
        return True

    def _conflicted(self, error: Exception) -> None:
        self._conflicts += 1
        if self._conflicts > self.policy.conflicts:
            raise ConflictError(
                "ICEFLOE_COMMIT_CONFLICTS",
                f"{self._conflicts} tries to commit all met another writer's commit; nothing was appended: "
                f"{self.redact(str(error))}",
            ) from error
        self.policy.wait(self._conflicts)

    def _failed(self, error: Exception) -> None:
        self._failures += 1
        if self._failures <= self.policy.failures and not _is_final(error):
            log.warning(
                "try %d at a commit failed: %s: %s", self._failures, type(error).__name__, self.redact(str(error))
            )
            self.policy.wait(self._failures)
            return
        if self._unknown is not None and not isinstance(error, NotFoundError):
            raise CommitUnknownError(
                "ICEFLOE_COMMIT_UNKNOWN",
                f"a commit may have landed, and the table cannot be read to find out: {self.redact(str(error))}. "
                "Nothing it names was deleted; start the query again, which looks first",
            ) from error
        if isinstance(error, IcefloeError):
            raise error
        raise StorageError(
            "ICEFLOE_COMMIT_FAILED",
            f"manifests could not be written: {type(error).__name__}: {self.redact(str(error))}",
        ) from error


def _summary(publication: Publication) -> dict[str, str]:
    """Return what the snapshot says about where its rows come from; enough to rebuild a lost ledger property."""
    said = {
        JOB_SUMMARY: publication.job_id,
        EPOCH_SUMMARY: str(publication.epoch),
        BATCH_SUMMARY: str(publication.batch_id),
        DIGEST_SUMMARY: publication.digest,
    }
    # Every metadata file repeats every summary: offsets of thousands of partitions would outgrow all else in it.
    if 0 < len(publication.source_offsets) <= LONGEST_OFFSETS:
        said[OFFSETS_SUMMARY] = publication.source_offsets
    return said


def _denial(text: str) -> StorageError:
    return StorageError("ICEFLOE_TABLE_DENIED", f"the commit was refused: {text}; check the credentials and grants")


def _is_final(error: Exception) -> bool:
    return isinstance(error, PermissionError) or getattr(error, "code", "") in (
        "ICEFLOE_TABLE_DENIED",
        "ICEFLOE_TABLE_NOT_FOUND",
    )


def read_ledger(metadata: TableMetadata, job_id: str) -> str | None:
    """Return the job's ledger value: the table property, else what the newest snapshot of the job says, else None."""
    value = metadata.properties.get(LEDGER_PROPERTY + job_id)
    if value is not None:
        return value
    own = own_snapshots(metadata, job_id)
    return _ledger_of(own[-1]) if own else None


def own_snapshots(metadata: TableMetadata, job_id: str) -> list[Snapshot]:
    """Return the snapshots that this job made and the table still lists, by epoch."""
    own = [s for s in metadata.snapshots if s.summary is not None and s.summary.get(JOB_SUMMARY) == job_id]
    return sorted(own, key=lambda s: int(_said(s, EPOCH_SUMMARY)))


def find_snapshot(metadata: TableMetadata, job_id: str, ledger: str) -> Snapshot | None:
    """Return the snapshot that published this ledger value, unless it has expired."""
    return next((s for s in own_snapshots(metadata, job_id) if _ledger_of(s) == ledger), None)


def ancestor_ids(metadata: TableMetadata, snapshot_id: int | None) -> set[int]:
    """Return the snapshot and everything below it, as far as the table still lists it."""
    by_id: Mapping[int, Snapshot] = {s.snapshot_id: s for s in metadata.snapshots}
    found: set[int] = set()
    while snapshot_id is not None and snapshot_id in by_id and snapshot_id not in found:
        found.add(snapshot_id)
        snapshot_id = by_id[snapshot_id].parent_snapshot_id
    return found


def _said(snapshot: Snapshot, key: str) -> str:
    return (snapshot.summary.get(key) or "0") if snapshot.summary is not None else "0"


def _ledger_of(snapshot: Snapshot) -> str:
    return ledger_value(int(_said(snapshot, EPOCH_SUMMARY)), _said(snapshot, DIGEST_SUMMARY))


def _warn_of_rollback(metadata: TableMetadata, job_id: str, ledger: str | None) -> None:
    snapshot = find_snapshot(metadata, job_id, ledger) if ledger else None
    if snapshot is not None and snapshot.snapshot_id not in ancestor_ids(metadata, metadata.current_snapshot_id):
        log.warning(
            "ICEFLOE_TABLE_ROLLED_BACK: snapshot %d (epoch %s of job %s) is no longer in the table's main branch: its "
            "rows stay out, the stream goes on",
            snapshot.snapshot_id,
            _said(snapshot, EPOCH_SUMMARY),
            job_id,
        )
