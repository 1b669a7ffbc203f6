"""Driver and command line only: which data files a table still needs, and whose ledgers it carries."""

from __future__ import annotations

from icefloe.connector.iceberg_catalog import translated
from icefloe.connector.iceberg_publish import LEDGER_PROPERTY
from icefloe.connector.iceberg_table import IcebergTarget
from icefloe.connector.table_plan import TableSettings


def names_in_use(target: IcebergTarget, settings: TableSettings) -> frozenset[str]:
    """Return the last parts of the locations of all files that any snapshot of the table names.

    Names, not locations: each carries the id of the attempt that made it, and a location may be spelled in several
    ways. All branches, tags and old snapshots count, removed files too. Raises ``StorageError`` when a manifest cannot
    be read: then nothing is known, and nothing may be removed.
    """
    names: set[str] = set()
    table = target.table
    with translated(settings, "reading the table's manifests"):
        manifests = {m.manifest_path: m for s in table.metadata.snapshots for m in s.manifests(table.io)}
        for manifest in manifests.values():
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False):
                names.add(entry.data_file.file_path.rpartition("/")[2])
    return frozenset(names)


def ledger_jobs(target: IcebergTarget) -> list[str]:
    """Return the jobs that have a ledger in the table's properties."""
    properties = target.table.metadata.properties
    return sorted(key.removeprefix(LEDGER_PROPERTY) for key in properties if key.startswith(LEDGER_PROPERTY))


def forget_ledger(target: IcebergTarget, settings: TableSettings, job_id: str) -> None:
    """Remove the ledger property of a job that is gone; repeatable."""
    with translated(settings, f"removing the ledger of job {job_id}"), target.table.transaction() as transaction:
        transaction.remove_properties(LEDGER_PROPERTY + job_id)
