"""One live connection to a broker."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import anyio

from aiokafkawire.connection.counters import Counters
from aiokafkawire.connection.in_flight import MAX_QUEUED, Call, InFlight, QueueFull
from aiokafkawire.connection.request_trace import request_trace
from aiokafkawire.connection.throttle import throttle_s
from aiokafkawire.connection.versions import Versions, add_version_advice
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

__all__ = ("LARGE_REQUEST_BYTES", "Channel", "Limits", "Pending")

logger = logging.getLogger("aiokafkawire.connection")

LARGE_REQUEST_BYTES = 1024 * 1024
"""From this size on, a close by the broker is likely to be about the size."""

NO_VERSIONS = Versions({})

NOTHING: Sequence[Buffer] = ()
"""What is left of a request that was written."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds of a connection."""

    max_in_flight: int
    request_timeout_s: float
    max_idle_s: float
    max_frame_bytes: int


class Pending(Future[Any]):
    """A request on its way, and the promise of its answer: what `read` makes of it, if that is
    not None, else the decoded response."""

    __slots__ = ("api", "buffers", "read", "response", "size_bytes", "version")

    def __init__(
        self,
        api: str,
        version: int,
        response: type[Response],
        buffers: Sequence[Buffer],
        read: Callable[[memoryview], object] | None = None,
    ) -> None:
        self._event = self._futures = self._done_callback = self.value = self.error = None
        self.done = False
        self.read = read
        self.api = api
        self.version = version
        self.response = response
        self.buffers = buffers
        self.size_bytes = len(buffers[0]) if len(buffers) == 1 else sum(map(len, buffers))


@cache
def _spoken(api_key: int) -> tuple[str, type[Response]]:
    """The name of an API, and what answers its requests."""
    api = APIS[ApiKey(api_key)]
    return api.name, api.response


class _Outgoing:
    """Where the writer stands. `busy`: it is at it; `rest` of what was begun is to go before
    anything else."""

    __slots__ = ("busy", "rest", "signal")

    def __init__(self) -> None:
        self.busy = False
        self.rest: Sequence[Buffer] = ()
        self.signal = AutoResetEvent()


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
        limits: Limits,
        counters: Counters,
        fields: Mapping[str, object] = NO_FIELDS,
    ) -> None:
        self.name = name
        self.versions = NO_VERSIONS
        self.quiet = False
        self.usable = True
        self.silent_until = -NEVER
        self.on_closed: Callable[[Channel, KafkaError], None] | None = None
        self._counters = counters
        self._transport = transport
        self._client_id = client_id
        self._clock = clock
        self._now = clock.now
        self._calls: InFlight[Pending] = InFlight(
            clock.now(),
            max_in_flight=limits.max_in_flight,
            request_timeout_s=limits.request_timeout_s,
            max_idle_s=limits.max_idle_s,
        )
        self._frames = FrameReader(limits.max_frame_bytes)
        self._outgoing = _Outgoing()
        self._timer = Timer()
        self._error: KafkaError | None = None
        self._defect: Exception | None = None
        self._tasks: tuple[TaskHandle, ...] = ()
        self._fields = fields
        self._request_trace = request_trace(name, fields)
        self._throttle_log = RateLimit()

    def start(self, supervisor: Supervisor) -> None:
        self._counters.opened()
        self._tasks = (
            supervisor.spawn(self._read, name=f"read {self.name}"),
            supervisor.spawn(self._write, name=f"write {self.name}"),
            supervisor.spawn(self._watch_time, name=f"time {self.name}"),
        )

    @property
    def unheard(self) -> bool:
        """Whether a request was written whose failure only the end of the connection tells."""
        return self._calls.last_one_way is not None

    @property
    def load(self) -> int:
        """Requests queued or unanswered."""
        return len(self._calls)

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
        call = self.submit(message, version, deadline=deadline, expect_response=expect_response)
        try:
            return await call.payload.wait()
        finally:
            if not call.payload.done:
                self._calls.cancel(call, self._clock.now())

    def submit(
        self,
        message: Request[Any] | RawRequest,
        version: int,
        *,
        deadline: float,
        expect_response: bool = True,
    ) -> Call[Pending]:
        """Send a request without waiting: its `payload` is the promise of what `request` gives or
        raises while it waits. Raises what `request` raises before."""
        now = self._now()
        written = message if type(message) is RawRequest else None
        api, response = _spoken(message.api_key if written is None else written.cls.api_key)
        if self._error is not None:
            raise ConnectionLost(self._error.reason, sent=False, broker=self.name, api=api)
        if deadline <= now:
            raise RequestTimedOut(
                "the deadline had passed before the request was sent",
                sent=False,
                broker=self.name,
                api=api,
            )
        calls = self._calls
        number = calls.next_correlation_id
        if written is None:
            buffers = encode_request(message, version, number, self._client_id)  # type: ignore[arg-type]
            pending = Pending(api, version, response, buffers)
        else:
            buffers = encode_raw_request(written, version, number, self._client_id)
            pending = Pending(api, version, response, buffers, written.parse_response)
        call: Call[Pending] | None = None
        # mutation: request-written-into-another
        if expect_response and not self._outgoing.busy:
            call = calls.begin(pending, deadline, now)
        if call is not None:
            pending.buffers = NOTHING
            counters = self._counters
            counters.requests += 1
            counters.bytes_sent += pending.size_bytes
            self._hand_over(buffers)
        else:
            call = self._queue(pending, deadline, expect_response, now)
        # mutation: deadline-missed-by-sleeping-timer
        if deadline < self._timer.deadline:
            self._timer.reschedule(deadline)
        return call

    def _queue(
        self, pending: Pending, deadline: float, expect_response: bool, now: float
    ) -> Call[Pending]:
        """Submit a request behind others, or one that has no response."""
        calls = self._calls
        try:
            call = calls.submit(pending, deadline, expect_response)
        except QueueFull:
            raise KafkaError(
                f"{MAX_QUEUED} requests wait for this connection already",
                broker=self.name,
                api=pending.api,
                retriable=True,
            ) from None
        self._write_now(now)
        if calls.queue and not self._outgoing.busy:
            self._outgoing.signal.set()  # the broker may want it later
        return call

    def close_when_idle(self) -> None:
        """Close as soon as nothing is under way."""
        self._calls.close_when_idle()
        self._timer.reschedule(-NEVER)

    def close(self, error: KafkaError) -> None:
        """End the connection on the client's own wish; waiters get `error`."""
        self.quiet = True
        self.poison(error)

    async def wait_closed(self) -> None:
        """Wait until the tasks have ended and the transport is released."""
        for task in self._tasks:
            await task.wait()

    def poison(self, error: KafkaError) -> None:
        """End the connection. Every waiter hears why; later errors are ignored."""
        if self._error is not None:
            return
        self._error = error
        self.usable = False
        self._counters.closed(lost=not self.quiet)
        self._transport.abort()
        self._outgoing.signal.set()
        self._timer.reschedule(-NEVER)
        for call in self._calls.close():
            self._fail(call, self._verdict(call, error))
        if self.on_closed is not None:
            self.on_closed(self, error)

    def _fail(self, call: Call[Pending], error: KafkaError) -> None:
        if self._request_trace is not None:
            self._request_trace.failed(call, error, self._now())
        try:
            call.payload.set_exception(error)
        except Exception as defect:
            self._broke(defect)

    def _broke(self, defect: BaseException) -> None:
        """A callback raised, or a decoder: nobody is to wait for ever because of that."""
        if isinstance(defect, Exception):  # Ctrl-C goes its own way
            self._defect = self._defect or defect
        self.poison(ConnectionLost(f"a defect ended the connection: {defect!r}"))

    def _verdict(self, call: Call[Pending], error: KafkaError) -> KafkaError:
        """What the waiter of one call gets to hear of the end of the connection."""
        api = call.payload.api
        if isinstance(error, ConnectionLost) or (
            not call.sent and isinstance(error, ProtocolError)
        ):
            # mutation: written-request-counts-as-unsent
            return ConnectionLost(error.reason, sent=call.sent, broker=self.name, api=api)
        mine = copy_error(error)
        mine.broker, mine.api = self.name, api
        return mine

    def _write_now(self, now: float) -> None:
        """Write what may go, as far as the system takes it at once; the writer does the rest."""
        if self._outgoing.busy or self._error is not None:
            return
        calls = self._calls.take(now)
        if calls and self._send(calls) and self._calls.one_way:
            self._written(now)

    def _send(self, calls: list[Call[Pending]]) -> bool:
        """Write calls that have just been taken; whether the system took all of them at once."""
        buffers: list[Buffer] = []
        counters = self._counters
        for call in calls:
            pending = call.payload
            buffers += pending.buffers
            pending.buffers = NOTHING
            counters.bytes_sent += pending.size_bytes
        counters.requests += len(calls)
        return self._hand_over(buffers)

    def _hand_over(self, buffers: list[Buffer]) -> bool:
        """Write; whether the system took all of it at once, and the writer has nothing to do."""
        try:
            rest = self._transport.send_nowait(buffers)
        except OSError as error:
            self.poison(self._broken(error))
            return False
        if not rest:
            return True
        self._outgoing.rest = rest
        self._outgoing.busy = True
        self._outgoing.signal.set()
        return False

    def _written(self, now: float) -> None:
        for call in self._calls.written(now):
            if self._request_trace is not None:
                self._request_trace.written(call)
            try:
                call.payload.set_result(None)
            except Exception as defect:
                self._broke(defect)
        if self._calls.closes_when_idle:
            self._timer.reschedule(-NEVER)

    async def _write(self) -> None:
        """The writer: sends what did not go at once, and what the broker wanted to have later."""
        try:
            while self._error is None:
                if self._outgoing.rest:
                    rest, self._outgoing.rest = self._outgoing.rest, ()
                    await self._transport.send(rest)
                    self._written(self._clock.now())
                self._outgoing.busy = False
                now = self._clock.now()
                self._write_now(now)
                if not self._outgoing.busy:
                    await self._outgoing.signal.wait(self._calls.next_write_at(now))
        except OSError as error:
            self.poison(self._broken(error))
        finally:
            # A frame may have been cut if this task was cancelled.
            self.poison(ConnectionLost("the client is closing"))

    async def _read(self) -> None:
        try:
            await self._transport.receive_until_eof(self._frames.get_buffer, self._received)
            self.poison(self._broken(None))
        except OSError as error:
            self.poison(self._broken(error))
        except KafkaError as error:
            self.poison(error)
        except Exception as defect:
            self._broke(defect)
        finally:
            self.poison(ConnectionLost("the client is closing"))
            with anyio.CancelScope(shield=True):
                await self._transport.aclose()
            if self._defect is not None:
                raise self._defect

    def _received(self, count: int) -> None:
        self._counters.bytes_received += count
        try:
            for frame in self._frames.buffer_updated(count):
                if self._error is not None:
                    return
                self._receive(frame)
        except KafkaError as error:
            # At once: who hears of it may go on before the reader does.
            error.broker = self.name
            self.poison(error)
            raise
        except BaseException as defect:
            self._broke(defect)
            raise
        if self._calls.queue:
            self._write_now(self._clock.now())

    def _receive(self, frame: memoryview) -> None:
        now = self._now()
        call, wanted = self._calls.answered(peek_correlation_id(frame), now)
        self._counters.answered(now - call.sent_at)
        if self._request_trace is not None:
            self._request_trace.answered(call, now - call.sent_at, len(frame))
        if self._calls.closes_when_idle:
            self._timer.reschedule(-NEVER)
        if not wanted:
            return
        pending = call.payload
        if pending.read is not None and (found := pending.read(frame)) is not None:
            pending.set_result(found)
            return
        try:
            _, response = decode_response(pending.response, pending.version, frame)
        except KafkaError as error:
            error.broker, error.api = self.name, pending.api
            add_version_advice(error, pending.response, pending.version)
            self._fail(call, error)
            raise
        except BaseException as defect:
            self._broke(defect)
            self._fail(call, self._verdict(call, ConnectionLost(repr(defect))))
            raise
        if getattr(response, "throttle_time_ms", 0):
            self._throttle(response, pending, now)
        pending.set_result(response)

    def _throttle(self, response: Response, pending: Pending, now: float) -> None:
        silence = throttle_s(response, pending.version)
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
            self._counters.throttle_s += silence
            self._calls.throttle(now + silence)
            self.silent_until = self._calls.throttled_until

    async def _watch_time(self) -> None:
        try:
            while self._error is None:
                await self._timer.wait(self._calls.next_deadline(self._clock.now()))
                self._look_at_time(self._clock.now())
        finally:
            self.poison(ConnectionLost("the client is closing"))

    def _look_at_time(self, now: float) -> None:
        due = self._calls.due(now)
        for call in due.expired:
            self._fail(call, self._expiry(call, now))
        if due.silent is not None:
            self.poison(self._silence(due.silent))
        elif due.idle:
            self.close(ConnectionLost("the connection was closed as it was idle"))

    def _silence(self, call: Call[Pending]) -> ConnectionLost:
        what = "no answer to {} in time" if call.expects_response else "{} does not get through"
        return ConnectionLost(
            f"{what.format(call.payload.api)}: the broker is stopped or overloaded, or the network"
            " drops what is sent"
        )

    def _expiry(self, call: Call[Pending], now: float) -> RequestTimedOut:
        if call.sent:
            reason = "no answer before the deadline"
        elif now < self._calls.throttled_until:
            left = self._calls.throttled_until - now
            reason = (
                f"not sent before the deadline: the broker asked for silence, {left:.1f} s more"
            )
        else:
            reason = "not sent before the deadline: earlier requests are unanswered"
        return RequestTimedOut(reason, sent=call.sent, broker=self.name, api=call.payload.api)

    def _broken(self, error: OSError | None) -> ConnectionLost:
        """The error for a stream that ended, with what the client knows of the cause."""
        reason = (
            "the broker closed the connection" if error is None else f"connection lost: {error}"
        )
        largest = max(
            (call.payload for call in self._calls.unanswered()),
            key=lambda pending: pending.size_bytes,
            default=None,
        )
        if largest is not None and largest.size_bytes >= LARGE_REQUEST_BYTES:
            reason += (
                f" after a request of {largest.size_bytes} bytes; a broker answers so what is over"
                " its socket.request.max.bytes"
            )
        elif self._frames.has_partial_frame:
            reason += " in the middle of a response"
        elif largest is None and (unheard := self._calls.last_one_way) is not None:
            reason += (
                f"; the last request, {unheard.api} of {unheard.size_bytes} bytes, asked for no"
                " answer: a broker closes the connection if it fails"
            )
        return ConnectionLost(reason, broker=self.name)
