"""Share sessions of one node: which partitions a member fetches, and on which connection.

The rules are those of Kafka's ShareSessionCache. A session ends with its connection.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.wire import ErrorCode

__all__ = (
    "FINAL_EPOCH",
    "INITIAL_EPOCH",
    "SessionPartition",
    "ShareSession",
    "ShareSessionCache",
    "ShareSessionKey",
    "rotated",
)

INITIAL_EPOCH, FINAL_EPOCH = 0, -1
"""Epochs of requests that open and close a session."""

MAX_EPOCH = 2**31 - 1

MAX_SESSION_PARTITIONS = 10_000
"""Limit of partitions of a session."""


class SessionPartition(NamedTuple):
    """A partition by the id of its topic."""

    topic_id: UUID
    partition: int


class ShareSessionKey(NamedTuple):
    """A node has one session per group and member."""

    group_id: str
    member_id: str


@dataclass(slots=True, eq=False)
class ShareSession:
    """A session. `epoch` is the epoch that the next request must have."""

    key: ShareSessionKey
    partitions: dict[SessionPartition, None] = field(default_factory=dict)
    epoch: int = INITIAL_EPOCH + 1

    def update(
        self, added: Iterable[SessionPartition], forgotten: Iterable[SessionPartition] = ()
    ) -> None:
        """Add and remove partitions, and move to the next epoch."""
        self.partitions.update(dict.fromkeys(added))
        for each in forgotten:
            self.partitions.pop(each, None)
        self.epoch = 1 if self.epoch == MAX_EPOCH else self.epoch + 1


class ShareSessionCache:
    """Sessions of one node."""

    def __init__(self, max_sessions: int) -> None:
        self._max_sessions = max_sessions
        self._sessions: dict[ShareSessionKey, ShareSession] = {}
        self._keys: dict[object, ShareSessionKey] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def knows(self, connection: object) -> bool:
        """Return True if a session was opened on a connection."""
        return connection in self._keys

    def open(
        self, key: ShareSessionKey, partitions: Iterable[SessionPartition], connection: object
    ) -> ShareSession:
        """Open a session; it replaces one of the same member.

        Raises:
            ApiError: There are too many sessions.
        """
        requested = dict.fromkeys(partitions)
        self._sessions.pop(key, None)
        self._keys[connection] = key
        full = len(self._sessions) >= self._max_sessions
        if full or len(requested) > MAX_SESSION_PARTITIONS:
            raise ApiError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
        session = self._sessions[key] = ShareSession(key, requested)
        return session

    def get(self, key: ShareSessionKey, epoch: int | None = None) -> ShareSession:
        """Return the session of a member.

        Args:
            key: Group and member.
            epoch: Epoch of the request, None if it need not match.

        Raises:
            ApiError: There is no such session, or its epoch differs.
        """
        session = self._sessions.get(key)
        if session is None:
            raise ApiError(ErrorCode.SHARE_SESSION_NOT_FOUND)
        if epoch is not None and session.epoch != epoch:
            raise ApiError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
        return session

    def is_current(self, session: ShareSession) -> bool:
        """Return True if the session was not closed or replaced."""
        return self._sessions.get(session.key) is session

    def close(self, session: ShareSession) -> None:
        """Close a session."""
        if self.is_current(session):
            del self._sessions[session.key]

    def disconnect(self, connection: object) -> tuple[ShareSessionKey, ShareSession | None] | None:
        """Close the session that was opened last on a connection.

        Returns:
            The member, and its session unless it was closed before. None if no session was opened.
        """
        key = self._keys.pop(connection, None)
        if key is None:
            return None
        return key, self._sessions.pop(key, None)

    def has_group(self, group_id: str) -> bool:
        """Return True if a connection is open on which a session of the group was opened."""
        return any(key.group_id == group_id for key in self._keys.values())


def rotated(partitions: Sequence[SessionPartition], offset: int) -> list[SessionPartition]:
    """Return a list that starts at another element."""
    start = offset % max(len(partitions), 1)
    return [*partitions[start:], *partitions[:start]]
