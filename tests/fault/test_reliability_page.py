"""The page on reliability shows every crash point of the source, so that a gap is visible."""

from __future__ import annotations

import re

from support.crashing import ROOT, points_in_source


def test_the_table_has_a_row_for_every_crash_point_and_no_other() -> None:
    page = (ROOT / "docs" / "reliability.md").read_text()
    rows = re.findall(r"^\| `([a-z_.-]+)` \|", page, flags=re.MULTILINE)
    assert sorted(rows) == sorted({point.name for point in points_in_source()})
