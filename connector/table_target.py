"""An Iceberg table as a target of the committer. Driver only: this is what loads PyIceberg."""

from __future__ import annotations

from collections.abc import Sequence

from icefloe.connector.iceberg_catalog import translated
from icefloe.connector.iceberg_publish import read_ledger
from icefloe.connector.iceberg_table import IcebergTarget
from icefloe.connector.options import SinkOptions
from icefloe.connector.table_plan import TableSettings
from icefloe.connector.targets import LedgerState, Publication, PublishOutcome
from icefloe.errors import StorageError
from icefloe.proto import sink_pb2 as sink


def table_settings(options: SinkOptions) -> TableSettings:
    """Return the options that name a table and say what may be done to it."""
    assert options.table is not None
    return TableSettings(
        identifier=options.table,
        catalog_name=options.catalog,
        catalog_properties=options.catalog_properties,
        warehouse=options.warehouse,
        create=options.create_table,
        partition_by=options.partition_by,
        table_properties=options.table_properties,
        merge_schema=options.merge_schema,
        keep_snapshots=options.keep_snapshots,
        s3=options.s3_options,
    )


class TableTarget:
    """Publishes records of one job to a table: append and ledger in one commit."""

    def __init__(self, settings: TableSettings, opened: IcebergTarget | None = None) -> None:
        """Take a table that is open already, or open it on first use: an epoch that rolls nothing needs no catalog."""
        self._settings = settings
        self._opened = opened

    @property
    def _table(self) -> IcebergTarget:
        if self._opened is None:
            self._opened = IcebergTarget.open(self._settings)
        return self._opened

    def leave(self) -> None:
        """Leave what is open to the next epoch in this process. Only after all went well, and as the last call."""
        if self._opened is not None:
            self._opened.leave()
            self._opened = None

    def identity(self) -> sink.Target:
        """Return the table's name and uuid: a table that was dropped and made again is another one."""
        return sink.Target(table=self._settings.identifier, table_uuid=self._table.uuid)

    def ledger(self, job_id: str) -> str:
        """Return the ledger as the table had it when it was last loaded, which opening and planning do."""
        return read_ledger(self._table.table.metadata, job_id) or ""

    def ledger_state(self, job_id: str) -> LedgerState:
        """Return the ledger and the time of its snapshot, if the table still lists it."""
        value = self._table.ledger(job_id) or ""
        return LedgerState(value=value, complete=True, committed_us=self._table.committed_us(job_id, value))

    def publish(self, publication: Publication) -> PublishOutcome:
        """Append the record's files, unless the ledger says that it has been done.

        Raises ``StorageError`` for a file outside of the table: names in state cannot lead elsewhere.
        """
        self._check_inside(publication.files)
        if not publication.fresh:
            self._check_there(publication)
        outcome = self._table.publish(
            publication.job_id,
            publication.epoch,
            publication.digest,
            publication.expected_ledger,
            publication.batch_id,
            publication.files,
            publication.source_offsets,
            keeps_ledger=publication.keeps_ledger,
            even_if_empty=publication.keeps_ledger,
            look_again=False,
        )
        if self._settings.keep_snapshots is not None and not outcome.already:
            self._table.expire_own_snapshots(publication.job_id, self._settings.keep_snapshots)
        return outcome

    def _check_inside(self, files: Sequence[sink.DataFile]) -> None:
        table = self._table.table
        roots = [_plain(root).rstrip("/") for root in (table.location_provider().data_path, table.location())]
        for file in files:
            path = _plain(file.location)
            if ".." in path.split("/") or not any(path.startswith(f"{root}/") for root in roots):
                raise StorageError(
                    "ICEFLOE_FILE_NAME_INVALID",
                    f"{file.location!r} is outside of the table at {table.location()}, so it is not appended: the "
                    "state was changed by hand, or write.data.path was since the file was finished (set it back)",
                )

    def _check_there(self, publication: Publication) -> None:
        """Refuse to append files that are gone: readers would fail on them, and nobody would learn of the loss."""
        if self.ledger(publication.job_id) == publication.ledger:
            return
        with translated(self._settings, "looking for recorded files"):
            for file in publication.files:
                self._check_file(file, publication.epoch)

    def _check_file(self, file: sink.DataFile, epoch: int) -> None:
        found = self._table.table.io.new_input(file.location)
        if not found.exists() or len(found) != file.length_bytes:
            raise StorageError(
                "ICEFLOE_FILE_LOST",
                f"{file.location} ({file.rows} rows, {file.length_bytes} bytes) was finished by attempt "
                f"{file.attempt_id} for record {epoch} and is not there any more, so it was not "
                "appended: a job that removes orphan files may have taken it. Restore it, or give it up with "
                "`icefloe finish --give-up`",
            )

    def clean_up(self, job_id: str, *, head_epoch: int, named: frozenset[str]) -> int:
        """Do nothing: listing a table's data costs too much for every epoch. ``icefloe clean`` does it."""
        return 0


def _plain(url: str) -> str:
    """Return a location without its scheme: readers and catalogs write one place as ``/a``, ``file:///a``, ``s3a:``."""
    return url.partition("://")[2] if "://" in url else url.removeprefix("file:")
