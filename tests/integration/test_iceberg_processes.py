"""Real processes: killed between any two steps of a commit, and several on one embedded catalog."""

from __future__ import annotations

from pathlib import Path

import pytest

from icefloe.connector.iceberg_table import TableSettings
from icefloe.proto import sink_pb2
from support.iceberg_process import KILLED, DriverProcess
from support.iceberg_tables import Driver, assert_no_file_added_twice, assert_rows_are

JOB = "0"


@pytest.mark.parametrize("point", ["catalog.loaded", "catalog.checked", "catalog.built", "catalog.committed"])
def test_driver_killed_between_two_steps_is_replayed_without_loss_or_double(tmp_path: Path, point: str) -> None:
    warehouse = tmp_path / "warehouse"
    driver = Driver.open(TableSettings("db.events", warehouse=str(warehouse)), job=JOB)
    files = driver.files(0)
    (tmp_path / "files").write_bytes(sink_pb2.PreCommits(files=files).SerializeToString())
    assert DriverProcess(warehouse, JOB, 1, die_at=point, files=tmp_path / "files").run() == KILLED
    outcome = driver.publish(0, files)
    assert outcome.already == (point == "catalog.committed")
    driver.publish(1)
    assert_rows_are(driver.target.table, [0, 1])
    assert_no_file_added_twice(driver.target.table)
    driver.target.close()


def test_processes_that_meet_on_a_new_embedded_catalog_all_get_through(tmp_path: Path) -> None:
    jobs, epochs = 2, 4
    warehouse = tmp_path / "warehouse"
    processes = [DriverProcess(warehouse, str(job), epochs).start() for job in range(jobs)]
    for process in processes:
        output, _ = process.communicate(timeout=240)
        assert process.returncode == 0, output
    driver = Driver.open(TableSettings("db.events", warehouse=str(warehouse), create=False))
    assert_rows_are(driver.target.table, [job * 100 + epoch for job in range(jobs) for epoch in range(epochs)])
    assert_no_file_added_twice(driver.target.table)
    driver.target.close()
