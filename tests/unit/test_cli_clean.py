"""``icefloe clean`` removes what is proven useless and nothing else, also beside a query that runs."""

from __future__ import annotations

import json
import shutil
import uuid
from pathlib import Path
from typing import Any

import pytest

from icefloe.connector.cli import main
from icefloe.connector.data_names import job8
from icefloe.connector.finish import finish
from support.harness import Harness, event_rows
from support.rows import assert_no_row_lost_or_doubled, read_path, visible_files

ATTEMPT = "0123456789abcdef" * 2


def clean(capsys: pytest.CaptureFixture[str], state: Path, *arguments: str) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["clean", str(state), "--json", *arguments]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def names(document: dict[str, Any]) -> list[str]:
    return [leftover["name"] for leftover in document["leftovers"]]


def table_query(tmp_path: Path, **options: str) -> Harness:
    return Harness(tmp_path / "checkpoint", {"table": "db.t", "warehouse": str(tmp_path / "lake"), **options})


def path_query(tmp_path: Path, **options: str) -> Harness:
    return Harness(tmp_path / "checkpoint", {"path": str(tmp_path / "out"), **options})


def table_ids(tmp_path: Path) -> list[int]:
    from pyiceberg.catalog import load_catalog

    lake = tmp_path / "lake"
    catalog = load_catalog("icefloe", type="sql", uri=f"sqlite:///{lake}/catalog.db", warehouse=f"file://{lake}")
    found: list[int] = catalog.load_table("db.t").scan().to_arrow()["id"].to_pylist()
    catalog.close()
    return found


def put_data_file(tmp_path: Path, job_id: str, epoch: int) -> Path:
    """Leave what an attempt of some epoch would leave that was killed before its task ended."""
    (data,) = {file.parent for file in (tmp_path / "lake").glob("**/data/*.parquet")}
    left = data / f"{job8(job_id)}-{epoch}-0-{ATTEMPT}-0.parquet"
    left.write_bytes(b"PAR1")
    return left


def test_a_healthy_job_has_nothing_to_clean(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    query = table_query(tmp_path)
    for batch in range(3):
        query.run(batch, [[event_rows(batch * 10, 10)]])
    assert clean(capsys, query.checkpoint / "icefloe", "--yes")["leftovers"] == []
    assert_no_row_lost_or_doubled(table_ids(tmp_path), range(30))


@pytest.mark.parametrize("epoch", [0, 11, 12])
def test_a_data_file_of_a_lost_attempt_goes_once_its_epoch_is_recorded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], epoch: int
) -> None:
    query = table_query(tmp_path)
    for batch in range(13):
        query.run(batch, [[event_rows(batch * 10, 10)]])
    left = put_data_file(tmp_path, query.job_id, epoch)
    shown = clean(capsys, query.checkpoint / "icefloe")
    assert names(shown) == [left.name]
    assert shown["removed"] == 0
    assert left.exists()
    assert clean(capsys, query.checkpoint / "icefloe", "--yes")["removed"] == 1
    assert not left.exists()
    assert_no_row_lost_or_doubled(table_ids(tmp_path), range(130))


def test_files_of_the_running_epoch_and_of_others_stay(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    query = table_query(tmp_path)
    query.run(0, [[event_rows(0, 10)]])
    running = put_data_file(tmp_path, query.job_id, 1)
    foreign = put_data_file(tmp_path, str(uuid.uuid4()), 0)
    users = running.parent / "part-0.parquet"
    users.write_bytes(b"PAR1")
    assert clean(capsys, query.checkpoint / "icefloe", "--yes")["leftovers"] == []
    assert running.exists()
    assert foreign.exists()
    assert users.exists()


def test_a_recorded_and_unpublished_epoch_survives_cleaning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    query = table_query(tmp_path)
    query.run(0, [[event_rows(0, 10)]])
    query.begin(1)
    reports = query.tasks(1, [[event_rows(10, 10)]])
    # A driver that is killed after the record: the files are named by it and by no snapshot.
    committer = query.driver()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("icefloe.connector.committer.Committer.publish", _killed)
        with pytest.raises(KeyboardInterrupt):
            committer.commit(list(reports), 1)
    assert clean(capsys, query.checkpoint / "icefloe", "--yes")["leftovers"] == []
    finish(str(query.checkpoint / "icefloe"))
    assert_no_row_lost_or_doubled(table_ids(tmp_path), range(20))


def _killed(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_tasks_that_run_while_it_cleans_lose_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    query = table_query(tmp_path, visibility="roll")
    query.run(0, [[event_rows(0, 10)]])
    query.begin(1)
    reports = query.tasks(1, [[event_rows(10, 10)]])
    assert clean(capsys, query.checkpoint / "icefloe", "--yes")["leftovers"] == []
    query.driver().commit(list(reports), 1)
    finish(str(query.checkpoint / "icefloe"))
    assert_no_row_lost_or_doubled(table_ids(tmp_path), range(20))


def test_leftovers_in_state_and_target_of_a_path_go(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    query = path_query(tmp_path)
    query.run(0, [[event_rows(0, 10)]])
    query.begin(1)
    query.tasks(1, [[event_rows(10, 10)]])  # Attempts whose reports never arrive.
    unfinished = list((tmp_path / "out" / "_icefloe").glob("**/*.inprogress"))
    assert len(unfinished) == 1
    assert clean(capsys, query.checkpoint / "icefloe", "--yes")["leftovers"] == []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("icefloe.connector.committer.Committer.clean_up", lambda *_: None)
        query.run(1, [[event_rows(10, 10)]])
    assert clean(capsys, query.checkpoint / "icefloe", "--yes")["removed"] >= 1
    assert not unfinished[0].exists()
    assert_no_row_lost_or_doubled(read_path(tmp_path / "out")["id"].to_pylist(), range(20))


def test_ledgers_of_a_job_whose_state_is_gone_are_left_until_it_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = path_query(tmp_path)
    first.run(0, [[event_rows(0, 10)]])
    shutil.rmtree(first.checkpoint)
    second = path_query(tmp_path)
    second.run(0, [[event_rows(10, 10)]])
    state = second.checkpoint / "icefloe"
    shown = clean(capsys, state, "--yes")
    assert (shown["leftovers"], shown["other_jobs"]) == ([], [first.job_id])
    assert clean(capsys, state, "--yes", "--gone-job", first.job_id)["removed"] == 2
    assert clean(capsys, state)["other_jobs"] == []
    assert len(visible_files(tmp_path / "out")) == 2


def test_the_ledger_of_a_gone_job_leaves_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = table_query(tmp_path)
    first.run(0, [[event_rows(0, 10)]])
    shutil.rmtree(first.checkpoint)
    second = table_query(tmp_path)
    second.run(0, [[event_rows(10, 10)]])
    state = second.checkpoint / "icefloe"
    assert clean(capsys, state)["other_jobs"] == [first.job_id]
    assert clean(capsys, state, "--yes", "--gone-job", first.job_id)["removed"] == 1
    assert clean(capsys, state)["other_jobs"] == []
    assert_no_row_lost_or_doubled(table_ids(tmp_path), range(20))


def test_a_job_that_has_state_is_not_gone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    query = path_query(tmp_path)
    query.run(0, [[event_rows(0, 10)]])
    assert main(["clean", str(query.checkpoint / "icefloe"), "--yes", "--gone-job", query.job_id]) == 1
    assert capsys.readouterr().err.startswith("ICEFLOE_JOB_NOT_GONE: ")


def test_a_manifest_that_cannot_be_read_stops_cleaning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    query = table_query(tmp_path)
    query.run(0, [[event_rows(0, 10)]])
    left = put_data_file(tmp_path, query.job_id, 0)
    for manifest in (tmp_path / "lake").glob("**/metadata/*-m0.avro"):
        manifest.unlink()
    assert main(["clean", str(query.checkpoint / "icefloe"), "--yes"]) == 1
    assert capsys.readouterr().err.startswith("ICEFLOE_CATALOG_FAILED: ")
    assert left.exists()


def test_people_see_why_and_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    query = table_query(tmp_path)
    query.run(0, [[event_rows(0, 10)]])
    left = put_data_file(tmp_path, query.job_id, 0)
    assert main(["clean", str(query.checkpoint / "icefloe")]) == 0
    shown = capsys.readouterr().out
    assert f"data file: {left.name} (record 0 is made and does not name it" in shown
    assert "run it again with --yes" in shown
