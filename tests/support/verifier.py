"""Independent eyes on a target and its state: rows against the source, files whole, nothing left that no record names.

Reads with PyArrow, PyIceberg and boto3, never with the sink's own readers (but for the names that its records hold).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from icefloe.connector.cleaning import plan_cleaning, remove_leftovers
from icefloe.connector.data_names import HIDDEN_FOLDER, parse
from icefloe.connector.jobs import job_ids, open_job
from icefloe.state.clean_up import referenced_names
from icefloe.state.object_names import job_metadata_name
from icefloe.state.opening import open_storage
from icefloe.state.records import RecordLog
from icefloe.state.storage import RESERVED_PART, RemovesAbandonedWrites
from support.query_runs import QueryPlan

Row = tuple[tuple[str, Any], ...]
_NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"


def verify(plan: QueryPlan) -> None:
    """Check everything that must hold once the query is done; raises ``AssertionError`` naming what does not."""
    assert_same_rows(rows_in_target(plan), rows_of(plan.source()))
    assert_no_data_file_is_unknown(plan)
    assert_state_names_everything(plan)
    if plan.target == "table":
        # Listing a table's data costs too much for every epoch: `icefloe clean` does it.
        assert_no_file_in_two_snapshots(plan)
        clean(plan)
        assert_a_snapshot_names_every_data_file(plan)
        assert_same_rows(rows_in_target(plan), rows_of(plan.source()))
    assert_nothing_is_unfinished(plan)


def rows_of(batches: Iterable[pa.RecordBatch | pa.Table]) -> Counter[Row]:
    """Return rows as a multiset, each with its columns by name; a null counts as a column that is not there."""
    return Counter(
        tuple(sorted((name, value) for name, value in row.items() if value is not None))
        for batch in batches
        for row in batch.to_pylist()
    )


def assert_same_rows(found: Counter[Row], expected: Counter[Row]) -> None:
    """Compare whole rows as multisets; names rows that are lost, doubled, or there and in no source."""
    lost, extra = expected - found, found - expected
    doubled = {row: count for row, count in extra.items() if row in expected}
    foreign = [row for row in extra if row not in expected]
    assert found == expected, (
        f"{sum(lost.values())} rows lost (such as {_shown(lost)}), {sum(doubled.values())} doubled (such as "
        f"{_shown(doubled)}), {len(foreign)} altered or foreign (such as {foreign[:2]})"
    )


def rows_in_target(plan: QueryPlan) -> Counter[Row]:
    """Read what a reader of the target sees; a file that cannot be read whole is an ``AssertionError``."""
    if plan.target == "table":
        files = [task.file.file_path for task in load_table(plan).scan().plan_files()]
        return rows_of(_read(plan, file) for file in files)
    return rows_of(_with_folders(_read(plan, file), file, plan.data) for file in visible_files(plan))


def visible_files(plan: QueryPlan) -> list[str]:
    """Return what a reader who lists the data location takes: all that ends in ``.parquet``."""
    return [file for file in _all_files(plan, plan.data) if file.endswith(".parquet")]


def load_table(plan: QueryPlan) -> Any:
    """Load the table from its catalog, with a client of the verifier's own."""
    from pyiceberg.catalog import load_catalog

    given = {key.removeprefix("catalog."): value for key, value in plan.catalog().items()}
    return load_catalog("crashes", **given, **plan.s3).load_table("db.events")


def assert_no_file_in_two_snapshots(plan: QueryPlan) -> None:
    """No data file is added by two snapshots, or twice by one."""
    table = load_table(plan)
    added: Counter[str] = Counter()
    for snapshot in table.snapshots():
        for manifest in snapshot.manifests(table.io):
            if manifest.added_snapshot_id == snapshot.snapshot_id:
                entries = manifest.fetch_manifest_entry(table.io, discard_deleted=True)
                added.update(e.data_file.file_path for e in entries if e.status == 1)
    twice = [path for path, count in added.items() if count > 1]
    assert not twice, f"data files in two snapshots: {twice}"
    current = Counter(task.file.file_path for task in table.scan().plan_files())
    assert max(current.values(), default=1) == 1, f"a data file is in the table twice: {current.most_common(1)}"


def clean(plan: QueryPlan) -> None:
    """Do what ``icefloe clean --yes`` does, for every job that has state here."""
    options = {**plan.s3, **plan.catalog()}
    for job_id in job_ids(open_storage(plan.state, plan.s3)):
        job = open_job(plan.state, job=job_id, options=options)
        remove_leftovers(plan_cleaning(job, plan.state))


def assert_a_snapshot_names_every_data_file(plan: QueryPlan) -> None:
    """After ``icefloe clean`` every data file is named by a snapshot, or is of an epoch after the last publication."""
    table = load_table(plan)
    named = {_plain(path) for path in table.inspect.all_files()["file_path"].to_pylist()}
    published = [
        int(s.summary["icefloe.epoch"]) for s in table.snapshots() if s.summary and "icefloe.epoch" in s.summary
    ]
    for file in _all_files(plan, plan.data):
        data = parse(file.rpartition("/")[2])
        if data is not None and file not in named and data.epoch <= max(published):
            raise AssertionError(f"no snapshot names {file}, and icefloe clean leaves it")


def assert_no_data_file_is_unknown(plan: QueryPlan) -> None:
    """Every Parquet file in the data location has a name that tells the attempt which made it (R1)."""
    for file in _all_files(plan, plan.data):
        if file.endswith(".parquet"):
            assert parse(file.rpartition("/")[2]) is not None, f"{file} has a name that Icefloe does not make"


def assert_state_names_everything(plan: QueryPlan) -> None:
    """After clean-up every object under the state location is named by a record that is not void."""
    state = open_storage(plan.state, plan.s3)
    named = set()
    for job_id in job_ids(state):
        log = RecordLog(state, job_id)
        head = log.head()
        assert head is not None, f"job {job_id} has no record"
        named |= {job_metadata_name(job_id), *referenced_names(log.chain(head))}
    found = {info.key for info in state.list()}
    assert found <= named, f"nothing names {sorted(found - named)}"


def assert_nothing_is_unfinished(plan: QueryPlan) -> None:
    """No in-progress file, no open upload, and no temporary file of a killed writer that clean-up could not take."""
    for location in {plan.state, plan.data} if plan.target == "path" else {plan.state}:
        storage = open_storage(location, plan.s3)
        if isinstance(storage, RemovesAbandonedWrites):
            storage.remove_abandoned_writes(timedelta(0))
        left = [f for f in _all_files(plan, location) if f"/{RESERVED_PART}/" in f]
        assert not left, f"temporary files that clean-up does not take: {left}"
    if plan.target == "path":
        hidden = [f for f in _all_files(plan, plan.data) if f"/{HIDDEN_FOLDER}/" in f]
        unfinished = [file for file in hidden if not file.endswith((".ledger", ".done"))]
        assert not unfinished, f"unfinished files that no record names: {unfinished}"
    if plan.location.startswith("s3:"):
        assert not _open_uploads(plan), f"open uploads: {_open_uploads(plan)}"


def _shown(rows: Mapping[Row, int]) -> list[Any]:
    return sorted(dict(row).get("id", -1) for row in rows)[:5]


def _read(plan: QueryPlan, file: str) -> pa.Table:
    system = _file_system(plan)
    try:
        return pq.read_table(_plain(file), filesystem=system, partitioning=None)
    except (pa.ArrowInvalid, OSError) as error:
        raise AssertionError(f"{file} is visible and cannot be read: {error}") from error


def _with_folders(rows: pa.Table, file: str, root: str) -> pa.Table:
    for part in _plain(file).removeprefix(_plain(root)).strip("/").split("/")[:-1]:
        name, _, text = part.partition("=")
        value = None if text == _NULL_FOLDER else unquote(text)
        rows = rows.append_column(name, pa.array([value] * rows.num_rows, pa.string()))
    return rows


def _all_files(plan: QueryPlan, location: str) -> list[str]:
    selector = fs.FileSelector(_plain(location), recursive=True, allow_not_found=True)
    found = _file_system(plan).get_file_info(selector)
    return sorted(info.path for info in found if info.type == fs.FileType.File)


def _plain(url: str) -> str:
    return url.partition("://")[2] if "://" in url else url


def _file_system(plan: QueryPlan) -> fs.FileSystem:
    if not plan.s3:
        return fs.LocalFileSystem()
    endpoint = urlsplit(plan.s3["s3.endpoint"])
    return fs.S3FileSystem(
        access_key=plan.s3["s3.access-key-id"],
        secret_key=plan.s3["s3.secret-access-key"],
        region=plan.s3["s3.region"],
        scheme=endpoint.scheme,
        endpoint_override=endpoint.netloc,
    )


def _open_uploads(plan: QueryPlan) -> list[str]:
    import boto3

    client = boto3.client(
        "s3",
        endpoint_url=plan.s3["s3.endpoint"],
        region_name=plan.s3["s3.region"],
        aws_access_key_id=plan.s3["s3.access-key-id"],
        aws_secret_access_key=plan.s3["s3.secret-access-key"],
    )
    bucket = urlsplit(plan.location).netloc
    uploads = client.list_multipart_uploads(Bucket=bucket).get("Uploads", [])
    client.close()
    return [json.dumps([upload["Key"], upload["UploadId"]]) for upload in uploads]


def local_files(folder: Path) -> list[Path]:
    """Return every file below a folder."""
    return sorted(path for path in folder.rglob("*") if path.is_file())
