"""The records of a job: one object per epoch, created once, each linked to the one before it by digest.

The head is the record with the highest epoch. Its chain is what its base digests lead to, down to the lowest epoch
that is not void. Everything else that looks like a record is void: what a driver that slept for too long put back.
"""

from __future__ import annotations

import hashlib
import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass

from icefloe.errors import ConflictError, CorruptStateError, FencedError, NotFoundError, StateError
from icefloe.proto.state_pb2 import CheckpointMetadata
from icefloe.state.object_names import ObjectKind, checkpoints_prefix, epoch_prefix, parse, record_name
from icefloe.state.record_cache import DigestCache
from icefloe.state.sealing import FORMAT_VERSION, newer_format, seal, unseal
from icefloe.state.storage import ChecksPutIfAbsent, StorageProvider

# A listing and a read are two requests; a clean-up may come between them. Each repeat finds a higher head.
_HEAD_TRIES = 5


@dataclass(frozen=True, slots=True)
class Record:
    """A stored record. ``digest`` is the SHA-256 (hex) of its stored bytes, by which the next record names it."""

    epoch: int
    digest: str
    metadata: CheckpointMetadata


_seen: DigestCache[Record] = DigestCache(max_bytes=16 * 1024**2)
_checked_locations: set[str] = set()


class RecordLog:
    """Reads and creates the records of one job. Holds no state of its own; any number may be open at once."""

    def __init__(self, storage: StorageProvider, job_id: str) -> None:
        self._storage = storage
        self._job_id = job_id

    def put(self, metadata: CheckpointMetadata) -> Record:
        """Create the record of ``metadata.epoch``; format version and nonce are filled in where they are missing.

        Exact under racing processes: one wins, and the winner knows it also when the reply was lost. The caller must
        call ``ensure_head`` before it does anything else. Raises ``ConflictError`` when another record is there, and
        ``StateError`` for metadata that cannot be a record of this job.
        """
        completed = self._completed(metadata)
        name = record_name(self._job_id, completed.epoch)
        data = seal(completed)
        check_put_if_absent(self._storage)
        if self._storage.put_if_absent(name, data):
            return _record(completed, data)
        existing = self.read(completed.epoch)
        if existing.metadata.nonce == completed.nonce:
            return existing
        mine = hashlib.sha256(data).hexdigest()
        raise ConflictError(
            "ICEFLOE_RECORD_EXISTS",
            f"{self._where(name)} is the record {existing.digest} (nonce {existing.metadata.nonce.hex()}), not "
            f"{mine} (nonce {completed.nonce.hex()}) of this driver: another driver recorded epoch "
            f"{completed.epoch} first; start again from its record",
        )

    def ensure_head(self, record: Record) -> None:
        """Check that no record is above ``record`` and that it is still there: one listing of what is at or above it.

        Raises ``FencedError`` when a newer driver owns the job; the caller must touch nothing then.
        """
        epochs = {*self._list_epochs(after=epoch_prefix(self._job_id, record.epoch))}
        highest = max(epochs, default=record.epoch)
        if highest > record.epoch:
            raise FencedError(
                "ICEFLOE_FENCED",
                f"record {highest} of job {self._job_id} in {self._storage.url} is above record {record.epoch} of "
                "this driver: a newer driver owns the job, this one must stop",
            )
        if record.epoch not in epochs:
            name = record_name(self._job_id, record.epoch)
            raise CorruptStateError(
                "ICEFLOE_RECORD_MISSING", f"{self._where(name)} was created and is gone: something else deletes state"
            )

    def head(self) -> Record | None:
        """Return the record with the highest epoch, None when the job has none: one listing and one read.

        Raises ``CorruptStateError`` when an epoch between two records is missing.
        """
        gap_before: tuple[int, int] | None = None
        for _ in range(_HEAD_TRIES):
            epochs = self.epochs()
            if not epochs:
                return None
            try:
                head = self.read(epochs[-1])
            except NotFoundError:
                continue
            gap = _first_gap(epochs, head)
            if gap is None:
                return head
            # A clean-up that ran during the listing shows as a gap once; a real one shows again.
            if gap == gap_before:
                raise self._gap(*gap)
            gap_before = gap
        raise StateError(
            "ICEFLOE_RECORD_UNSTABLE",
            f"the highest record of job {self._job_id} in {self._storage.url} vanished {_HEAD_TRIES} times while it "
            "was read: something else deletes state",
        )

    def read(self, epoch: int) -> Record:
        """Return the record of ``epoch``, void or not.

        Raises ``NotFoundError``, ``CorruptStateError`` or ``StateVersionError``, each with the object's name.
        """
        name = record_name(self._job_id, epoch)
        data = self._storage.get(name)
        where = self._where(name)
        metadata = unseal(data, CheckpointMetadata, where)
        if metadata.format_version > FORMAT_VERSION:
            raise newer_format(metadata.format_version, where)
        if metadata.epoch != epoch or metadata.job_id != self._job_id:
            raise CorruptStateError(
                "ICEFLOE_STATE_CORRUPT",
                f"{where} is the record of epoch {metadata.epoch} of job {metadata.job_id}: objects were moved or "
                "copied by hand; restore this one from a copy",
            )
        return _record(metadata, data)

    def epochs(self) -> list[int]:
        """Return the epochs that have a record, void ones included, lowest first: one listing."""
        return sorted(self._list_epochs())

    def chain(self, head: Record) -> list[Record]:
        """Return ``head`` and the records below it that are not void, highest first.

        Goes down to the highest min epoch that any of them names, or to the first record of the job. Stops early where
        a newer head has voided the rest in the meantime. What this process has read or put before is not read again,
        since a digest names its content. Raises ``CorruptStateError`` when a record that is not void is missing, or is
        not the one that the record above it was made from.
        """
        chain = [head]
        floor = head.metadata.min_epoch
        while chain[-1].epoch > floor and chain[-1].metadata.base_digest:
            below = self._base_of(chain[-1], head)
            if below is None:
                break
            chain.append(below)
            # A min epoch that was lowered again does not bring back what an earlier record had voided.
            floor = max(floor, below.metadata.min_epoch)
        return chain

    def _base_of(self, above: Record, head: Record) -> Record | None:
        """Return the record that ``above`` was made from; None where a head above ``head`` has voided it by now."""
        epoch, digest = above.epoch - 1, above.metadata.base_digest
        problem: CorruptStateError
        try:
            below = _seen.get(digest) or self.read(epoch)
        except NotFoundError:
            problem = self._gap(epoch, above.epoch)
        else:
            if (below.epoch, below.digest) == (epoch, digest):
                return below
            problem = CorruptStateError(
                "ICEFLOE_RECORD_UNLINKED",
                f"{self._where(record_name(self._job_id, epoch))} has digest {below.digest}, and record {above.epoch} "
                f"was made from {digest}: parts of two histories are mixed; restore the state location as a whole",
            )
        # A clean-up may have deleted it, and a driver that slept may have put another one in its place.
        if self._is_void_by_now(epoch, head):
            return None
        raise problem

    def _completed(self, metadata: CheckpointMetadata) -> CheckpointMetadata:
        if metadata.job_id != self._job_id or metadata.min_epoch > metadata.epoch:
            raise StateError(
                "ICEFLOE_RECORD_INVALID",
                f"metadata of job {metadata.job_id!r}, epoch {metadata.epoch}, min epoch {metadata.min_epoch} cannot "
                f"be a record of job {self._job_id!r}: the job must be the same and min epoch at most the epoch",
            )
        completed = CheckpointMetadata()
        completed.CopyFrom(metadata)
        completed.format_version = completed.format_version or FORMAT_VERSION
        completed.nonce = completed.nonce or os.urandom(16)
        return completed

    def _list_epochs(self, *, after: str = "") -> Iterator[int]:
        for info in self._storage.list(checkpoints_prefix(self._job_id), after=after):
            found = parse(info.key)
            if found and found.kind is ObjectKind.RECORD and found.epoch is not None:
                yield found.epoch

    def _is_void_by_now(self, epoch: int, head: Record) -> bool:
        newest = self.head()
        return newest is not None and newest.epoch > head.epoch and newest.metadata.min_epoch > epoch

    def _gap(self, missing: int, above: int) -> CorruptStateError:
        return CorruptStateError(
            "ICEFLOE_RECORD_MISSING",
            f"{self._where(record_name(self._job_id, missing))} is not there, and record {above} is: restore the state "
            "location as a whole",
        )

    def _where(self, name: str) -> str:
        return f"{self._storage.url}/{name}"


def check_put_if_absent(storage: StorageProvider) -> None:
    """Find out, once in a process and location, whether put-if-absent is exact there.

    Raises ``StorageError`` when the service behind ``storage`` only pretends.
    """
    # The repr has the endpoint in it, which the URL has not, and no secret.
    location = repr(storage)
    if isinstance(storage, ChecksPutIfAbsent) and location not in _checked_locations:
        storage.check_conditional_put()
        _checked_locations.add(location)


def _first_gap(epochs: list[int], head: Record) -> tuple[int, int] | None:
    """Return the lowest epoch that is missing between two records that are not void, and the one above the gap."""
    kept = [epoch for epoch in epochs if epoch >= head.metadata.min_epoch]
    return next(((lower + 1, upper) for lower, upper in itertools.pairwise(kept) if upper != lower + 1), None)


def _record(metadata: CheckpointMetadata, data: bytes) -> Record:
    record = Record(metadata.epoch, hashlib.sha256(data).hexdigest(), metadata)
    _seen.add(record.digest, record, len(data))
    return record
