"""The state diagram and tables in the documentation."""

from __future__ import annotations

from pathlib import Path

from aiokafkawire.producer.transactions.state_machine import TRANSITIONS

from .diagram import BEGIN, END, destinations, generated
from .test_state_machine import EXPECTED, SAME, states

PAGE = Path(__file__).parents[3] / "docs" / "state-machines.md"


def test_every_row_leads_somewhere_and_where_it_should() -> None:
    found = destinations()
    assert len(found) == len(TRANSITIONS)
    for (state, event), end in EXPECTED.items():
        expected = (state if end is SAME else end).__name__
        assert expected in found[state.__name__, event.__name__]


def test_every_state_is_reached_and_left() -> None:
    names = [state.__name__ for state in states()]
    found = destinations()
    reached = {end for (start, _), ends in found.items() for end in ends if end != start}
    assert reached == {*names} - {"Uninitialised"}
    left = {start for (start, _), ends in found.items() if set(ends) - {start}}
    assert left == {*names} - {"Detached", "FatalError"}


def test_the_documentation_shows_the_table_as_it_is() -> None:
    text = PAGE.read_text()
    begin = text.index(BEGIN)
    shown = text[begin : text.index(END, begin) + len(END)]
    hint = "run python -m tests.producer.transactions.diagram and paste what it prints"
    assert shown == generated(), hint
