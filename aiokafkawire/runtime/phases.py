"""The phases in the life of a client, and what leads from one to another."""

from __future__ import annotations

import enum
from collections.abc import Mapping

__all__ = ("TRANSITIONS", "Phase", "Step")


class Phase(enum.Enum):
    """Where a client stands in its life."""

    NEW = "not started yet"
    STARTING = "starting"
    RUNNING = "running"
    BROKEN = "broken"
    LOST = "cut off"
    CLOSING = "closing"
    CLOSED = "closed"
    FORKED = "left behind by a fork"


class Step(enum.Enum):
    """What moves a client on in its life."""

    ENTERED = "somebody starts it"
    READY = "its session is made"
    FAILED = "its session cannot be made"
    CRASHED = "one of its tasks failed"
    CUT_OFF = "somebody else ended its tasks"
    LEFT = "somebody stops it"
    ENDED = "its tasks are ended"
    FORKED = "this is a child process of the one that started it"


TRANSITIONS: Mapping[tuple[Phase, Step], Phase] = {
    (Phase.NEW, Step.ENTERED): Phase.STARTING,
    (Phase.NEW, Step.LEFT): Phase.CLOSING,
    (Phase.NEW, Step.ENDED): Phase.CLOSED,
    (Phase.STARTING, Step.READY): Phase.RUNNING,
    (Phase.STARTING, Step.FAILED): Phase.NEW,
    (Phase.STARTING, Step.CRASHED): Phase.STARTING,
    (Phase.STARTING, Step.LEFT): Phase.CLOSING,
    (Phase.STARTING, Step.ENDED): Phase.CLOSED,
    (Phase.STARTING, Step.FORKED): Phase.FORKED,
    (Phase.RUNNING, Step.CRASHED): Phase.BROKEN,
    (Phase.RUNNING, Step.CUT_OFF): Phase.LOST,
    (Phase.RUNNING, Step.LEFT): Phase.CLOSING,
    (Phase.RUNNING, Step.ENDED): Phase.CLOSED,
    (Phase.RUNNING, Step.FORKED): Phase.FORKED,
    (Phase.BROKEN, Step.CRASHED): Phase.BROKEN,
    (Phase.BROKEN, Step.CUT_OFF): Phase.LOST,
    (Phase.BROKEN, Step.LEFT): Phase.CLOSING,
    (Phase.BROKEN, Step.ENDED): Phase.CLOSED,
    (Phase.BROKEN, Step.FORKED): Phase.FORKED,
    (Phase.LOST, Step.CRASHED): Phase.LOST,
    (Phase.LOST, Step.LEFT): Phase.CLOSING,
    (Phase.LOST, Step.ENDED): Phase.CLOSED,
    (Phase.LOST, Step.FORKED): Phase.FORKED,
    # A start that was under way fails; whoever stopped the client has the last word.
    (Phase.CLOSING, Step.FAILED): Phase.CLOSING,
    (Phase.CLOSING, Step.CRASHED): Phase.CLOSING,
    (Phase.CLOSING, Step.ENDED): Phase.CLOSED,
    (Phase.CLOSING, Step.FORKED): Phase.FORKED,
    (Phase.CLOSED, Step.FAILED): Phase.CLOSED,
    (Phase.CLOSED, Step.CRASHED): Phase.CLOSED,
    (Phase.CLOSED, Step.CUT_OFF): Phase.CLOSED,
    (Phase.CLOSED, Step.ENDED): Phase.CLOSED,
    (Phase.FORKED, Step.FAILED): Phase.FORKED,
    (Phase.FORKED, Step.CRASHED): Phase.FORKED,
    (Phase.FORKED, Step.CUT_OFF): Phase.FORKED,
    (Phase.FORKED, Step.ENDED): Phase.CLOSED,
}
