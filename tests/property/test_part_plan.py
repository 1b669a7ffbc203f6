"""However segments fall, a composed file's parts are legal, complete and in order, and large ones are copied."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from icefloe.connector.compose import PlannedPart, plan_parts

MIN, MAX, STREAM = 50, 500, 200

sources = st.lists(st.tuples(st.integers(0, 1500), st.booleans()), min_size=1, max_size=8)


def plan(pieces: list[tuple[int, bool]]) -> list[PlannedPart]:
    lengths, copyable = [length for length, _ in pieces], [can_copy for _, can_copy in pieces]
    return plan_parts(lengths, copyable, min_part_bytes=MIN, max_part_bytes=MAX, stream_part_bytes=STREAM)


@given(sources)
def test_every_byte_comes_once_and_in_order(pieces: list[tuple[int, bool]]) -> None:
    bytes_of = [(source, at) for source, (length, _) in enumerate(pieces) for at in range(length)]
    planned = [
        (span.source, at)
        for part in plan(pieces)
        for span in part.spans
        for at in range(span.start, span.start + span.length_bytes)
    ]
    assert planned == bytes_of


@given(sources)
def test_only_the_last_part_is_short_and_none_is_too_long(pieces: list[tuple[int, bool]]) -> None:
    parts = plan(pieces)
    assert all(part.length_bytes >= MIN for part in parts[:-1])
    assert all(0 < part.length_bytes <= MAX for part in parts)


@given(sources)
def test_copies_are_of_one_source_that_allows_it(pieces: list[tuple[int, bool]]) -> None:
    for part in plan(pieces):
        if part.is_copy:
            (span,) = part.spans
            assert pieces[span.source][1]
            assert span.length_bytes >= MIN


@given(sources)
def test_little_of_a_copyable_source_goes_through_the_process(pieces: list[tuple[int, bool]]) -> None:
    streamed = dict.fromkeys(range(len(pieces)), 0)
    for part in plan(pieces):
        if not part.is_copy:
            for span in part.spans:
                streamed[span.source] += span.length_bytes
    for source, (length, can_copy) in enumerate(pieces):
        if can_copy and length >= 2 * MIN:
            assert streamed[source] < MIN
