"""Driver only: the Iceberg table as the committer sees it. This module and the ``iceberg_*`` ones import PyIceberg."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Sequence
from functools import partial
from types import TracebackType

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.schema import Schema
from pyiceberg.table import Table, TableProperties
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.update import AssertRefSnapshotId, AssertTableUUID, RemoveSnapshotsUpdate
from pyiceberg.utils.properties import property_as_bool, property_as_int

from icefloe.connector.iceberg_catalog import (
    check_creation,
    is_new_warehouse,
    load_or_create,
    load_table,
    open_catalog,
    redact,
    secrets_of,
    translated,
)
from icefloe.connector.iceberg_evolution import difference, evolve, require_fit, stream_to_iceberg
from icefloe.connector.iceberg_idle import give_back_catalog, take_idle_catalog
from icefloe.connector.iceberg_publish import (
    Publisher,
    RetryPolicy,
    ancestor_ids,
    find_snapshot,
    own_snapshots,
    read_ledger,
)
from icefloe.connector.table_plan import PartitionFieldPlan, TablePlan, TableSettings
from icefloe.connector.targets import Publication, PublishOutcome
from icefloe.errors import ConflictError, IcefloeError, NotFoundError, OptionError, StorageError
from icefloe.proto import sink_pb2
from icefloe.state.crash_points import crash_point

__all__ = ["IcebergTarget", "PublishOutcome", "RetryPolicy", "TablePlan", "TableSettings", "check_table"]

log = logging.getLogger(__name__)

_EVOLUTION_TRIES = 10
# A table that was loaded so long ago counts as looked at a moment ago.
_FRESH_SECONDS = 1.0
# What tasks need to reach the data: PyIceberg's names for S3 settings, also those that a catalog vends.
_STORAGE_PREFIXES = ("s3.", "client.")


def check_table(settings: TableSettings, stream_schema: pa.Schema) -> None:
    """Raise what ``open`` and ``plan`` would raise for this stream, and change nothing, not even a folder."""
    stream = stream_to_iceberg(stream_schema)
    if is_new_warehouse(settings):
        check_creation(settings, stream)
        return
    with contextlib.closing(open_catalog(settings)) as catalog:
        try:
            table = load_table(catalog, settings)
        except NotFoundError:
            check_creation(settings, stream)
            return
    found = difference(stream, table.metadata.schema())
    require_fit(found, settings.identifier, merge=settings.merge_schema)


class IcebergTarget:
    """One table, open for writing. Holds catalog connections until ``close``; use from one thread."""

    def __init__(self, settings: TableSettings, catalog: Catalog, table: Table, policy: RetryPolicy) -> None:
        self._settings = settings
        self._catalog = catalog
        self._table = table
        self._policy = policy
        # Until when the table counts as just loaded, if nobody has used it yet.
        self._fresh_until = time.monotonic() + _FRESH_SECONDS

    @classmethod
    def open(
        cls, settings: TableSettings, stream_schema: pa.Schema | None = None, *, policy: RetryPolicy | None = None
    ) -> IcebergTarget:
        """Load the table, or create namespace and table from ``stream_schema`` where the settings allow it. Repeatable.

        Raises ``OptionError`` (no such catalog, bad ``partitionBy``), ``NotFoundError`` (no such table, not to be
        created), ``SchemaError`` (format version 3, a type that Iceberg lacks), ``StorageError`` (no answer).
        """
        policy = policy or RetryPolicy()
        idle = take_idle_catalog(settings)
        if idle is not None:
            # What an earlier epoch left may have lost its connection or its credentials since.
            with contextlib.suppress(IcefloeError):
                return cls._opened(settings, idle, stream_schema, policy)
        return cls._opened(settings, open_catalog(settings), stream_schema, policy)

    @classmethod
    def _opened(
        cls, settings: TableSettings, catalog: Catalog, stream_schema: pa.Schema | None, policy: RetryPolicy
    ) -> IcebergTarget:
        try:
            table = load_or_create(catalog, settings, stream_schema)
        except BaseException:
            catalog.close()
            raise
        return cls(settings, catalog, table, policy)

    def close(self) -> None:
        """Release the catalog's connections. May be repeated."""
        self._catalog.close()

    def leave(self) -> None:
        """Leave the open catalog to the next one that opens this table in this process; not to be used after it.

        Only after all went well: a catalog that failed is closed, and the next one opens its own.
        """
        give_back_catalog(self._settings, self._catalog)

    def __enter__(self) -> IcebergTarget:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def uuid(self) -> str:
        """The table's uuid when it was opened."""
        return str(self._table.metadata.table_uuid)

    @property
    def table(self) -> Table:
        """The table as last loaded, for reading."""
        return self._table

    def plan(self, stream_schema: pa.Schema) -> TablePlan:
        """Return what tasks need for the coming epoch, after evolving the table where ``merge_schema`` allows it.

        Looks at the table anew, so that vended credentials are renewed. Raises ``SchemaError`` that lists every column
        that is in the way.
        """
        self._refresh()
        self._evolve(stream_to_iceberg(stream_schema))
        return self.describe()

    def ledger(self, job_id: str) -> str | None:
        """Return the job's ledger value as the table has it now: ``<epoch>:<record digest>``, or None."""
        self._reload()
        return read_ledger(self._table.metadata, job_id)

    def committed_us(self, job_id: str, ledger: str) -> int | None:
        """Return when the snapshot of this ledger value was made; None where the table, as last loaded, has it not."""
        snapshot = find_snapshot(self._table.metadata, job_id, ledger)
        return snapshot.timestamp_ms * 1000 if snapshot is not None else None

    def publish(
        self,
        job_id: str,
        epoch: int,
        digest: str,
        expected_ledger: str,
        batch_id: int,
        files: Sequence[sink_pb2.DataFile],
        source_offsets: str = "",
        *,
        keeps_ledger: bool = True,
        even_if_empty: bool = False,
        look_again: bool = True,
    ) -> PublishOutcome:
        """Append a record's files and move the ledger in one commit; a repetition finds it done. No files: no commit.

        ``even_if_empty`` moves the ledger all the same: every file of the record was given up. Without ``look_again``
        a table that was opened a moment ago is not loaded once more for the first try.

        ``expected_ledger`` is empty for the first commit of a job. Raises ``ConflictError`` (the ledger is neither this
        record's nor the expected one, or the table was replaced), ``CommitUnknownError``, ``StorageError``.
        """
        if not files and not even_if_empty:
            return PublishOutcome(already=False)
        publication = Publication(
            job_id=job_id,
            epoch=epoch,
            digest=digest,
            batch_id=batch_id,
            expected_ledger=expected_ledger,
            files=files,
            source_offsets=source_offsets,
            keeps_ledger=keeps_ledger,
        )
        publisher = Publisher(
            load=partial(self._loaded, look_again=look_again),
            redact=lambda text: redact(text, secrets_of(self._settings)),
            policy=self._policy,
        )
        outcome, self._table = publisher.publish(publication, self.uuid)
        return outcome

    def _loaded(self, *, look_again: bool) -> Table:
        """Return the table as it is now: as just opened, where the caller allows it, else loaded anew.

        A publication that looks at a table of a moment ago is as safe as one that takes a moment to write manifests:
        the catalog refuses it if the head has moved since.
        """
        if self._take_fresh() and not look_again:
            return self._table
        return load_table(self._catalog, self._settings)

    def _take_fresh(self) -> bool:
        fresh, self._fresh_until = time.monotonic() < self._fresh_until, 0.0
        return fresh

    def expire_own_snapshots(self, job_id: str, keep: int) -> int:
        """Drop this job's snapshots beyond the newest ``keep`` from the table's history; return how many went.

        Does something only once half as many again have gathered, so it may be called after every commit. Tags, other
        branches, what they build on, and other writers' snapshots are left alone; so are the rows. A conflict with
        another writer, or a catalog that fails, leaves it for the next time: no row depends on it. Manifest lists of
        expired snapshots are deleted unless ``gc.enabled`` is false.
        """
        keep = max(1, keep)
        expirable = self._expirable(job_id, keep)
        if len(expirable) < max(1, keep // 2):
            return 0
        metadata = self._table.metadata
        lists = [s.manifest_list for s in metadata.snapshots if s.snapshot_id in expirable]
        removal = RemoveSnapshotsUpdate.model_validate({"snapshot-ids": sorted(expirable)})
        requirements = (
            AssertTableUUID(uuid=metadata.table_uuid),
            AssertRefSnapshotId.model_validate({"ref": MAIN_BRANCH, "snapshot-id": metadata.current_snapshot_id}),
        )
        try:
            with translated(self._settings, "expiring snapshots"):
                self._table._do_commit((removal,), requirements)
        except StorageError as e:
            log.warning("snapshots were not expired, the next commits try again: %s", e)
            return 0
        crash_point("catalog.expired")
        if property_as_bool(metadata.properties, "gc.enabled", True):
            self._delete(lists)
        return len(expirable)

    def _expirable(self, job_id: str, keep: int) -> set[int]:
        metadata = self._table.metadata
        used = {ref.snapshot_id for ref in metadata.refs.values()}
        for name, ref in metadata.refs.items():
            if name != MAIN_BRANCH and ref.snapshot_ref_type == SnapshotRefType.BRANCH:
                used |= ancestor_ids(metadata, ref.snapshot_id)
        older = own_snapshots(metadata, job_id)[:-keep]
        return {s.snapshot_id for s in older} - used

    def _delete(self, locations: Sequence[str]) -> None:
        for location in locations:
            try:
                self._table.io.delete(location)
            except Exception as e:  # noqa: BLE001 - a leftover costs a few kilobytes; the commit has landed
                log.warning("the manifest list %s of an expired snapshot was not deleted: %s", location, e)

    def _reload(self) -> None:
        before = self.uuid
        self._table = load_table(self._catalog, self._settings)
        self._fresh_until = 0.0
        if self.uuid != before:
            raise ConflictError(
                "ICEFLOE_TABLE_REPLACED",
                f"the table {self._settings.identifier} was replaced while in use: uuid {before} is now {self.uuid}",
            )

    def _refresh(self) -> None:
        if not self._take_fresh():
            self._reload()

    def _evolve(self, stream: Schema) -> None:
        for tries in range(1, _EVOLUTION_TRIES + 1):
            found = difference(stream, self._table.metadata.schema())
            if not found:
                return
            require_fit(found, self._settings.identifier, merge=self._settings.merge_schema)
            with translated(self._settings, "changing the table's schema"):
                try:
                    evolve(self._table, found)
                    crash_point("catalog.evolved")
                except CommitFailedException:
                    # Another driver was faster, perhaps with the same columns: look again.
                    if tries == _EVOLUTION_TRIES:
                        raise
                    self._policy.wait(tries)
            self._reload()

    def describe(self) -> TablePlan:
        """Return the plan for files that are in flight already; no stream's schema is looked at."""
        metadata = self._table.metadata
        properties = metadata.properties
        if custom := properties.get(TableProperties.WRITE_PY_LOCATION_PROVIDER_IMPL):
            raise OptionError(
                "ICEFLOE_TABLE_LOCATION_PROVIDER",
                f"the table {self._settings.identifier} places its files with {custom}, which tasks cannot run; "
                f"remove the property {TableProperties.WRITE_PY_LOCATION_PROVIDER_IMPL}",
            )
        schema = metadata.schema()
        return TablePlan(
            identifier=self._settings.identifier,
            table_uuid=self.uuid,
            format_version=metadata.format_version,
            schema_id=schema.schema_id,
            spec_id=metadata.default_spec_id,
            iceberg_schema_json=schema.model_dump_json(),
            partition_fields=self._partition_fields(),
            data_location=self._table.location_provider().data_path,
            object_storage=property_as_bool(properties, TableProperties.OBJECT_STORE_ENABLED, False),
            object_storage_partitioned=property_as_bool(
                properties, TableProperties.WRITE_OBJECT_STORE_PARTITIONED_PATHS, True
            ),
            properties=dict(properties),
            storage_options={k: v for k, v in self._table.io.properties.items() if k.startswith(_STORAGE_PREFIXES)},
            target_file_size_bytes=property_as_int(
                properties,
                TableProperties.WRITE_TARGET_FILE_SIZE_BYTES,
                TableProperties.WRITE_TARGET_FILE_SIZE_BYTES_DEFAULT,
            )
            or TableProperties.WRITE_TARGET_FILE_SIZE_BYTES_DEFAULT,
        )

    def _partition_fields(self) -> tuple[PartitionFieldPlan, ...]:
        metadata = self._table.metadata
        schema, spec = metadata.schema(), metadata.spec()
        types = {f.field_id: f.field_type for f in spec.partition_type(schema).fields}
        return tuple(
            PartitionFieldPlan(
                name=f.name,
                field_id=f.field_id,
                source_name=schema.find_column_name(f.source_id) or "",
                source_id=f.source_id,
                transform=str(f.transform),
                result_type=str(types[f.field_id]),
            )
            for f in spec.fields
        )
