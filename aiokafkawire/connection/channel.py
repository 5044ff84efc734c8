"""One live connection to a broker."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import anyio

from aiokafkawire.connection.counters import Counters
from aiokafkawire.connection.in_flight import MAX_QUEUED, Call, InFlight, QueueFull
from aiokafkawire.connection.throttle import throttle_s
from aiokafkawire.connection.versions import Versions
from aiokafkawire.errors import ConnectionLost, KafkaError, ProtocolError, RequestTimedOut
from aiokafkawire.runtime import (
    NEVER,
    Buffer,
    Clock,
    Host,
    Promise,
    Signal,
    TaskHandle,
    Transport,
    copy_of,
)
from aiokafkawire.wire import APIS, ApiKey, Request, Response
from aiokafkawire.wire.frame import FrameReader
from aiokafkawire.wire.header import decode_response, encode_request, peek_correlation_id

__all__ = ("LARGE_REQUEST_BYTES", "Channel", "Limits")

logger = logging.getLogger("aiokafkawire.connection")

LARGE_REQUEST_BYTES = 1024 * 1024
"""From this size on, a close by the broker is likely to be about the size."""

NO_VERSIONS = Versions({})


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds of a connection."""

    max_in_flight: int
    request_timeout_s: float
    max_idle_s: float
    max_frame_bytes: int


@dataclass(slots=True, eq=False)
class _Pending:
    """A request on its way, and who hears of its answer."""

    api_key: int
    version: int
    response: type[Response]
    buffers: list[Buffer]
    size_bytes: int
    promise: Promise[Any]

    @property
    def api(self) -> str:
        return APIS[ApiKey(self.api_key)].name


class Channel:
    """One connection: a writer task, a reader task, and one timer for all deadlines.

    Only the writer writes, so a cancelled caller never cuts a frame. The first thing that goes
    wrong poisons the channel: every waiter hears of it, and no request is accepted any more.
    `versions` is set by whoever negotiates. `on_closed(channel, error)` is called once;
    `channel.quiet` tells whether it was the client's own wish.
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
    ) -> None:
        self.name = name
        self.versions = NO_VERSIONS
        self.quiet = False
        self.on_closed: Callable[[Channel, KafkaError], None] | None = None
        self._counters = counters
        self._transport = transport
        self._client_id = client_id
        self._clock = clock
        self._calls: InFlight[_Pending] = InFlight(
            clock.now(),
            max_in_flight=limits.max_in_flight,
            request_timeout_s=limits.request_timeout_s,
            max_idle_s=limits.max_idle_s,
        )
        self._frames = FrameReader(limits.max_frame_bytes)
        self._to_write = Signal()
        self._to_time = Signal()
        self._timer_at = NEVER
        self._error: KafkaError | None = None
        self._tasks: tuple[TaskHandle, ...] = ()

    def start(self, host: Host) -> None:
        self._counters.opened()
        self._tasks = (
            host.spawn(self._read, name=f"read {self.name}"),
            host.spawn(self._write, name=f"write {self.name}"),
            host.spawn(self._watch_time, name=f"time {self.name}"),
        )

    @property
    def usable(self) -> bool:
        """Whether requests are accepted."""
        return self._error is None

    @property
    def unheard(self) -> bool:
        """Whether a request was written whose failure only the end of the connection tells."""
        return self._calls.last_one_way is not None

    @property
    def silent_until(self) -> float:
        """Before this time nothing is written, as the broker asked for."""
        return self._calls.throttled_until

    @property
    def load(self) -> int:
        """Requests queued or unanswered."""
        return len(self._calls)

    async def request(
        self,
        message: Request[Any],
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
        now = self._clock.now()
        api = APIS[ApiKey(message.api_key)]
        if self._error is not None:
            raise ConnectionLost(self._error.reason, sent=False, broker=self.name, api=api.name)
        if deadline <= now:
            raise RequestTimedOut(
                "the deadline had passed before the request was sent",
                sent=False,
                broker=self.name,
                api=api.name,
            )
        buffers = encode_request(message, version, self._calls.next_correlation_id, self._client_id)
        size = sum(map(len, buffers))
        promise: Promise[Any] = Promise()
        pending = _Pending(message.api_key, version, api.response, buffers, size, promise)
        try:
            call = self._calls.submit(pending, deadline, expect_response)
        except QueueFull:
            raise KafkaError(
                f"{MAX_QUEUED} requests wait for this connection already",
                broker=self.name,
                api=api.name,
                retriable=True,
            ) from None
        self._to_write.set()
        if deadline < self._timer_at:
            self._to_time.set()
        try:
            return await promise.wait()
        finally:
            if not promise.done:
                self._calls.cancel(call, self._clock.now())

    def close_when_idle(self) -> None:
        """Close as soon as nothing is under way."""
        self._calls.close_when_idle()
        self._to_time.set()

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
        self._counters.closed(lost=not self.quiet)
        self._transport.abort()
        for call in self._calls.close():
            call.payload.promise.fail(self._verdict(call, error))
        self._to_write.set()
        self._to_time.set()
        if self.on_closed is not None:
            self.on_closed(self, error)

    def _verdict(self, call: Call[_Pending], error: KafkaError) -> KafkaError:
        """What the waiter of one call gets to hear of the end of the connection."""
        api = call.payload.api
        if isinstance(error, ConnectionLost) or (
            not call.sent and isinstance(error, ProtocolError)
        ):
            return ConnectionLost(error.reason, sent=call.sent, broker=self.name, api=api)
        mine = copy_of(error)
        mine.broker, mine.api = self.name, api
        return mine

    async def _write(self) -> None:
        try:
            while self._error is None:
                now = self._clock.now()
                calls = self._calls.take(now)
                if calls:
                    await self._send(calls)
                else:
                    await self._to_write.wait(self._calls.next_write_at(now))
        except OSError as error:
            self.poison(self._broken(error))
        finally:
            # A frame may have been cut if this task was cancelled.
            self.poison(ConnectionLost("the client is closing"))

    async def _send(self, calls: list[Call[_Pending]]) -> None:
        buffers: list[Buffer] = []
        for call in calls:
            buffers += call.payload.buffers
            call.payload.buffers = []
            self._counters.bytes_sent += call.payload.size_bytes
        self._counters.requests += len(calls)
        await self._transport.send(buffers)
        for call in self._calls.written(self._clock.now()):
            call.payload.promise.resolve(None)
        if self._calls.closes_when_idle:
            self._to_time.set()

    async def _read(self) -> None:
        try:
            while self._error is None:
                count = await self._transport.receive_into(self._frames.get_buffer())
                if not count:
                    self.poison(self._broken(None))
                    break
                self._counters.bytes_received += count
                for frame in self._frames.received(count):
                    self._receive(frame)
        except OSError as error:
            self.poison(self._broken(error))
        except KafkaError as error:
            error.broker = self.name
            self.poison(error)
        finally:
            self.poison(ConnectionLost("the client is closing"))
            with anyio.CancelScope(shield=True):
                await self._transport.aclose()

    def _receive(self, frame: memoryview) -> None:
        now = self._clock.now()
        call, wanted = self._calls.answered(peek_correlation_id(frame), now)
        self._counters.answered(now - call.sent_at)
        if self._calls.waits_for_slot:
            self._to_write.set()
        elif self._calls.closes_when_idle:
            self._to_time.set()
        if not wanted:
            return
        pending = call.payload
        try:
            _, response = decode_response(pending.response, pending.version, frame)
        except KafkaError as error:
            error.broker, error.api = self.name, pending.api
            pending.promise.fail(error)
            raise
        silence = throttle_s(response, pending.version)
        if silence:
            logger.debug("%s asks for silence for %.3f s", self.name, silence)
            self._counters.throttle_s += silence
            self._calls.throttle(now + silence)
        pending.promise.resolve(response)

    async def _watch_time(self) -> None:
        while self._error is None:
            self._timer_at = self._calls.next_deadline(self._clock.now())
            await self._to_time.wait(self._timer_at)
            now = self._clock.now()
            due = self._calls.due(now)
            for call in due.expired:
                call.payload.promise.fail(self._expiry(call, now))
            if due.silent is not None:
                self.poison(
                    ConnectionLost(
                        f"no answer to {due.silent.payload.api} in time: the broker is stopped or"
                        " overloaded, or the network drops what is sent"
                    )
                )
            elif due.idle:
                self.close(ConnectionLost("the connection was closed as it was idle"))

    def _expiry(self, call: Call[_Pending], now: float) -> RequestTimedOut:
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
        elif self._frames.inside_frame:
            reason += " in the middle of a response"
        elif largest is None and (unheard := self._calls.last_one_way) is not None:
            reason += (
                f"; the last request, {unheard.api} of {unheard.size_bytes} bytes, asked for no"
                " answer: a broker closes the connection if it fails"
            )
        return ConnectionLost(reason, broker=self.name)
