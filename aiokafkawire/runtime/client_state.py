"""The phases in the life of a client, and what leads from one to another."""

from __future__ import annotations

import enum
from collections.abc import Mapping

__all__ = ("TRANSITIONS", "ClientState", "LifecycleEvent")


class ClientState(enum.Enum):
    """Where a client stands in its life."""

    NEW = "not started yet"
    STARTING = "starting"
    RUNNING = "running"
    FAILED = "broken"
    CANCELLED = "cut off"
    CLOSING = "closing"
    CLOSED = "closed"
    FORKED = "left behind by a fork"


class LifecycleEvent(enum.Enum):
    """What moves a client on in its life."""

    START_CALLED = "somebody starts it"
    STARTED = "its session is made"
    START_FAILED = "its session cannot be made"
    TASK_FAILED = "one of its tasks failed"
    TASKS_CANCELLED = "somebody else ended its tasks"
    STOP_CALLED = "somebody stops it"
    STOPPED = "its tasks are ended"
    FORKED = "this is a child process of the one that started it"


TRANSITIONS: Mapping[tuple[ClientState, LifecycleEvent], ClientState] = {
    (ClientState.NEW, LifecycleEvent.START_CALLED): ClientState.STARTING,
    (ClientState.NEW, LifecycleEvent.STOP_CALLED): ClientState.CLOSING,
    (ClientState.NEW, LifecycleEvent.STOPPED): ClientState.CLOSED,
    (ClientState.STARTING, LifecycleEvent.STARTED): ClientState.RUNNING,
    (ClientState.STARTING, LifecycleEvent.START_FAILED): ClientState.NEW,
    (ClientState.STARTING, LifecycleEvent.TASK_FAILED): ClientState.STARTING,
    (ClientState.STARTING, LifecycleEvent.STOP_CALLED): ClientState.CLOSING,
    (ClientState.STARTING, LifecycleEvent.STOPPED): ClientState.CLOSED,
    (ClientState.STARTING, LifecycleEvent.FORKED): ClientState.FORKED,
    (ClientState.RUNNING, LifecycleEvent.TASK_FAILED): ClientState.FAILED,
    (ClientState.RUNNING, LifecycleEvent.TASKS_CANCELLED): ClientState.CANCELLED,
    (ClientState.RUNNING, LifecycleEvent.STOP_CALLED): ClientState.CLOSING,
    (ClientState.RUNNING, LifecycleEvent.STOPPED): ClientState.CLOSED,
    (ClientState.RUNNING, LifecycleEvent.FORKED): ClientState.FORKED,
    (ClientState.FAILED, LifecycleEvent.TASK_FAILED): ClientState.FAILED,
    (ClientState.FAILED, LifecycleEvent.TASKS_CANCELLED): ClientState.CANCELLED,
    (ClientState.FAILED, LifecycleEvent.STOP_CALLED): ClientState.CLOSING,
    (ClientState.FAILED, LifecycleEvent.STOPPED): ClientState.CLOSED,
    (ClientState.FAILED, LifecycleEvent.FORKED): ClientState.FORKED,
    (ClientState.CANCELLED, LifecycleEvent.TASK_FAILED): ClientState.CANCELLED,
    (ClientState.CANCELLED, LifecycleEvent.STOP_CALLED): ClientState.CLOSING,
    (ClientState.CANCELLED, LifecycleEvent.STOPPED): ClientState.CLOSED,
    (ClientState.CANCELLED, LifecycleEvent.FORKED): ClientState.FORKED,
    # A start that was under way fails; whoever stopped the client has the last word.
    (ClientState.CLOSING, LifecycleEvent.START_FAILED): ClientState.CLOSING,
    (ClientState.CLOSING, LifecycleEvent.TASK_FAILED): ClientState.CLOSING,
    (ClientState.CLOSING, LifecycleEvent.STOPPED): ClientState.CLOSED,
    (ClientState.CLOSING, LifecycleEvent.FORKED): ClientState.FORKED,
    (ClientState.CLOSED, LifecycleEvent.START_FAILED): ClientState.CLOSED,
    (ClientState.CLOSED, LifecycleEvent.TASK_FAILED): ClientState.CLOSED,
    (ClientState.CLOSED, LifecycleEvent.TASKS_CANCELLED): ClientState.CLOSED,
    (ClientState.CLOSED, LifecycleEvent.STOPPED): ClientState.CLOSED,
    (ClientState.FORKED, LifecycleEvent.START_FAILED): ClientState.FORKED,
    (ClientState.FORKED, LifecycleEvent.TASK_FAILED): ClientState.FORKED,
    (ClientState.FORKED, LifecycleEvent.TASKS_CANCELLED): ClientState.FORKED,
    (ClientState.FORKED, LifecycleEvent.STOPPED): ClientState.CLOSED,
}
