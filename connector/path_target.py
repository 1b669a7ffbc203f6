"""A directory of Parquet files as a target: a ledger of objects claims an epoch before its first file appears."""

from __future__ import annotations

import re
from collections.abc import Sequence

from icefloe.connector.data_names import HIDDEN_FOLDER, parse
from icefloe.connector.file_store import FileStore, publish_file
from icefloe.connector.targets import LedgerState, Publication, PublishOutcome
from icefloe.errors import ConflictError
from icefloe.proto import sink_pb2 as sink
from icefloe.state.crash_points import crash_point
from icefloe.state.storage import StorageProvider

_LEDGER_NAME = re.compile(r"(\d{20})\.(ledger|done)")


class PathTarget:
    """Publishes records of one job to a directory or an S3 prefix. Atomic per file, not per epoch.

    The ledger is a pair of objects for each epoch that has files: ``{epoch}.ledger`` names the record that may publish
    it and is put before the first file appears; ``{epoch}.done`` follows the last file.
    """

    def __init__(
        self, *, files: FileStore, ledgers: StorageProvider, state: StorageProvider, partition_columns: Sequence[str]
    ) -> None:
        self._files = files
        self._ledgers = ledgers
        self._state = state
        self._partition_columns = tuple(partition_columns)

    def identity(self) -> sink.Target:
        """Return the location and the partition columns, neither of which may change."""
        return sink.Target(path=self._ledgers.url, partition_columns=self._partition_columns)

    def ledger(self, job_id: str) -> str:
        """Return the text of the highest ledger of the job; empty where nothing was published."""
        claimed = [name for name in self._names(job_id) if name.endswith(".ledger")]
        return self._ledgers.get(max(claimed)).decode() if claimed else ""

    def ledger_state(self, job_id: str) -> LedgerState:
        """Return the highest ledger, whether its end is there too, and when the last end was put."""
        infos = {info.key: info for info in self._ledgers.list(f"{HIDDEN_FOLDER}/{job_id}/")}
        value = self.ledger(job_id)
        claims = [key for key in infos if key.endswith(".ledger")]
        ends = [key for key in infos if key.endswith(".done")]
        complete = not claims or max(claims).removesuffix(".ledger") + ".done" in ends
        committed = int(infos[max(ends)].modified.timestamp() * 1_000_000) if ends else None
        return LedgerState(value=value, complete=complete, committed_us=committed)

    def publish(self, publication: Publication) -> PublishOutcome:
        """Complete or link every file of a record, once; repeatable by anyone.

        Delivery: exactly-once if the state of the job is not used by two histories at the same moment; the second one
        is refused by the ledger.
        """
        job_id = publication.job_id
        done = _name(job_id, publication.epoch, "done")
        claim = _name(job_id, publication.epoch, "ledger")
        names = self._names(job_id)
        if done in names and self._ledgers.get(claim).decode() == publication.ledger:
            return PublishOutcome(already=True)
        self._check(publication)
        crash_point("path.ledger-checked")
        self._ledgers.put_if_absent(claim, publication.ledger.encode())
        crash_point("path.ledger-claimed")
        # Read again: of two histories that both passed the check, at least one sees the other's claim here.
        self._check(publication)
        for file in publication.files:
            publish_file(self._files, self._state, file)
            crash_point("path.file-published")
        self._ledgers.put(done, publication.ledger.encode())
        return PublishOutcome(already=False)

    def clean_up(self, job_id: str, *, head_epoch: int, named: frozenset[str]) -> int:
        """Remove unfinished files that no record will publish, and ledgers that are not the latest two.

        An unfinished file of an epoch below the head was published or never recorded; one of the head's own epoch goes
        unless the head names it.
        """
        removed = 0
        for unfinished in list(self._files.list_unfinished()):
            data = parse(unfinished.name)
            if data is None or data.epoch > head_epoch or unfinished.name in named:
                continue
            self._files.abort(unfinished)
            crash_point("path.unfinished-removed")
            removed += 1
        epochs = sorted({name.split("/")[-1].split(".")[0] for name in self._names(job_id)})
        for epoch in epochs[:-2]:
            # The claim goes last: a claim without its end is finished again, an end without its claim would be ignored.
            for kind in ("done", "ledger"):
                self._ledgers.delete_if_present(f"{HIDDEN_FOLDER}/{job_id}/{epoch}.{kind}")
                crash_point("path.ledger-removed")
        return removed

    def _check(self, publication: Publication) -> None:
        """Make sure that no other history claimed an epoch between the record that this one follows and the end."""
        job_id = publication.job_id
        mine = _name(job_id, publication.epoch, "ledger")
        claims = [name for name in self._names(job_id) if name.endswith(".ledger")]
        # Not only the highest: a history that claims a later epoch would not see one that published an earlier one.
        others = [name for name in claims if name != mine]
        found = self._ledgers.get(max(others)).decode() if others else ""
        own = self._ledgers.get(mine).decode() if mine in claims else publication.ledger
        if own != publication.ledger or found != publication.expected_ledger:
            other = found if own == publication.ledger else own
            raise ConflictError(
                "ICEFLOE_LEDGER_CONFLICT",
                f"job {job_id}: record {publication.epoch} expects the ledger of {self._ledgers.url} at "
                f"{publication.expected_ledger or 'nothing'!r}, but it is at {other or 'nothing'!r}: the checkpoint "
                "and state were restored or copied, and another history has published here; use the newer one, or "
                "start a new job with a new checkpointLocation",
            )

    def _names(self, job_id: str) -> list[str]:
        prefix = f"{HIDDEN_FOLDER}/{job_id}/"
        listed = (info.key for info in self._ledgers.list(prefix))
        return [key for key in listed if _LEDGER_NAME.fullmatch(key.removeprefix(prefix))]


def _name(job_id: str, epoch: int, kind: str) -> str:
    return f"{HIDDEN_FOLDER}/{job_id}/{epoch:020d}.{kind}"
