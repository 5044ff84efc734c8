"""Lookup in the transition tables of state machines."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, TypeVar

__all__ = ("InvalidTransition", "enum_transition", "invalid_transition", "transition")

MAX_SHOWN_CHARACTERS = 300
"""Length at which the text of a state or event is cut in errors; either may hold whole batches."""

V = TypeVar("V")


class InvalidTransition(AssertionError):
    """The transition table has no entry for an event in a state: a bug of this package."""


def transition(table: Mapping[Any, V], state: object, event: object) -> V:
    """Return the entry of a transition table for a state and an event.

    Args:
        table: Entries by (state, event). An enum member is a key itself; any other state or event
            is represented by its class.
        state: Current state.
        event: Event to handle.

    Raises:
        InvalidTransition: The table has no entry.
    """
    # Enum classes are never keys, so a hit by the two classes is the right entry.
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
    """Return the error for a state and an event without an entry."""
    return InvalidTransition(f"{_shorten(event)} cannot happen in {_shorten(state)}")


def enum_transition(table: Mapping[Any, V], state: Enum, event: Enum) -> V:
    """Like `transition`, with a fast path for two enum members."""
    entry = table.get((state, event))
    return transition(table, state, event) if entry is None else entry


def _shorten(value: object) -> str:
    text = str(value)
    return text if len(text) <= MAX_SHOWN_CHARACTERS else f"{text[:MAX_SHOWN_CHARACTERS]}…"
