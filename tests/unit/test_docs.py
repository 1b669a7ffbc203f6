"""What README.md shows, runs; what the documents point to, exists."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"]


@dataclass(frozen=True, slots=True)
class Block:
    line: int
    code: str


def python_blocks(markdown: str) -> list[Block]:
    fences = re.finditer(r"^```python\n(.*?)^```$", markdown, flags=re.MULTILINE | re.DOTALL)
    return [Block(markdown.count("\n", 0, fence.start(1)) + 1, fence[1]) for fence in fences]


def run_block(block: Block, folder: Path) -> subprocess.CompletedProcess[str]:
    """Each block is a script of its own, as a reader would paste it."""
    script = folder / "block.py"
    script.write_text(block.code)
    env = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    return subprocess.run(
        [sys.executable, str(script)], cwd=folder, env=env, capture_output=True, text=True, check=False
    )


README_BLOCKS = python_blocks((ROOT / "README.md").read_text())


def test_readme_has_code_to_run() -> None:
    assert README_BLOCKS


@pytest.mark.parametrize("block", README_BLOCKS, ids=lambda block: f"line-{block.line}")
def test_readme_block_runs(block: Block, tmp_path: Path) -> None:
    result = run_block(block, tmp_path)
    assert result.returncode == 0, f"README.md line {block.line}:\n{result.stderr}"


def test_a_broken_block_is_noticed(tmp_path: Path) -> None:
    (block,) = python_blocks("text\n\n```sh\nfalse\n```\n\n```python\nimport icefloe\nicefloe.no_such_name\n```\n")
    assert block.line == 8
    assert run_block(block, tmp_path).returncode != 0


@pytest.mark.parametrize("name", DOCUMENTS)
def test_links_to_files_lead_somewhere(name: str) -> None:
    targets = re.findall(r"\]\((?!https?:)([^)#]+)\)", (ROOT / name).read_text())
    assert [target for target in targets if not (ROOT / target).exists()] == []


@pytest.mark.parametrize("name", DOCUMENTS)
def test_make_targets_that_documents_name_exist(name: str) -> None:
    makefile = (ROOT / "Makefile").read_text()
    named = re.findall(r"^make ([a-z-]+)|`make ([a-z-]+)`", (ROOT / name).read_text(), flags=re.MULTILINE)
    missing = {
        first or second for first, second in named if not re.search(rf"^{first or second}:", makefile, re.MULTILINE)
    }
    assert missing == set()
