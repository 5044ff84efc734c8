"""Lookup in transition tables, which map a state and an event to an entry.

The entry is a handler, or the next state itself if states carry no data. Handlers do no I/O. A
machine whose caller performs effects uses the form `Transitions`: the handler gets the machine or
its context, the state, the event and the time in seconds, and returns the next state and the
effects. Other machines need fewer arguments, or return the next state only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, Never, TypeVar

__all__ = (
    "NO_TIME",
    "InvalidTransition",
    "NoEffect",
    "Transitions",
    "each_of",
    "stay",
    "transition",
)

MAX_SHOWN_CHARACTERS = 300
"""Length at which the text of a state or event is cut in errors; either may hold whole batches."""

NO_TIME = 0.0
"""Time that a machine without deadlines passes to its handlers."""

M = TypeVar("M")
S = TypeVar("S")
E = TypeVar("E")
V = TypeVar("V")

NoEffect = Never
"""Effect of a machine that has none."""

Transitions = Mapping[tuple[Any, Any], Callable[[M, Any, Any, float], tuple[S, Sequence[E]]]]
"""Handlers by (state, event). `M` is the machine or context, `S` its states, `E` its effects."""


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
        raise InvalidTransition(f"{_shorten(event)} cannot happen in {_shorten(state)}")
    return entry


def each_of(states: Iterable[Any], entries: Mapping[Any, V]) -> dict[tuple[Any, Any], V]:
    """Return the part of a table in which several states have the same entries by event."""
    return {(state, event): entry for state in states for event, entry in entries.items()}


def stay(machine: object, state: S, event: object, now: float) -> tuple[S, Sequence[Any]]:
    """Keep the state; handler of an event that changes nothing."""
    return state, ()


def _shorten(value: object) -> str:
    text = str(value)
    return text if len(text) <= MAX_SHOWN_CHARACTERS else f"{text[:MAX_SHOWN_CHARACTERS]}…"
