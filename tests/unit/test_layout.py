"""The repository is laid out as pyproject.toml says, and the wheel carries all of it."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("connector", "state", "proto", "schemas")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


@pytest.fixture(scope="module")
def wheel_names(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    # From a copy: setuptools writes build/ and *.egg-info beside the sources.
    copy = tmp_path_factory.mktemp("source") / "copy"
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True).stdout
    for name in filter(None, tracked.split("\0")):
        source, target = ROOT / name, copy / name
        if not source.is_file() or source.is_symlink():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(source.read_bytes())
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(copy / "dist"), str(copy)]
    subprocess.run(command, check=True, capture_output=True)
    (wheel,) = (copy / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_every_folder_with_code_is_a_package_in_pyproject() -> None:
    nested = {
        f"icefloe.{path.parent.relative_to(ROOT).as_posix().replace('/', '.')}"
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*.py")
    }
    assert nested | {"icefloe"} == set(PROJECT["tool"]["setuptools"]["packages"])


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_link_for_type_checkers_points_to_the_folder(folder: str) -> None:
    link = ROOT / "icefloe" / folder
    assert link.is_symlink()
    assert link.resolve() == ROOT / folder


def test_the_wheel_holds_the_proto_files_and_the_type_marker(wheel_names: set[str]) -> None:
    expected = {
        f"icefloe/proto/{path.name}" for path in (ROOT / "proto").iterdir() if path.suffix in {".proto", ".pyi"}
    }
    assert expected | {"icefloe/py.typed", "pyspark_icefloe.py"} <= wheel_names


def test_the_wheel_holds_nothing_but_the_packages(wheel_names: set[str]) -> None:
    assert {name.split("/")[0] for name in wheel_names if ".dist-info/" not in name} == {
        "icefloe",
        "pyspark_icefloe.py",
    }


def test_the_lock_pins_everything_and_names_no_host_and_no_pandas() -> None:
    lines = (ROOT / "requirements-dev.lock").read_text().splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert [line for line in pins if not re.match(r"[a-z0-9-]+==\S+( ; .+)?$", line)] == []
    assert "pandas" not in {line.split("==")[0] for line in pins}


def test_the_lock_covers_every_dependency_of_pyproject() -> None:
    locked = {line.split("==")[0] for line in (ROOT / "requirements-dev.lock").read_text().splitlines() if "==" in line}
    wanted = [*PROJECT["project"]["dependencies"], *PROJECT["dependency-groups"]["dev"]]
    names = {re.split(r"[^A-Za-z0-9._-]", each)[0].lower().replace("_", "-") for each in wanted}
    assert names - locked == set()
