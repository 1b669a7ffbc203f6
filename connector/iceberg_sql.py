"""Driver only: PyIceberg's SQL catalog without the work that it repeats in every epoch (docs/decisions/0022)."""

from __future__ import annotations

import hashlib
import os
from typing import Final

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.serializers import ToOutputFile
from pyiceberg.table import StagedTable, Table
from pyiceberg.table.locations import load_location_provider
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.table.update import (
    TableRequirement,
    TableUpdate,
    _apply_table_update,
    _TableMetadataUpdateContext,
    _update_table_metadata_log,
)
from pyiceberg.typedef import Identifier
from pyiceberg.utils.config import Config

from icefloe.state.record_cache import DigestCache

_PLAIN_SUFFIX: Final = ".metadata.json"
_PACKED_SUFFIX: Final = ".gz.metadata.json"

# Parsed metadata by the digest of its file's bytes: never wrong, whoever wrote the file.
_parsed: DigestCache[TableMetadata] = DigestCache(max_bytes=8 * 1024**2)


class RememberingSqlCatalog(SqlCatalog):
    """Behaves as ``SqlCatalog`` does, and parses no metadata file twice in a process, nor copies it to change it."""

    def _init_catalog(self) -> None:
        super()._init_catalog()
        self._opened_file = self._file()

    def is_usable(self) -> bool:
        """Whether this catalog can serve another epoch: not once the SQLite file behind its connections is gone.

        A process would go on with a file that was deleted or replaced, and commit to what nobody reads.
        """
        return self.engine.dialect.name != "sqlite" or (
            self._opened_file is not None and self._opened_file == self._file()
        )

    def _file(self) -> tuple[int, int] | None:
        """Return what tells the SQLite file from another one under its name; None where there is none."""
        try:
            found = os.stat(self.engine.url.database or "")
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def _convert_orm_to_iceberg(self, orm_table: IcebergTables) -> Table:
        location = orm_table.metadata_location
        if not location:
            raise NoSuchTableError(f"{orm_table.table_namespace}.{orm_table.table_name} has no metadata location")
        if not _is_plain(location):
            return super()._convert_orm_to_iceberg(orm_table)
        with load_file_io(self.properties, location).new_input(location).open() as stream:
            metadata = _parse(stream.read())
        return Table(
            identifier=(*Catalog.identifier_to_tuple(orm_table.table_namespace), orm_table.table_name),
            metadata=metadata,
            metadata_location=location,
            io=self._load_file_io(metadata.properties, location),
            catalog=self,
        )

    @staticmethod
    def _write_metadata(metadata: TableMetadata, io: FileIO, metadata_path: str) -> None:
        output = io.new_output(metadata_path)
        if not _is_plain(metadata_path) or Config().get_bool("legacy-current-snapshot-id"):
            ToOutputFile.table_metadata(metadata, output)
            return
        data = metadata.model_dump_json(exclude_none=True).encode()
        with output.create() as stream:
            stream.write(data)
        _parsed.add(hashlib.sha256(data).hexdigest(), metadata, len(data))

    def _update_and_stage_table(
        self,
        current_table: Table | None,
        table_identifier: Identifier,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> StagedTable:
        if current_table is None or not any(update.action == "add-snapshot" for update in updates):
            return super()._update_and_stage_table(current_table, table_identifier, requirements, updates)
        for requirement in requirements:
            requirement.validate(current_table.metadata)
        metadata = _with_snapshot(current_table.metadata, updates, current_table.metadata_location)
        version = self._parse_metadata_version(current_table.metadata_location) + 1
        location = load_location_provider(metadata.location, metadata.properties).new_table_metadata_file_location(
            version
        )
        return StagedTable(
            identifier=table_identifier,
            metadata=metadata,
            metadata_location=location,
            io=self._load_file_io(metadata.properties, location),
            catalog=self,
        )


def _with_snapshot(base: TableMetadata, updates: tuple[TableUpdate, ...], location: str) -> TableMetadata:
    """Return the metadata after an append. PyIceberg does the same and then copies every snapshot of the history.

    No update changes what it is given: each makes new lists and a new model around parts that both share.
    """
    context = _TableMetadataUpdateContext()
    metadata = base
    for update in updates:
        metadata = _apply_table_update(update, metadata, context)
    return _update_table_metadata_log(metadata, location, base.last_updated_ms)


def _is_plain(location: str) -> bool:
    return location.endswith(_PLAIN_SUFFIX) and not location.endswith(_PACKED_SUFFIX)


def _parse(data: bytes) -> TableMetadata:
    digest = hashlib.sha256(data).hexdigest()
    metadata = _parsed.get(digest)
    if metadata is None:
        metadata = TableMetadataUtil.parse_raw(data.decode())
        _parsed.add(digest, metadata, len(data))
    return metadata
