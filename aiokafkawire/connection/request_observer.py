"""Metrics and log lines of the requests of one connection."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from aiokafkawire.connection.metrics import ConnectionMetrics
from aiokafkawire.errors import KafkaError
from aiokafkawire.hooks import NO_HOOKS, Disconnected, HookFunctions, RequestEnded, Throttled
from aiokafkawire.logs import TRACE, RateLimit, log_fields

if TYPE_CHECKING:
    from aiokafkawire.connection.in_flight_requests import InFlightRequest

__all__ = ("RequestObserver",)

logger = logging.getLogger("aiokafkawire.connection")

trace_logger = logging.getLogger("aiokafkawire.connection.requests")

SIZE_PREFIX_BYTES = 4
"""Size of the length field before each frame."""


class RequestObserver:
    """Counts the requests of one connection, and logs each one at level TRACE.

    The log level is read once, when the connection opens.

    Args:
        broker: Name of the broker.
        metrics: Metrics to update.
        fields: Fields of the client.
        hooks: Hooks of the client.

    Attributes:
        reports_disconnect: Whether `on_disconnect` calls the hook.
    """

    __slots__ = (
        "_broker",
        "_fields",
        "_hooks",
        "_on_request",
        "_throttle_log",
        "is_traced",
        "metrics",
        "reports_disconnect",
    )

    def __init__(
        self,
        broker: str,
        metrics: ConnectionMetrics,
        fields: Mapping[str, object],
        hooks: HookFunctions = NO_HOOKS,
    ) -> None:
        self.metrics = metrics
        self.is_traced = trace_logger.isEnabledFor(TRACE)
        self._broker = broker
        self._fields = fields
        self._throttle_log = RateLimit()
        self._hooks = hooks
        self._on_request = hooks.on_request
        self.reports_disconnect = False

    def on_response(self, request: InFlightRequest, now: float, frame_bytes: int) -> None:
        """Count and log a request with its response.

        Args:
            request: The request.
            now: Time at which the response was received.
            frame_bytes: Size of the response without its length prefix.
        """
        latency_s = now - request.sent_at
        metrics = self.metrics
        metrics.responses += 1
        metrics.latency_sum_s += latency_s
        if latency_s > metrics.latency_max_s:  # noqa: PLR1730 - several times faster than `max`
            metrics.latency_max_s = latency_s
        if self._on_request is not None:
            size_bytes = frame_bytes + SIZE_PREFIX_BYTES
            self._on_request(self._ended(request, latency_s, size_bytes))
        if self.is_traced:
            size_bytes = frame_bytes + SIZE_PREFIX_BYTES
            self._log(
                request,
                f"{latency_s * 1_000:.3f} ms, {request.size_bytes} bytes sent,"
                f" {size_bytes} received",
                self._extra(request, latency_s) | log_fields(response_bytes=size_bytes),
            )

    def on_one_way(self, request: InFlightRequest) -> None:
        """Log a written request that has no response."""
        if self._on_request is not None:
            self._on_request(self._ended(request, 0.0))
        if self.is_traced:
            text = f"{request.size_bytes} bytes sent, no response expected"
            self._log(request, text, self._extra(request, None))

    def on_failure(self, request: InFlightRequest, error: KafkaError, now: float) -> None:
        """Log a request that failed in the client: deadline, lost connection, invalid response."""
        latency_s = now - request.sent_at if request.sent else None
        if self._on_request is not None:
            self._on_request(self._ended(request, latency_s, error=error))
        if not self.is_traced:
            return
        when = "before it was sent" if latency_s is None else f"after {latency_s * 1_000:.3f} ms"
        text = f"failed {when}: {error.reason}"
        self._log(request, text, self._extra(request, latency_s) | log_fields(error=error))

    def on_throttled(self, request: InFlightRequest, throttle_s: float, now: float) -> None:
        """Count and log that the broker throttles the client, in the response to a request."""
        self.metrics.record_throttle(throttle_s)
        if self._hooks.on_throttle is not None:
            self._hooks.on_throttle(Throttled(self._broker, request.api.name, throttle_s))
        logger.log(
            self._throttle_log.level(logging.INFO, None, now),
            "Throttled by broker %s for %.3f s (quota for %s): no requests to it until then",
            self._broker,
            throttle_s,
            request.api.name,
            extra=log_fields(
                self._fields,
                broker=self._broker,
                api=request.api.name,
                throttle_ms=round(throttle_s * 1_000),
            ),
        )

    def on_disconnect(self, error: KafkaError, *, by_client: bool) -> None:
        """Count the end of the connection."""
        self.metrics.record_closed(lost=not by_client)
        if self.reports_disconnect and self._hooks.on_disconnect is not None:
            self._hooks.on_disconnect(Disconnected(self._broker, error, by_client))

    def _ended(
        self,
        request: InFlightRequest,
        latency_s: float | None,
        response_bytes: int = 0,
        error: KafkaError | None = None,
    ) -> RequestEnded:
        return RequestEnded(
            self._broker,
            request.api.name,
            request.api.version,
            latency_s,
            request.size_bytes,
            response_bytes,
            error,
        )

    def _log(self, request: InFlightRequest, text: str, extra: dict[str, object]) -> None:
        trace_logger.log(
            TRACE,
            "%s v%d to broker %s, correlation id %d: %s",
            request.api.name,
            request.api.version,
            self._broker,
            request.correlation_id,
            text,
            extra=extra,
        )

    def _extra(self, request: InFlightRequest, latency_s: float | None) -> dict[str, object]:
        return log_fields(
            self._fields,
            broker=self._broker,
            api=request.api.name,
            api_version=request.api.version,
            correlation_id=request.correlation_id,
            latency_ms=None if latency_s is None else round(latency_s * 1_000, 3),
            request_bytes=request.size_bytes,
        )
