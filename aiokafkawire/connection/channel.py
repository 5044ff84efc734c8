"""One live connection to a broker."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

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
    RawRequest,
    decode_response,
    encode_raw_request,
    encode_request,
    peek_correlation_id,
)

__all__ = ("LARGE_REQUEST_BYTES", "Channel", "ChannelLimits", "PendingResponse")

logger = logging.getLogger("aiokafkawire.connection")

LARGE_REQUEST_BYTES = 1024 * 1024
"""From this size on, a close by the broker is likely to be about the size."""

NO_VERSIONS = NodeApiVersions({})

NO_BUFFERS: Sequence[Buffer] = ()
"""What is left of a request that was written."""


@dataclass(frozen=True, slots=True)
class ChannelLimits:
    """The bounds of a connection."""

    max_in_flight: int
    request_timeout_s: float
    max_idle_s: float
    max_frame_bytes: int


class PendingResponse(Future[Any]):
    """A request on its way, and the promise of its answer: what `read` makes of it, if that is
    not None, else the decoded response."""

    __slots__ = ("api", "buffers", "parse", "response_class", "size_bytes", "version")

    def __init__(
        self,
        api: str,
        version: int,
        response_class: type[Response],
        buffers: Sequence[Buffer],
        parse: Callable[[memoryview], object] | None = None,
    ) -> None:
        self._event = self._futures = self._done_callback = self.value = self.error = None
        self.done = False
        self.parse = parse
        self.api = api
        self.version = version
        self.response_class = response_class
        self.buffers = buffers
        self.size_bytes = len(buffers[0]) if len(buffers) == 1 else sum(map(len, buffers))


@cache
def _api_info(api_key: int) -> tuple[str, type[Response]]:
    """The name of an API, and what answers its requests."""
    api = APIS[ApiKey(api_key)]
    return api.name, api.response


class _WriteState:
    """Where the writer stands. `busy`: it is at it; `rest` of what was begun is to go before
    anything else."""

    __slots__ = ("is_writing", "unsent", "wakeup")

    def __init__(self) -> None:
        self.is_writing = False
        self.unsent: Sequence[Buffer] = ()
        self.wakeup = AutoResetEvent()


class Channel:
    """One connection: a writer task, a reader task, and one timer for all deadlines.

    A request is written where it is submitted if the system takes it at once: that does not wait,
    and so cannot be cancelled in the middle of a frame. What does not go at once is the writer's,
    alone and in its order, so a cancelled caller never cuts a frame. The first thing that goes
    wrong poisons the channel: every waiter hears of it, and no request is accepted any more. What a
    callback raises is a defect, which poisons it too, and which the reader's task then raises.
    `versions` is set by whoever negotiates. `on_closed(channel, error)` is called once;
    `channel.quiet` tells whether it was the client's own wish. `usable`: requests are accepted.
    Before `silent_until` nothing is written, as the broker asked for.
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
        self.is_usable = True
        self.throttled_until = -NEVER
        self.on_closed: Callable[[Channel, KafkaError], None] | None = None
        self._metrics = metrics
        self._transport = transport
        self._client_id = client_id
        self._clock = clock
        self._now = clock.now
        self._in_flight: InFlightRequests[PendingResponse] = InFlightRequests(
            clock.now(),
            max_in_flight=limits.max_in_flight,
            request_timeout_s=limits.request_timeout_s,
            max_idle_s=limits.max_idle_s,
        )
        self._frame_reader = FrameReader(limits.max_frame_bytes)
        self._write_state = _WriteState()
        self._timer = Timer()
        self._error: KafkaError | None = None
        self._defect: Exception | None = None
        self._tasks: tuple[TaskHandle, ...] = ()
        self._fields = fields
        self._request_trace = make_request_trace(name, fields)
        self._throttle_log = RateLimit()

    def start(self, supervisor: Supervisor) -> None:
        self._metrics.record_opened()
        self._tasks = (
            supervisor.spawn(self._run_reader, name=f"read {self.name}"),
            supervisor.spawn(self._run_writer, name=f"write {self.name}"),
            supervisor.spawn(self._watch_deadlines, name=f"time {self.name}"),
        )

    @property
    def has_unconfirmed_request(self) -> bool:
        """Whether a request was written whose failure only the end of the connection tells."""
        return self._in_flight.last_one_way is not None

    @property
    def in_flight_count(self) -> int:
        """Requests queued or unanswered."""
        return len(self._in_flight)

    async def request(
        self,
        message: Request[Any] | RawRequest,
        version: int,
        *,
        deadline: float,
        expect_response: bool = True,
    ) -> Any:
        """Send a request and wait for its response; None when it was written and has none.

        May be cancelled at any point: the request then goes out whole or not at all. Raises
        `RequestTimedOut` at the deadline, `ConnectionLost` and `ProtocolError` when the connection
        ends, and what encoding raises.
        """
        request = self.submit(message, version, deadline=deadline, expect_response=expect_response)
        try:
            return await request.payload.wait()
        finally:
            if not request.payload.done:
                self._in_flight.cancel(request, self._clock.now())

    def submit(
        self,
        message: Request[Any] | RawRequest,
        version: int,
        *,
        deadline: float,
        expect_response: bool = True,
    ) -> InFlightRequest[PendingResponse]:
        """Send a request without waiting: its `payload` is the promise of what `request` gives or
        raises while it waits. Raises what `request` raises before."""
        now = self._now()
        written = message if type(message) is RawRequest else None
        api, response = _api_info(message.api_key if written is None else written.cls.api_key)
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
        if written is None:
            buffers = encode_request(message, version, number, self._client_id)  # type: ignore[arg-type]
            pending = PendingResponse(api, version, response, buffers)
        else:
            buffers = encode_raw_request(written, version, number, self._client_id)
            pending = PendingResponse(api, version, response, buffers, written.parse_response)
        request: InFlightRequest[PendingResponse] | None = None
        # mutation: request-written-into-another
        if expect_response and not self._write_state.is_writing:
            request = in_flight.submit_and_take(pending, deadline, now)
        if request is not None:
            pending.buffers = NO_BUFFERS
            metrics = self._metrics
            metrics.requests += 1
            metrics.bytes_sent += pending.size_bytes
            self._send_buffers(buffers)
        else:
            request = self._queue(pending, deadline, expect_response, now)
        # mutation: deadline-missed-by-sleeping-timer
        if deadline < self._timer.deadline:
            self._timer.reschedule(deadline)
        return request

    def _queue(
        self, pending: PendingResponse, deadline: float, expect_response: bool, now: float
    ) -> InFlightRequest[PendingResponse]:
        """Submit a request behind others, or one that has no response."""
        in_flight = self._in_flight
        try:
            request = in_flight.submit(pending, deadline, expect_response)
        except QueueFull:
            raise KafkaError(
                f"{MAX_QUEUED} requests wait for this connection already",
                broker=self.name,
                api=pending.api,
                retriable=True,
            ) from None
        self._write_now(now)
        if in_flight.queued and not self._write_state.is_writing:
            self._write_state.wakeup.set()  # the broker may want it later
        return request

    def close_when_idle(self) -> None:
        """Close as soon as nothing is under way."""
        self._in_flight.close_when_idle()
        self._timer.reschedule(-NEVER)

    def close(self, error: KafkaError) -> None:
        """End the connection on the client's own wish; waiters get `error`."""
        self.closed_by_client = True
        self.fail(error)

    async def wait_closed(self) -> None:
        """Wait until the tasks have ended and the transport is released."""
        for task in self._tasks:
            await task.wait()

    def fail(self, error: KafkaError) -> None:
        """End the connection. Every waiter hears why; later errors are ignored."""
        if self._error is not None:
            return
        self._error = error
        self.is_usable = False
        self._metrics.record_closed(lost=not self.closed_by_client)
        self._transport.abort()
        self._write_state.wakeup.set()
        self._timer.reschedule(-NEVER)
        for request in self._in_flight.close():
            self._fail_request(request, self._error_for(request, error))
        if self.on_closed is not None:
            self.on_closed(self, error)

    def _fail_request(self, request: InFlightRequest[PendingResponse], error: KafkaError) -> None:
        if self._request_trace is not None:
            self._request_trace.log_failure(request, error, self._now())
        try:
            request.payload.set_exception(error)
        except Exception as defect:
            self._on_defect(defect)

    def _on_defect(self, defect: BaseException) -> None:
        """A callback raised, or a decoder: nobody is to wait for ever because of that."""
        if isinstance(defect, Exception):  # Ctrl-C goes its own way
            self._defect = self._defect or defect
        self.fail(ConnectionLost(f"a defect ended the connection: {defect!r}"))

    def _error_for(
        self, request: InFlightRequest[PendingResponse], error: KafkaError
    ) -> KafkaError:
        """What the waiter of one call gets to hear of the end of the connection."""
        api = request.payload.api
        if isinstance(error, ConnectionLost) or (
            not request.sent and isinstance(error, ProtocolError)
        ):
            # mutation: written-request-counts-as-unsent
            return ConnectionLost(error.reason, sent=request.sent, broker=self.name, api=api)
        mine = copy_error(error)
        mine.broker, mine.api = self.name, api
        return mine

    def _write_now(self, now: float) -> None:
        """Write what may go, as far as the system takes it at once; the writer does the rest."""
        if self._write_state.is_writing or self._error is not None:
            return
        calls = self._in_flight.take_writable(now)
        if calls and self._send_requests(calls) and self._in_flight.one_way:
            self._on_written(now)

    def _send_requests(self, calls: list[InFlightRequest[PendingResponse]]) -> bool:
        """Write calls that have just been taken; whether the system took all of them at once."""
        buffers: list[Buffer] = []
        metrics = self._metrics
        for request in calls:
            pending = request.payload
            buffers += pending.buffers
            pending.buffers = NO_BUFFERS
            metrics.bytes_sent += pending.size_bytes
        metrics.requests += len(calls)
        return self._send_buffers(buffers)

    def _send_buffers(self, buffers: list[Buffer]) -> bool:
        """Write; whether the system took all of it at once, and the writer has nothing to do."""
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
                request.payload.set_result(None)
            except Exception as defect:
                self._on_defect(defect)
        if self._in_flight.closes_when_idle:
            self._timer.reschedule(-NEVER)

    async def _run_writer(self) -> None:
        """The writer: sends what did not go at once, and what the broker wanted to have later."""
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
            # A frame may have been cut if this task was cancelled.
            self.fail(ConnectionLost("the client is closing"))

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
            self.fail(ConnectionLost("the client is closing"))
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
            # At once: who hears of it may go on before the reader does.
            error.broker = self.name
            self.fail(error)
            raise
        except BaseException as defect:
            self._on_defect(defect)
            raise
        if self._in_flight.queued:
            self._write_now(self._clock.now())

    def _handle_response(self, frame: memoryview) -> None:
        now = self._now()
        request, wanted = self._in_flight.complete_next(peek_correlation_id(frame), now)
        self._metrics.record_response(now - request.sent_at)
        if self._request_trace is not None:
            self._request_trace.log_response(request, now - request.sent_at, len(frame))
        if self._in_flight.closes_when_idle:
            self._timer.reschedule(-NEVER)
        if not wanted:
            return
        pending = request.payload
        if pending.parse is not None and (found := pending.parse(frame)) is not None:
            pending.set_result(found)
            return
        try:
            _, response = decode_response(pending.response_class, pending.version, frame)
        except KafkaError as error:
            error.broker, error.api = self.name, pending.api
            add_version_advice(error, pending.response_class, pending.version)
            self._fail_request(request, error)
            raise
        except BaseException as defect:
            self._on_defect(defect)
            self._fail_request(request, self._error_for(request, ConnectionLost(repr(defect))))
            raise
        if getattr(response, "throttle_time_ms", 0):
            self._apply_throttle(response, pending, now)
        pending.set_result(response)

    def _apply_throttle(self, response: Response, pending: PendingResponse, now: float) -> None:
        silence = throttle_time_s(response, pending.version)
        if silence:
            logger.log(
                self._throttle_log.level(logging.INFO, None, now),
                "Throttled by broker %s for %.3f s (quota of %s): no requests to it until then",
                self.name,
                silence,
                pending.api,
                extra=log_fields(
                    self._fields,
                    broker=self.name,
                    api=pending.api,
                    throttle_ms=round(silence * 1_000),
                ),
            )
            self._metrics.throttle_s += silence
            self._in_flight.throttle(now + silence)
            self.throttled_until = self._in_flight.throttled_until

    async def _watch_deadlines(self) -> None:
        try:
            while self._error is None:
                await self._timer.wait(self._in_flight.next_deadline(self._clock.now()))
                self._check_deadlines(self._clock.now())
        finally:
            self.fail(ConnectionLost("the client is closing"))

    def _check_deadlines(self, now: float) -> None:
        due = self._in_flight.check_deadlines(now)
        for request in due.expired:
            self._fail_request(request, self._timeout_error(request, now))
        if due.unresponsive is not None:
            self.fail(self._unresponsive_error(due.unresponsive))
        elif due.is_idle:
            self.close(ConnectionLost("the connection was closed as it was idle"))

    def _unresponsive_error(self, request: InFlightRequest[PendingResponse]) -> ConnectionLost:
        what = "no answer to {} in time" if request.expects_response else "{} does not get through"
        return ConnectionLost(
            f"{what.format(request.payload.api)}: the broker is stopped or overloaded, or the"
            " network drops what is sent"
        )

    def _timeout_error(
        self, request: InFlightRequest[PendingResponse], now: float
    ) -> RequestTimedOut:
        if request.sent:
            reason = "no answer before the deadline"
        elif now < self._in_flight.throttled_until:
            left = self._in_flight.throttled_until - now
            reason = (
                f"not sent before the deadline: the broker asked for silence, {left:.1f} s more"
            )
        else:
            reason = "not sent before the deadline: earlier requests are unanswered"
        return RequestTimedOut(reason, sent=request.sent, broker=self.name, api=request.payload.api)

    def _disconnect_error(self, error: OSError | None) -> ConnectionLost:
        """The error for a stream that ended, with what the client knows of the cause."""
        reason = (
            "the broker closed the connection" if error is None else f"connection lost: {error}"
        )
        largest = max(
            (request.payload for request in self._in_flight.sent_requests()),
            key=lambda pending: pending.size_bytes,
            default=None,
        )
        if largest is not None and largest.size_bytes >= LARGE_REQUEST_BYTES:
            reason += (
                f" after a request of {largest.size_bytes} bytes; a broker answers so what is over"
                " its socket.request.max.bytes"
            )
        elif self._frame_reader.has_partial_frame:
            reason += " in the middle of a response"
        elif largest is None and (unheard := self._in_flight.last_one_way) is not None:
            reason += (
                f"; the last request, {unheard.api} of {unheard.size_bytes} bytes, asked for no"
                " answer: a broker closes the connection if it fails"
            )
        return ConnectionLost(reason, broker=self.name)
