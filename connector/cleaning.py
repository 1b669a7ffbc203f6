"""What ``icefloe clean`` may remove, and why nothing else (R9). Looks first; removing is a second call.

Every reason below is final: once it holds it holds for ever, so a query may run, replay or be killed meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from icefloe.connector.committer import ledger_after
from icefloe.connector.data_names import HIDDEN_FOLDER, job8, parse
from icefloe.connector.file_store import open_file_store
from icefloe.connector.inspection import chain_of
from icefloe.connector.jobs import Job, find_jobs
from icefloe.connector.multipart import FileStore
from icefloe.connector.operator_state import pre_commits
from icefloe.connector.planning import plan_in_flight
from icefloe.errors import OptionError
from icefloe.state.clean_up import classify, remove
from icefloe.state.opening import open_storage
from icefloe.state.records import Record
from icefloe.state.storage import StorageProvider


@dataclass(frozen=True, slots=True)
class Leftover:
    """One thing that nothing names any more. ``why`` is the proof, in words."""

    kind: str
    name: str
    job_id: str
    epoch: int | None
    size_bytes: int | None
    why: str
    remove: Callable[[], object] = field(repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class CleaningPlan:
    """What may go now. ``other_jobs`` have something in the target and no state at this location: left alone."""

    job_id: str
    leftovers: tuple[Leftover, ...]
    other_jobs: tuple[str, ...]


def plan_cleaning(job: Job, location: str, gone_jobs: Sequence[str] = ()) -> CleaningPlan:
    """Find what nothing names. Changes nothing.

    1. the records first: what they let go stays let go, whatever the query does from here on
    2. then the target, so that everything that records below the head published is seen there

    Raises ``OptionError`` for a ``gone_jobs`` entry that has state here, and whatever makes state or target unreadable:
    what cannot be read cannot be proven useless.
    """
    present = find_jobs(location, job.options.s3_options)[1]
    _check_gone(gone_jobs, present)
    chain = chain_of(job)  # 1
    found = [*_state_leftovers(job, chain)]
    target = _PathLeftovers(job) if job.options.path is not None else _TableLeftovers(job)  # 2
    if chain:
        ledger = job.target().ledger(job.job_id)
        found += target.of_job(job.job_id, _Chain.of(chain, ledger))
    for gone in gone_jobs:
        found += target.of_job(gone, None)
        found += target.ledgers_of(gone)
    others = tuple(other for other in target.jobs() if other not in present and other not in gone_jobs)
    return CleaningPlan(job.job_id, tuple(found), others)


def remove_leftovers(plan: CleaningPlan) -> int:
    """Remove what a plan found, in its order; repeatable. Returns how many things went."""
    for leftover in plan.leftovers:
        leftover.remove()
    return len(plan.leftovers)


@dataclass(frozen=True, slots=True)
class _Chain:
    """What the kept records say about data files: each name carries the epoch whose record alone may name it."""

    lowest: int
    head: int
    # The epoch at which the target's ledger stands. Copies of the state may share the target; that the ledger is ours
    # proves that no other history will publish anything up to here, and nothing is proven above.
    settled: int
    named: dict[int, frozenset[str]]

    @classmethod
    def of(cls, chain: Sequence[Record], ledger: str) -> _Chain:
        settled = int(ledger.partition(":")[0]) if ledger and ledger == ledger_after(chain[0]) else -1
        named = {r.epoch: frozenset(_last(f.name) for o in r.metadata.operators for f in pre_commits(o)) for r in chain}
        return cls(chain[-1].epoch, chain[0].epoch, settled, named)

    def lets_go(self, name: str, epoch: int) -> str | None:
        """Return why no record will ever publish this name, or None where one may."""
        if epoch > self.settled:
            return None
        if epoch >= self.lowest:
            return None if _last(name) in self.named[epoch] else f"record {epoch} is made and does not name it"
        return f"record {epoch} was published and is not kept any more"


def _last(name: str) -> str:
    # The last part carries the attempt's id, so it is a name of its own wherever the file stands.
    return name.rpartition("/")[2]


def _check_gone(gone_jobs: Sequence[str], present: Sequence[str]) -> None:
    for gone in gone_jobs:
        alike = [job_id for job_id in present if job8(job_id) == job8(gone)]
        if alike:
            raise OptionError(
                "ICEFLOE_JOB_NOT_GONE",
                f"--gone-job {gone}: job {alike[0]} has state at this location, and its files carry the same name; "
                "nothing was removed",
            )


def _state_leftovers(job: Job, chain: Sequence[Record]) -> Iterator[Leftover]:
    for removable in classify(job.state, job.job_id, chain):
        yield Leftover(
            f"state: {removable.kind}",
            removable.key,
            job.job_id,
            removable.epoch,
            removable.size_bytes,
            f"the head is at {chain[0].epoch}, and no record that is kept names it",
            partial(remove, job.state, [removable]),
        )


def _unfinished(files: FileStore, job_id: str, chain: _Chain | None) -> Iterator[Leftover]:
    """Yield uploads and in-progress files that no record will complete. Removing one never touches a finished file."""
    for upload in list(files.list_unfinished()):
        data = parse(upload.name)
        if data is None:
            continue
        # Below the head all records are published: what is still unfinished under a published name is a spare try.
        named_by_head = chain is not None and _last(upload.name) in chain.named[chain.head]
        if chain is not None and (data.epoch > chain.settled or named_by_head):
            continue
        why = "its job is gone" if chain is None else f"the head is at {chain.head} and will not complete it"
        yield Leftover("unfinished file", upload.name, job_id, data.epoch, None, why, partial(files.abort, upload))


class _PathLeftovers:
    """A directory. Files that readers see are never touched: only published ones become visible."""

    def __init__(self, job: Job) -> None:
        assert job.options.path is not None
        self._path, self._options = job.options.path, job.options.s3_options
        self._ledgers: StorageProvider = open_storage(self._path, self._options)

    def of_job(self, job_id: str, chain: _Chain | None) -> Iterator[Leftover]:
        yield from _unfinished(open_file_store(self._path, self._options, job_id=job_id), job_id, chain)

    def ledgers_of(self, job_id: str) -> Iterator[Leftover]:
        for info in list(self._ledgers.list(f"{HIDDEN_FOLDER}/{job_id}/")):
            if info.key.endswith((".ledger", ".done")):
                delete = partial(self._ledgers.delete_if_present, info.key)
                yield Leftover("ledger", info.key, job_id, None, info.size_bytes, "its job is gone", delete)

    def jobs(self) -> list[str]:
        keys = (info.key.split("/") for info in self._ledgers.list(f"{HIDDEN_FOLDER}/"))
        return sorted({parts[1] for parts in keys if len(parts) > 2})


class _TableLeftovers:
    """An Iceberg table. What any of its snapshots names is never touched."""

    def __init__(self, job: Job) -> None:
        from icefloe.connector.iceberg_leftovers import ledger_jobs, names_in_use
        from icefloe.connector.iceberg_table import IcebergTarget
        from icefloe.connector.table_target import table_settings

        job.target()  # Another table under the same name is refused here.
        self._settings = table_settings(job.options)
        with IcebergTarget.open(self._settings) as table:
            self._in_use = names_in_use(table, self._settings)
            self._jobs = ledger_jobs(table)
        self._plan = plan_in_flight(job.options)

    def of_job(self, job_id: str, chain: _Chain | None) -> Iterator[Leftover]:
        files = open_file_store(self._plan.files_url, self._plan.files_options, job_id=job_id)
        yield from _unfinished(files, job_id, chain)
        others = [other for other in self._jobs if other != job_id]
        if job8(job_id) in map(job8, others):
            # Names carry eight characters of the job's id: with two jobs alike, nobody can tell whose file it is.
            return
        yield from self._data_files(files, job_id, chain)

    def _data_files(self, files: FileStore, job_id: str, chain: _Chain | None) -> Iterator[Leftover]:
        for info in list(files.list()):
            data = parse(info.key)
            if data is None or data.job8 != job8(job_id) or _last(info.key) in self._in_use:
                continue
            why = "its job is gone" if chain is None else chain.lets_go(info.key, data.epoch)
            if why is not None:
                why += ", and no snapshot of the table names it"
                delete = partial(files.delete_if_present, info.key)
                yield Leftover("data file", info.key, job_id, data.epoch, info.size_bytes, why, delete)

    def ledgers_of(self, job_id: str) -> Iterable[Leftover]:
        if job_id in self._jobs:
            yield Leftover("ledger", job_id, job_id, None, None, "its job is gone", partial(self._forget, job_id))

    def _forget(self, job_id: str) -> None:
        from icefloe.connector.iceberg_leftovers import forget_ledger
        from icefloe.connector.iceberg_table import IcebergTarget

        with IcebergTarget.open(self._settings) as table:
            forget_ledger(table, self._settings, job_id)

    def jobs(self) -> list[str]:
        return self._jobs
