"""Each storage call of a query fails once, before or after its effect, and no row is lost or doubled by it."""

from __future__ import annotations

import pytest

from support.child_process import run_in_child
from support.faulty_calls import FailingCall, run_all_failing_calls
from support.matrix import scratch


@pytest.mark.parametrize("visibility", ["batch", "roll"])
@pytest.mark.parametrize("table", [False, True], ids=["path", "table"])
@pytest.mark.parametrize("kind", FailingCall, ids=lambda kind: kind.name.lower())
def test_a_query_gets_over_any_storage_call_that_fails(kind: FailingCall, table: bool, visibility: str) -> None:
    with scratch() as root:
        ended = run_in_child(run_all_failing_calls, kind, str(root), table, visibility)
    assert not ended.error, ended.error
    assert ended.value > 30
