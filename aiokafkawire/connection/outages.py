"""Since when a broker cannot be reached or leaves requests unanswered."""

from __future__ import annotations

import math
from collections.abc import Mapping

from aiokafkawire.connection.channel import Channel
from aiokafkawire.connection.connection_kinds import ConnectionKind
from aiokafkawire.connection.connection_log import ConnectionLog
from aiokafkawire.connection.node_api_versions import NodeApiVersions
from aiokafkawire.connection.silence import BrokerOutage, SilenceDetector
from aiokafkawire.errors import ConnectionFailed, ConnectionLost, KafkaError
from aiokafkawire.runtime import Supervisor

__all__ = ("OutageTracker",)

UNREACHABLE_LOG_AFTER_S = 5.0
"""How long connection attempts to one broker must fail before this is logged."""


class OutageTracker:
    """Follows the connection attempts to one broker and its unanswered requests, and logs them.

    Args:
        supervisor: Names the client in the log.
        broker: Broker name for logs and errors.
        max_wait_s: How long the broker may delay the response to Fetch or ShareFetch.

    Attributes:
        last_failure: Error of the last connection attempt; None once an attempt has succeeded.
    """

    def __init__(self, supervisor: Supervisor, broker: str, max_wait_s: float) -> None:
        self.last_failure: KafkaError | None = None
        self._broker = broker
        self._attempt_at = math.inf
        self._failing_since = math.inf
        self._failed_at = -math.inf
        self._outage_since = math.inf
        self._silence = SilenceDetector(max_wait_s)
        self._log = ConnectionLog(supervisor, broker)

    def on_attempt(self, now: float) -> None:
        """Record the start of an attempt to connect."""
        self._attempt_at = now

    def on_connected(self, kind: ConnectionKind, versions: NodeApiVersions, now: float) -> None:
        """Log the connection and end the outage."""
        self._log.connected(kind, versions, now)
        self.last_failure = None
        self._attempt_at = self._failing_since = self._outage_since = math.inf

    def on_failure(self, error: KafkaError, now: float, backoff_s: float) -> None:
        """Record that an attempt to connect failed, or a connection was lost."""
        self.last_failure = error
        self._failing_since = min(self._failing_since, self._attempt_at, self._outage_since, now)
        self._failed_at = now
        self._log.failed(error, backoff_s)

    def on_disconnected(self, error: KafkaError, now: float, level: int) -> None:
        """Log the loss of an open connection; call `on_failure` afterwards."""
        self._log.disconnected(error, now, level, self._outage_since)

    def check(self, channels: Mapping[ConnectionKind, Channel], now: float) -> BrokerOutage | None:
        """Return since when the broker has not responded; None without a sign of an outage.

        Compares the unanswered requests of the open connections with those of the last call, so
        call it regularly.
        """
        self._silence.check(channels, now)
        is_silent = self._silence.since < math.inf
        since = min(self._failing_since, self._attempt_at, self._silence.since)
        if since > now or (channels and not is_silent):
            self._outage_since = math.inf
            self._log.responds(now)
            return None
        self._outage_since = since = min(since, self._outage_since)
        if is_silent:
            return BrokerOutage(
                since,
                ConnectionLost(
                    f"no response to {self._silence.api} for {now - since:.0f} s: the broker is"
                    " stopped or overloaded, or the network drops packets",
                    broker=self._broker,
                ),
                is_silent=True,
            )
        reason = f"no connection for {now - since:.0f} s"
        if self.last_failure is not None:
            reason += f"; the last attempt: {self.last_failure.reason}"
        return BrokerOutage(since, ConnectionFailed(reason, broker=self._broker), is_silent=False)

    def log_unreachable(self, since: float) -> None:
        """Log, once per outage, that attempts to connect have failed for `UNREACHABLE_LOG_AFTER_S`.

        Args:
            since: Failures before this time do not count, because the whole cluster was
                unreachable.
        """
        error, since = self.last_failure, max(since, self._failing_since)
        if (
            isinstance(error, ConnectionFailed)
            and self._failed_at - since >= UNREACHABLE_LOG_AFTER_S
        ):
            self._log.unreachable(error, self._failing_since, self._failed_at)

    def log_silence(self, outage: BrokerOutage, now: float) -> None:
        """Log, once per outage, that the broker does not respond on an open connection."""
        if outage.is_silent:
            self._log.silent(outage, now)
