"""The requests of one connection, from the queue to the response.

A state machine without I/O; the time is the argument `now`. A broker answers the requests of a
connection in order, so a response must be for the oldest unanswered request. Otherwise client and
broker are out of sync, and the connection must be closed.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from typing import Any, NamedTuple

from aiokafkawire.errors import KafkaError, ProtocolError
from aiokafkawire.runtime import Buffer, Future
from aiokafkawire.runtime.state_machine import transition
from aiokafkawire.wire import APIS, ApiKey, Response

__all__ = (
    "MAX_QUEUED",
    "TRANSITIONS",
    "ChannelLimits",
    "DeadlineResult",
    "InFlightRequest",
    "InFlightRequests",
    "RequestEvent",
    "RequestState",
)

MAX_QUEUED = 10_000
"""Requests of one connection that may wait to be written; each has a waiting caller."""

MAX_CORRELATION_ID = 2**31 - 1

STALE_HEAP_ENTRIES = 64
"""The heap is pruned when more deadlines than this belong to finished requests."""


class RequestState(IntEnum):
    """State of a request. An abandoned request occupies its slot until its response arrives."""

    QUEUED = 0
    SENT = 1
    ABANDONED = 2
    DONE = 3


class RequestEvent(IntEnum):
    """An event of a request."""

    WRITTEN = 0
    ANSWERED = 1
    EXPIRED = 2
    CANCELLED = 3


TRANSITIONS = {
    (RequestState.QUEUED, RequestEvent.WRITTEN): RequestState.SENT,
    (RequestState.QUEUED, RequestEvent.EXPIRED): RequestState.DONE,
    (RequestState.QUEUED, RequestEvent.CANCELLED): RequestState.DONE,
    (RequestState.SENT, RequestEvent.ANSWERED): RequestState.DONE,
    (RequestState.SENT, RequestEvent.EXPIRED): RequestState.ABANDONED,
    (RequestState.SENT, RequestEvent.CANCELLED): RequestState.ABANDONED,
    (RequestState.ABANDONED, RequestEvent.ANSWERED): RequestState.DONE,
}
"""Next state by state and event. A missing pair is a bug."""

# Up to Python 3.11, enum member access is slow.
_QUEUED, _SENT = RequestState.QUEUED, RequestState.SENT
_ABANDONED, _DONE = RequestState.ABANDONED, RequestState.DONE
_WRITTEN, _ANSWERED = RequestEvent.WRITTEN, RequestEvent.ANSWERED


@dataclass(frozen=True, slots=True)
class ChannelLimits:
    """Limits of a connection.

    Attributes:
        max_in_flight: Slots: requests that may be unanswered at a time.
        request_timeout_s: How long a request may be unanswered, or being written, before the
            connection is closed. A request with a later deadline may take until then.
        max_idle_s: How long a connection without requests stays open.
        max_frame_bytes: Size of the largest response; see `FrameReader`.
    """

    max_in_flight: int
    request_timeout_s: float
    max_idle_s: float
    max_frame_bytes: int


class RequestApi(NamedTuple):
    """API and version of a request."""

    name: str
    version: int
    response: type[Response]


@cache
def _request_api(api_key: int, version: int) -> RequestApi:
    api = APIS[ApiKey(api_key)]
    return RequestApi(api.name, version, api.response)


class InFlightRequest(Future[Any]):
    """A request of a connection, and the future of its response.

    The result is the return value of `match_response` for the response frame. If that is None, or
    there is no `match_response`, it is the decoded response.

    Attributes:
        api: API and version.
        deadline: When its caller stops waiting.
        sent_at: When the request was written to the socket; infinity before.
        buffers: Its frame until it is written.
        size_bytes: Size of the frame.
        match_response: Called with the frame of the response, if any.
        expects_response: False for a request that the broker does not answer.
    """

    __slots__ = (
        "api",
        "buffers",
        "correlation_id",
        "deadline",
        "expects_response",
        "match_response",
        "sent_at",
        "size_bytes",
        "state",
    )

    def __init__(
        self,
        correlation_id: int,
        deadline: float,
        api_key: int,
        version: int,
        buffers: Sequence[Buffer],
    ) -> None:
        self._event = self._futures = self._done_callback = self.value = self.error = None
        self.done = False
        self.correlation_id = correlation_id
        self.deadline = deadline
        self.sent_at = math.inf
        self.state = _QUEUED
        self.api = _request_api(api_key, version)
        self.buffers = buffers
        self.size_bytes = len(buffers[0]) if len(buffers) == 1 else sum(map(len, buffers))
        self.match_response: Callable[[memoryview], object] | None = None
        self.expects_response = True

    @property
    def sent(self) -> bool:
        """True once bytes may have reached the broker."""
        return self.sent_at < math.inf

    def apply(self, event: RequestEvent) -> None:
        """Change the state of the request."""
        try:
            self.state = TRANSITIONS[self.state, event]
        except KeyError:
            self.state = transition(TRANSITIONS, self.state, event)  # raises the error


class DeadlineResult(NamedTuple):
    """Result of `InFlightRequests.check_deadlines`.

    Attributes:
        expired: Requests whose deadline has passed; their callers must be notified.
        unresponsive: A request that shows that the broker is unresponsive: close the connection.
        is_idle: True if the connection must be closed because it is idle.
    """

    expired: list[InFlightRequest]
    unresponsive: InFlightRequest | None
    is_idle: bool


class InFlightRequests:
    """Queue, in-flight requests, deadlines and throttling of one connection.

    Args:
        now: Current time.
        limits: Limits of the connection.

    Attributes:
        first_correlation_id: Correlation id of the first request after the set-up; -1 if the
            broker is known not to require authentication.
        next_correlation_id: Correlation id of the next submitted request.
        queued: Requests that wait for a slot or for `throttled_until`.
        one_way: Requests that are being written and expect no response.
        last_one_way: The last written request without a response.
        max_idle_s: How long the connection stays open without requests; 0 to close it with the last
            one.
    """

    def __init__(self, now: float, limits: ChannelLimits) -> None:
        self._max_in_flight = limits.max_in_flight
        self._request_timeout_s = limits.request_timeout_s
        self.max_idle_s = limits.max_idle_s
        self.first_correlation_id = -1
        self.next_correlation_id = 0
        self.queued: deque[InFlightRequest] = deque()
        self._ahead: deque[InFlightRequest] = deque()
        self._awaiting_response: deque[InFlightRequest] = deque()
        self.one_way: list[InFlightRequest] = []
        self._deadlines: list[tuple[float, int, InFlightRequest]] = []
        self.throttled_until = -math.inf
        # `throttled_until`, or infinity while held: one comparison for each request.
        self._blocked_until = -math.inf
        self._idle_since = now
        self._idle_since_held: float | None = None
        self.last_one_way: InFlightRequest | None = None

    def __len__(self) -> int:
        """Return the number of requests that are queued, being written or unanswered."""
        return (
            len(self.queued) + len(self._awaiting_response) + len(self.one_way) + len(self._ahead)
        )

    @property
    def is_held(self) -> bool:
        """True between `hold` and `release`."""
        return self._blocked_until == math.inf

    def next_write_at(self, now: float) -> float:
        """Return when a queued request can be written; infinity if none can yet."""
        if self._ahead:
            return now
        if not self.queued:
            return math.inf
        if now < self._blocked_until:
            return self._blocked_until
        full = (
            self.queued[0].expects_response and len(self._awaiting_response) >= self._max_in_flight
        )
        return math.inf if full else now

    def submit(
        self, request: InFlightRequest, now: float, can_write: bool = True, *, ahead: bool = False
    ) -> bool:
        """Take a request with `next_correlation_id` to be written now, or queue it.

        Args:
            request: The request.
            now: Current time.
            can_write: False to queue it: nothing can be written now, or it expects no response.
            ahead: See `submit_ahead`.

        Returns:
            True if the caller must write the request.

        Raises:
            KafkaError: Too many requests are waiting.
        """
        waiting, taken = self._awaiting_response, False
        # mutation: throttle-ignored
        if (
            not can_write
            or self.queued
            or len(waiting) >= self._max_in_flight
            or now < self._blocked_until
        ):
            if ahead:
                self._ahead.append(request)
            elif len(self.queued) >= MAX_QUEUED:
                raise KafkaError(
                    f"{MAX_QUEUED} requests are already waiting for this connection",
                    api=request.api.name,
                    retriable=True,
                )
            else:
                self.queued.append(request)
        else:
            request.state = _SENT
            request.sent_at = now
            waiting.append(request)
            taken = True
        number = request.correlation_id
        # mutation: correlation-ids-reused
        self.next_correlation_id = (number + 1) & MAX_CORRELATION_ID
        if len(self._deadlines) > STALE_HEAP_ENTRIES:
            self._prune_deadlines()
        heapq.heappush(self._deadlines, (request.deadline, number, request))
        return taken

    def submit_ahead(self, request: InFlightRequest, now: float) -> None:
        """Queue a request before all others; `hold` and throttling do not delay it.

        Its deadline is the request timeout, counted from the last deadline of a request in flight.
        """
        in_flight = map(self.disconnect_at, self.sent_requests())
        request.deadline = max([now, *in_flight]) + self._request_timeout_s
        self.submit(request, now, can_write=False, ahead=True)

    def take_writable(self, now: float) -> list[InFlightRequest]:
        """Remove and return the queued requests to write now, in order."""
        taken: list[InFlightRequest] = []
        while self._ahead:
            request = self._ahead.popleft()
            self._awaiting_response.append(request)
            request.apply(_WRITTEN)
            request.sent_at = now
            taken.append(request)
        if now < self._blocked_until:
            return taken
        while self.queued:
            request = self.queued[0]
            if request.expects_response:
                if len(self._awaiting_response) >= self._max_in_flight:
                    break
                self._awaiting_response.append(request)
            else:
                self.one_way.append(request)
            self.queued.popleft()
            request.apply(_WRITTEN)
            request.sent_at = now
            taken.append(request)
        return taken

    def mark_written(self, now: float) -> list[InFlightRequest]:
        """Mark all taken requests as written; return those that expect no response."""
        finished, self.one_way = self.one_way, []
        for request in finished:
            request.apply(_ANSWERED)
            self.last_one_way = request
        self._update_idle_since(now)
        return finished

    def complete_next(self, correlation_id: int, now: float) -> tuple[InFlightRequest, bool]:
        """Complete the oldest unanswered request.

        Args:
            correlation_id: Correlation id of the response.
            now: Current time.

        Returns:
            The request, and whether its caller is still waiting.

        Raises:
            ProtocolError: The response is not for the oldest unanswered request.
        """
        if (
            not self._awaiting_response
            or self._awaiting_response[0].correlation_id != correlation_id
        ):
            raise ProtocolError(self._mismatch_text(correlation_id))
        request = self._awaiting_response.popleft()
        wanted = request.state is _SENT
        if wanted:
            request.state = _DONE  # by far the most frequent transition
        else:
            request.apply(_ANSWERED)
        # The heap refers to the response, which may be a fetch of many MiB.
        deadlines = self._deadlines
        while deadlines and deadlines[0][2].state >= _ABANDONED:
            heapq.heappop(deadlines)
        if not self._awaiting_response and not self.queued and not self.one_way:
            self._idle_since = now
        return request, wanted

    def cancel(self, request: InFlightRequest, now: float) -> None:
        """Cancel a request. A sent request occupies its slot until its response arrives."""
        if request.state is RequestState.QUEUED:
            self._remove_queued(request)
            request.apply(RequestEvent.CANCELLED)
            self._update_idle_since(now)
        elif request.state is RequestState.SENT:
            # mutation: cancelled-request-frees-its-slot
            request.apply(RequestEvent.CANCELLED)

    def throttle(self, until: float) -> None:
        """Write nothing before `until`, because the broker throttled the client."""
        self.throttled_until = max(self.throttled_until, until)
        if not self.is_held:
            self._blocked_until = self.throttled_until

    def hold(self) -> None:
        """Write only what is submitted ahead, until `release`. That is no traffic of callers."""
        if not self.is_held:
            self._idle_since_held = None if len(self) else self._idle_since
            self._blocked_until = math.inf

    def release(self) -> None:
        """Write again what is queued."""
        if self.is_held:
            self._blocked_until = self.throttled_until
            if self._idle_since_held is not None and not len(self):
                self._idle_since = self._idle_since_held

    def close_when_idle(self) -> None:
        """Close the connection once no request is queued or in flight."""
        self.max_idle_s = 0.0

    def disconnect_at(self, request: InFlightRequest) -> float:
        """Return when the connection is closed if a sent request is still the oldest.

        That is, the oldest one that is unanswered or being written.
        """
        # mutation: request-times-out-before-deadline
        # mutation: queued-request-times-out-before-deadline
        return max(request.deadline, request.sent_at + self._request_timeout_s)

    def next_deadline(self, now: float) -> float:
        """Return when `check_deadlines` must be called next."""
        while self._deadlines and self._deadlines[0][2].state >= RequestState.ABANDONED:
            heapq.heappop(self._deadlines)
        earliest = self._deadlines[0][0] if self._deadlines else math.inf
        for requests in (self._awaiting_response, self.one_way):
            if requests:
                earliest = min(earliest, self.disconnect_at(requests[0]))
        if not len(self):
            return min(earliest, self._idle_since + self.max_idle_s)
        # Completing a request does not move the timer, so check again after at most the idle time.
        return min(earliest, now + self.max_idle_s) if self.max_idle_s else earliest

    def check_deadlines(self, now: float) -> DeadlineResult:
        """Expire requests, and report whether the connection must be closed."""
        expired: list[InFlightRequest] = []
        while self._deadlines and self._deadlines[0][0] <= now:
            request = heapq.heappop(self._deadlines)[2]
            if request.state is RequestState.QUEUED:
                self._remove_queued(request)
                request.apply(RequestEvent.EXPIRED)
                expired.append(request)
            elif request.state is RequestState.SENT:
                request.apply(RequestEvent.EXPIRED)
                expired.append(request)
        silent = None
        for requests in (self._awaiting_response, self.one_way):
            # mutation: silent-broker-never-times-out
            if requests and self.disconnect_at(requests[0]) <= now:
                silent = requests[0]
        idle = not len(self) and now >= self._idle_since + self.max_idle_s
        return DeadlineResult(expired, silent, idle)

    def sent_requests(self) -> list[InFlightRequest]:
        """Return the requests whose bytes may have reached the broker, oldest first."""
        return [*self._awaiting_response, *self.one_way]

    def close(self) -> list[InFlightRequest]:
        """Remove all requests; return those whose callers are waiting, oldest first."""
        # mutation: queued-requests-hang-after-disconnect
        waiting = [
            request
            for request in (*self._awaiting_response, *self.one_way, *self._ahead, *self.queued)
            if request.state <= RequestState.SENT
        ]
        self._awaiting_response.clear()
        self.one_way.clear()
        self._ahead.clear()
        self.queued.clear()
        self._deadlines.clear()
        return waiting

    def _remove_queued(self, request: InFlightRequest) -> None:
        (self._ahead if request in self._ahead else self.queued).remove(request)

    def _update_idle_since(self, now: float) -> None:
        if not self._awaiting_response and not self.queued and not self.one_way:
            self._idle_since = now

    def _prune_deadlines(self) -> None:
        if len(self._deadlines) > 2 * len(self) + STALE_HEAP_ENTRIES:
            self._deadlines = [
                item for item in self._deadlines if item[2].state < RequestState.ABANDONED
            ]
            heapq.heapify(self._deadlines)

    def _mismatch_text(self, correlation_id: int) -> str:
        if any(request.correlation_id == correlation_id for request in self._awaiting_response):
            kind = "out of order"
        elif 0 <= correlation_id < self.next_correlation_id:
            kind = "repeated, or for a request without a response"
        else:
            kind = "unknown"
        expected = (
            f"the oldest unanswered request is {self._awaiting_response[0].correlation_id}"
            if self._awaiting_response
            else "no request is unanswered"
        )
        return f"a response with correlation id {correlation_id} is {kind}: {expected}"
