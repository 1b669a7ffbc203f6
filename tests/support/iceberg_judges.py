"""Readers that share no code with PyIceberg: what they see in a table is what is in it."""

from __future__ import annotations

import importlib
from importlib.metadata import requires, version
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from packaging.requirements import Requirement
from pyiceberg.table import Table


def read_with_duckdb(table: Table, query: str) -> list[tuple[Any, ...]]:
    """Run ``query`` over the view ``judged`` in DuckDB, with its Iceberg extension from PyPI and no network."""
    with duckdb.connect(config={"autoinstall_known_extensions": "false"}) as connection:
        for name in ("avro", "iceberg"):
            package = importlib.import_module(f"duckdb_extension_{name}")
            assert package.__file__ is not None
            extension = next(Path(package.__file__).parent.rglob(f"{name}.duckdb_extension"))
            connection.execute(f"LOAD '{extension}'")
        location = table.refresh().metadata_location
        connection.execute(f"CREATE VIEW judged AS SELECT * FROM iceberg_scan('{location}')")
        return connection.execute(query).fetchall()


def read_with_iceberg_rust(table: Table, query: str) -> list[tuple[Any, ...]]:
    """Run ``query`` over the table ``judged`` with iceberg-rust under DataFusion.

    Skips where DataFusion is not of the release that PyIceberg's Rust core was built for: the two talk through memory
    layouts that change with each release, and a mismatch ends the process.
    """
    wanted = next(r for r in map(Requirement, requires("pyiceberg") or []) if r.name == "datafusion")
    if not wanted.specifier.contains(version("datafusion")):
        pytest.skip(f"iceberg-rust needs datafusion {wanted.specifier}, {version('datafusion')} is installed")
    from datafusion import SessionContext

    context = SessionContext()
    context.register_table("judged", table.refresh())
    columns = pa.Table.from_batches(context.sql(query).collect()).columns
    return list(zip(*(column.to_pylist() for column in columns), strict=True))
