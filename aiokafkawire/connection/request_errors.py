"""Errors of requests and connections, with the likely cause."""

from __future__ import annotations

import ssl

from aiokafkawire.connection.in_flight_requests import InFlightRequest, InFlightRequests
from aiokafkawire.errors import ConnectionLost, KafkaError, ProtocolError, RequestTimedOut
from aiokafkawire.runtime import copy_error

__all__ = (
    "LARGE_REQUEST_BYTES",
    "disconnect_error",
    "error_of_request",
    "timeout_error",
    "unresponsive_error",
)

LARGE_REQUEST_BYTES = 1024 * 1024
"""If the broker disconnects after a request of at least this size, the size is the likely cause."""


def error_of_request(request: InFlightRequest, error: KafkaError, broker: str) -> KafkaError:
    """Return the error of one request when `error` closes the connection."""
    api = request.api.name
    if isinstance(error, ConnectionLost) or (not request.sent and isinstance(error, ProtocolError)):
        # mutation: written-request-counts-as-unsent
        lost = ConnectionLost(error.reason, sent=request.sent, broker=broker, api=api)
        lost.__cause__ = error.__cause__
        return lost
    copied = copy_error(error)
    copied.broker, copied.api = broker, api
    return copied


def timeout_error(
    request: InFlightRequest, in_flight: InFlightRequests, now: float, broker: str
) -> RequestTimedOut:
    """Return the error of a request whose deadline has passed."""
    if request.sent:
        reason = "no response before the deadline"
    elif in_flight.is_held:
        reason = "not sent before the deadline: the connection is being re-authenticated"
    elif now < in_flight.throttled_until:
        left = in_flight.throttled_until - now
        reason = f"not sent before the deadline: throttled by the broker for {left:.1f} s more"
    else:
        reason = "not sent before the deadline: earlier requests are unanswered"
    return RequestTimedOut(reason, sent=request.sent, broker=broker, api=request.api.name)


def unresponsive_error(request: InFlightRequest) -> ConnectionLost:
    """Return the error for a connection whose oldest request got no response in time."""
    what = "no response to {} in time" if request.expects_response else "{} cannot be written"
    return ConnectionLost(
        f"{what.format(request.api.name)}: the broker is stopped or overloaded, or the network"
        " drops packets"
    )


def disconnect_error(
    cause: OSError | None, in_flight: InFlightRequests, broker: str, *, has_partial_frame: bool
) -> ConnectionLost:
    """Return the error for a connection that the broker or the network ended.

    Args:
        cause: Error of the transport; None if the broker closed the connection. An error of TLS,
            such as a refused client certificate, becomes the cause of the returned error.
        in_flight: Requests of the connection.
        broker: Name of the broker.
        has_partial_frame: Whether the beginning of a response was received.
    """
    reason = "the broker closed the connection" if cause is None else f"connection lost: {cause}"
    sent = in_flight.sent_requests()
    largest = max(sent, key=lambda request: request.size_bytes, default=None)
    if largest is not None and largest.size_bytes >= LARGE_REQUEST_BYTES:
        reason += (
            f" after a request of {largest.size_bytes} bytes; a broker disconnects if a request"
            " exceeds its socket.request.max.bytes"
        )
    elif sent and sent[0].correlation_id == in_flight.first_correlation_id:
        reason += (
            " without an answer to the first request: the listener may require SASL"
            " (security_protocol)"
        )
    elif has_partial_frame:
        reason += " in the middle of a response"
    elif largest is None and (last := in_flight.last_one_way) is not None:
        reason += (
            f"; the last request, {last.api.name} of {last.size_bytes} bytes, expected no response:"
            " a broker disconnects if such a request fails"
        )
    error = ConnectionLost(reason, broker=broker)
    if isinstance(cause, ssl.SSLError):
        error.__cause__ = cause
    return error
