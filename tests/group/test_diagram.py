"""Every transition with all variants, and the diagram in the documentation."""

from __future__ import annotations

from pathlib import Path

import pytest

from aiokafkawire.group.membership import states
from aiokafkawire.group.membership.table import TRANSITIONS

from .diagram import BEGIN, END, Destinations, Step, destinations, generated
from .test_membership_machine import EXPECTED, check_invariants, check_step

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[2] / "docs" / "state-machines.md"


def look(step: Step) -> None:
    """Check a step."""
    check_invariants(step.membership)
    check_step(step.before, step.event, step.effects, step.membership.state)


@pytest.fixture(scope="module")
def found() -> Destinations:
    return destinations(look)


def test_every_transition_was_tried(found: Destinations) -> None:
    assert all(found.values())
    assert len(found) == len(TRANSITIONS)


def test_transitions_lead_to_the_expected_states(found: Destinations) -> None:
    for (state, event), ends in found.items():
        expected = EXPECTED[state, event]
        assert (state if expected == "=" else expected) in ends


def test_every_state_is_reached_and_left(found: Destinations) -> None:
    names = {state.__name__ for state, _ in TRANSITIONS} | {states.MembershipClosed.__name__}
    reached = {end for (start, _), ends in found.items() for end in ends if end != start}
    assert reached == names
    left = {start for (start, _), ends in found.items() if set(ends) - {start}}
    assert left == names - {states.MembershipClosed.__name__}


def test_the_page_shows_the_current_table(found: Destinations) -> None:
    text = PAGE.read_text()
    begin = text.index(BEGIN)
    shown = text[begin : text.index(END, begin) + len(END)]
    assert shown == generated(found), "run python -m tests.group.diagram and paste what it prints"
