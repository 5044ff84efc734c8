"""Which requests share a connection.

A broker answers one request of a connection at a time: behind a long poll or a parked JoinGroup
everything else on that connection waits. So each class of wait has a connection of its own.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from aiokafkawire.wire import ApiKey

__all__ = ("Lane", "lane_of")


class Lane(enum.Enum):
    """A class of wait; a broker client has at most one connection for each."""

    GENERAL = "general"
    FETCH = "fetch"
    PRODUCE = "produce"
    JOIN = "join"

    # By identity, not by name as Enum has it: lanes are looked up at every request.
    __hash__ = object.__hash__


_LANES: Mapping[int, Lane] = {
    ApiKey.FETCH: Lane.FETCH,
    ApiKey.PRODUCE: Lane.PRODUCE,
    # mutation: heartbeats-wait-behind-join
    ApiKey.JOIN_GROUP: Lane.JOIN,
    ApiKey.SYNC_GROUP: Lane.JOIN,
}


def lane_of(api_key: int) -> Lane:
    """The lane that requests of an API take unless the caller says otherwise."""
    return _LANES.get(api_key, Lane.GENERAL)
