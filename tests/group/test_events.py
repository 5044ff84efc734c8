from __future__ import annotations

import pytest

from aiokafkawire.group.membership import events
from aiokafkawire.group.membership.table import TRANSITIONS

from .test_membership_machine import EVENTS


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_every_event_has_a_handler_and_completions_have_a_request_number(
    event: events.MembershipEvent,
) -> None:
    assert any(known is type(event) for _, known in TRANSITIONS)
    assert isinstance(event, events.RequestCompleted) == hasattr(event, "request")


def test_all_events_are_public() -> None:
    assert {type(event).__name__ for event in EVENTS} | {
        "RequestCompleted",
        "MembershipEvent",
    } == set(events.__all__)
