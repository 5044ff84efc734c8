from __future__ import annotations

import pytest

from aiokafkawire.group import events as on
from aiokafkawire.group.membership import TRANSITIONS

from .test_membership import EVENTS


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_every_event_is_of_use_somewhere_and_answers_name_their_request(event: on.Event) -> None:
    assert any(known is type(event) for _, known in TRANSITIONS)
    assert isinstance(event, on.Answer) == hasattr(event, "request")


def test_all_events_are_public() -> None:
    assert {type(event).__name__ for event in EVENTS} | {"Answer", "Event"} == set(on.__all__)
