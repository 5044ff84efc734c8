"""Metrics of the connections of one client."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ("ConnectionMetrics",)


@dataclass(slots=True)
class ConnectionMetrics:
    """Metrics that the connections of a client to one broker share. Totals never decrease.

    `latency_max_s` is reset by `take_latency_max_s`; `earlier_latency_max_s` is the maximum before.
    `throttle_max_s` is reset by `take_throttle_max_s`.
    """

    connections_open: int = 0
    connections_made: int = 0
    connections_lost: int = 0
    requests: int = 0
    responses: int = 0
    latency_sum_s: float = 0.0
    latency_max_s: float = 0.0
    earlier_latency_max_s: float = 0.0
    bytes_sent: int = 0
    bytes_received: int = 0
    throttle_s: float = 0.0
    throttle_max_s: float = 0.0
    reauthentications: int = 0

    def record_opened(self) -> None:
        """Count a new connection."""
        self.connections_open += 1
        self.connections_made += 1

    def record_closed(self, *, lost: bool) -> None:
        """Count the end of a connection.

        Args:
            lost: True unless the client closed it.
        """
        self.connections_open -= 1
        self.connections_lost += lost

    def record_throttle(self, throttle_s: float) -> None:
        """Add the throttle time of a response."""
        self.throttle_s += throttle_s
        self.throttle_max_s = max(self.throttle_max_s, throttle_s)

    def take_latency_max_s(self) -> float:
        """Return the longest latency since the last call."""
        latest, self.latency_max_s = self.latency_max_s, 0.0
        self.earlier_latency_max_s = max(self.earlier_latency_max_s, latest)
        return latest

    def take_throttle_max_s(self) -> float:
        """Return the longest throttle time since the last call."""
        latest, self.throttle_max_s = self.throttle_max_s, 0.0
        return latest

    @classmethod
    def total(cls, parts: Iterable[ConnectionMetrics]) -> ConnectionMetrics:
        """Return the metrics of all connections from those of each broker."""
        whole = cls()
        for part in parts:
            for field in dataclasses.fields(cls):
                both = getattr(whole, field.name), getattr(part, field.name)
                is_maximum = field.name.endswith("max_s")
                setattr(whole, field.name, max(both) if is_maximum else sum(both))
        return whole

    def snapshot(self) -> dict[str, int | float]:
        """Return the values by their public names, which end in the unit."""
        average_s = self.latency_sum_s / self.responses if self.responses else 0.0
        latency_max_s = max(self.latency_max_s, self.earlier_latency_max_s)
        return {
            "connections_open": self.connections_open,
            "connections_made_total": self.connections_made,
            "connections_lost_total": self.connections_lost,
            "requests_total": self.requests,
            "responses_total": self.responses,
            "request_latency_ms_avg": average_s * 1_000,
            "request_latency_ms_max": latency_max_s * 1_000,
            "bytes_sent_total": self.bytes_sent,
            "bytes_received_total": self.bytes_received,
            "throttle_ms_total": self.throttle_s * 1_000,
            "reauthentications_total": self.reauthentications,
        }
