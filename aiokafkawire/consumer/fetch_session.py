"""Fetch sessions (KIP-227): a node remembers what is fetched from it, and is told only what is new.

A machine without I/O, one for each node. `FetchSession.request` says what to send; what came of it
is an event. Whatever goes wrong, the next request begins a new session with all partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import UUID

from aiokafkawire.runtime.transitions import transition
from aiokafkawire.types import TopicPartition
from aiokafkawire.wire import ZERO_UUID
from aiokafkawire.wire.error_codes import ErrorCode

from .planner import FetchPart

__all__ = (
    "TRANSITIONS",
    "Accepted",
    "Beginning",
    "FetchSession",
    "Going",
    "Lost",
    "Rejected",
    "SessionRequest",
)

NO_SESSION = 0
FIRST_EPOCH = 0
MAX_EPOCH = 2**31 - 1
LAST_VERSION_WITH_NAMES = 12


class SessionRequest(NamedTuple):
    """One fetch: the partitions to name in it, and those that are not wanted any more.

    `wanted` is all that the node knows then, made of `chosen` and `ids`. `max_version` keeps to the
    versions that name topics where one of them has no id.
    """

    session_id: int
    epoch: int
    parts: tuple[FetchPart, ...]
    forgotten: tuple[tuple[TopicPartition, UUID], ...]
    wanted: Mapping[TopicPartition, FetchPart]
    max_version: int | None
    chosen: tuple[FetchPart, ...] = ()
    ids: Mapping[str, UUID] = MappingProxyType({})


# --- states -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Beginning:
    """The next request names all partitions. It ends the session `ends`, if that is not 0."""

    ends: int = NO_SESSION


@dataclass(frozen=True, slots=True)
class Going:
    """The next request bears `epoch`, and names what is not as in `wanted`.

    That is what `chosen` and `ids` said: the same objects again name nothing.
    """

    session_id: int
    epoch: int
    wanted: Mapping[TopicPartition, FetchPart]
    max_version: int | None
    chosen: tuple[FetchPart, ...] = ()
    ids: Mapping[str, UUID] = field(default_factory=dict)


State = Beginning | Going


# --- events -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Accepted:
    """The node answered under this session id; 0 says that it keeps no session."""

    request: SessionRequest
    session_id: int


@dataclass(frozen=True, slots=True)
class Rejected:
    """The node answered with an error of the whole fetch."""

    error_code: int


@dataclass(frozen=True, slots=True)
class Lost:
    """No answer came: the node may have gone on with the session, or not."""


Event = Accepted | Rejected | Lost


class FetchSession:
    """The session with one node. One request at a time: each is followed by its event."""

    __slots__ = ("state",)

    def __init__(self) -> None:
        self.state: State = Beginning()

    def handle(self, event: Event) -> None:
        """Go to the next state."""
        self.state = transition(TRANSITIONS, self.state, event)(self.state, event)

    def request(self, parts: Iterable[FetchPart], ids: Mapping[str, UUID]) -> SessionRequest:
        """What to send in order to fetch exactly these partitions."""
        chosen = tuple(parts)
        known = ZERO_UUID not in ids.values()
        max_version = None if known else LAST_VERSION_WITH_NAMES
        state = self.state
        if isinstance(state, Going) and chosen is state.chosen and ids == state.ids:
            return SessionRequest(
                state.session_id, state.epoch, (), (), state.wanted, max_version, chosen, ids
            )
        wanted = {part.partition.tp: part for part in chosen}
        if isinstance(state, Going) and (
            # A session is by names or by ids from beginning to end.
            state.max_version != max_version
            or any(_is_another(state.wanted.get(tp), now) for tp, now in wanted.items())
            or any(topic in state.ids and state.ids[topic] != id for topic, id in ids.items())
        ):
            state = Beginning(state.session_id)
        if isinstance(state, Beginning):
            return SessionRequest(
                state.ends, FIRST_EPOCH, chosen, (), wanted, max_version, chosen, ids
            )
        before = state.wanted
        return SessionRequest(
            state.session_id,
            state.epoch,
            tuple(p for p in chosen if not _is_known(before.get(p.partition.tp), p)),
            # mutation: fetch-session-never-forgets-partitions
            tuple((tp, state.ids.get(tp.topic, ZERO_UUID)) for tp in before if tp not in wanted),
            wanted,
            max_version,
            chosen,
            ids,
        )


def _is_another(was: FetchPart | None, now: FetchPart) -> bool:
    """Whether the partition was lost and came back: its node says nothing twice.

    One request cannot both leave out and name it: by names (before version 13) they are the same.
    """
    return was is not None and was.partition is not now.partition


def _is_known(was: FetchPart | None, now: FetchPart) -> bool:
    """Whether the node remembers the partition with the very values that it is to be fetched by."""
    if was is None or was is now:
        return was is not None
    return (was.offset, was.leader_epoch, was.fetch_epoch, was.max_bytes) == (
        now.offset,
        now.leader_epoch,
        now.fetch_epoch,
        now.max_bytes,
    )


def _begun(state: Beginning, event: Accepted) -> State:
    if event.session_id <= NO_SESSION:
        return Beginning()
    request = event.request
    return Going(
        event.session_id,
        FIRST_EPOCH + 1,
        request.wanted,
        request.max_version,
        request.chosen,
        request.ids,
    )


def _gone_on(state: Going, event: Accepted) -> State:
    if event.session_id != state.session_id or event.request.epoch != state.epoch:
        # The node closed the session, or the request was the first of a new one.
        return _begun(Beginning(), event)
    epoch = FIRST_EPOCH + 1 if state.epoch == MAX_EPOCH else state.epoch + 1
    request = event.request
    return Going(
        state.session_id, epoch, request.wanted, state.max_version, request.chosen, request.ids
    )


def _rejected(state: State, event: Rejected) -> State:
    if event.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
        return Beginning()
    return _over(state, Lost())


def _over(state: State, event: Lost) -> State:
    return Beginning(state.session_id) if isinstance(state, Going) else state


TRANSITIONS: Mapping[tuple[type, type], Callable[[Any, Any], State]] = {
    (Beginning, Accepted): _begun,
    (Beginning, Rejected): _rejected,
    (Beginning, Lost): _over,
    (Going, Accepted): _gone_on,
    (Going, Rejected): _rejected,
    (Going, Lost): _over,
}
