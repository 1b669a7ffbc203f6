"""The sink on several executor processes: one is killed in mid-epoch, and the package reaches them as an archive."""

from __future__ import annotations

import signal
import subprocess
import sysconfig
import venv
import zipfile
from pathlib import Path

import pyspark
import pytest

import icefloe
from support.rows import assert_no_row_lost_or_doubled, read_path, visible_files
from support.stream_process import application, executors
from support.streams import EventFiles, Gate, until

ROOT = Path(__file__).parents[2]
PACKAGES = ("connector", "state", "schemas", "proto")
CLUSTER = {"spark.master": "local-cluster[2,1,1024]", "spark.executor.memory": "768m", "spark.task.maxFailures": "8"}
_PATIENCE_SECONDS = 240


@pytest.fixture
def source(tmp_path: Path) -> EventFiles:
    return EventFiles(tmp_path / "source", rows_per_file=40).add(4)


@pytest.fixture
def options(tmp_path: Path) -> dict[str, str]:
    return {
        "path": str(tmp_path / "out"),
        "checkpointLocation": str(tmp_path / "checkpoint"),
        "visibility": "roll",
        "rollFileSize": "2KB",
        "rowGroupSize": "400",
    }


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Point to a Spark home of this test's own, because that is where a local cluster puts its work folder."""
    home = tmp_path / "spark-home"
    home.mkdir()
    for entry in Path(pyspark.__file__).parent.iterdir():
        if entry.name != "work":
            (home / entry.name).symlink_to(entry)
    return {"SPARK_HOME": str(home)}


def assert_ended_well(process: subprocess.Popen[bytes], scratch: Path) -> None:
    assert process.wait(_PATIENCE_SECONDS) == 0, (scratch / "log.txt").read_text(errors="replace")[-4000:]


def assert_rows_are_whole(tmp_path: Path, source: EventFiles) -> None:
    icefloe.finish(str(tmp_path / "checkpoint" / "icefloe"))
    assert_no_row_lost_or_doubled(read_path(tmp_path / "out")["id"].to_pylist(), source.ids())


@pytest.mark.timeout(600)
def test_an_executor_killed_in_mid_epoch_does_not_stop_the_query(
    source: EventFiles, options: dict[str, str], environment: dict[str, str], tmp_path: Path
) -> None:
    gate = Gate(tmp_path / "gate").close()
    scratch = tmp_path / "application"
    with application(
        scratch, source.folder, options, tasks=4, gate=gate.folder, conf=CLUSTER, env=environment
    ) as process:
        gate.wait_for_a_task()
        until(lambda: len(executors(process)) == 2 or process.poll() is not None)
        victim = executors(process)[0]
        victim.send_signal(signal.SIGKILL)
        victim.wait(_PATIENCE_SECONDS)
        gate.open()
        assert_ended_well(process, scratch)
    assert_rows_are_whole(tmp_path, source)


def archive_of_the_package(folder: Path) -> Path:
    """Return a zip with what the wheel holds: the import root, the four folders, and what Spark looks for."""
    archive = folder / "icefloe.zip"
    with zipfile.ZipFile(archive, "w") as written:
        written.write(ROOT / "pyspark_icefloe.py", "pyspark_icefloe.py")
        for source in ROOT.joinpath("icefloe").glob("*.py"):
            written.write(source, f"icefloe/{source.name}")
        for package in PACKAGES:
            for source in ROOT.joinpath(package).glob("*.py"):
                written.write(source, f"icefloe/{package}/{source.name}")
    return archive


def python_without_icefloe(folder: Path) -> Path:
    """Return an interpreter that has all dependencies and not the package."""
    venv.create(folder, symlinks=True, with_pip=False)
    (site,) = folder.glob("lib/python*/site-packages")
    # A folder that a .pth file names is searched, but its own .pth files, the editable install among them, are not.
    (site / "dependencies.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    python = folder / "bin" / "python"
    command = [python, "-c", "import pyarrow, icefloe"]
    missing = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert "No module named 'icefloe'" in missing.stderr
    return python


@pytest.mark.faults
@pytest.mark.timeout(600)
def test_the_package_may_be_sent_to_executors_as_an_archive(
    source: EventFiles, options: dict[str, str], environment: dict[str, str], tmp_path: Path
) -> None:
    scratch = tmp_path / "application"
    python = python_without_icefloe(tmp_path / "python")
    conf = {
        **CLUSTER,
        "spark.submit.pyFiles": str(archive_of_the_package(tmp_path)),
        "spark.pyspark.python": str(python),
    }
    with application(scratch, source.folder, options, tasks=3, conf=conf, env=environment) as process:
        assert_ended_well(process, scratch)
    assert_rows_are_whole(tmp_path, source)
    assert visible_files(tmp_path / "out")
