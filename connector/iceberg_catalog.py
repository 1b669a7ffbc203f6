"""Driver only: find the catalog, load the table, create it where it is missing."""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
from collections.abc import Iterator, Mapping
from urllib.parse import quote, unquote, urlsplit

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    AuthorizationExpiredError,
    BadRequestError,
    ForbiddenError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
    UnauthorizedError,
)
from pyiceberg.io import PY_IO_IMPL, load_file_io
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table, TableProperties

from icefloe.connector.iceberg_evolution import partition_spec_of, stream_to_iceberg
from icefloe.connector.table_plan import TableSettings
from icefloe.errors import ConflictError, IcefloeError, NotFoundError, OptionError, SchemaError, StorageError

EMBEDDED_CATALOG = "icefloe"
BUSY_TIMEOUT_SECONDS = 60
FSSPEC_FILE_IO = "pyiceberg.io.fsspec.FsspecFileIO"
# PyIceberg 0.12 reads version 3 and writes neither its row ids nor its manifests.
HIGHEST_FORMAT_VERSION = 2
_SECRET = re.compile(r"secret|password|token|credential|access-key|private|signature", re.IGNORECASE)
# The catalog or its storage understood and said no: another try would hear the same.
DENIED = (ForbiddenError, UnauthorizedError, AuthorizationExpiredError, BadRequestError, PermissionError)

# What a table that the sink creates gets where the user says nothing: bounded metadata at any commit rate.
HYGIENE = {
    TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED: "true",
    TableProperties.METADATA_PREVIOUS_VERSIONS_MAX: "20",
    TableProperties.MANIFEST_MERGE_ENABLED: "true",
}


def open_catalog(settings: TableSettings) -> Catalog:
    """Return the catalog that the settings name; it holds connections until ``close``.

    Raises ``OptionError`` when there is no such catalog or its configuration is incomplete, ``StorageError`` when it
    does not answer.
    """
    if len([part for part in settings.identifier.split(".") if part]) < 2:
        raise OptionError(
            "ICEFLOE_OPTION_TABLE", f"table={settings.identifier} has no namespace; write it as namespace.table"
        )
    properties = secrets_of(settings)
    if _is_embedded(settings):
        return _open_embedded(_local_folder(settings.warehouse or ""), properties)
    if settings.warehouse:
        properties.setdefault("warehouse", settings.warehouse)
    with translated(settings, f"opening the catalog {settings.catalog_name or '(default)'}"):
        try:
            return _remembering(load_catalog(settings.catalog_name, **properties))
        except (ValueError, ImportError, AttributeError) as e:
            raise OptionError(
                "ICEFLOE_CATALOG",
                f"the catalog {settings.catalog_name or '(default)'} cannot be opened: {redact(str(e), properties)}; "
                "set warehouse to a local folder, or catalog and catalog.* to a PyIceberg catalog",
            ) from None


def _remembering(catalog: Catalog) -> Catalog:
    """Return an SQL catalog as one that saves repeated work, and any other as it is."""
    if type(catalog).__module__ != "pyiceberg.catalog.sql":
        return catalog
    # Not above: SQLAlchemy costs a tenth of a second that other catalogs need not pay.
    from icefloe.connector.iceberg_sql import RememberingSqlCatalog

    catalog.close()
    return RememberingSqlCatalog(catalog.name, **catalog.properties)


def s3_properties(s3: Mapping[str, str]) -> dict[str, str]:
    """Return the ``s3.*`` options under the names that PyIceberg gives them."""
    return {key if key.startswith("s3.") else f"s3.{key}": value for key, value in s3.items()}


def _is_embedded(settings: TableSettings) -> bool:
    return bool(settings.warehouse) and settings.catalog_name is None and not settings.catalog_properties


def _local_folder(warehouse: str) -> str:
    parts = urlsplit(warehouse)
    if parts.scheme not in ("", "file"):
        raise OptionError(
            "ICEFLOE_OPTION_WAREHOUSE",
            f"warehouse={warehouse} is not a local folder, which the embedded catalog needs; "
            "name a catalog with catalog.type and catalog.uri to keep tables elsewhere",
        )
    folder = os.path.abspath(unquote(parts.path) if parts.scheme else warehouse)
    if any(character in folder for character in "#?"):
        # Table locations are URIs, and readers cut them at these characters.
        raise OptionError("ICEFLOE_OPTION_WAREHOUSE", f"warehouse={warehouse} has # or ? in it; choose another folder")
    return folder


def _database(folder: str) -> str:
    return os.path.join(folder, "catalog.db")


def _open_embedded(folder: str, properties: dict[str, str]) -> Catalog:
    database = _database(folder)
    try:
        os.makedirs(folder, exist_ok=True)
        # WAL is a property of the file: readers of other processes then never block a commit. "Locked" means that
        # another process is switching it on; a file that cannot be opened fails below.
        with (
            contextlib.suppress(sqlite3.OperationalError),
            contextlib.closing(sqlite3.connect(database, timeout=BUSY_TIMEOUT_SECONDS)) as connection,
        ):
            connection.execute("PRAGMA journal_mode=WAL")
        return _load_embedded(folder, database, properties)
    except (OSError, sqlite3.Error) as e:
        raise StorageError("ICEFLOE_WAREHOUSE", f"the embedded catalog {database} cannot be opened: {e}") from e


def _load_embedded(folder: str, database: str, properties: dict[str, str]) -> Catalog:
    from sqlalchemy.exc import SQLAlchemyError

    uri = f"sqlite:///{quote(database)}?timeout={BUSY_TIMEOUT_SECONDS}"
    arguments = {**properties, "type": "sql", "uri": uri, "warehouse": f"file://{folder}"}
    for last in (False, False, True):
        try:
            return _remembering(load_catalog(EMBEDDED_CATALOG, **arguments))
        except SQLAlchemyError as e:
            # Two processes that meet a new database both create its tables; the one that is second finds them.
            if last:
                raise StorageError("ICEFLOE_WAREHOUSE", f"the catalog {database} cannot be opened: {e}") from e
    raise AssertionError("unreachable")


def load_table(catalog: Catalog, settings: TableSettings) -> Table:
    """Load the table as it is now, with fresh credentials.

    Raises ``NotFoundError`` when it is not there and ``SchemaError`` for a format version that cannot be written.
    """
    with translated(settings, "loading the table"):
        try:
            table = catalog.load_table(settings.identifier)
        except (NoSuchTableError, NoSuchNamespaceError) as e:
            raise NotFoundError(
                "ICEFLOE_TABLE_NOT_FOUND",
                f"there is no table {settings.identifier} in the catalog {catalog.name}; create it, or set "
                "createTable=true",
            ) from e
    if table.metadata.format_version > HIGHEST_FORMAT_VERSION:
        raise SchemaError(
            "ICEFLOE_TABLE_VERSION",
            f"the table {settings.identifier} has format version {table.metadata.format_version}; versions 1 and 2 "
            "can be written: use a table of version 2",
        )
    if table.metadata.location.startswith(("s3://", "s3a://", "s3n://")) and PY_IO_IMPL not in table.io.properties:
        # PyArrow's S3 file system writes a small object with three requests; fsspec's needs one.
        catalog.properties[PY_IO_IMPL] = FSSPEC_FILE_IO
        table.io = load_file_io({**table.io.properties, PY_IO_IMPL: FSSPEC_FILE_IO}, table.metadata.location)
    return table


def load_or_create(catalog: Catalog, settings: TableSettings, stream_schema: pa.Schema | None) -> Table:
    """Load the table, or create namespace and table from the stream's schema. Safe when several drivers do it at once.

    Raises ``NotFoundError`` when the table is missing and may not be created.
    """
    try:
        return load_table(catalog, settings)
    except NotFoundError:
        if not settings.create or stream_schema is None:
            raise
    _create(catalog, settings, stream_schema)
    return load_table(catalog, settings)


def is_new_warehouse(settings: TableSettings) -> bool:
    """Whether the settings name an embedded catalog that nothing has been written to."""
    return _is_embedded(settings) and not os.path.exists(_database(_local_folder(settings.warehouse or "")))


def check_creation(settings: TableSettings, schema: Schema) -> PartitionSpec:
    """Return the spec of the table to be created. Raises what creating it would raise, before anything is done."""
    if not settings.create:
        raise NotFoundError(
            "ICEFLOE_TABLE_NOT_FOUND", f"there is no table {settings.identifier}; create it, or set createTable=true"
        )
    properties = settings.table_properties
    version = properties.get(TableProperties.FORMAT_VERSION, "2")
    if version not in ("1", "2"):
        raise OptionError(
            "ICEFLOE_TABLE_VERSION",
            f"tableProperty.format-version={version} cannot be written; use 2, or leave it out",
        )
    return partition_spec_of(settings.partition_by, schema)


def _create(catalog: Catalog, settings: TableSettings, stream_schema: pa.Schema) -> None:
    schema = stream_to_iceberg(stream_schema)
    spec = check_creation(settings, schema)
    identifier = Catalog.identifier_to_tuple(settings.identifier)
    properties = {**HYGIENE, **settings.table_properties}
    with translated(settings, "creating the table"):
        _create_namespaces(catalog, identifier[:-1])
        with contextlib.suppress(TableAlreadyExistsError):
            catalog.create_table(identifier, schema, partition_spec=spec, properties=properties)


def _create_namespaces(catalog: Catalog, namespace: tuple[str, ...]) -> None:
    for depth in range(1, len(namespace) + 1):
        if catalog.namespace_exists(namespace[:depth]):
            continue
        try:
            catalog.create_namespace(namespace[:depth])
        except Exception:
            # Another driver may have been faster, and not every catalog says so in the same words.
            if not catalog.namespace_exists(namespace[:depth]):
                raise


def secrets_of(settings: TableSettings) -> dict[str, str]:
    """Return every property that may hold a secret."""
    return {**settings.catalog_properties, **s3_properties(settings.s3)}


def redact(text: str, properties: Mapping[str, str]) -> str:
    """Return ``text`` without the values of secret properties, nor the password inside a URI."""
    for key, value in properties.items():
        if _SECRET.search(key) and len(value) > 2:
            text = text.replace(value, "***")
    return re.sub(r"://[^/@\s]+@", "://***@", text)


@contextlib.contextmanager
def translated(settings: TableSettings, doing: str) -> Iterator[None]:
    """Turn what a catalog or its storage raises into this project's errors, without secrets in the text."""
    secrets = secrets_of(settings)
    try:
        yield
    except IcefloeError:
        raise
    except DENIED as e:
        raise StorageError(
            "ICEFLOE_TABLE_DENIED",
            f"{doing} ({settings.identifier}) was refused: {redact(str(e), secrets)}; check the credentials and grants",
        ) from e
    except (NoSuchTableError, NoSuchNamespaceError) as e:
        raise ConflictError(
            "ICEFLOE_TABLE_GONE", f"{doing}: the table {settings.identifier} is no longer in the catalog"
        ) from e
    except Exception as e:
        # Catalogs raise whatever their client library raises.
        raise StorageError(
            "ICEFLOE_CATALOG_FAILED",
            f"{doing} ({settings.identifier}) failed: {type(e).__name__}: {redact(str(e), secrets)}",
        ) from e
