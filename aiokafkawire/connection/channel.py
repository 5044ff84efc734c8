"""An open connection to a broker."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import anyio

from aiokafkawire.connection.frame_stream import FrameStream
from aiokafkawire.connection.in_flight_requests import (
    ChannelLimits,
    InFlightRequest,
    InFlightRequests,
)
from aiokafkawire.connection.metrics import ConnectionMetrics
from aiokafkawire.connection.node_api_versions import NodeApiVersions, add_version_advice
from aiokafkawire.connection.request_errors import (
    disconnect_error,
    error_of_request,
    timeout_error,
    unresponsive_error,
)
from aiokafkawire.connection.request_observer import RequestObserver
from aiokafkawire.connection.throttle import throttle_time_s
from aiokafkawire.errors import ConnectionLost, KafkaError, RequestTimedOut
from aiokafkawire.hooks import NO_HOOKS, HookFunctions
from aiokafkawire.logs import NO_FIELDS
from aiokafkawire.runtime import (
    AT_ONCE,
    NEVER,
    Buffer,
    Clock,
    Future,
    Supervisor,
    TaskHandle,
    Timer,
    Transport,
)
from aiokafkawire.wire import APIS, ApiKey, Request, Response
from aiokafkawire.wire.header import (
    EncodedRequest,
    decode_response,
    encode_request,
    peek_correlation_id,
)

__all__ = ("Channel",)

NO_VERSIONS = NodeApiVersions({})

NO_BUFFERS: Sequence[Buffer] = ()
"""Buffers of a request that was written."""


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
        hooks: Hooks of the client.

    Attributes:
        api_versions: Set after version negotiation.
        is_usable: True while requests are accepted.
        on_closed: Called once with the channel and the error that closed it.
        closed_by_client: True if the client closed the channel on purpose.
        stream: Its frames. Requests are written by the methods of this class alone.
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
        hooks: HookFunctions = NO_HOOKS,
    ) -> None:
        self.name = name
        self.api_versions = NO_VERSIONS
        self.closed_by_client = False
        self.is_usable = True
        self.on_closed: Callable[[Channel, KafkaError], None] | None = None
        self._client_id = client_id
        self._now = clock.now
        self._in_flight = InFlightRequests(clock.now(), limits)
        self.stream = FrameStream(transport, limits.max_frame_bytes, metrics)
        self._observer = RequestObserver(name, metrics, fields, hooks)
        self._failed: Future[KafkaError] = Future()
        self._timer = Timer()
        self._idle_error = ConnectionLost("the connection was closed as it was idle")
        self._defect: Exception | None = None
        self._tasks: tuple[TaskHandle, ...] = ()

    def start(self, supervisor: Supervisor) -> None:
        """Start the tasks."""
        self._observer.metrics.record_opened()
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
    def throttled_until(self) -> float:
        """Nothing is written before this time, because the broker throttled the client."""
        return self._in_flight.throttled_until

    @property
    def oldest_unanswered(self) -> InFlightRequest | None:
        """The request that the broker has to answer, or to read, next."""
        return next(iter(self._in_flight.sent_requests()), None)

    @property
    def in_flight_count(self) -> int:
        """Number of queued and unanswered requests."""
        return len(self._in_flight)

    def submit(
        self,
        message: Request[Any] | EncodedRequest,
        version: int,
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
        if not self.is_usable or deadline <= now:
            raise self._unsent_error(message.api_key)
        in_flight = self._in_flight
        number = in_flight.next_correlation_id
        buffers = encode_request(message, version, number, self._client_id)
        request = InFlightRequest(number, deadline, message.api_key, version, buffers)
        request.match_response = message.match_response
        request.expects_response = expect_response
        # mutation: request-written-into-another
        can_write = expect_response and not self.stream.is_writing
        try:
            if in_flight.submit(request, now, can_write):
                request.buffers = NO_BUFFERS
                self.stream.send(buffers, 1, request.size_bytes)
            else:
                self._write_now(now)
                if in_flight.queued and not self.stream.is_writing:
                    self.stream.wakeup.set()  # writing may only be possible later
        except OSError as error:
            self._fail_transport(error)
        except KafkaError as error:
            error.broker = self.name
            raise
        # mutation: deadline-missed-by-sleeping-timer
        if deadline < self._timer.deadline:
            self._timer.reschedule(deadline)
        return request

    def _unsent_error(self, api_key: int) -> ConnectionLost | RequestTimedOut:
        """Return the error of a request after the end of the connection, or of its deadline."""
        api, failure = APIS[ApiKey(api_key)].name, self._failed.value
        if failure is not None:
            return ConnectionLost(failure.reason, sent=False, broker=self.name, api=api)
        reason = "the deadline had passed before the request was sent"
        return RequestTimedOut(reason, sent=False, broker=self.name, api=api)

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

    def mark_set_up(self) -> None:
        """Record that the next request is the first one after the set-up.

        If the broker disconnects instead of a response, it may require authentication.
        """
        self._in_flight.first_correlation_id = self._in_flight.next_correlation_id

    def report_disconnect(self) -> None:
        """Call the hook when the connection ends."""
        self._observer.reports_disconnect = True

    def hold_requests(self) -> None:
        """Queue requests without writing them, until `release_requests`."""
        self._in_flight.hold()

    def release_requests(self) -> None:
        """Write the requests that `hold_requests` held back.

        Writes them now: they might be held again before the writer task runs.
        """
        self._in_flight.release()
        self._write_now(self._now())
        self.stream.wakeup.set()

    async def request_ahead(
        self, message: Request[Any], version: int, *, frame: bytes | None = None
    ) -> Any:
        """Send a request before all queued ones, held or throttled, and wait for its response.

        Args:
            message: Request to send.
            version: Its API version.
            frame: Sent instead of the request. The response frame is then returned as bytes.

        Raises:
            ConnectionLost: The connection was closed.
        """
        if not self.is_usable:
            raise self._unsent_error(message.api_key)
        now, in_flight = self._now(), self._in_flight
        number = in_flight.next_correlation_id
        # Not in a local: a traceback would keep the token of an authentication.
        request = InFlightRequest(
            number,
            NEVER,
            message.api_key,
            version,
            [frame] if frame else encode_request(message, version, number, self._client_id),
        )
        request.match_response = bytes if frame else None
        del frame
        in_flight.submit_ahead(request, now)
        self._write_now(now)
        self.stream.wakeup.set()
        self._timer.reschedule(min(self._timer.deadline, request.deadline))
        return await request.wait()

    def send_frame(self, frame: bytes) -> None:
        """Send a frame that the broker does not answer, such as the last SASL token."""
        try:
            self.stream.send([frame], 0, 0)
        except OSError as error:
            self._fail_transport(error)

    # --- closing ---

    async def wait_failed_until(self, deadline: float) -> bool:
        """Wait until the connection has failed, or the deadline; return whether it has failed."""
        try:
            await self._failed.wait(deadline)
        except TimeoutError:
            return False
        return True

    def close_when_idle(self, error: ConnectionLost) -> None:
        """Close with `error` once no request is queued or in flight."""
        self._idle_error = error
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
        if not self.is_usable:
            return
        self.is_usable = False
        self._failed.set_result(error)
        self._observer.on_disconnect(error, by_client=self.closed_by_client)
        self.stream.transport.abort()
        self.stream.wakeup.set()
        self._timer.reschedule(AT_ONCE)
        for request in self._in_flight.close():
            self._fail_request(request, error_of_request(request, error, self.name))
        if self.on_closed is not None:
            self.on_closed(self, error)

    def _fail_transport(self, error: OSError | None) -> None:
        """Close the connection after the broker or the network ended it."""
        has_partial_frame = self.stream.reader.has_partial_frame
        self.fail(
            disconnect_error(error, self._in_flight, self.name, has_partial_frame=has_partial_frame)
        )

    def _fail_request(self, request: InFlightRequest, error: KafkaError) -> None:
        self._observer.on_failure(request, error, self._now())
        try:
            request.set_exception(error)
        except Exception as defect:
            self._on_defect(defect)

    def _on_defect(self, defect: BaseException) -> None:
        """Close the connection after a callback or decoder raised, so that no caller hangs."""
        if isinstance(defect, Exception):  # KeyboardInterrupt is re-raised by the caller
            self._defect = self._defect or defect
        self.fail(ConnectionLost(f"connection closed after an internal error: {defect!r}"))

    def _write_now(self, now: float) -> None:
        """Write queued requests as far as the socket accepts them; the writer sends the rest."""
        if self.stream.is_writing or not self.is_usable:
            return
        requests = self._in_flight.take_writable(now)
        if not requests:
            return
        buffers: list[Buffer] = []
        for request in requests:
            buffers += request.buffers
            request.buffers = NO_BUFFERS
        size_bytes = sum(request.size_bytes for request in requests)
        try:
            all_written = self.stream.send(buffers, len(requests), size_bytes)
        except OSError as error:
            self._fail_transport(error)
            return
        if all_written and self._in_flight.one_way:
            self._on_written(now)

    def _on_written(self, now: float) -> None:
        for request in self._in_flight.mark_written(now):
            self._observer.on_one_way(request)
            try:
                request.set_result(None)
            except Exception as defect:
                self._on_defect(defect)
        if not self._in_flight.max_idle_s:
            self._timer.reschedule(AT_ONCE)

    def _end_task(self) -> None:
        """Close the connection with one of its tasks, which the client has cancelled."""
        if self.is_usable:
            self.close(ConnectionLost("the client is closing"))

    async def _run_writer(self) -> None:
        """Send what the socket did not accept immediately, and what was throttled."""
        stream = self.stream
        try:
            while self.is_usable:
                if await stream.send_rest():
                    self._on_written(self._now())
                stream.is_writing = False
                now = self._now()
                self._write_now(now)
                if not stream.is_writing:
                    await stream.wakeup.wait(self._in_flight.next_write_at(now))
        except OSError as error:
            self._fail_transport(error)
        finally:
            # A cancelled `send` may have written a partial frame.
            self._end_task()

    async def _run_reader(self) -> None:
        transport = self.stream.transport
        try:
            await transport.receive_until_eof(
                self.stream.reader.get_buffer, self._on_bytes_received
            )
            self._fail_transport(None)
        except OSError as error:
            self._fail_transport(error)
        except KafkaError as error:
            self.fail(error)
        except Exception as defect:
            self._on_defect(defect)
        finally:
            self._end_task()
            with anyio.CancelScope(shield=True):
                await transport.aclose()
            if self._defect is not None:
                raise self._defect

    def _on_bytes_received(self, count: int) -> None:
        self._observer.metrics.bytes_received += count
        try:
            for frame in self.stream.reader.buffer_updated(count):
                if not self.is_usable:
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
            self._write_now(self._now())

    def _handle_response(self, frame: memoryview) -> None:
        now, in_flight = self._now(), self._in_flight
        if self.stream.reader.min_frame_bytes:
            correlation_id = peek_correlation_id(frame)
        else:  # a SASL token, which has no header
            correlation_id = getattr(self.oldest_unanswered, "correlation_id", -1)
        request, wanted = in_flight.complete_next(correlation_id, now)
        self._observer.on_response(request, now, len(frame))
        if not in_flight.max_idle_s:
            self._timer.reschedule(AT_ONCE)
        if not wanted:
            return
        match_response = request.match_response
        if match_response is not None and (result := match_response(frame)) is not None:
            request.set_result(result)
            return
        try:
            _, response = decode_response(request.api.response, request.api.version, frame)
        except KafkaError as error:
            error.broker, error.api = self.name, request.api.name
            add_version_advice(error, request.api.response, request.api.version)
            self._fail_request(request, error)
            raise
        except BaseException as defect:
            self._on_defect(defect)
            lost = ConnectionLost(repr(defect))
            self._fail_request(request, error_of_request(request, lost, self.name))
            raise
        if getattr(response, "throttle_time_ms", 0):
            self._apply_throttle(response, request, now)
        request.set_result(response)

    def _apply_throttle(self, response: Response, request: InFlightRequest, now: float) -> None:
        throttle_s = throttle_time_s(response, request.api.version)
        if throttle_s:
            self._observer.on_throttled(request, throttle_s, now)
            self._in_flight.throttle(now + throttle_s)

    async def _watch_deadlines(self) -> None:
        try:
            while self.is_usable:
                await self._timer.wait(self._in_flight.next_deadline(self._now()))
                self._check_deadlines(self._now())
        finally:
            self._end_task()

    def _check_deadlines(self, now: float) -> None:
        due = self._in_flight.check_deadlines(now)
        for request in due.expired:
            error = timeout_error(request, self._in_flight, now, self.name)
            self._fail_request(request, error)
        if due.unresponsive is not None:
            self.fail(unresponsive_error(due.unresponsive))
        elif due.is_idle:
            self.close(self._idle_error)
