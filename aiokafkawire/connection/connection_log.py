"""Log lines about the connections to one broker."""

from __future__ import annotations

import logging
import math

from aiokafkawire.connection.connection_kinds import ConnectionKind
from aiokafkawire.connection.connector import ADVERTISED_LISTENERS
from aiokafkawire.connection.node_api_versions import NodeApiVersions
from aiokafkawire.connection.silence import BrokerOutage
from aiokafkawire.errors import KafkaError
from aiokafkawire.logs import RateLimit, log_fields
from aiokafkawire.runtime import Supervisor

__all__ = ("DISCONNECT_LOG_INTERVAL_S", "ConnectionLog")

logger = logging.getLogger("aiokafkawire.connection")

DISCONNECT_LOG_INTERVAL_S = 60.0
"""At most one disconnect per broker is logged above DEBUG in this time."""


class ConnectionLog:
    """Logs connects and disconnects of one broker; repeated disconnects at DEBUG."""

    def __init__(self, supervisor: Supervisor, name: str) -> None:
        self._log_prefix = supervisor.name
        self._broker = name
        self._fields = log_fields(supervisor.fields, broker=name)
        self._limit = RateLimit(DISCONNECT_LOG_INTERVAL_S)
        self._disconnected_at = math.inf
        self._was_connected = False
        self._logged_versions = ""
        self._unreachable_since = math.inf
        self._is_silent = False

    def disconnected(self, error: KafkaError, now: float, level: int, outage_since: float) -> None:
        limited = self._limit.level(level, None, now)
        if limited == level or self._is_silent:
            self._disconnected_at = min(outage_since, now)
        self._is_silent = False
        logger.log(
            limited,
            "%s: disconnected from broker %s: %s; the next request reconnects",
            self._log_prefix,
            self._broker,
            error.reason,
            extra=log_fields(self._fields, error=error),
        )

    def failed(self, error: KafkaError, backoff_s: float) -> None:
        logger.debug(
            "%s: no connection to broker %s: %s; next attempt in %.3f s or later",
            self._log_prefix,
            self._broker,
            error.reason,
            backoff_s,
            extra=log_fields(self._fields, error=error),
        )

    def unreachable(self, error: KafkaError, since: float, now: float) -> None:
        if self._unreachable_since == since:
            return
        self._unreachable_since = since
        limited = self._limit.level(logging.WARNING, "unreachable", now)
        if limited == logging.WARNING:
            self._disconnected_at = min(self._disconnected_at, since)
        reason = error.reason
        if not self._was_connected and ADVERTISED_LISTENERS not in reason:
            reason += f"; check the broker's {ADVERTISED_LISTENERS}"
        logger.log(
            limited,
            "%s: no connection to broker %s for %.0f s, although the metadata lists it: %s;"
            " retrying",
            self._log_prefix,
            self._broker,
            now - since,
            reason,
            extra=log_fields(self._fields, error=error),
        )

    def silent(self, outage: BrokerOutage, now: float) -> None:
        if self._unreachable_since == outage.since:
            return
        self._unreachable_since = outage.since
        limited = self._limit.level(logging.WARNING, "silent", now)
        self._is_silent = limited == logging.WARNING
        logger.log(
            limited,
            "%s: broker %s does not respond: %s; waiting",
            self._log_prefix,
            self._broker,
            outage.error.reason,
            extra=log_fields(self._fields, error=outage.error),
        )

    def responds(self, now: float) -> None:
        """Log the end of a silence that was logged."""
        if not self._is_silent:
            return
        self._is_silent = False
        outage_s = now - self._unreachable_since
        logger.info(
            "%s: broker %s responds again after %.3f s",
            self._log_prefix,
            self._broker,
            outage_s,
            extra=log_fields(self._fields, outage_ms=round(outage_s * 1_000)),
        )

    def connected(
        self, connection_kind: ConnectionKind, versions: NodeApiVersions, now: float
    ) -> None:
        if logger.isEnabledFor(logging.DEBUG):
            # The list is long: the other connections of a broker have the same versions.
            before, self._logged_versions = self._logged_versions, versions.describe()
            is_same = self._logged_versions == before
            logger.debug(
                "%s: connected to broker %s (connection: %s)%s",
                self._log_prefix,
                self._broker,
                connection_kind.value,
                "" if is_same else f"; versions: {self._logged_versions}",
                extra=self._fields,
            )
        verb = "reconnected" if self._was_connected else "connected"
        self._was_connected = True
        if self._disconnected_at <= now:
            outage_s, self._disconnected_at = now - self._disconnected_at, math.inf
            logger.info(
                "%s: %s to broker %s after %.3f s",
                self._log_prefix,
                verb,
                self._broker,
                outage_s,
                extra=log_fields(self._fields, outage_ms=round(outage_s * 1_000)),
            )
