"""What must hold of the rows in a target, whatever was killed: shared by property, fault and integration tests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq


def read_path(path: Path, schema: pa.Schema | None = None) -> pa.Table:
    """Read every visible Parquet file under a directory, with its Hive-style partition columns."""
    files = visible_files(path)
    if not files:
        return pa.table({})
    partitioning = ds.partitioning(flavor="hive", schema=schema) if schema is not None else "hive"
    return ds.dataset([str(f) for f in files], partitioning=partitioning, partition_base_dir=str(path)).to_table()


def visible_files(path: Path) -> list[Path]:
    """Return the files that a reader who globs the directory would take."""
    return sorted(p for p in path.glob("**/*.parquet") if p.is_file())


def assert_no_row_lost_or_doubled(found: Iterable[int], expected: Iterable[int]) -> None:
    """Compare ids as multisets and name the first few that are missing, doubled or foreign."""
    have, want = Counter(found), Counter(expected)
    missing, extra = want - have, have - want
    assert have == want, (
        f"{sum(missing.values())} rows lost (such as {sorted(missing)[:5]}), "
        f"{sum(extra.values())} doubled or foreign (such as {sorted(extra)[:5]})"
    )


def assert_every_visible_file_is_whole(path: Path) -> None:
    """Every file that a reader sees must be a complete Parquet file."""
    for file in visible_files(path):
        pq.read_table(file, partitioning=None)
