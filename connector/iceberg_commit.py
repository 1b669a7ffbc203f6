"""Driver only: one try at making a record's files visible, as updates and requirements for the catalog."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriter,
    write_manifest,
)
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table, TableProperties, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, SnapshotSummaryCollector, Summary, update_snapshot_summaries
from pyiceberg.table.update import AssertTableUUID, SetPropertiesUpdate, UpdatesAndRequirements
from pyiceberg.table.update.snapshot import _MergeAppendFiles
from pyiceberg.transforms import VoidTransform
from pyiceberg.typedef import EMPTY_DICT, Record
from pyiceberg.types import DecimalType, DoubleType, FloatType, IcebergType
from pyiceberg.utils.properties import property_as_int

from icefloe.errors import SchemaError
from icefloe.proto import sink_pb2


class PinnedTransaction(Transaction):
    """A transaction that only builds: what is staged on it is committed by the caller, once, without hidden retries.

    PyIceberg's own copies the whole metadata at every look, which is most of a commit's time on a long history.
    """

    @property
    def table_metadata(self) -> TableMetadata:
        return self._table.metadata


class AppendBySpec(_MergeAppendFiles):
    """An append with one new manifest for each partition spec that its files were written under.

    PyIceberg puts all files under the table's default spec, which gives files of an older spec wrong tuples.
    """

    def _manifests(self) -> list[ManifestFile]:
        by_spec: dict[int, list[DataFile]] = defaultdict(list)
        for data_file in self._added_data_files:
            by_spec[data_file.spec_id].append(data_file)
        added = [self._added_manifest(spec_id, files) for spec_id, files in sorted(by_spec.items())]
        return self._process_manifests(added + self._existing_manifests())

    def _added_manifest(self, spec_id: int, files: Iterable[DataFile]) -> ManifestFile:
        with self.new_manifest_writer(spec=self.spec(spec_id)) as writer:
            for data_file in files:
                writer.add(
                    ManifestEntry.from_args(
                        status=ManifestEntryStatus.ADDED,
                        snapshot_id=self._snapshot_id,
                        sequence_number=None,
                        file_sequence_number=None,
                        data_file=data_file,
                    )
                )
        return writer.to_manifest_file()

    def new_manifest_writer(self, spec: PartitionSpec) -> ManifestWriter:
        metadata = self._transaction.table_metadata
        return write_manifest(
            format_version=metadata.format_version,
            spec=spec,
            # A spec whose source column was dropped has its types only in an older schema.
            schema=schema_of_spec(metadata, spec),
            output_file=self.new_manifest_output(),
            snapshot_id=self._snapshot_id,
            avro_compression=self._compression,
        )

    def _summary(self, snapshot_properties: Mapping[str, str] = EMPTY_DICT) -> Summary:
        metadata = self._transaction.table_metadata
        limit = property_as_int(metadata.properties, TableProperties.WRITE_PARTITION_SUMMARY_LIMIT, 0) or 0
        collector = SnapshotSummaryCollector(partition_summary_limit=limit)
        for data_file in self._added_data_files:
            spec = metadata.specs()[data_file.spec_id]
            collector.add_file(data_file, schema=schema_of_spec(metadata, spec), partition_spec=spec)
        parent = metadata.snapshot_by_id(self._parent_snapshot_id) if self._parent_snapshot_id is not None else None
        return update_snapshot_summaries(
            summary=Summary(operation=self._operation, **collector.build(), **snapshot_properties),
            previous_summary=parent.summary if parent is not None else None,
        )


def schema_of_spec(metadata: TableMetadata, spec: PartitionSpec) -> Schema:
    """Return the newest schema that has every source column of the spec; the current one as a rule."""
    current = metadata.schema()
    newest_first = sorted(metadata.schemas, key=lambda schema: schema.schema_id, reverse=True)
    sources = {f.source_id for f in spec.fields if not isinstance(f.transform, VoidTransform)}
    for schema in (current, *newest_first):
        if sources <= set(schema.field_ids):
            return schema
    return current


class Append:
    """One try: the manifests written for it, and what the catalog is asked. Made anew for each try."""

    def __init__(
        self, table: Table, files: Sequence[DataFile], summary: Mapping[str, str], properties: Mapping[str, str]
    ) -> None:
        """Write manifests and manifest list for ``files`` on top of the table's head as ``table`` has it."""
        self._table = table
        self._producer = AppendBySpec(
            operation=Operation.APPEND,
            transaction=PinnedTransaction(table),
            io=table.io,
            snapshot_properties=dict(summary),
        )
        for data_file in files:
            self._producer.append_data_file(data_file)
        self._changes: UpdatesAndRequirements = self._producer._commit()
        self._properties = dict(properties)

    @property
    def snapshot_id(self) -> int:
        """The snapshot that exists once this try has landed."""
        return self._producer.snapshot_id

    def send(self) -> None:
        """Ask the catalog once. It refuses unless branch ``main`` and the table's uuid are as they were when checked.

        Raises ``CommitFailedException`` when refused; after anything else the outcome is unknown.
        """
        updates, requirements = self._changes
        settings = (SetPropertiesUpdate(updates=self._properties),) if self._properties else ()
        self._table._do_commit(
            (*updates, *settings),
            (*requirements, AssertTableUUID(uuid=self._table.metadata.table_uuid)),
        )

    def is_overtaken(self, metadata: TableMetadata) -> bool:
        """Whether the table shows that this try has not landed and never will: its head was replaced by another's.

        Not when the head is still the one that the try was built on: a "refused" that was really the answer to a
        repeated request, followed by a read of an old copy, looks like that.
        """
        moved = metadata.current_snapshot_id != self._producer._parent_snapshot_id
        return moved and metadata.snapshot_by_id(self.snapshot_id) is None

    def discard(self) -> None:
        """Delete this try's manifests. Only for a try that is known not to have landed and never will."""
        self._producer._clean_all_uncommitted()


def to_data_files(metadata: TableMetadata, files: Sequence[sink_pb2.DataFile]) -> list[DataFile]:
    """Return the files as Iceberg lists them: own spec, own tuple, unsorted, statistics as the writer measured them.

    Raises ``SchemaError`` when a file names a spec or a tuple that the table does not have.
    """
    return [_to_data_file(metadata, file) for file in files]


def _to_data_file(metadata: TableMetadata, file: sink_pb2.DataFile) -> DataFile:
    spec_id = file.fingerprint.spec_id
    spec = metadata.specs().get(spec_id)
    if spec is None:
        raise SchemaError(
            "ICEFLOE_TABLE_SPEC",
            f"the file {file.location} was written under partition spec {spec_id}, which the table lacks",
        )
    measured = file.metadata
    data_file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=file.location,
        file_format=FileFormat.PARQUET,
        partition=partition_record(spec, schema_of_spec(metadata, spec), file),
        record_count=file.rows,
        file_size_in_bytes=file.length_bytes,
        column_sizes=dict(measured.column_sizes),
        value_counts=dict(measured.value_counts),
        null_value_counts=dict(measured.null_value_counts),
        nan_value_counts=dict(measured.nan_value_counts),
        lower_bounds=dict(measured.lower_bounds),
        upper_bounds=dict(measured.upper_bounds),
        split_offsets=sorted(measured.split_offsets),
        # The rows are in the order of arrival, whatever the table's sort order.
        sort_order_id=None,
        equality_ids=None,
        key_metadata=None,
    )
    data_file.spec_id = spec_id
    return data_file


def partition_record(spec: PartitionSpec, schema: Schema, file: sink_pb2.DataFile) -> Record:
    """Return the file's partition tuple in the order of the spec, by field id. Raises ``SchemaError`` for a gap."""
    values = {value.field_id: value for value in file.partition.values}
    types = {f.field_id: f.field_type for f in spec.partition_type(schema).fields}
    return Record(*(_partition_value(f, types[f.field_id], values.get(f.field_id), file.location) for f in spec.fields))


def _partition_value(
    spec_field: PartitionField, kind: IcebergType, value: sink_pb2.PartitionValue | None, location: str
) -> Any:
    if value is None:
        if isinstance(spec_field.transform, VoidTransform):
            return None
        raise SchemaError(
            "ICEFLOE_PARTITION_TUPLE",
            f"the tuple of the file {location} has no value for the partition field {spec_field.name}",
        )
    chosen = value.WhichOneof("value")
    if chosen is None:
        return None
    raw = getattr(value, chosen)
    if isinstance(kind, DecimalType):
        unscaled = int.from_bytes(raw, "big", signed=True)
        # From its digits: arithmetic would round to the context's 28 digits, and Iceberg has 38.
        return Decimal((int(unscaled < 0), tuple(int(digit) for digit in str(abs(unscaled))), -kind.scale))
    if isinstance(kind, FloatType | DoubleType):
        return float(raw)
    return raw
