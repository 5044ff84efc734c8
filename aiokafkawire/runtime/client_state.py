"""The states of a client between construction and close, and their transitions."""

from __future__ import annotations

import enum
from collections.abc import Mapping

__all__ = ("TRANSITIONS", "ClientState", "LifecycleEvent")


class ClientState(enum.Enum):
    """State of a client. The value completes the sentence "the producer is …"."""

    NEW = "not started yet"
    STARTING = "starting"
    RUNNING = "running"
    FAILED = "broken"
    CANCELLED = "cancelled"
    CLOSING = "closing"
    CLOSED = "closed"
    FORKED = "unusable after a fork"


class LifecycleEvent(enum.Enum):
    """An event that may change the state of a client. The value describes it in errors."""

    START_CALLED = "start was called"
    STARTED = "its session was created"
    START_FAILED = "its start failed"
    TASK_FAILED = "one of its tasks failed"
    TASKS_CANCELLED = "its tasks were cancelled"
    STOP_CALLED = "stop was called"
    STOPPED = "its tasks have ended"
    FORKED = "the process was forked"


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
    # `stop` during `start` wins: the failure of the start does not make the client new again.
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
