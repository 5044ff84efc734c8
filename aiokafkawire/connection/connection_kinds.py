"""The connections of a client to one broker, by kind of request.

A broker handles the requests of a connection one at a time, so a long poll or a delayed JoinGroup
blocks all later requests of its connection. Requests that may block have separate connections.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from aiokafkawire.wire import ApiKey

__all__ = ("CONNECTION_KINDS", "ConnectionKind")


class ConnectionKind(enum.Enum):
    """Kind of a connection. A broker client has at most one connection of each kind."""

    GENERAL = "general"
    FETCH = "fetch"
    PRODUCE = "produce"
    JOIN = "join"
    SHARE = "share"
    TELEMETRY = "telemetry"

    # Faster than the hash of the name that Enum uses: a kind is looked up for every request.
    __hash__ = object.__hash__


CONNECTION_KINDS: Mapping[int, ConnectionKind] = {
    **dict.fromkeys(ApiKey, ConnectionKind.GENERAL),
    ApiKey.FETCH: ConnectionKind.FETCH,
    ApiKey.PRODUCE: ConnectionKind.PRODUCE,
    # mutation: heartbeats-wait-behind-join
    ApiKey.JOIN_GROUP: ConnectionKind.JOIN,
    ApiKey.SYNC_GROUP: ConnectionKind.JOIN,
    # A share session belongs to the connection that opened it (KIP-932).
    ApiKey.SHARE_FETCH: ConnectionKind.SHARE,
    ApiKey.SHARE_ACKNOWLEDGE: ConnectionKind.SHARE,
    # A broker responds when its metric reporter has taken the metrics (KIP-714).
    ApiKey.PUSH_TELEMETRY: ConnectionKind.TELEMETRY,
}
"""The kind of connection for requests of each API, unless the caller chooses another."""
