"""One log line per request, with its latency, at level TRACE."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from aiokafkawire.errors import KafkaError
from aiokafkawire.logs import NO_FIELDS, TRACE, log_fields

if TYPE_CHECKING:
    from aiokafkawire.connection.in_flight_requests import InFlightRequest

__all__ = ("RequestTrace", "make_request_trace")

logger = logging.getLogger("aiokafkawire.connection.requests")

SIZE_PREFIX_BYTES = 4
"""Size of the length field before each frame."""


class RequestTrace:
    """Logs the requests of one connection.

    Args:
        broker: Name of the broker.
        fields: Fields of the client.
    """

    __slots__ = ("_broker", "_fields")

    def __init__(self, broker: str, fields: Mapping[str, object]) -> None:
        self._broker = broker
        self._fields = fields

    def log_response(self, request: InFlightRequest, latency_s: float, frame_bytes: int) -> None:
        """Log a request with its response.

        Args:
            request: The request.
            latency_s: Seconds between the two.
            frame_bytes: Size of the response without its length prefix.
        """
        size_bytes = frame_bytes + SIZE_PREFIX_BYTES
        self._log(
            request,
            f"{latency_s * 1_000:.3f} ms, {request.size_bytes} bytes sent, {size_bytes} received",
            self._extra(request, latency_s) | log_fields(response_bytes=size_bytes),
        )

    def log_one_way(self, request: InFlightRequest) -> None:
        """Log a request that has no response."""
        text = f"{request.size_bytes} bytes sent, no response expected"
        self._log(request, text, self._extra(request, None))

    def log_failure(self, request: InFlightRequest, error: KafkaError, now: float) -> None:
        """Log a request that failed in the client: deadline, lost connection, invalid response."""
        latency_s = now - request.sent_at if request.sent else None
        when = "before it was sent" if latency_s is None else f"after {latency_s * 1_000:.3f} ms"
        text = f"failed {when}: {error.reason}"
        self._log(request, text, self._extra(request, latency_s) | log_fields(error=error))

    def _log(self, request: InFlightRequest, text: str, extra: dict[str, object]) -> None:
        logger.log(
            TRACE,
            "%s v%d to broker %s, correlation id %d: %s",
            request.api,
            request.version,
            self._broker,
            request.correlation_id,
            text,
            extra=extra,
        )

    def _extra(self, request: InFlightRequest, latency_s: float | None) -> dict[str, object]:
        return log_fields(
            self._fields,
            broker=self._broker,
            api=request.api,
            api_version=request.version,
            correlation_id=request.correlation_id,
            latency_ms=None if latency_s is None else round(latency_s * 1_000, 3),
            request_bytes=request.size_bytes,
        )


def make_request_trace(
    broker: str, fields: Mapping[str, object] = NO_FIELDS
) -> RequestTrace | None:
    """Return the request log of a new connection; None unless level TRACE is enabled now."""
    return RequestTrace(broker, fields) if logger.isEnabledFor(TRACE) else None
