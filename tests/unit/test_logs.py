"""One line per epoch that a person can read, and JSON lines with job, epoch and subtask for machines."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from icefloe.connector.logs import configure_from_environment, set_context
from support.harness import Harness, event_rows


@pytest.fixture(autouse=True)
def _untouched_logging() -> Iterator[None]:
    root = logging.getLogger("icefloe")
    before = (root.level, [*root.handlers], root.propagate)
    yield
    root.level, root.handlers, root.propagate = before
    logging.getLogger("icefloe").manager._clear_cache()  # type: ignore[attr-defined]


def test_an_epoch_is_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    query = Harness(tmp_path / "checkpoint", {"path": str(tmp_path / "out"), "visibility": "roll"})
    with caplog.at_level(logging.INFO, logger="icefloe"):
        query.run(0, [[event_rows(0, 100)], [event_rows(100, 100)]])
        query.run(1, [[event_rows(200, 50)], []], visibility="batch")
    lines = [record.getMessage() for record in caplog.records if record.name == "icefloe.epoch"]
    assert len(lines) == 2
    assert lines[0].startswith(f"job {query.job_id} epoch 0 (batch 0): 200 rows in; published 0 rows in 0 files")
    assert "in flight 200 rows in 2 files" in lines[0]
    assert f"job {query.job_id} epoch 1 (batch 1): 50 rows in; published 250 rows" in lines[1]


def test_json_lines_carry_job_epoch_and_subtask(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    configure_from_environment({"ICEFLOE_LOG": "debug,json"})
    query = Harness(tmp_path / "checkpoint", {"path": str(tmp_path / "out")})
    query.run(0, [[event_rows(0, 10)]])
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    finished = next(line for line in lines if line["logger"] == "icefloe.task")
    assert (finished["job"], finished["epoch"], finished["subtask"]) == (query.job_id, 0, 0)
    epoch = next(line for line in lines if line["logger"] == "icefloe.epoch")
    assert (epoch["level"], epoch["job"], epoch["epoch"], epoch["rows"], epoch["files"]) == (
        "INFO",
        query.job_id,
        0,
        10,
        1,
    )
    assert {"encode_ms", "upload_ms", "publish_ms", "clean_up_ms"} <= epoch.keys()


def test_lines_for_people_say_what_the_process_works_on(capfd: pytest.CaptureFixture[str]) -> None:
    configure_from_environment({"ICEFLOE_LOG": "info"})
    set_context(job="abc", epoch=7, subtask=2)
    logging.getLogger("icefloe.anything").info("hello")
    assert capfd.readouterr().err.endswith("INFO icefloe.anything: job abc epoch 7 subtask 2: hello\n")


def test_it_is_quiet_unless_asked_and_names_a_word_it_does_not_know(capfd: pytest.CaptureFixture[str]) -> None:
    configure_from_environment({})
    logging.getLogger("icefloe.anything").info("hello")
    assert capfd.readouterr().err == ""
    configure_from_environment({"ICEFLOE_LOG": "loud"})
    assert "loud, which is no level and not json" in capfd.readouterr().err


def test_the_command_listens_to_the_variable(tmp_path: Path) -> None:
    query = Harness(tmp_path / "checkpoint", {"path": str(tmp_path / "out"), "visibility": "roll"})
    query.run(0, [[event_rows(0, 10)]])
    done = subprocess.run(
        [sys.executable, "-m", "icefloe", "finish", str(query.checkpoint)],
        env={**os.environ, "ICEFLOE_LOG": "info"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "epoch 1 (finish): 0 rows in; published 10 rows in 1 files" in done.stderr
