"""Which requests share a connection.

A broker answers one request of a connection at a time: behind a long poll or a parked JoinGroup
everything else on that connection waits. So each class of wait has a connection of its own.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from aiokafkawire.wire import ApiKey

__all__ = ("ConnectionKind", "connection_kind_for")


class ConnectionKind(enum.Enum):
    """A class of wait; a broker client has at most one connection for each."""

    GENERAL = "general"
    FETCH = "fetch"
    PRODUCE = "produce"
    JOIN = "join"

    # By identity, not by name as Enum has it: lanes are looked up at every request.
    __hash__ = object.__hash__


_KIND_BY_API: Mapping[int, ConnectionKind] = {
    ApiKey.FETCH: ConnectionKind.FETCH,
    ApiKey.PRODUCE: ConnectionKind.PRODUCE,
    # mutation: heartbeats-wait-behind-join
    ApiKey.JOIN_GROUP: ConnectionKind.JOIN,
    ApiKey.SYNC_GROUP: ConnectionKind.JOIN,
}


def connection_kind_for(api_key: int) -> ConnectionKind:
    """The lane that requests of an API take unless the caller says otherwise."""
    return _KIND_BY_API.get(api_key, ConnectionKind.GENERAL)
