"""The life of an in-flight file is a table, and the table is what it should be."""

from __future__ import annotations

import itertools

import pytest

from icefloe.connector.file_phase import TRANSITIONS, Phase, Step, advance
from icefloe.errors import StateError


def test_every_pair_is_a_transition_or_refused_with_the_files_name() -> None:
    for phase, step in itertools.product(Phase, Step):
        if (phase, step) in TRANSITIONS:
            assert advance(phase, step, file_id="1-0-a-0") is TRANSITIONS[phase, step]
        else:
            with pytest.raises(StateError, match="1-0-a-0"):
                advance(phase, step, file_id="1-0-a-0")


def test_nothing_follows_the_end() -> None:
    assert not [step for (phase, step) in TRANSITIONS if phase in (Phase.CLOSED, Phase.SUSPENDED)]


def test_a_rolling_file_can_only_be_closed() -> None:
    assert [step for (phase, step) in TRANSITIONS if phase is Phase.ROLLING] == [Step.CLOSE]


def test_segments_are_never_forgotten() -> None:
    assert Phase.BEGUN not in [after for (phase, _), after in TRANSITIONS.items() if phase is Phase.SEGMENTS]
