"""What the table tests say again and again: a driver that publishes epochs, and what must be true of the table then."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.manifest import ManifestEntryStatus
from pyiceberg.table import Table

from icefloe.connector.iceberg_table import IcebergTarget, RetryPolicy, TableSettings
from icefloe.connector.targets import PublishOutcome
from icefloe.proto import sink_pb2
from icefloe.state.crash_points import arm
from support.iceberg_files import write_data_file

STREAM = pa.schema([pa.field("id", pa.int64()), pa.field("name", pa.string())])
JOB = "0b6f3c1e-job"


def no_waiting(**changes: object) -> RetryPolicy:
    """Return a policy that retries at once."""
    return RetryPolicy(sleep=lambda seconds: None, **changes)  # type: ignore[arg-type]


@dataclass(slots=True)
class Driver:
    """One driver of one job: publishes epoch after epoch, each with one file of rows ``epoch * 10`` and up."""

    target: IcebergTarget
    job: str = JOB
    ledger: str = ""

    @classmethod
    def open(cls, settings: TableSettings, *, job: str = JOB, ledger: str = "", **policy: object) -> Driver:
        return cls(IcebergTarget.open(settings, STREAM, policy=no_waiting(**policy)), job, ledger)

    def files(self, epoch: int, rows: int = 3) -> list[sink_pb2.DataFile]:
        plan = self.target.plan(STREAM)
        ids = ids_of(epoch, rows)
        storage = fsspec_options(plan.storage_options)
        partition = [None] * len(plan.partition_fields)
        return [
            write_data_file(
                plan, {"id": ids, "name": [f"n{i}" for i in ids]}, partition=partition, storage_options=storage
            )
        ]

    def publish(
        self, epoch: int, files: Sequence[sink_pb2.DataFile] | None = None, *, digest: str = ""
    ) -> PublishOutcome:
        digest = digest or f"digest-{epoch}"
        chosen = self.files(epoch) if files is None else files
        outcome = self.target.publish(self.job, epoch, digest, self.ledger, epoch, chosen, f"offsets {epoch}")
        self.ledger = f"{epoch}:{digest}" if chosen else self.ledger
        return outcome


def fsspec_options(options: dict[str, str] | object) -> dict[str, object]:
    """Return PyIceberg's S3 properties as s3fs takes them; nothing for local files."""
    given = dict(options)  # type: ignore[call-overload]
    if "s3.endpoint" not in given:
        return {}
    return {
        "key": given["s3.access-key-id"],
        "secret": given["s3.secret-access-key"],
        "endpoint_url": given["s3.endpoint"],
        "client_kwargs": {"region_name": given["s3.region"]},
    }


def ids_of(epoch: int, rows: int = 3) -> list[int]:
    """Return the ids that an epoch's file holds."""
    return [epoch * 10 + n for n in range(rows)]


def read_ids(table: Table) -> list[int]:
    """Return the ids that a reader sees, in order, doubles included."""
    return sorted(table.refresh().scan(selected_fields=("id",)).to_arrow()["id"].to_pylist())


def assert_rows_are(table: Table, epochs: Iterable[int], *, rows: int = 3) -> None:
    """Each row of the epochs once, and nothing else."""
    expected = sorted(i for epoch in epochs for i in ids_of(epoch, rows))
    found = read_ids(table)
    lost, doubled = Counter(expected) - Counter(found), Counter(found) - Counter(expected)
    assert not lost, f"rows lost: {sorted(lost)}"
    assert not doubled, f"rows doubled or never written: {sorted(doubled)}"


def assert_no_file_added_twice(table: Table) -> None:
    """No data file's path was added by two snapshots of the table's history."""
    added = Counter(
        entry.data_file.file_path
        for path in {m.manifest_path: m for s in table.refresh().snapshots() for m in s.manifests(table.io)}.values()
        for entry in path.fetch_manifest_entry(table.io, discard_deleted=False)
        if entry.status == ManifestEntryStatus.ADDED
    )
    twice = [path for path, times in added.items() if times > 1]
    assert not twice, f"added by two manifests: {twice}"


@contextmanager
def at_crash_point(name: str, action: Callable[[], None], *, times: int = 1) -> Iterator[list[str]]:
    """Run ``action`` when the named point is passed, the first ``times`` times; yields the names passed so far."""
    passed: list[str] = []
    left = times

    def act(point: str) -> None:
        nonlocal left
        passed.append(point)
        if point == name and left > 0:
            left -= 1
            action()

    arm(act)
    try:
        yield passed
    finally:
        arm(None)
