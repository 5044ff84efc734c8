"""Fetch sessions (KIP-227): a broker remembers the fetched partitions; requests send changes only.

A state machine without I/O, one per broker. `FetchSession.request` returns the request to send;
its outcome is an event. After any error the next request opens a new session with all partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID

from aiokafkawire.runtime.state_machine import transition
from aiokafkawire.types import TopicPartition
from aiokafkawire.wire import ZERO_UUID
from aiokafkawire.wire.error_codes import ErrorCode

from .fetch_planner import PartitionFetch

__all__ = (
    "TRANSITIONS",
    "Accepted",
    "FetchSession",
    "NewSession",
    "OpenSession",
    "Rejected",
    "ResponseLost",
    "SessionRequest",
)

NO_SESSION = 0
FIRST_EPOCH = 0
MAX_EPOCH = 2**31 - 1
LAST_VERSION_WITH_NAMES = 12


class SessionRequest(NamedTuple):
    """One Fetch request of a session.

    Attributes:
        session_id: The session's id, or 0.
        epoch: The session epoch of the request.
        parts: The partitions that the request lists.
        forgotten: The partitions to remove from the session, with their topic ids.
        partitions: All partitions that the session has after the request.
        max_version: The last Fetch version with topic names, if a topic has no id; else None.
        planned: The partitions passed to `FetchSession.request`.
        ids: The topic ids passed to `FetchSession.request`.
    """

    session_id: int
    epoch: int
    parts: tuple[PartitionFetch, ...]
    forgotten: tuple[tuple[TopicPartition, UUID], ...]
    partitions: Mapping[TopicPartition, PartitionFetch]
    max_version: int | None
    planned: tuple[PartitionFetch, ...]
    ids: Mapping[str, UUID]


# --- states -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NewSession:
    """The next request lists all partitions. It closes `previous_session_id`, unless that is 0."""

    previous_session_id: int = NO_SESSION


@dataclass(frozen=True, slots=True)
class OpenSession:
    """The next request has this `epoch`, and lists what differs from `last`, the last request.

    With the same `planned` and `ids` nothing is listed.
    """

    session_id: int
    epoch: int
    last: SessionRequest


State = NewSession | OpenSession


# --- events -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Accepted:
    """The broker responded with this session id; 0 means that it keeps no session."""

    request: SessionRequest
    session_id: int


@dataclass(frozen=True, slots=True)
class Rejected:
    """The broker responded with an error for the whole request."""

    error_code: int


@dataclass(frozen=True, slots=True)
class ResponseLost:
    """No response was received: the broker may or may not have advanced the session."""


Event = Accepted | Rejected | ResponseLost


class FetchSession:
    """The session with one broker. Each request is followed by its event before the next one."""

    __slots__ = ("state",)

    def __init__(self) -> None:
        self.state: State = NewSession()

    def handle(self, event: Event) -> None:
        """Go to the next state."""
        self.state = transition(TRANSITIONS, self.state, event)(self.state, event)

    def request(self, parts: Iterable[PartitionFetch], ids: Mapping[str, UUID]) -> SessionRequest:
        """Return the request that fetches exactly these partitions."""
        planned = tuple(parts)
        max_version = LAST_VERSION_WITH_NAMES if ZERO_UUID in ids.values() else None
        state = self.state
        changed = planned
        forgotten: tuple[tuple[TopicPartition, UUID], ...] = ()
        if isinstance(state, OpenSession):
            last = state.last
            before = last.partitions
            if planned is last.planned and ids == last.ids:
                return SessionRequest(
                    state.session_id, state.epoch, (), (), before, max_version, planned, ids
                )
        partitions = {part.partition.tp: part for part in planned}
        if isinstance(state, OpenSession):
            if (
                # A session uses either topic names or topic ids throughout.
                last.max_version != max_version
                # A partition was lost and assigned again. The broker would not repeat data that it
                # has sent, and one request cannot both forget and list a partition: before version
                # 13 both have the same name.
                or any(
                    tp in before and before[tp].partition is not part.partition
                    for tp, part in partitions.items()
                )
                or any(topic in last.ids and last.ids[topic] != id for topic, id in ids.items())
            ):
                state = NewSession(state.session_id)
            else:
                changed = tuple(
                    part
                    for tp, part in partitions.items()
                    if not _is_unchanged(before.get(tp), part)
                )
                # mutation: fetch-session-never-forgets-partitions
                forgotten = tuple(
                    (tp, last.ids.get(tp.topic, ZERO_UUID)) for tp in before if tp not in partitions
                )
        session_id, epoch = (
            (state.previous_session_id, FIRST_EPOCH)
            if isinstance(state, NewSession)
            else (state.session_id, state.epoch)
        )
        return SessionRequest(
            session_id, epoch, changed, forgotten, partitions, max_version, planned, ids
        )


def _is_unchanged(previous: PartitionFetch | None, current: PartitionFetch) -> bool:
    """Return whether the broker already has all values of the partition in its session."""
    if previous is None or previous is current:
        return previous is not None
    return (
        previous.offset,
        previous.leader_epoch,
        previous.last_fetched_epoch,
        previous.max_bytes,
    ) == (current.offset, current.leader_epoch, current.last_fetched_epoch, current.max_bytes)


def _session_opened(state: NewSession, event: Accepted) -> State:
    if event.session_id <= NO_SESSION:
        return NewSession()
    return OpenSession(event.session_id, FIRST_EPOCH + 1, event.request)


def _session_continued(state: OpenSession, event: Accepted) -> State:
    if event.session_id != state.session_id or event.request.epoch != state.epoch:
        # The broker closed the session, or the request was the first of a new one.
        return _session_opened(NewSession(), event)
    epoch = FIRST_EPOCH + 1 if state.epoch == MAX_EPOCH else state.epoch + 1
    return OpenSession(state.session_id, epoch, event.request)


def _session_rejected(state: State, event: Rejected) -> State:
    if event.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
        return NewSession()
    return _response_lost(state, ResponseLost())


def _response_lost(state: State, event: ResponseLost) -> State:
    return NewSession(state.session_id) if isinstance(state, OpenSession) else state


TRANSITIONS: Mapping[tuple[type, type], Callable[[Any, Any], State]] = {
    (NewSession, Accepted): _session_opened,
    (NewSession, Rejected): _session_rejected,
    (NewSession, ResponseLost): _response_lost,
    (OpenSession, Accepted): _session_continued,
    (OpenSession, Rejected): _session_rejected,
    (OpenSession, ResponseLost): _response_lost,
}
