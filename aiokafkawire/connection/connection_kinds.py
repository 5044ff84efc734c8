"""The connections of a client to one broker, by kind of request.

A broker handles the requests of a connection one at a time, so a long poll or a delayed JoinGroup
blocks all later requests of its connection. Requests that may block have separate connections.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from aiokafkawire.wire import ApiKey

__all__ = ("ConnectionKind", "connection_kind_for")


class ConnectionKind(enum.Enum):
    """Kind of a connection. A broker client has at most one connection of each kind."""

    GENERAL = "general"
    FETCH = "fetch"
    PRODUCE = "produce"
    JOIN = "join"
    SHARE = "share"

    # Faster than the hash of the name that Enum uses: a kind is looked up for every request.
    __hash__ = object.__hash__


_KIND_BY_API: Mapping[int, ConnectionKind] = {
    ApiKey.FETCH: ConnectionKind.FETCH,
    ApiKey.PRODUCE: ConnectionKind.PRODUCE,
    # mutation: heartbeats-wait-behind-join
    ApiKey.JOIN_GROUP: ConnectionKind.JOIN,
    ApiKey.SYNC_GROUP: ConnectionKind.JOIN,
    # A share session belongs to the connection that opened it (KIP-932).
    ApiKey.SHARE_FETCH: ConnectionKind.SHARE,
    ApiKey.SHARE_ACKNOWLEDGE: ConnectionKind.SHARE,
}


def connection_kind_for(api_key: int) -> ConnectionKind:
    """Return the default kind of connection for requests of an API."""
    return _KIND_BY_API.get(api_key, ConnectionKind.GENERAL)
