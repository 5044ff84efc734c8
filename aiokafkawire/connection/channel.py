"""An open connection to a broker."""

from __future__ import annotations

import logging
import ssl
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import anyio

from aiokafkawire.connection.in_flight_requests import (
    MAX_QUEUED,
    InFlightRequest,
    InFlightRequests,
    QueueFull,
)
from aiokafkawire.connection.metrics import ConnectionMetrics
from aiokafkawire.connection.node_api_versions import NodeApiVersions, add_version_advice
from aiokafkawire.connection.request_trace import make_request_trace
from aiokafkawire.connection.throttle import throttle_time_s
from aiokafkawire.errors import ConnectionLost, KafkaError, ProtocolError, RequestTimedOut
from aiokafkawire.logs import NO_FIELDS, RateLimit, log_fields
from aiokafkawire.runtime import (
    AT_ONCE,
    NEVER,
    AutoResetEvent,
    Buffer,
    Clock,
    Future,
    Supervisor,
    TaskHandle,
    Timer,
    Transport,
    copy_error,
)
from aiokafkawire.wire import APIS, ApiKey, Request, Response
from aiokafkawire.wire.frame import FrameReader
from aiokafkawire.wire.header import (
    EncodedRequest,
    decode_response,
    encode_request,
    peek_correlation_id,
)

if TYPE_CHECKING:
    from aiokafkawire.wire.messages.sasl_authenticate import SaslAuthenticateRequest

__all__ = ("LARGE_REQUEST_BYTES", "Channel", "ChannelLimits")

logger = logging.getLogger("aiokafkawire.connection")

LARGE_REQUEST_BYTES = 1024 * 1024
"""If the broker disconnects after a request of at least this size, the size is the likely cause."""

NO_VERSIONS = NodeApiVersions({})

TOKEN_LENGTH = struct.Struct(">i")
"""Precedes a SASL token that is sent without a request (SaslHandshake v0)."""

NO_BUFFERS: Sequence[Buffer] = ()
"""Buffers of a request that was written."""


@dataclass(frozen=True, slots=True)
class ChannelLimits:
    """Limits of a connection; see `InFlightRequests` and `FrameReader`."""

    max_in_flight: int
    request_timeout_s: float
    max_idle_s: float
    max_frame_bytes: int


@cache
def _api_info(api_key: int) -> tuple[str, type[Response]]:
    """Return the name and the response class of an API."""
    api = APIS[ApiKey(api_key)]
    return api.name, api.response


class _WriteState:
    """State of the writer task: whether it is writing, and the unsent rest, which goes first."""

    __slots__ = ("is_writing", "unsent", "wakeup")

    def __init__(self) -> None:
        self.is_writing = False
        self.unsent: Sequence[Buffer] = ()
        self.wakeup = AutoResetEvent()


class Channel:
    """One connection: a writer task, a reader task, and one timer for all deadlines.

    `submit` writes a request immediately if the socket accepts all of it: that does not wait, so it
    cannot be cancelled in the middle of a frame. Otherwise the writer task sends the rest. So a
    cancelled caller never leaves a partial frame.

    The first error closes the channel and fails all requests. An exception of a callback or decoder
    is a bug: it closes the channel, too, and is raised in the reader task.

    Args:
        transport: Connected transport, which the channel closes.
        name: Broker name for logs and errors.
        client_id: `client_id` of request headers.
        clock: Source of time.
        limits: Limits of the connection.
        metrics: Metrics to update.
        fields: Fields of the client for logs.

    Attributes:
        api_versions: Set after version negotiation.
        is_usable: True while requests are accepted.
        throttled_until: Nothing is written before this time, because the broker throttled the
            client.
        on_closed: Called once with the channel and the error that closed it.
        closed_by_client: True if the client closed the channel on purpose.
        first_correlation_id: Correlation id of the first request after the set-up; -1 if the
            broker is known not to require authentication.
        tls_error: Error of TLS that closed the channel, such as a refused client certificate.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        name: str,
        client_id: str | None,
        clock: Clock,
        limits: ChannelLimits,
        metrics: ConnectionMetrics,
        fields: Mapping[str, object] = NO_FIELDS,
    ) -> None:
        self.name = name
        self.api_versions = NO_VERSIONS
        self.closed_by_client = False
        self.first_correlation_id = -1
        self.tls_error: ssl.SSLError | None = None
        self.is_usable = True
        self.throttled_until = -NEVER
        self.on_closed: Callable[[Channel, KafkaError], None] | None = None
        self._metrics = metrics
        self._transport = transport
        self._client_id = client_id
        self._clock = clock
        self._now = clock.now
        self._in_flight: InFlightRequests = InFlightRequests(
            clock.now(),
            max_in_flight=limits.max_in_flight,
            request_timeout_s=limits.request_timeout_s,
            max_idle_s=limits.max_idle_s,
        )
        self._frame_reader = FrameReader(limits.max_frame_bytes)
        self._write_state = _WriteState()
        self._expected_token: Future[bytes] | None = None
        self._closed = AutoResetEvent()
        self._timer = Timer()
        self._error: KafkaError | None = None
        self._defect: Exception | None = None
        self._tasks: tuple[TaskHandle, ...] = ()
        self._fields = fields
        self._request_trace = make_request_trace(name, fields)
        self._throttle_log = RateLimit()

    def start(self, supervisor: Supervisor) -> None:
        """Start the tasks."""
        self._metrics.record_opened()
        self._tasks = (
            supervisor.spawn(self._run_reader, name=f"read {self.name}"),
            supervisor.spawn(self._run_writer, name=f"write {self.name}"),
            supervisor.spawn(self._watch_deadlines, name=f"time {self.name}"),
        )

    @property
    def has_unconfirmed_request(self) -> bool:
        """True if a request without a response was written: only a disconnect reports its error."""
        return self._in_flight.last_one_way is not None

    @property
    def oldest_unanswered(self) -> InFlightRequest | None:
        """The request that the broker has to answer, or to read, next."""
        return next(iter(self._in_flight.sent_requests()), None)

    @property
    def next_correlation_id(self) -> int:
        """Correlation id of the next request."""
        return self._in_flight.next_correlation_id

    @property
    def in_flight_count(self) -> int:
        """Number of queued and unanswered requests."""
        return len(self._in_flight)

    def submit(
        self,
        message: Request[Any] | EncodedRequest,
        version: int,
        *,
        deadline: float,
        expect_response: bool = True,
    ) -> InFlightRequest:
        """Send a request without waiting for the response.

        Args:
            message: Request to send.
            version: Its API version.
            deadline: When the request fails with `RequestTimedOut`.
            expect_response: False for a Produce request with acks=0. Its result is None, once it
                was written.

        Raises:
            ConnectionLost: The connection was closed before the request was sent.
            RequestTimedOut: The deadline had already passed.
            KafkaError: Too many requests are queued.
        """
        now = self._now()
        api, response_class = _api_info(message.api_key)
        if self._error is not None:
            raise ConnectionLost(self._error.reason, sent=False, broker=self.name, api=api)
        if deadline <= now:
            raise RequestTimedOut(
                "the deadline had passed before the request was sent",
                sent=False,
                broker=self.name,
                api=api,
            )
        in_flight = self._in_flight
        number = in_flight.next_correlation_id
        buffers = encode_request(message, version, number, self._client_id)
        request = InFlightRequest(
            number,
            deadline,
            version,
            buffers,
            api=api,
            response_class=response_class,
            match_response=message.match_response,
            expects_response=expect_response,
        )
        # mutation: request-written-into-another
        if (
            expect_response
            and not self._write_state.is_writing
            and in_flight.submit_and_take(request, now)
        ):
            request.buffers = NO_BUFFERS
            metrics = self._metrics
            metrics.requests += 1
            metrics.bytes_sent += request.size_bytes
            self._send_buffers(buffers)
        else:
            self._queue(request, now)
        # mutation: deadline-missed-by-sleeping-timer
        if deadline < self._timer.deadline:
            self._timer.reschedule(deadline)
        return request

    def _queue(self, request: InFlightRequest, now: float) -> None:
        """Queue a request that must wait or has no response."""
        in_flight = self._in_flight
        try:
            in_flight.submit(request)
        except QueueFull:
            raise KafkaError(
                f"{MAX_QUEUED} requests are already waiting for this connection",
                broker=self.name,
                api=request.api,
                retriable=True,
            ) from None
        self._write_now(now)
        if in_flight.queued and not self._write_state.is_writing:
            self._write_state.wakeup.set()  # writing may only be possible later

    async def wait_response(self, request: InFlightRequest) -> Any:
        """Wait for the response to a request of `submit`.

        May be cancelled at any point: the request is then sent completely or not at all.

        Raises:
            RequestTimedOut: No response before the deadline.
            ConnectionLost: The connection was closed.
            ProtocolError: The broker sent an invalid response.
        """
        try:
            return await request.wait()
        finally:
            if not request.done:
                self._in_flight.cancel(request, self._now())

    # --- authentication ---

    def hold_requests(self) -> None:
        """Queue requests without writing them, until `release_requests`."""
        self._in_flight.hold()

    def release_requests(self) -> None:
        """Write the requests that `hold_requests` held back.

        Writes them now: they might be held again before the writer task runs.
        """
        self._in_flight.release()
        self._write_now(self._clock.now())
        self._write_state.wakeup.set()

    async def request_ahead(self, message: Request[Any], version: int) -> Any:
        """Send a request before all queued ones, held or throttled, and wait for its response.

        Raises:
            ConnectionLost: The connection was closed.
        """
        number = self._in_flight.next_correlation_id
        api, response_class = _api_info(message.api_key)
        if self._error is not None:
            raise ConnectionLost(self._error.reason, sent=False, broker=self.name, api=api)
        now = self._now()
        # Not in a local: a traceback would keep the token of an authentication.
        request = InFlightRequest(
            number,
            NEVER,
            version,
            encode_request(message, version, number, self._client_id),
            api=api,
            response_class=response_class,
        )
        self._in_flight.submit_ahead(request, now)
        self._write_now(now)
        self._write_state.wakeup.set()
        self._timer.reschedule(min(self._timer.deadline, request.deadline))
        return await request.wait()

    async def exchange_token(self, message: SaslAuthenticateRequest) -> bytes:
        """Send the token of a request without the request, and return the token of the broker.

        Only for a new connection without other requests.

        Raises:
            ConnectionLost: The connection was closed.
        """
        if self._error is not None:
            raise ConnectionLost(self._error.reason, broker=self.name)
        self._expected_token = answer = Future[bytes]()
        usual_min_bytes, self._frame_reader.min_frame_bytes = self._frame_reader.min_frame_bytes, 0
        self.send_token(message)
        try:
            return await answer.wait()
        finally:
            self._frame_reader.min_frame_bytes = usual_min_bytes

    def send_token(self, message: SaslAuthenticateRequest) -> None:
        """Send a SASL token that the broker does not answer; see `exchange_token`."""
        self._send_buffers([TOKEN_LENGTH.pack(len(message.auth_bytes)) + message.auth_bytes])

    async def wait_failed_until(self, deadline: float) -> bool:
        """Wait until the connection has failed, or the deadline; return whether it has failed."""
        return self._error is not None or await self._closed.wait(deadline)

    # --- closing ---

    def close_when_idle(self) -> None:
        """Close once no request is queued or in flight."""
        self._in_flight.close_when_idle()
        self._timer.reschedule(AT_ONCE)

    def close(self, error: KafkaError) -> None:
        """Close the connection on behalf of the client; requests fail with `error`."""
        self.closed_by_client = True
        self.fail(error)

    async def wait_closed(self) -> None:
        """Wait until the tasks have ended and the transport is released."""
        for task in self._tasks:
            await task.wait()

    def fail(self, error: KafkaError) -> None:
        """Close the connection and fail all requests. Later errors are ignored."""
        if self._error is not None:
            return
        self._error = error
        self.is_usable = False
        self._metrics.record_closed(lost=not self.closed_by_client)
        self._transport.abort()
        self._write_state.wakeup.set()
        self._timer.reschedule(AT_ONCE)
        self._closed.set()
        if self._expected_token is not None:
            self._expected_token.set_exception(ConnectionLost(error.reason, broker=self.name))
        for request in self._in_flight.close():
            self._fail_request(request, self._error_for(request, error))
        if self.on_closed is not None:
            self.on_closed(self, error)

    def _fail_request(self, request: InFlightRequest, error: KafkaError) -> None:
        if self._request_trace is not None:
            self._request_trace.log_failure(request, error, self._now())
        try:
            request.set_exception(error)
        except Exception as defect:
            self._on_defect(defect)

    def _on_defect(self, defect: BaseException) -> None:
        """Close the connection after a callback or decoder raised, so that no caller hangs."""
        if isinstance(defect, Exception):  # KeyboardInterrupt is re-raised by the caller
            self._defect = self._defect or defect
        self.fail(ConnectionLost(f"connection closed after an internal error: {defect!r}"))

    def _error_for(self, request: InFlightRequest, error: KafkaError) -> KafkaError:
        """Return the error of one request when `error` closes the connection."""
        api = request.api
        if isinstance(error, ConnectionLost) or (
            not request.sent and isinstance(error, ProtocolError)
        ):
            # mutation: written-request-counts-as-unsent
            return ConnectionLost(error.reason, sent=request.sent, broker=self.name, api=api)
        copied = copy_error(error)
        copied.broker, copied.api = self.name, api
        return copied

    def _write_now(self, now: float) -> None:
        """Write queued requests as far as the socket accepts them; the writer sends the rest."""
        if self._write_state.is_writing or self._error is not None:
            return
        calls = self._in_flight.take_writable(now)
        if calls and self._send_requests(calls) and self._in_flight.one_way:
            self._on_written(now)

    def _send_requests(self, calls: list[InFlightRequest]) -> bool:
        """Write requests; return whether the socket accepted all of them."""
        buffers: list[Buffer] = []
        metrics = self._metrics
        for request in calls:
            buffers += request.buffers
            request.buffers = NO_BUFFERS
            metrics.bytes_sent += request.size_bytes
        metrics.requests += len(calls)
        return self._send_buffers(buffers)

    def _send_buffers(self, buffers: list[Buffer]) -> bool:
        """Write buffers; return whether the socket accepted all of them. Else wake the writer."""
        try:
            rest = self._transport.send_nowait(buffers)
        except OSError as error:
            self.fail(self._disconnect_error(error))
            return False
        if not rest:
            return True
        self._write_state.unsent = rest
        self._write_state.is_writing = True
        self._write_state.wakeup.set()
        return False

    def _on_written(self, now: float) -> None:
        for request in self._in_flight.mark_written(now):
            if self._request_trace is not None:
                self._request_trace.log_one_way(request)
            try:
                request.set_result(None)
            except Exception as defect:
                self._on_defect(defect)
        if self._in_flight.closes_when_idle:
            self._timer.reschedule(AT_ONCE)

    def _end_task(self) -> None:
        """Close the connection with one of its tasks, which the client has cancelled."""
        if self._error is None:
            self.close(ConnectionLost("the client is closing"))

    async def _run_writer(self) -> None:
        """Send what the socket did not accept immediately, and what was throttled."""
        try:
            while self._error is None:
                if self._write_state.unsent:
                    rest, self._write_state.unsent = self._write_state.unsent, ()
                    await self._transport.send(rest)
                    self._on_written(self._clock.now())
                self._write_state.is_writing = False
                now = self._clock.now()
                self._write_now(now)
                if not self._write_state.is_writing:
                    await self._write_state.wakeup.wait(self._in_flight.next_write_at(now))
        except OSError as error:
            self.fail(self._disconnect_error(error))
        finally:
            # A cancelled `send` may have written a partial frame.
            self._end_task()

    async def _run_reader(self) -> None:
        try:
            await self._transport.receive_until_eof(
                self._frame_reader.get_buffer, self._on_bytes_received
            )
            self.fail(self._disconnect_error(None))
        except OSError as error:
            self.fail(self._disconnect_error(error))
        except KafkaError as error:
            self.fail(error)
        except Exception as defect:
            self._on_defect(defect)
        finally:
            self._end_task()
            with anyio.CancelScope(shield=True):
                await self._transport.aclose()
            if self._defect is not None:
                raise self._defect

    def _on_bytes_received(self, count: int) -> None:
        self._metrics.bytes_received += count
        try:
            for frame in self._frame_reader.buffer_updated(count):
                if self._error is not None:
                    return
                self._handle_response(frame)
        except KafkaError as error:
            # Close now, not in the reader task: a woken caller may run before it.
            error.broker = self.name
            self.fail(error)
            raise
        except BaseException as defect:
            self._on_defect(defect)
            raise
        if self._in_flight.queued:
            self._write_now(self._clock.now())

    def _handle_response(self, frame: memoryview) -> None:
        if self._expected_token is not None:
            answer, self._expected_token = self._expected_token, None
            answer.set_result(bytes(frame))
            return
        now = self._now()
        request, wanted = self._in_flight.complete_next(peek_correlation_id(frame), now)
        self._metrics.record_response(now - request.sent_at)
        if self._request_trace is not None:
            self._request_trace.log_response(request, now - request.sent_at, len(frame))
        if self._in_flight.closes_when_idle:
            self._timer.reschedule(AT_ONCE)
        if not wanted:
            return
        match_response = request.match_response
        if match_response is not None and (result := match_response(frame)) is not None:
            request.set_result(result)
            return
        try:
            _, response = decode_response(request.response_class, request.version, frame)
        except KafkaError as error:
            error.broker, error.api = self.name, request.api
            add_version_advice(error, request.response_class, request.version)
            self._fail_request(request, error)
            raise
        except BaseException as defect:
            self._on_defect(defect)
            self._fail_request(request, self._error_for(request, ConnectionLost(repr(defect))))
            raise
        if getattr(response, "throttle_time_ms", 0):
            self._apply_throttle(response, request, now)
        request.set_result(response)

    def _apply_throttle(self, response: Response, request: InFlightRequest, now: float) -> None:
        throttle_s = throttle_time_s(response, request.version)
        if throttle_s:
            logger.log(
                self._throttle_log.level(logging.INFO, None, now),
                "Throttled by broker %s for %.3f s (quota for %s): no requests to it until then",
                self.name,
                throttle_s,
                request.api,
                extra=log_fields(
                    self._fields,
                    broker=self.name,
                    api=request.api,
                    throttle_ms=round(throttle_s * 1_000),
                ),
            )
            self._metrics.throttle_s += throttle_s
            self._in_flight.throttle(now + throttle_s)
            self.throttled_until = self._in_flight.throttled_until

    async def _watch_deadlines(self) -> None:
        try:
            while self._error is None:
                await self._timer.wait(self._in_flight.next_deadline(self._clock.now()))
                self._check_deadlines(self._clock.now())
        finally:
            self._end_task()

    def _check_deadlines(self, now: float) -> None:
        due = self._in_flight.check_deadlines(now)
        for request in due.expired:
            self._fail_request(request, self._timeout_error(request, now))
        if due.unresponsive is not None:
            self.fail(self._unresponsive_error(due.unresponsive))
        elif due.is_idle:
            self.close(ConnectionLost("the connection was closed as it was idle"))

    def _unresponsive_error(self, request: InFlightRequest) -> ConnectionLost:
        what = "no response to {} in time" if request.expects_response else "{} cannot be written"
        return ConnectionLost(
            f"{what.format(request.api)}: the broker is stopped or overloaded, or the"
            " network drops packets"
        )

    def _timeout_error(self, request: InFlightRequest, now: float) -> RequestTimedOut:
        if request.sent:
            reason = "no response before the deadline"
        elif self._in_flight.is_held:
            reason = "not sent before the deadline: the connection is being re-authenticated"
        elif now < self._in_flight.throttled_until:
            left = self._in_flight.throttled_until - now
            reason = f"not sent before the deadline: throttled by the broker for {left:.1f} s more"
        else:
            reason = "not sent before the deadline: earlier requests are unanswered"
        return RequestTimedOut(reason, sent=request.sent, broker=self.name, api=request.api)

    def _disconnect_error(self, error: OSError | None) -> ConnectionLost:
        """Return the error for a connection that the broker or network ended, with its cause."""
        if isinstance(error, ssl.SSLError):
            self.tls_error = error
        reason = (
            "the broker closed the connection" if error is None else f"connection lost: {error}"
        )
        sent = self._in_flight.sent_requests()
        largest = max(sent, key=lambda request: request.size_bytes, default=None)
        if largest is not None and largest.size_bytes >= LARGE_REQUEST_BYTES:
            reason += (
                f" after a request of {largest.size_bytes} bytes; a broker disconnects if a request"
                " exceeds its socket.request.max.bytes"
            )
        elif sent and sent[0].correlation_id == self.first_correlation_id:
            reason += (
                " without an answer to the first request: the listener may require SASL"
                " (security_protocol)"
            )
        elif self._frame_reader.has_partial_frame:
            reason += " in the middle of a response"
        elif largest is None and (last := self._in_flight.last_one_way) is not None:
            reason += (
                f"; the last request, {last.api} of {last.size_bytes} bytes, expected no response:"
                " a broker disconnects if such a request fails"
            )
        return ConnectionLost(reason, broker=self.name)
