"""Writes the table of docs/reliability.md from what the crash matrix noted.

``ICEFLOE_FAULT_RESULTS=results.jsonl make test`` (or ``make faults FAULT_RESULTS=...``), then
``python tests/fault/reliability_table.py results.jsonl``.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.crashing import ROOT, points_in_source

PAGE = ROOT / "docs" / "reliability.md"
BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"
COLUMNS = ("path-batch-local", "path-roll-local", "table-batch-local", "table-roll-local", "s3", "spark")
NOT_IN_THE_MATRIX = {
    "state.record-put": "the state library's own `put_record`, which the sink does not use",
    "state.operator_metadata_written": "the state library with a backend, which the sink does not use",
    "file.upload-gone": "in `tests/fault/test_s3_proxy.py`: needs an upload that ends under a recorded file",
}


def table(lines: Iterable[str]) -> str:
    """Return the table: for each point and target the passages at which a process was killed, and what came of it."""
    cells: dict[tuple[str, str], list[tuple[int, str]]] = defaultdict(list)
    for line in lines:
        result = json.loads(line)
        point, _, passage = result["fault"].partition("#")
        kind = next(c for c in (*COLUMNS[4:], *COLUMNS[:4]) if c in result["scenario"].replace("spark ", "spark-"))
        cells[point, kind].append((int(passage), "WRONG" if result["wrong"] else ""))
    rows = ["| killed at | " + " | ".join(c.removesuffix("-local") for c in COLUMNS) + " |", "|---" * 7 + "|"]
    for point in sorted({p.name for p in points_in_source()}):
        if point in NOT_IN_THE_MATRIX:
            rows.append(f"| `{point}` | {NOT_IN_THE_MATRIX[point]} |" + " |" * (len(COLUMNS) - 1))
            continue
        rows.append(f"| `{point}` | " + " | ".join(_cell(cells.get((point, column), [])) for column in COLUMNS) + " |")
    return "\n".join(rows)


def _cell(found: list[tuple[int, str]]) -> str:
    return ", ".join(f"{passage}{wrong and ' ' + wrong}" for passage, wrong in sorted(set(found))) or "-"


def main() -> None:
    """Replace the table in the page."""
    page = PAGE.read_text()
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    lines = [line for name in sys.argv[1:] for line in Path(name).read_text().splitlines()]
    PAGE.write_text(f"{before}{BEGIN}\n{table(lines)}\n{END}{after}")


if __name__ == "__main__":
    main()
