"""``icefloe status``, ``files``, ``epochs`` and ``verify`` on healthy, crashed, damaged and missing state."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from icefloe.connector.cli import main
from icefloe.proto import state_pb2
from icefloe.state import crash_points
from support.harness import Harness, event_rows

STATUS_TYPES: dict[str, tuple[type, ...]] = {
    "job": (str,),
    "target": (str,),
    "state": (str,),
    "visibility": (str,),
    "epoch": (int,),
    "batch_id": (int,),
    "kind": (str,),
    "recorded_at": (str,),
    "publication": (str,),
    "publication_reason": (str,),
    "ledger": (str,),
    "files_in_flight": (int,),
    "rows_in_flight": (int,),
    "bytes_in_flight": (int,),
    "oldest_row_age_seconds": (float, type(None)),
    "last_commit_at": (str, type(None)),
    "last_commit_age_seconds": (float, type(None)),
    "on_restart": (str,),
    "too_old": (list,),
}


class Killed(BaseException):
    """Ends a commit at a crash point, as a kill would."""


def path_query(tmp_path: Path, **options: str) -> Harness:
    return Harness(tmp_path / "checkpoint", {"path": str(tmp_path / "out"), **options})


def table_query(tmp_path: Path, **options: str) -> Harness:
    return Harness(tmp_path / "checkpoint", {"table": "db.t", "warehouse": str(tmp_path / "lake"), **options})


def killed_at(point: str, query: Harness, batch: int) -> None:
    query.begin(batch)
    reports = query.tasks(batch, [[event_rows(batch * 10, 10)]])

    def kill(name: str) -> None:
        if name == point:
            raise Killed

    crash_points.arm(kill)
    try:
        with pytest.raises(Killed):
            query.driver().commit(list(reports), batch)
    finally:
        crash_points.arm(None)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Any:
    def call(*arguments: str, code: int = 0) -> Any:
        capsys.readouterr()
        assert main([*arguments, "--json"]) == code
        return json.loads(capsys.readouterr().out)

    return call


def test_status_of_rows_in_flight_has_every_field(tmp_path: Path, run: Any) -> None:
    query = path_query(tmp_path, visibility="roll")
    query.run(0, [[event_rows(0, 10)], [event_rows(10, 10)]])
    (status,) = run("status", str(query.checkpoint / "icefloe"))["jobs"]
    assert status.keys() == STATUS_TYPES.keys()
    assert all(isinstance(status[name], types) for name, types in STATUS_TYPES.items())
    assert (status["job"], status["epoch"], status["batch_id"]) == (query.job_id, 0, 0)
    assert (status["files_in_flight"], status["rows_in_flight"]) == (2, 20)
    assert status["bytes_in_flight"] > 0
    assert status["last_commit_at"] is None


@pytest.mark.parametrize("make", [path_query, table_query])
def test_a_published_epoch_has_the_time_of_its_commit(tmp_path: Path, run: Any, make: Any) -> None:
    query = make(tmp_path)
    query.run(0, [[event_rows(0, 10)]])
    (status,) = run("status", str(query.checkpoint))["jobs"]
    assert (status["publication"], status["rows_in_flight"]) == ("published", 0)
    assert status["last_commit_age_seconds"] < 60
    assert status["on_restart"].startswith("goes on with batch 1")


@pytest.mark.parametrize("make", [path_query, table_query])
def test_an_epoch_that_was_recorded_and_not_published_is_waiting(tmp_path: Path, run: Any, make: Any) -> None:
    query = make(tmp_path)
    query.run(0, [[event_rows(0, 10)]])
    killed_at("commit.operators-written", query, 1)
    (status,) = run("status", str(query.checkpoint))["jobs"]
    assert (status["epoch"], status["publication"]) == (1, "waiting")
    assert status["on_restart"].startswith("publishes epoch 1 first")
    files = run("files", str(query.checkpoint))["finished"]
    assert [(file["epoch"], file["published"]) for file in files] == [(1, False), (0, True)]
    verified = run("verify", str(query.checkpoint))
    assert (verified["sound"], verified["publication"]) == (True, "waiting")
    assert [finding["level"] for finding in verified["findings"]] == ["warning"]


def test_a_path_that_is_claimed_and_not_complete_is_waiting(tmp_path: Path, run: Any) -> None:
    query = path_query(tmp_path)
    killed_at("path.ledger-claimed", query, 0)
    assert run("status", str(query.checkpoint))["jobs"][0]["publication"] == "waiting"


def test_max_age_exits_with_2_when_rows_wait_longer(tmp_path: Path, run: Any) -> None:
    query = path_query(tmp_path, visibility="roll")
    query.run(0, [[event_rows(0, 10)]])
    assert run("status", str(query.checkpoint), "--max-age", "1h")["jobs"][0]["too_old"] == []
    (late,) = run("status", str(query.checkpoint), "--max-age", "1ms", code=2)["jobs"]
    assert len(late["too_old"]) == 1
    assert late["too_old"][0].startswith("the oldest row in flight is ")


def test_max_age_counts_the_last_commit_and_an_unpublished_record(tmp_path: Path, run: Any) -> None:
    query = path_query(tmp_path)
    query.run(0, [[event_rows(0, 10)]])
    killed_at("commit.operators-written", query, 1)
    (late,) = run("status", str(query.checkpoint), "--max-age", "1ms", code=2)["jobs"]
    assert [text.split(" is ")[0] for text in late["too_old"]] == ["the last record, which", "the last commit"]


def test_files_show_progress_towards_the_roll(tmp_path: Path, run: Any) -> None:
    query = path_query(tmp_path, visibility="roll", rowGroupSize="2KB", rollFileSize="1GB", partitionBy="region")
    query.run(0, [[event_rows(0, 2000)]])
    shown = run("files", str(query.checkpoint))
    assert sum(file["rows"] for file in shown["in_flight"]) == 2000
    assert {file["partition"] for file in shown["in_flight"]} >= {"region=region-0", "region=region-1"}
    assert all(0 < file["progress"] < 1 and file["due"] is None for file in shown["in_flight"])
    assert any(file["row_groups"] > 0 for file in shown["in_flight"])
    due = run("files", str(query.checkpoint), "--option", "rollInterval=1ms")["in_flight"]
    assert {file["due"] for file in due} == {"interval"}


def test_epochs_are_a_timeline(tmp_path: Path, run: Any) -> None:
    query = table_query(tmp_path, keepEpochs="2")
    for batch in range(4):
        query.run(batch, [[event_rows(batch * 10, 10)]])
    shown = run("epochs", str(query.checkpoint))
    assert [(e["epoch"], e["batch_id"], e["kind"], e["rows"], e["files"]) for e in shown["epochs"]] == [
        (3, 3, "batch", 10, 1),
        (2, 2, "batch", 10, 1),
    ]
    assert all(e["publish_us"] > 0 and e["published_us"] >= e["recorded_us"] for e in shown["epochs"])


@pytest.mark.parametrize("command", ["status", "files", "epochs", "verify"])
def test_people_get_text_without_colour_in_a_pipe(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    query = table_query(tmp_path, visibility="roll")
    query.run(0, [[event_rows(0, 10)]])
    assert main([command, str(query.checkpoint)]) == 0
    shown = capsys.readouterr().out
    assert query.job_id in shown
    assert "\x1b" not in shown
    wanted = {"status": "10 rows in 1 files", "files": "pending", "epochs": "encode", "verify": "sound"}
    assert wanted[command] in shown


def test_a_terminal_gets_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    query = path_query(tmp_path, visibility="roll")
    query.run(0, [[event_rows(0, 10)]])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdout.isatty", lambda: True)
        patch.setenv("COLUMNS", "200")
        for command in ("status", "files", "epochs", "verify"):
            assert main([command, str(query.checkpoint)]) == 0
    assert query.job_id in capsys.readouterr().out


def test_a_location_with_several_jobs_shows_all_and_asks_which(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], run: Any
) -> None:
    state = str(tmp_path / "state")
    queries = [
        Harness(tmp_path / f"checkpoint-{n}", {"path": str(tmp_path / f"out-{n}"), "stateLocation": state})
        for n in range(2)
    ]
    for query in queries:
        query.run(0, [[event_rows(0, 10)]])
    assert {status["job"] for status in run("status", state)["jobs"]} == {query.job_id for query in queries}
    assert main(["files", state]) == 1
    assert capsys.readouterr().err.startswith("ICEFLOE_JOB_AMBIGUOUS: ")
    assert run("files", state, "--job", queries[0].job_id[:8])["job"] == queries[0].job_id


def test_a_job_that_cannot_be_read_does_not_hide_the_others(tmp_path: Path, run: Any) -> None:
    state = tmp_path / "state"
    for n in range(2):
        query = Harness(tmp_path / f"checkpoint-{n}", {"path": str(tmp_path / f"out-{n}"), "stateLocation": str(state)})
        query.run(0, [[event_rows(0, 10)]])
    next((state / query.job_id).glob("**/checkpoint.metadata")).write_bytes(b"garbage")
    jobs = {status["job"]: status for status in run("status", str(state), code=1)["jobs"]}
    assert jobs[query.job_id]["error"].startswith("ICEFLOE_STATE_CORRUPT: ")
    assert sum("error" not in status for status in jobs.values()) == 1


def test_a_location_without_state_is_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("status", "files", "epochs", "verify", "finish", "clean"):
        assert main([command, str(tmp_path / "nothing")]) == 1
        assert capsys.readouterr().err.startswith("ICEFLOE_STATE_NOT_FOUND: ")
    assert not (tmp_path / "nothing").exists()


def test_half_a_state_is_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    query = path_query(tmp_path)
    query.begin(0)
    query.tasks(0, [[event_rows(0, 10)]], visibility="roll")
    assert main(["status", str(query.checkpoint)]) == 1
    assert capsys.readouterr().err.startswith("ICEFLOE_STATE_EMPTY: ")
    query.run(0, [[event_rows(0, 10)]])
    (query.checkpoint / "icefloe" / query.job_id / "job.metadata").unlink()
    assert main(["verify", str(query.checkpoint)]) == 1
    assert capsys.readouterr().err.startswith("ICEFLOE_STATE_INCOMPLETE: ")


def test_state_of_a_newer_release_is_refused_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    query = path_query(tmp_path)
    query.run(0, [[event_rows(0, 10)]])
    record = next((query.checkpoint / "icefloe").glob("**/checkpoint.metadata"))
    sealed = state_pb2.Sealed.FromString(record.read_bytes())
    sealed.format_version += 1
    record.write_bytes(sealed.SerializeToString())
    assert main(["status", str(query.checkpoint)]) == 1
    message = capsys.readouterr().err
    assert message.startswith("ICEFLOE_STATE_NEWER: ")
    assert "checkpoint.metadata" in message


def test_errors_are_json_too_when_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", str(tmp_path), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["error"] == "ICEFLOE_STATE_NOT_FOUND"


@pytest.mark.parametrize(
    "arguments",
    [[], ["status"], ["stat", "x"], ["status", "x", "--option", "novalue"], ["clean", "x", "--yes", "--dry-run"]],
)
def test_wrong_usage_has_a_code_of_its_own(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 64
    assert "usage: icefloe" in capsys.readouterr().err


def test_it_says_its_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out.startswith("icefloe ")


def test_a_target_that_cannot_be_reached_still_shows_the_state(tmp_path: Path, run: Any) -> None:
    query = table_query(tmp_path, visibility="roll")
    query.run(0, [[event_rows(0, 10)]])
    shutil.rmtree(tmp_path / "lake")
    (status,) = run("status", str(query.checkpoint))["jobs"]
    assert (status["publication"], status["rows_in_flight"]) == ("unknown", 10)
    assert status["publication_reason"].startswith("ICEFLOE_")
    assert run("verify", str(query.checkpoint), code=2)["sound"] is False


def damaged(query: Harness, pattern: str, *, cut: bool) -> str:
    found = max((query.checkpoint / "icefloe").glob(f"**/{pattern}"))
    data = bytearray(found.read_bytes())
    data[len(data) // 2] ^= 255
    found.write_bytes(data[:-1] if cut else data)
    return found.name


@pytest.mark.parametrize("pattern", ["segment-*", "table-recovery-*", "table-pending-*"])
@pytest.mark.parametrize("cut", [False, True])
def test_verify_names_every_damaged_object(tmp_path: Path, run: Any, pattern: str, cut: bool) -> None:
    query = path_query(tmp_path, visibility="roll", rowGroupSize="2KB")
    query.run(0, [[event_rows(0, 2003)]])
    assert run("verify", str(query.checkpoint))["sound"] is True
    name = damaged(query, pattern, cut=cut)
    found = run("verify", str(query.checkpoint), code=2)
    assert found["sound"] is False
    assert any(name in f["object_name"] + f["text"] for f in found["findings"])


def test_verify_names_a_finished_file_that_is_gone(tmp_path: Path, run: Any) -> None:
    query = table_query(tmp_path)
    killed_at("commit.operators-written", query, 0)
    (lost,) = (tmp_path / "lake").glob("**/data/*.parquet")
    lost.unlink()
    found = run("verify", str(query.checkpoint), code=2)
    assert [f["object_name"] for f in found["findings"] if f["level"] == "error"] == [lost.name]


def test_verify_sees_a_ledger_of_another_history(tmp_path: Path, run: Any) -> None:
    query = path_query(tmp_path)
    query.run(0, [[event_rows(0, 10)]])
    saved = tmp_path / "saved"
    shutil.copytree(query.checkpoint, saved)
    query.run(1, [[event_rows(10, 10)]])
    found = run("verify", str(saved), code=2)
    assert [f["object_name"] for f in found["findings"] if f["level"] == "error"] == ["ledger"]
    assert run("status", str(saved))["jobs"][0]["publication"] == "conflict"


def test_verify_tells_a_missing_record(tmp_path: Path, run: Any) -> None:
    query = path_query(tmp_path)
    for batch in range(3):
        query.run(batch, [[event_rows(batch * 10, 10)]])
    shutil.rmtree(next((query.checkpoint / "icefloe" / query.job_id / "checkpoints").glob("*1")))
    assert main(["verify", str(query.checkpoint)]) == 1


def test_quick_verification_reads_no_objects_but_sees_lengths(tmp_path: Path, run: Any) -> None:
    query = path_query(tmp_path, visibility="roll", rowGroupSize="2KB")
    query.run(0, [[event_rows(0, 2003)]])
    damaged(query, "segment-*", cut=False)
    assert run("verify", str(query.checkpoint), "--quick")["sound"] is True
    damaged(query, "segment-*", cut=True)
    assert run("verify", str(query.checkpoint), "--quick", code=2)["sound"] is False
