"""`make help` tells the truth, and what cannot work says so in one line and leaves nothing."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run_make(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    # MAKEFLAGS of an outer `make test` would turn on its options here.
    inherited = {name: value for name, value in os.environ.items() if name not in {"MAKEFLAGS", "MAKELEVEL", "MFLAGS"}}
    return subprocess.run(
        ["make", "--no-print-directory", *arguments],
        cwd=ROOT,
        env={**inherited, **env},
        capture_output=True,
        text=True,
        check=False,
    )


def listed_targets() -> list[str]:
    return re.findall(r"^  ([a-z-]+) ", run_make("help").stdout, flags=re.MULTILINE)


def error_lines(result: subprocess.CompletedProcess[str]) -> list[str]:
    return [line for line in result.stderr.splitlines() if line.startswith("error: ")]


def test_help_is_what_make_alone_shows() -> None:
    assert run_make().stdout == run_make("help").stdout


def test_help_lists_every_public_target_and_no_other() -> None:
    phony = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    assert phony is not None
    assert sorted(listed_targets()) == sorted(set(phony[1].split()) - {"java"})


@pytest.mark.parametrize("target", listed_targets())
def test_every_listed_target_has_a_recipe_that_make_can_plan(target: str) -> None:
    assert run_make("--dry-run", target).returncode == 0


def test_a_half_made_environment_is_named_and_left_alone(tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    venv.mkdir()
    result = run_make("setup", f"VENV={venv}")
    assert result.returncode != 0
    assert len(error_lines(result)) == 1
    assert "half-made" in error_lines(result)[0]
    assert list(venv.iterdir()) == []


def test_an_old_python_is_refused_and_nothing_is_made(tmp_path: Path) -> None:
    old = tmp_path / "old-python"
    old.write_text('#!/bin/sh\n[ "$1" = --version ] && echo "Python 3.9.2" && exit 0\nexit 1\n')
    old.chmod(0o755)
    result = run_make("setup", f"VENV={tmp_path / 'venv'}", f"PYTHON={old}")
    assert result.returncode != 0
    assert len(error_lines(result)) == 1
    assert "Python 3.9.2" in error_lines(result)[0]
    assert not (tmp_path / "venv").exists()


def test_no_network_is_one_line_and_leaves_no_environment(tmp_path: Path) -> None:
    unreachable = {"PIP_INDEX_URL": "http://127.0.0.1:9/", "PIP_FIND_LINKS": "", "PIP_EXTRA_INDEX_URL": ""}
    result = run_make(
        "setup",
        f"VENV={tmp_path / 'venv'}",
        **unreachable,
        PIP_RETRIES="0",
        PIP_NO_CACHE_DIR="1",
        PIP_CONFIG_FILE=os.devnull,
    )
    assert result.returncode != 0
    assert len(error_lines(result)) == 1
    assert "is the network up?" in error_lines(result)[0]
    assert not (tmp_path / "venv").exists()


@pytest.mark.parametrize("target", ["demo", "test"])
def test_an_old_java_stops_at_once_and_says_what_to_install(target: str, tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    java.chmod(0o755)
    result = run_make(target, JAVA_HOME=str(tmp_path))
    assert result.returncode != 0
    (line,) = error_lines(result)
    assert all(word in line for word in ("version 11", "Debian", "macOS", "SDKMAN"))
