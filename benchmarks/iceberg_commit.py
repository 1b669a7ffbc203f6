"""What a commit costs: Icefloe's against a bare PyIceberg ``fast_append`` of the same files, and over a long history.

    python benchmarks/iceberg_commit.py [--commits 1000]

Limits (issue of the Iceberg target): less than 1.5 times the bare append; with ``keepSnapshots=100`` the 1,000th commit
less than 1.3 times the 150th. Times are medians of neighbouring commits on the embedded catalog.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import schema_to_pyarrow

from icefloe.connector.iceberg_commit import to_data_files
from icefloe.connector.iceberg_table import IcebergTarget, TableSettings
from icefloe.proto import sink_pb2

STREAM = pa.schema([("id", pa.int64()), ("name", pa.string())])
FILES_PER_COMMIT = 4
# The bare append merges no manifests, so neither does its rival.
PLAIN = {"commit.manifest-merge.enabled": "false"}
WINDOW = 21


def data_files(target: IcebergTarget, folder: Path, commit: int) -> list[sink_pb2.DataFile]:
    """Describe files that all point at one real one under names of their own: a commit never opens them."""
    plan = target.plan(STREAM)
    real = folder / "real.parquet"
    if not real.exists():
        pq.write_table(pa.table({"id": [1], "name": ["a"]}, schema=schema_to_pyarrow(target.table.schema())), real)
    metadata = sink_pb2.IcebergFileMetadata(row_count=1, split_offsets=[4])
    for field_id in (1, 2):
        metadata.value_counts[field_id] = 1
        metadata.null_value_counts[field_id] = 0
        metadata.lower_bounds[field_id] = metadata.upper_bounds[field_id] = b"\x01" * 8
    return [
        sink_pb2.DataFile(
            location=f"file://{folder}/{commit}-{n}.parquet",
            length_bytes=real.stat().st_size,
            rows=1,
            fingerprint=sink_pb2.Fingerprint(schema_id=plan.schema_id, spec_id=plan.spec_id),
            metadata=metadata,
        )
        for n in range(FILES_PER_COMMIT)
    ]


def timed(action: Callable[[], object]) -> float:
    """Return milliseconds."""
    began = time.perf_counter()
    action()
    return (time.perf_counter() - began) * 1000


def icefloe_commits(folder: Path, commits: int, *, keep: int | None, properties: Mapping[str, str]) -> list[float]:
    """Return the time of each commit as the sink makes them, without the expiry that follows some of them."""
    settings = TableSettings("db.icefloe", warehouse=str(folder / "warehouse"), table_properties=properties)
    times = []
    ledger = ""
    with IcebergTarget.open(settings, STREAM) as target:
        for epoch in range(commits):
            files = data_files(target, folder, epoch)
            times.append(timed(partial(target.publish, "job", epoch, "d", ledger, epoch, files)))
            if keep is not None:
                target.expire_own_snapshots("job", keep)
            ledger = f"{epoch}:d"
    return times


def bare_commits(folder: Path, commits: int) -> list[float]:
    """Return the time of each ``fast_append`` of the same files by a writer that checks nothing."""
    settings = TableSettings("db.bare", warehouse=str(folder / "warehouse"), table_properties=PLAIN)
    times = []
    with IcebergTarget.open(settings, STREAM) as target:
        table = target.table
        for epoch in range(commits):
            files = to_data_files(table.metadata, data_files(target, folder, epoch))

            def append(files: Sequence[object] = files) -> None:
                with table.transaction() as transaction, transaction.update_snapshot().fast_append() as snapshot:
                    for data_file in files:
                        snapshot.append_data_file(data_file)  # type: ignore[arg-type]

            times.append(timed(append))
    return times


def around(times: Sequence[float], commit: int) -> float:
    """Return the median of the commits around one, so that a single pause of the machine decides nothing."""
    return statistics.median(times[max(0, commit - WINDOW) : commit])


def main() -> int:
    """Print the table of times; exit code 1 where a limit is passed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--commits", type=int, default=1000)
    commits = parser.parse_args().commits
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        bare = bare_commits(folder, 100)
        ours = icefloe_commits(folder, 100, keep=None, properties=PLAIN)
    ratio = statistics.median(ours) / statistics.median(bare)
    print(
        f"bare fast_append  {statistics.median(bare):7.1f} ms   (median of 100 commits, {FILES_PER_COMMIT} files each)"
    )
    print(f"Icefloe           {statistics.median(ours):7.1f} ms   {ratio:.2f} times, limit 1.5")
    with tempfile.TemporaryDirectory() as scratch:
        kept = icefloe_commits(Path(scratch), commits, keep=100, properties={})
    early, late = around(kept, 150), around(kept, commits)
    print(f"keepSnapshots=100, commit 150     {early:7.1f} ms")
    print(f"keepSnapshots=100, commit {commits:<7d} {late:7.1f} ms   {late / early:.2f} times, limit 1.3")
    return 0 if ratio < 1.5 and late / early < 1.3 else 1


if __name__ == "__main__":
    sys.exit(main())
