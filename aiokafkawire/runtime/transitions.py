"""How machines look up their tables of transitions."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, TypeVar

__all__ = ("InvalidTransition", "enum_transition", "invalid_transition", "transition")

MAX_SHOWN_CHARACTERS = 300
"""What of a state or an event stands in the error; either may hold whole batches."""

V = TypeVar("V")


class InvalidTransition(AssertionError):
    """An event came in a state for which the table has no entry: a defect of this package."""


def transition(table: Mapping[Any, V], state: object, event: object) -> V:
    """The entry for a state and an event. Raises `InvalidTransition` if there is none.

    In the key stand members of enumerations themselves, and anything else by its class.
    """
    # No table has an enumeration itself in a key: that two classes are found says that they stand
    # for themselves.
    entry = table.get((type(state), type(event)))
    if entry is None:
        key = (
            state if isinstance(state, Enum) else type(state),
            event if isinstance(event, Enum) else type(event),
        )
        entry = table.get(key)
    if entry is None:
        raise invalid_transition(state, event)
    return entry


def invalid_transition(state: object, event: object) -> InvalidTransition:
    """The error where a table has no entry."""
    return InvalidTransition(f"{_shorten(event)} cannot happen in {_shorten(state)}")


def enum_transition(table: Mapping[Any, V], state: Enum, event: Enum) -> V:
    """As `transition`, where both are members of enumerations."""
    entry = table.get((state, event))
    return transition(table, state, event) if entry is None else entry


def _shorten(value: object) -> str:
    text = str(value)
    return text if len(text) <= MAX_SHOWN_CHARACTERS else f"{text[:MAX_SHOWN_CHARACTERS]}…"
