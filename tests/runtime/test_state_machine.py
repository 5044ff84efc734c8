from __future__ import annotations

import enum
from dataclasses import dataclass

import pytest

from aiokafkawire.runtime.state_machine import MAX_SHOWN_CHARACTERS, InvalidTransition, transition


class Light(enum.Enum):
    RED = 1
    GREEN = 2


@dataclass
class Waited:
    seconds: int


@dataclass
class Broken:
    reason: str


TABLE = {(Light.RED, Waited): Light.GREEN, (Broken, Waited): Light.RED}


def test_enum_members_are_keys_and_others_are_looked_up_by_class():
    assert transition(TABLE, Light.RED, Waited(5)) is Light.GREEN
    assert transition(TABLE, Broken("bulb"), Waited(5)) is Light.RED


@pytest.mark.parametrize(
    ("state", "event"), [(Light.GREEN, Waited(5)), (Light.RED, Broken("bulb")), (5, "x")]
)
def test_a_missing_entry_is_an_invalid_transition(state: object, event: object):
    with pytest.raises(InvalidTransition) as caught:
        transition(TABLE, state, event)
    assert str(caught.value) == f"{event} cannot happen in {state}"


def test_the_error_shortens_long_states():
    with pytest.raises(InvalidTransition) as caught:
        transition(TABLE, Light.RED, b"x" * 100_000)
    assert len(str(caught.value)) < 2 * MAX_SHOWN_CHARACTERS
