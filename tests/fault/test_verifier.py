"""The verifier catches what it is there for: a lost row, a doubled one, an altered value, a file that is not whole."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.child_process import run_in_child
from support.matrix import Scenario, scratch
from support.query_runs import QueryPlan, run_query
from support.verifier import load_table, verify, visible_files


@pytest.fixture(scope="module")
def done_query() -> Iterator[QueryPlan]:
    with scratch() as root:
        plan = Scenario("path", "batch").plan(root / "done")
        (root / "done").mkdir()
        ended = run_in_child(run_query, plan, restart=0)
        assert not ended.error, ended.error
        verify(plan)
        yield plan


@pytest.fixture
def plan(done_query: QueryPlan, tmp_path: Path) -> QueryPlan:
    """A copy to be damaged."""
    copied = tmp_path / "copied"
    shutil.copytree(done_query.root, copied)
    return dataclasses.replace(done_query, root=str(copied), location=str(copied))


def test_a_lost_row_is_caught(plan: QueryPlan) -> None:
    file = visible_files(plan)[0]
    rows = pq.read_table(file, partitioning=None)
    pq.write_table(rows.slice(1), file)
    with pytest.raises(AssertionError, match="1 rows lost"):
        verify(plan)


def test_a_doubled_row_is_caught(plan: QueryPlan) -> None:
    file = visible_files(plan)[0]
    rows = pq.read_table(file, partitioning=None)
    pq.write_table(pa.concat_tables([rows, rows.slice(0, 1)]), file)
    with pytest.raises(AssertionError, match="1 doubled"):
        verify(plan)


def test_an_altered_value_is_caught(plan: QueryPlan) -> None:
    file = visible_files(plan)[0]
    rows = pq.read_table(file, partitioning=None)
    changed = [value + 1 if i == 0 else value for i, value in enumerate(rows["amount"].to_pylist())]
    pq.write_table(rows.set_column(rows.schema.get_field_index("amount"), "amount", pa.array(changed)), file)
    with pytest.raises(AssertionError, match="1 altered or foreign"):
        verify(plan)


def test_a_row_in_the_wrong_folder_is_caught(plan: QueryPlan) -> None:
    file = next(Path(f) for f in visible_files(plan) if "region-0" in f)
    file.rename(file.parent.with_name("region=region-1") / file.name)
    with pytest.raises(AssertionError, match="altered or foreign"):
        verify(plan)


def test_a_file_that_is_visible_and_not_whole_is_caught(plan: QueryPlan) -> None:
    file = Path(visible_files(plan)[0])
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(AssertionError, match="is visible and cannot be read"):
        verify(plan)


def test_a_state_object_that_nothing_names_is_caught(plan: QueryPlan) -> None:
    segment = next(Path(plan.state).rglob("checkpoint.metadata")).with_name(f"segment-0-{'ab' * 16}-0")
    segment.write_bytes(b"left")
    with pytest.raises(AssertionError, match="nothing names"):
        verify(plan)


def test_an_unfinished_file_is_caught(plan: QueryPlan) -> None:
    ledger = next(Path(plan.data, "_icefloe").rglob("*.ledger"))
    (ledger.parent / "00000000-1-0-x.parquet.inprogress").write_bytes(b"left")
    with pytest.raises(AssertionError, match="unfinished files"):
        verify(plan)


def test_a_file_in_two_snapshots_is_caught() -> None:
    with scratch() as root:
        plan = Scenario("table", "roll").plan(root)
        ended = run_in_child(run_query, plan, restart=0)
        assert not ended.error, ended.error
        verify(plan)
        ended = run_in_child(_append_again, plan)
        assert not ended.error, ended.error
        with pytest.raises(AssertionError, match="doubled"):
            verify(plan)


def _append_again(plan: QueryPlan) -> None:
    table = load_table(plan)
    file = next(iter(table.scan().plan_files())).file
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        append.append_data_file(file)
