"""Fetch sessions (KIP-227): a node remembers what a client fetches, and tells it only what is new.

The rules are those of Kafka's FetchManager; sessions die with their node.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import UUID

from aiokafkawire.broker.refusal import Refusal
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.fetch import FetchPartition, FetchRequest, PartitionData

__all__ = ("EVICTION_AGE_S", "MAX_PARTITIONS", "FetchSessions", "Fetching", "Wanted")

NO_SESSION = 0
FIRST_EPOCH = 0
LAST_EPOCH = -1
"""The epoch of a fetch outside of a session; with an id it ends that session."""

MAX_SESSION_ID = 2**31 - 1
MAX_EPOCH = 2**31 - 1

EVICTION_AGE_S = 120.0
"""A session that was not used for so long gives its place to a new one."""

MAX_PARTITIONS = 10_000
"""Partitions of one session; who wants more fetches outside of any."""

Key = tuple[str, UUID, int]


@dataclass(slots=True)
class Wanted:
    """One partition that a client fetches, and what it was told of it last."""

    topic: str
    topic_id: UUID
    asked: FetchPartition
    high_watermark: int = -1
    log_start_offset: int = -1

    @property
    def key(self) -> Key:
        return self.topic, self.topic_id, self.asked.partition

    def is_news(self, data: PartitionData) -> bool:
        """Whether the client has to be told; what it is told is remembered."""
        special = (
            data.error_code != ErrorCode.NONE
            or data.preferred_read_replica >= 0
            or data.diverging_epoch.epoch >= 0
        )
        same = (self.high_watermark, self.log_start_offset) == (
            data.high_watermark,
            data.log_start_offset,
        )
        # After an error the client is told again, even of what has not changed.
        self.high_watermark = -1 if special else data.high_watermark
        self.log_start_offset = data.log_start_offset
        return special or not same or bool(data.records)


@dataclass(slots=True, eq=False)
class Session:
    """`epoch` is the one that the next request has to bear."""

    session_id: int
    by_id: bool
    epoch: int
    used_at: float
    partitions: dict[Key, Wanted] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Fetching:
    """What one request is to be given. `session` is the one that it goes on with."""

    wanted: Sequence[Wanted]
    by_id: bool
    session: Session | None = None
    epoch: int = LAST_EPOCH
    begins: bool = False


class FetchSessions:
    """The sessions of one node; beyond `max_sessions` clients fetch without one."""

    def __init__(self, rng: random.Random, max_sessions: int) -> None:
        self._rng = rng
        self._max_sessions = max_sessions
        self._sessions: dict[int, Session] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, request: FetchRequest, now: float, *, by_id: bool) -> Fetching:
        """What a request asks for, with its session's share. Raises `Refusal`."""
        given = [
            Wanted(topic.topic, topic.topic_id, asked)
            for topic in request.topics
            for asked in topic.partitions
        ]
        if request.session_epoch in {FIRST_EPOCH, LAST_EPOCH}:
            self._sessions.pop(request.session_id, None)
            begins = request.session_epoch == FIRST_EPOCH
            return Fetching(given, by_id, begins=begins)
        session = self._sessions.get(request.session_id)
        if session is None:
            raise Refusal(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != request.session_epoch:
            raise Refusal(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.by_id != by_id:
            raise Refusal(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        self._update(session, given, request, now)
        if not session.partitions:
            del self._sessions[session.session_id]
            return Fetching([], by_id)
        wanted = list(session.partitions.values())
        return Fetching(wanted, by_id, session, session.epoch)

    def answer(
        self, fetching: Fetching, data: Sequence[PartitionData], now: float
    ) -> tuple[int, list[tuple[Wanted, PartitionData]]]:
        """The session id to answer with, and what to send of `data`, one for each wanted.

        Raises `Refusal` when the session has gone on meanwhile.
        """
        answered = list(zip(fetching.wanted, data, strict=True))
        session = fetching.session
        if session is None:
            if fetching.begins:
                session = self._made(fetching, now)
            for wanted, told in answered:
                wanted.is_news(told)
            return (NO_SESSION if session is None else session.session_id), answered
        if session.epoch != fetching.epoch:
            raise Refusal(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        news = [(wanted, told) for wanted, told in answered if wanted.is_news(told)]
        for wanted, told in news:
            if told.records and wanted.key in session.partitions:
                # Who was served goes to the end, so that none of them starves.
                session.partitions[wanted.key] = session.partitions.pop(wanted.key)
        return session.session_id, news

    def _update(
        self, session: Session, given: Sequence[Wanted], request: FetchRequest, now: float
    ) -> None:
        session.used_at = now
        session.epoch = 1 if session.epoch == MAX_EPOCH else session.epoch + 1
        for wanted in given:
            known = session.partitions.setdefault(wanted.key, wanted)
            known.asked = wanted.asked
        for forgotten in request.forgotten_topics_data:
            for index in forgotten.partitions:
                session.partitions.pop((forgotten.topic, forgotten.topic_id, index), None)
        if len(session.partitions) > MAX_PARTITIONS:
            del self._sessions[session.session_id]
            raise Refusal(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)

    def _made(self, fetching: Fetching, now: float) -> Session | None:
        if len(fetching.wanted) > MAX_PARTITIONS or not self._has_room(now):
            return None
        session_id = NO_SESSION
        while session_id in self._sessions or session_id == NO_SESSION:
            session_id = self._rng.randint(1, MAX_SESSION_ID)
        session = Session(session_id, fetching.by_id, FIRST_EPOCH + 1, now)
        session.partitions = {wanted.key: wanted for wanted in fetching.wanted}
        self._sessions[session_id] = session
        return session

    def _has_room(self, now: float) -> bool:
        if len(self._sessions) < self._max_sessions:
            return True
        oldest = min(self._sessions.values(), key=lambda session: session.used_at, default=None)
        if oldest is None or now - oldest.used_at < EVICTION_AGE_S:
            return False
        del self._sessions[oldest.session_id]
        return True
