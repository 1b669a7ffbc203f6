"""docs/errors.md explains every code that the source can raise, and none that is gone."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "errors.md"
FOLDERS = ("connector", "state", "schemas", "icefloe")
# Environment variables begin in the same way.
NOT_CODES = {"ICEFLOE_LOG"}


def codes_in(source: str) -> Iterator[str]:
    """Yield the codes in a module: literals that are one, or texts of log lines that begin with one."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found = re.match(r"(ICEFLOE_[A-Z0-9_]+)(?:$|: )", node.value)
            if found and found[1] not in NOT_CODES:
                yield found[1]


def codes_in_source() -> set[str]:
    files = [
        file for folder in FOLDERS for file in (ROOT / folder).glob("*.py") if not file.name.endswith(("_pb2.py",))
    ]
    return {code for file in files for code in codes_in(file.read_text())}


def codes_on_page() -> set[str]:
    return set(re.findall(r"`(ICEFLOE_[A-Z0-9_]+)`", PAGE.read_text()))


def test_every_code_is_explained() -> None:
    assert codes_in_source() - codes_on_page() == set()


def test_no_code_on_the_page_is_gone() -> None:
    assert codes_on_page() - codes_in_source() == set()


def test_codes_are_found_in_errors_and_in_warnings() -> None:
    source = 'raise StateError("ICEFLOE_A", "text")\nlog.warning("ICEFLOE_B: text %s", 1)\nNAME = "not ICEFLOE_C"\n'
    assert list(codes_in(source)) == ["ICEFLOE_A", "ICEFLOE_B"]


def test_each_code_is_explained_once() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    named = [code for row in rows for code in re.findall(r"`(ICEFLOE_[A-Z0-9_]+)`", row.split("|")[1])]
    assert sorted({code for code in named if named.count(code) > 1}) == []
