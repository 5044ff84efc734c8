"""Fetch sessions (KIP-227): a node caches what a client fetches and returns only changes.

The rules are those of Kafka's FetchManager. Sessions end with their node.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import UUID

from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.fetch import FetchPartition, FetchPartitionData, FetchRequest

__all__ = (
    "EVICTION_AGE_S",
    "MAX_SESSION_PARTITIONS",
    "CachedPartition",
    "FetchContext",
    "FetchSessionCache",
)

INVALID_SESSION_ID = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
"""Epoch of a fetch without a session; with a session id it closes that session."""

MAX_SESSION_ID = 2**31 - 1
MAX_EPOCH = 2**31 - 1

EVICTION_AGE_S = 120.0
"""A session that was unused for this long is evicted in favour of a new one."""

MAX_SESSION_PARTITIONS = 10_000
"""Limit of partitions per session; larger fetches get no session."""

Key = tuple[str, UUID, int]


@dataclass(slots=True)
class CachedPartition:
    """A partition of a fetch, and the state that the client last received."""

    topic: str
    topic_id: UUID
    requested: FetchPartition
    high_watermark: int = -1
    log_start_offset: int = -1

    @property
    def key(self) -> Key:
        return self.topic, self.topic_id, self.requested.partition

    def maybe_update_response_data(self, data: FetchPartitionData) -> bool:
        """Return True if the response must include the partition; remember what it returns."""
        special = (
            data.error_code != ErrorCode.NONE
            or data.preferred_read_replica >= 0
            or data.diverging_epoch.epoch >= 0
        )
        same = (self.high_watermark, self.log_start_offset) == (
            data.high_watermark,
            data.log_start_offset,
        )
        # After an error the next response includes the partition even if nothing changed.
        self.high_watermark = -1 if special else data.high_watermark
        self.log_start_offset = data.log_start_offset
        return special or not same or bool(data.records)


@dataclass(slots=True, eq=False)
class CachedFetchSession:
    """A fetch session; `epoch` is the epoch that the next request must have."""

    session_id: int
    uses_topic_ids: bool
    epoch: int
    last_used_at: float
    partitions: dict[Key, CachedPartition] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FetchContext:
    """The partitions to return for one request; `session` is the session it continues."""

    partitions: Sequence[CachedPartition]
    uses_topic_ids: bool
    session: CachedFetchSession | None = None
    epoch: int = FINAL_EPOCH
    is_new_session: bool = False


class FetchSessionCache:
    """Fetch sessions of one node; past `max_sessions` clients fetch without one."""

    def __init__(self, rng: random.Random, max_sessions: int) -> None:
        self._rng = rng
        self._max_sessions = max_sessions
        self._sessions: dict[int, CachedFetchSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def new_context(
        self, request: FetchRequest, now: float, *, uses_topic_ids: bool
    ) -> FetchContext:
        """Return the partitions that a request covers, those of its session included.

        Raises:
            ApiError: The session is unknown, or its epoch or topic ids do not match.
        """
        requested = [
            CachedPartition(topic.topic, topic.topic_id, partition)
            for topic in request.topics
            for partition in topic.partitions
        ]
        if request.session_epoch in {INITIAL_EPOCH, FINAL_EPOCH}:
            self._sessions.pop(request.session_id, None)
            is_new_session = request.session_epoch == INITIAL_EPOCH
            return FetchContext(requested, uses_topic_ids, is_new_session=is_new_session)
        session = self._sessions.get(request.session_id)
        if session is None:
            raise ApiError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != request.session_epoch:
            raise ApiError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != uses_topic_ids:
            raise ApiError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        self._update_session(session, requested, request, now)
        if not session.partitions:
            del self._sessions[session.session_id]
            return FetchContext([], uses_topic_ids)
        cached = list(session.partitions.values())
        return FetchContext(cached, uses_topic_ids, session, session.epoch)

    def build_response(
        self, fetch_context: FetchContext, data: Sequence[FetchPartitionData], now: float
    ) -> tuple[int, list[tuple[CachedPartition, FetchPartitionData]]]:
        """Return the session id and those partitions of `data` that the response includes.

        Raises:
            ApiError: The session has advanced meanwhile.
        """
        answered = list(zip(fetch_context.partitions, data, strict=True))
        session = fetch_context.session
        if session is None:
            if fetch_context.is_new_session:
                session = self._create_session(fetch_context, now)
            for cached, partition_data in answered:
                cached.maybe_update_response_data(partition_data)
            return (INVALID_SESSION_ID if session is None else session.session_id), answered
        if session.epoch != fetch_context.epoch:
            raise ApiError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        changed = [
            (cached, partition_data)
            for cached, partition_data in answered
            if cached.maybe_update_response_data(partition_data)
        ]
        for cached, partition_data in changed:
            if partition_data.records and cached.key in session.partitions:
                # Served partitions move to the end, so that no partition starves.
                session.partitions[cached.key] = session.partitions.pop(cached.key)
        return session.session_id, changed

    def _update_session(
        self,
        session: CachedFetchSession,
        requested: Sequence[CachedPartition],
        request: FetchRequest,
        now: float,
    ) -> None:
        session.last_used_at = now
        session.epoch = 1 if session.epoch == MAX_EPOCH else session.epoch + 1
        for cached in requested:
            existing = session.partitions.setdefault(cached.key, cached)
            existing.requested = cached.requested
        for forgotten in request.forgotten_topics_data:
            for index in forgotten.partitions:
                session.partitions.pop((forgotten.topic, forgotten.topic_id, index), None)
        if len(session.partitions) > MAX_SESSION_PARTITIONS:
            del self._sessions[session.session_id]
            raise ApiError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)

    def _create_session(self, fetch_context: FetchContext, now: float) -> CachedFetchSession | None:
        if len(fetch_context.partitions) > MAX_SESSION_PARTITIONS or not self._try_evict(now):
            return None
        session_id = INVALID_SESSION_ID
        while session_id in self._sessions or session_id == INVALID_SESSION_ID:
            session_id = self._rng.randint(1, MAX_SESSION_ID)
        session = CachedFetchSession(
            session_id, fetch_context.uses_topic_ids, INITIAL_EPOCH + 1, now
        )
        session.partitions = {cached.key: cached for cached in fetch_context.partitions}
        self._sessions[session_id] = session
        return session

    def _try_evict(self, now: float) -> bool:
        if len(self._sessions) < self._max_sessions:
            return True
        oldest = min(
            self._sessions.values(), key=lambda session: session.last_used_at, default=None
        )
        if oldest is None or now - oldest.last_used_at < EVICTION_AGE_S:
            return False
        del self._sessions[oldest.session_id]
        return True
