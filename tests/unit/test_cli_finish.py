"""``icefloe finish``: makes everything visible; a file that cannot be published is shown, then left out on demand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from icefloe.connector.cli import main
from icefloe.state import crash_points
from support.harness import Harness, event_rows
from support.rows import assert_no_row_lost_or_doubled, read_path


class Killed(BaseException):
    """Ends a commit at a crash point, as a kill would."""


def harness(tmp_path: Path, **options: str) -> Harness:
    return Harness(tmp_path / "checkpoint", {"path": str(tmp_path / "out"), **options})


def recorded_only(query: Harness, batch: int, start: int) -> None:
    """Run a batch whose driver is killed right after its record."""
    query.begin(batch)
    reports = query.tasks(batch, [[event_rows(start, 10)], [event_rows(start + 10, 10)]])

    def kill(name: str) -> None:
        if name == "commit.operators-written":
            raise Killed

    crash_points.arm(kill)
    try:
        with pytest.raises(Killed):
            query.driver().commit(list(reports), batch)
    finally:
        crash_points.arm(None)


def ids(tmp_path: Path) -> list[int]:
    found: list[int] = read_path(tmp_path / "out")["id"].to_pylist()
    return found


def test_it_says_what_became_visible(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    query = harness(tmp_path, visibility="roll")
    query.run(0, [[event_rows(0, 10)], [event_rows(10, 10)]])
    assert main(["finish", str(query.checkpoint / "icefloe")]) == 0
    assert f"job {query.job_id}: 20 rows in 2 files are visible now" in capsys.readouterr().out
    assert main(["finish", str(query.checkpoint / "icefloe"), "--due"]) == 0
    assert "nothing is in flight that is due" in capsys.readouterr().out
    assert_no_row_lost_or_doubled(ids(tmp_path), range(20))


def test_json_names_job_epoch_files_and_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    query = harness(tmp_path, visibility="roll")
    query.run(0, [[event_rows(0, 10)]])
    assert main(["finish", str(query.checkpoint), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["job_id"], document["epoch"], document["rows"]) == (query.job_id, 1, 10)
    assert len(document["files"]) == 1


def test_a_lost_finished_file_stops_everything_until_it_is_given_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    query = harness(tmp_path)
    query.run(0, [[event_rows(0, 20)]])
    recorded_only(query, 1, 20)
    lost = next((tmp_path / "out" / "_icefloe").glob("**/*-1-0-*.inprogress"))
    name = lost.name.removesuffix(".inprogress")
    lost.unlink()
    state = str(query.checkpoint / "icefloe")
    assert main(["finish", state]) == 1
    assert capsys.readouterr().err.startswith("ICEFLOE_FILE_LOST: ")
    assert main(["finish", state, "--give-up", name]) == 0
    assert f"{name} (finished): 10 rows" in capsys.readouterr().out
    assert_no_row_lost_or_doubled(ids(tmp_path), range(20))
    assert main(["finish", state, "--give-up", name, "--yes"]) == 0
    assert_no_row_lost_or_doubled(ids(tmp_path), [*range(20), *range(30, 40)])
    # The query goes on, and its replay of the batch finds it published.
    query.run(1, [[event_rows(20, 20)]])
    query.run(2, [[event_rows(40, 10)]])
    assert_no_row_lost_or_doubled(ids(tmp_path), [*range(20), *range(30, 50)])


def test_a_record_whose_files_are_all_given_up_lets_a_table_go_on(tmp_path: Path) -> None:
    query = Harness(tmp_path / "checkpoint", {"table": "db.t", "warehouse": str(tmp_path / "lake")})
    recorded_only(query, 0, 0)
    lost = [file.name for file in (tmp_path / "lake").glob("**/data/*.parquet")]
    for file in (tmp_path / "lake").glob("**/data/*.parquet"):
        file.unlink()
    arguments = [word for name in lost for word in ("--give-up", name)]
    assert main(["finish", str(query.checkpoint), *arguments, "--yes"]) == 0
    query.run(1, [[event_rows(20, 10)]])
    assert main(["verify", str(query.checkpoint)]) == 0


def test_a_damaged_file_in_flight_is_given_up_and_the_rest_becomes_visible(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    query = harness(tmp_path, visibility="roll", partitionBy="region", rowGroupSize="1KB")
    for batch in range(3):
        query.run(batch, [[event_rows(batch * 1000, 1000)]])
    state = str(query.checkpoint / "icefloe")
    segment = max((query.checkpoint / "icefloe").glob("**/segment-*"), key=lambda file: file.stat().st_size)
    damaged = _file_with_segment(state, segment.name)
    segment.unlink()
    assert main(["verify", state]) == 2
    assert segment.name in capsys.readouterr().out
    assert main(["finish", state]) == 1
    assert segment.name in capsys.readouterr().err
    assert main(["files", state, "--json"]) == 0
    files = json.loads(capsys.readouterr().out)["in_flight"]
    assert len(files) > 1
    assert main(["finish", state, "--give-up", damaged, "--yes"]) == 0
    kept = sum(file["rows"] for file in files if file["file_id"] != damaged)
    assert len(ids(tmp_path)) == kept
    assert main(["verify", state]) == 0


def _file_with_segment(state: str, name: str) -> str:
    from icefloe.connector.inspection import stored_files
    from icefloe.connector.jobs import open_job

    found = [
        file.message.file_id
        for _, _, files in stored_files(open_job(state))
        for file in files
        if any(segment.name.endswith(name) for segment in file.message.segments)
    ]
    return found[0]


def test_a_file_that_nobody_holds_cannot_be_given_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    query = harness(tmp_path)
    query.run(0, [[event_rows(0, 10)]])
    assert main(["finish", str(query.checkpoint), "--give-up", "nonsense", "--yes"]) == 1
    assert capsys.readouterr().err.startswith("ICEFLOE_FILE_UNKNOWN: ")
