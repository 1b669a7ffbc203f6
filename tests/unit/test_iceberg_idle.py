"""Catalogs stay open between epochs, and nothing is ever committed to one that is no longer there."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog

from icefloe.connector import iceberg_idle
from icefloe.connector.iceberg_catalog import open_catalog
from icefloe.connector.iceberg_idle import give_back_catalog, take_idle_catalog
from icefloe.connector.iceberg_table import IcebergTarget
from icefloe.connector.table_plan import TableSettings
from icefloe.errors import ConflictError
from support.harness import Harness, event_rows

STREAM = pa.schema([("id", pa.int64())])
INPUTS = [[event_rows(0, 10)]]


@pytest.fixture(autouse=True)
def nothing_idle() -> Iterator[None]:
    iceberg_idle._close_all_idle()
    yield
    iceberg_idle._close_all_idle()


@pytest.fixture
def settings(tmp_path: Path) -> TableSettings:
    return TableSettings("db.t", warehouse=str(tmp_path / "lake"))


def rows(lake: Path) -> int:
    catalog = load_catalog("icefloe", type="sql", uri=f"sqlite:///{lake}/catalog.db", warehouse=f"file://{lake}")
    with catalog:
        return int(catalog.load_table("db.events").scan().to_arrow().num_rows)


def test_epochs_of_a_process_share_one_catalog(settings: TableSettings) -> None:
    first = IcebergTarget.open(settings, STREAM)
    first.leave()
    second = IcebergTarget.open(settings, STREAM)
    assert second.table.catalog is first.table.catalog
    second.close()


def test_two_users_at_once_never_get_the_same_catalog(settings: TableSettings) -> None:
    IcebergTarget.open(settings, STREAM).leave()
    with IcebergTarget.open(settings) as one, IcebergTarget.open(settings) as other:
        assert one.table.catalog is not other.table.catalog


def test_other_credentials_get_another_catalog(settings: TableSettings) -> None:
    IcebergTarget.open(settings, STREAM).leave()
    assert take_idle_catalog(replace(settings, s3={"secret-access-key": "new"})) is None


def test_catalog_that_fails_is_opened_anew_once(settings: TableSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    left = IcebergTarget.open(settings, STREAM)
    left.leave()

    def broken(identifier: object) -> object:
        raise ConnectionError("reset while idle")

    monkeypatch.setattr(left.table.catalog, "load_table", broken)
    with IcebergTarget.open(settings) as opened:
        assert opened.uuid == left.uuid


def test_catalog_that_nobody_takes_is_closed(settings: TableSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iceberg_idle, "_IDLE_SECONDS", 0.0)
    catalog = open_catalog(settings)
    give_back_catalog(settings, catalog)
    for _, timer in list(iceberg_idle._idle.values()):
        timer.join()
    assert take_idle_catalog(settings) is None


def test_warehouse_that_was_wiped_under_a_living_process_is_made_anew_and_gets_the_rows(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    options = {"table": "db.events", "warehouse": str(lake)}
    old = Harness(tmp_path / "old", options)
    old.run(0, INPUTS)
    shutil.rmtree(lake)
    Harness(tmp_path / "new", options).run(0, INPUTS)
    assert rows(lake) == 10
    with pytest.raises(ConflictError, match=r"^ICEFLOE_TARGET_CHANGED: "):
        old.run(1, INPUTS)
    assert rows(lake) == 10
