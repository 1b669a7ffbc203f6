"""Rows on their way to a row group: stored ones first, each consumed once."""

from __future__ import annotations

import pyarrow as pa
import pytest

from icefloe.connector.pending_rows import PendingRows
from icefloe.errors import CorruptStateError
from support.in_flight import EVENTS, assert_same_rows, events, rows_of


def stored(rows: int, batches: list[object] | None = None) -> PendingRows:
    held = [events(0, rows)] if batches is None else batches
    return PendingRows(
        EVENTS, owner="file 1", stored_rows=rows, stored_arrow_bytes=events(0, rows).nbytes, load=lambda: held
    )


def test_stored_rows_come_before_those_in_memory() -> None:
    pending = stored(10)
    pending.add(events(10, 5))
    assert pending.rows == 15
    assert pending.peek()["id"].to_pylist() == list(range(15))
    assert pending.take()["id"].to_pylist() == list(range(15))
    assert (pending.rows, pending.arrow_bytes, pending.consumed_rows) == (0, 0, 10)


def test_a_budget_cuts_rows_in_memory_and_never_stored_ones() -> None:
    pending = stored(10)
    pending.add(events(10, 100))
    one_row = events(10, 100).nbytes / 100
    taken = pending.take(int(pending.stored_arrow_bytes + 30.5 * one_row))
    assert taken["id"].to_pylist() == list(range(40))
    assert pending.take(1)["id"].to_pylist() == [40]
    assert pending.memory_rows == 69
    assert pending.take()["id"].to_pylist() == list(range(41, 110))


def test_spilled_rows_come_back_by_load_and_consumed_ones_do_not() -> None:
    held = [events(0, 10)]
    pending = PendingRows(EVENTS, owner="f", stored_rows=10, stored_arrow_bytes=100, load=lambda: held)
    pending.add(events(10, 5))
    held.extend(pending.spill())
    assert (pending.memory_rows, pending.stored_rows) == (0, 15)
    assert pending.take().num_rows == 15
    pending.add(events(15, 5))
    held.extend(pending.spill())
    pending.add(events(20, 2))
    assert pending.take()["id"].to_pylist() == list(range(15, 22))
    assert pending.consumed_rows == 20


def test_new_rows_are_shown_once_and_stay() -> None:
    pending = stored(0, [])
    pending.add(events(0, 10))
    assert [batch.num_rows for batch in pending.new_rows()] == [10]
    pending.add(events(10, 10))
    taken = pending.take(events(0, 15).nbytes).num_rows
    assert 10 < taken < 20
    assert [batch["id"].to_pylist()[0] for batch in pending.new_rows()] == [taken]
    assert pending.new_rows() == []
    assert pending.memory_rows == 20 - taken


@pytest.mark.parametrize("found", [[], [events(0, 9)], [events(0, 11)]])
def test_other_rows_than_were_counted_are_refused_with_the_files_name(found: list[object]) -> None:
    with pytest.raises(CorruptStateError, match="file 1"):
        stored(10, found).take()


def test_many_small_batches_become_few_and_keep_rows_order_and_size() -> None:
    pending = PendingRows(EVENTS, owner="a file")
    batches = [events(start, 10) for start in range(0, 1000, 10)]
    for batch in batches:
        pending.add(batch)
    assert len(pending.batches) < 20
    assert pending.memory_rows == 1000
    assert pending.memory_bytes == sum(batch.nbytes for batch in batches)
    first = pending.take(pending.memory_bytes // 3)
    assert_same_rows(pa.concat_tables([first, pending.take()]), rows_of(batches))
