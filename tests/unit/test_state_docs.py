"""What docs/state-tables.md says is so: its code runs, the tests it names exist, the example does what it shows."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCUMENT = (ROOT / "docs" / "state-tables.md").read_text()


def test_every_test_that_the_map_names_exists() -> None:
    named = re.findall(r"`(test_\w+\.py)::(test_\w+)`", DOCUMENT)
    assert len(named) > 30
    sources: dict[str, str] = {}
    for path in (ROOT / "tests").rglob("test_*.py"):
        sources[path.name] = sources.get(path.name, "") + path.read_text()
    assert [pair for pair in named if f"def {pair[1]}(" not in sources.get(pair[0], "")] == []


def test_every_row_of_the_map_names_a_test() -> None:
    rows = DOCUMENT.split("| row | tests |\n|---|---|\n")[1].strip().splitlines()
    assert len(rows) == 22
    assert [row for row in rows if "::test_" not in row] == []


def test_the_code_in_the_document_runs(tmp_path: Path) -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```$", DOCUMENT, flags=re.MULTILINE | re.DOTALL)
    script = tmp_path / "block.py"
    script.write_text(code)
    subprocess.run([sys.executable, str(script)], check=True)


def test_the_example_loses_what_was_not_checkpointed_and_nothing_else() -> None:
    command = [sys.executable, str(ROOT / "examples" / "state_tables.py")]
    shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert shown.splitlines()[:2] == ["counts: {'ann': 1}", "visits: [[{'time': 130, 'user': 2}]]"]
    assert "0000000002 counts [{'key': b'\\xa3bob', 'value': None}]" in shown
