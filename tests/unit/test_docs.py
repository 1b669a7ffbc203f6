"""What the documents show, runs; what they point to, exists; the options and commands they name are real."""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from icefloe.connector.cli import _parser
from icefloe.connector.options import OPTIONS, PREFIXES, options_page

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    page.relative_to(ROOT).as_posix()
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "decisions").glob("*.md")]
)
# The blocks of a page follow from each other: together they are one script. The scripts run one after the other, in a
# folder that is empty at first and in one process: a Spark for each would take minutes.
RUN = [
    "README.md",
    "docs/getting-started.md",
    "docs/moving-from-foreachbatch.md",
    "docs/visibility.md",
]


@dataclass(frozen=True, slots=True)
class Block:
    line: int
    language: str
    text: str


def blocks(markdown: str, language: str) -> list[Block]:
    fences = re.finditer(r"^```(\w*)\n(.*?)^```$", markdown, flags=re.MULTILINE | re.DOTALL)
    found = [Block(markdown.count("\n", 0, fence.start(2)) + 1, fence[1], fence[2]) for fence in fences]
    return [block for block in found if block.language == language]


def script(found: list[Block]) -> str:
    """Return them as a reader would paste them, one after the other; lines keep their numbers on the page."""
    lines: list[str] = []
    for block in found:
        lines += [""] * (block.line - 1 - len(lines))
        lines += block.text.splitlines()
    return "\n".join(lines) + "\n"


def run_scripts(scripts: dict[str, str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run them in one process, in ``folder``; each starts with no names of the others."""
    paths = []
    for name, text in scripts.items():
        paths.append(folder / "scripts" / name.replace("/", "-"))
        paths[-1].parent.mkdir(exist_ok=True)
        paths[-1].write_text(text)
    command = "import runpy, sys\nfor path in sys.argv[1:]: runpy.run_path(path, run_name='__main__')"
    env = {**os.environ, "PYSPARK_PYTHON": sys.executable, "POLARS_ICEBERG_PLANNER": "pyiceberg"}
    return subprocess.run(
        [sys.executable, "-c", command, *map(str, paths)],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )


def text_of(page: str) -> str:
    return (ROOT / page).read_text()


@pytest.mark.timeout(600)
def test_the_code_of_the_pages_runs(tmp_path: Path) -> None:
    scripts = {page: script(blocks(text_of(page), "python")) for page in RUN}
    assert all(text.strip() for text in scripts.values())
    result = run_scripts(scripts, tmp_path)
    assert result.returncode == 0, result.stderr[-4000:]


@pytest.mark.parametrize("page", PAGES)
def test_code_that_is_not_run_is_python_all_the_same(page: str) -> None:
    for block in blocks(text_of(page), "python"):
        ast.parse(block.text)
    for block in blocks(text_of(page), "json"):
        json.loads(block.text)


def test_a_broken_block_is_noticed(tmp_path: Path) -> None:
    (block,) = blocks("text\n\n```sh\nfalse\n```\n\n```python\nimport icefloe\nicefloe.no_such_name\n```\n", "python")
    assert block.line == 8
    result = run_scripts({"docs/page.md": script([block])}, tmp_path)
    assert result.returncode != 0
    assert 'docs-page.md", line 9' in result.stderr


@pytest.mark.parametrize("page", PAGES)
def test_options_that_a_page_sets_exist(page: str) -> None:
    known = {option.key for option in OPTIONS}
    # Options of sources that the examples read from.
    known |= {"rowsPerBatch", "rowsPerSecond", "maxFilesPerTrigger"}
    named = re.findall(r'\.option\("([^"]+)"', text_of(page))
    assert [key for key in named if key not in known and not key.startswith(tuple(PREFIXES))] == []


@pytest.mark.parametrize("page", PAGES)
def test_commands_that_a_page_shows_are_understood(page: str) -> None:
    shown = "".join(block.text for block in blocks(text_of(page), "sh")).replace("\\\n", " ")
    lines = shown.splitlines()
    for line in lines:
        words = shlex.split(line, comments=True)
        if words[:1] == ["icefloe"]:
            assert _parser().parse_args(words[1:]).run


def heading_anchors(markdown: str) -> set[str]:
    """The anchors that headings get, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", markdown, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    broken = []
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)", text_of(page)):
        path = (ROOT / page).parent / target if target else ROOT / page
        if not path.exists() or (anchor and anchor not in heading_anchors(path.read_text())):
            broken.append(f"{target}#{anchor}")
    assert broken == []


# Decisions may name what was left for later.
@pytest.mark.parametrize("page", [page for page in PAGES if not page.startswith("docs/decisions/")])
def test_make_targets_that_documents_name_exist(page: str) -> None:
    makefile = text_of("Makefile")
    named = re.findall(r"^make ([a-z-]+)|`make ([a-z-]+)`", text_of(page), flags=re.MULTILINE)
    missing = {
        first or second for first, second in named if not re.search(rf"^{first or second}:", makefile, re.MULTILINE)
    }
    assert missing == set()


def test_the_page_of_options_is_what_make_docs_writes() -> None:
    assert text_of("docs/options.md") == options_page()


def test_every_page_can_be_reached_from_the_readme() -> None:
    reached, waiting = set(), {"README.md"}
    while waiting:
        page = waiting.pop()
        reached.add(page)
        for target in re.findall(r"\]\((?!https?:)([^)#\s]+\.md)(?:#[^)]*)?\)", text_of(page)):
            linked = ((ROOT / page).parent / target).resolve().relative_to(ROOT.resolve()).as_posix()
            waiting |= {linked} - reached
    assert [page for page in PAGES if page not in reached and not page.startswith("docs/decisions/")] == []
