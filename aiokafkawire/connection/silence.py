"""Detects that a broker leaves requests unanswered: it is stopped, or the network drops packets."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from aiokafkawire.connection.channel import Channel
from aiokafkawire.connection.connection_kinds import ConnectionKind
from aiokafkawire.errors import KafkaError

__all__ = ("CHECK_INTERVAL_S", "SILENT_AFTER_S", "BrokerOutage", "SilenceDetector")

SILENT_AFTER_S = 5.0
"""A broker is silent if it leaves a request unanswered for this time."""

CHECK_INTERVAL_S = 2.0
"""Time between two checks."""

_UNCHECKED_KINDS = frozenset({ConnectionKind.JOIN, ConnectionKind.TELEMETRY})
"""JoinGroup and SyncGroup wait for other members, PushTelemetry for a plug-in of the broker."""

_FETCH_KINDS = frozenset({ConnectionKind.FETCH, ConnectionKind.SHARE})
"""Fetch and ShareFetch wait for records."""

LATE_CHECK_S = 2 * CHECK_INTERVAL_S
"""After a longer time without a check, the event loop was blocked: responses may be unread."""


class BrokerOutage(NamedTuple):
    """A broker does not respond, or there is no connection to it.

    Attributes:
        since: Start of the outage.
        error: Its reason; names the broker.
        is_silent: True if a request is unanswered, False if there is no connection.
    """

    since: float
    error: KafkaError
    is_silent: bool


class _OldestRequest(NamedTuple):
    correlation_id: int
    sent_at: float
    since: float


class SilenceDetector:
    """Compares the oldest unanswered requests of one broker from check to check.

    Connections of `_UNCHECKED_KINDS` do not count. A check costs nothing per request.

    Args:
        max_wait_s: How long the broker may delay the response to Fetch or ShareFetch.

    Attributes:
        since: Start of the silence; infinity unless the broker is silent.
        api: API of the unanswered request.
    """

    def __init__(self, max_wait_s: float) -> None:
        self._max_wait_s = max_wait_s
        self._checked_at = math.inf
        self._oldest: dict[ConnectionKind, _OldestRequest] = {}
        self.since = math.inf
        self.api = ""

    def check(self, channels: Mapping[ConnectionKind, Channel], now: float) -> None:
        """Update `since` and `api` for the open connections."""
        is_late = now > self._checked_at + LATE_CHECK_S
        before, self._oldest = self._oldest, {}
        self.since = math.inf
        for kind, channel in channels.items():
            request = channel.oldest_unanswered
            if kind in _UNCHECKED_KINDS or request is None:
                continue
            since, known = request.sent_at, before.get(kind)
            if is_late:
                since = now
            elif known is not None and known[:2] == (request.correlation_id, request.sent_at):
                since = known.since
            elif known is not None:
                # The broker has responded to an older request since the last check.
                since = max(since, self._checked_at)
            self._oldest[kind] = _OldestRequest(request.correlation_id, request.sent_at, since)
            limit_s = SILENT_AFTER_S
            if kind in _FETCH_KINDS:
                limit_s += self._max_wait_s
            if now - since >= limit_s and since < self.since:
                self.since, self.api = since, request.api.name
        self._checked_at = now
