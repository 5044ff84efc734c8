"""The requests of one connection, from the queue to the answer.

A machine: time comes in as `now`, nothing here waits. Kafka answers a connection's requests in
their order, so an answer must be for the oldest unanswered request; any other shows that the two
sides no longer agree on where they are.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from dataclasses import dataclass
from enum import IntEnum
from typing import Generic, NamedTuple, TypeVar

from aiokafkawire.errors import ProtocolError
from aiokafkawire.runtime.transitions import enum_transition

__all__ = (
    "MAX_QUEUED",
    "TRANSITIONS",
    "DeadlineResult",
    "InFlightRequest",
    "InFlightRequests",
    "QueueFull",
    "RequestEvent",
    "RequestState",
)

MAX_QUEUED = 10_000
"""Requests that wait for a slot of one connection; each has a caller that waits with it."""

MAX_CORRELATION_ID = 2**31 - 1

STALE_HEAP_ENTRIES = 64
"""Deadlines of finished calls that may stay in the heap, beyond as many as there are calls."""

T = TypeVar("T")


class RequestState(IntEnum):
    """Where a request stands. An abandoned one keeps its slot: its answer still comes."""

    QUEUED = 0
    SENT = 1
    ABANDONED = 2
    DONE = 3


class RequestEvent(IntEnum):
    """What can happen to a request."""

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
"""What each event makes of a request. A pair that is absent cannot happen."""

# Up to Python 3.11 an enumeration looks for its members by a long way.
_SENT, _ABANDONED = RequestState.SENT, RequestState.ABANDONED
_WRITTEN, _ANSWERED = RequestEvent.WRITTEN, RequestEvent.ANSWERED


class QueueFull(Exception):
    """`MAX_QUEUED` requests wait already."""


@dataclass(slots=True, eq=False)
class InFlightRequest(Generic[T]):
    """One request. `payload` is the caller's; the machine never looks into it.

    After `deadline` nobody waits for the answer any more. After `limit` the broker counts as
    silent, if this request is the oldest that is unanswered or being written. `sent`: bytes of it
    may have reached the broker, since `sent_at`.
    """

    correlation_id: int
    deadline: float
    disconnect_at: float
    payload: T
    expects_response: bool
    state: RequestState = RequestState.QUEUED
    sent: bool = False
    sent_at: float = math.inf

    def apply(self, event: RequestEvent) -> None:
        try:
            self.state = TRANSITIONS[self.state, event]
        except KeyError:
            self.state = enum_transition(TRANSITIONS, self.state, event)  # which says what is wrong


class DeadlineResult(NamedTuple, Generic[T]):
    """What time has brought: calls whose caller must hear of it, and what ends the connection."""

    expired: list[InFlightRequest[T]]
    unresponsive: InFlightRequest[T] | None
    is_idle: bool


class InFlightRequests(Generic[T]):
    """Queue, slots, order, deadlines and throttling of one connection.

    `request_timeout_s`: how long a request may stay unanswered, or being written, if its own
    deadline is not later, before the connection is given up. `next_correlation_id` is what the next
    submitted request will bear. `queue` has what waits for a slot, or for the end of the silence up
    to `throttled_until`; `one_way` what is being written and expects no answer. `last_one_way` is
    the last payload that was written and that no answer will tell of. With `closes_when_idle` the
    connection ends when the last call does.
    """

    def __init__(
        self,
        now: float,
        *,
        max_in_flight: int,
        request_timeout_s: float,
        max_idle_s: float,
        max_queued: int = MAX_QUEUED,
    ) -> None:
        self._max_in_flight = max_in_flight
        self._max_queued = max_queued
        self._request_timeout_s = request_timeout_s
        self._max_idle_s = max_idle_s
        self.next_correlation_id = 0
        self.queued: deque[InFlightRequest[T]] = deque()
        self._awaiting_response: deque[InFlightRequest[T]] = deque()
        self.one_way: list[InFlightRequest[T]] = []
        self._deadlines: list[tuple[float, int, InFlightRequest[T]]] = []
        self.throttled_until = -math.inf
        self.closes_when_idle = max_idle_s == 0.0
        self._idle_since = now
        self.last_one_way: T | None = None

    def __len__(self) -> int:
        """Requests that are queued, being written, or unanswered."""
        return len(self.queued) + len(self._awaiting_response) + len(self.one_way)

    def next_write_at(self, now: float) -> float:
        """When `take` will give something, if nothing else happens; infinity if it will not."""
        if not self.queued:
            return math.inf
        if now < self.throttled_until:
            return self.throttled_until
        full = (
            self.queued[0].expects_response and len(self._awaiting_response) >= self._max_in_flight
        )
        return math.inf if full else now

    def submit(self, payload: T, deadline: float, expects_response: bool) -> InFlightRequest[T]:
        """Queue a request that was encoded with `next_correlation_id`. Raises `QueueFull`."""
        if len(self.queued) >= self._max_queued:
            raise QueueFull
        request = InFlightRequest(
            self.next_correlation_id, deadline, math.inf, payload, expects_response
        )
        self.queued.append(request)
        self._register_deadline(request)
        return request

    def submit_and_take(self, payload: T, deadline: float, now: float) -> InFlightRequest[T] | None:
        """`submit` and `take` in one, for a request that expects a response and has nothing in its
        way: it is to be written now. None if something is, and then nothing is done."""
        waiting = self._awaiting_response
        # mutation: throttle-ignored
        if self.queued or len(waiting) >= self._max_in_flight or now < self.throttled_until:
            return None
        # mutation: request-times-out-before-deadline
        limit = max(deadline, now + self._request_timeout_s)
        request = InFlightRequest(
            self.next_correlation_id, deadline, limit, payload, True, _SENT, True, now
        )
        waiting.append(request)
        self._register_deadline(request)
        return request

    def _register_deadline(self, request: InFlightRequest[T]) -> None:
        """Note the deadline of a call that bears the next correlation id."""
        number = request.correlation_id
        # mutation: correlation-ids-reused
        self.next_correlation_id = 0 if number == MAX_CORRELATION_ID else number + 1
        if len(self._deadlines) > STALE_HEAP_ENTRIES:
            self._prune_deadlines()
        heapq.heappush(self._deadlines, (request.deadline, number, request))

    def take_writable(self, now: float) -> list[InFlightRequest[T]]:
        """The calls to write now, in their order, as slots and throttling allow."""
        taken: list[InFlightRequest[T]] = []
        if now < self.throttled_until:
            return taken
        while self.queued:
            request = self.queued[0]
            if request.expects_response:
                if len(self._awaiting_response) >= self._max_in_flight:
                    break
                self._awaiting_response.append(request)
            else:
                self.one_way.append(request)
            # mutation: queued-request-times-out-before-deadline
            request.disconnect_at = max(request.deadline, now + self._request_timeout_s)
            self.queued.popleft()
            request.apply(_WRITTEN)
            request.sent = True
            request.sent_at = now
            taken.append(request)
        return taken

    def mark_written(self, now: float) -> list[InFlightRequest[T]]:
        """All that was taken is on its way; the calls that expect no answer are done."""
        finished, self.one_way = self.one_way, []
        for request in finished:
            request.apply(_ANSWERED)
            self.last_one_way = request.payload
        self._update_idle_since(now)
        return finished

    def complete_next(self, correlation_id: int, now: float) -> tuple[InFlightRequest[T], bool]:
        """The call that an answer is for, and whether somebody waits for it.

        Raises `ProtocolError` if it is not the oldest one.
        """
        if (
            not self._awaiting_response
            or self._awaiting_response[0].correlation_id != correlation_id
        ):
            raise ProtocolError(self._mismatch_text(correlation_id))
        request = self._awaiting_response.popleft()
        wanted = request.state is _SENT
        request.apply(_ANSWERED)
        # The heap would keep the answer alive, which may be a fetch of many MiB.
        deadlines = self._deadlines
        while deadlines and deadlines[0][2].state >= _ABANDONED:
            heapq.heappop(deadlines)
        if not self._awaiting_response and not self.queued and not self.one_way:
            self._idle_since = now
        return request, wanted

    def cancel(self, request: InFlightRequest[T], now: float) -> None:
        """Its caller has gone. Sent, it keeps its slot until its answer comes."""
        if request.state is RequestState.QUEUED:
            self.queued.remove(request)
            request.apply(RequestEvent.CANCELLED)
            self._update_idle_since(now)
        elif request.state is RequestState.SENT:
            # mutation: cancelled-request-frees-its-slot
            request.apply(RequestEvent.CANCELLED)

    def throttle(self, until: float) -> None:
        """The broker asked for silence; write nothing before `until`."""
        self.throttled_until = max(self.throttled_until, until)

    def close_when_idle(self) -> None:
        """End the connection as soon as nothing is under way on it."""
        self._max_idle_s = 0.0
        self.closes_when_idle = True

    def next_deadline(self, now: float) -> float:
        """When `due` may next have something to say, if nothing else happens before."""
        while self._deadlines and self._deadlines[0][2].state >= RequestState.ABANDONED:
            heapq.heappop(self._deadlines)
        earliest = self._deadlines[0][0] if self._deadlines else math.inf
        for under_way in (self._awaiting_response, self.one_way):
            if under_way:
                earliest = min(earliest, under_way[0].disconnect_at)
        if not len(self):
            return min(earliest, self._idle_since + self._max_idle_s)
        # Whatever is under way may end now, unobserved: look no later than its idle time after.
        return earliest if self.closes_when_idle else min(earliest, now + self._max_idle_s)

    def check_deadlines(self, now: float) -> DeadlineResult[T]:
        """What the time `now` has brought."""
        expired: list[InFlightRequest[T]] = []
        while self._deadlines and self._deadlines[0][0] <= now:
            request = heapq.heappop(self._deadlines)[2]
            if request.state is RequestState.QUEUED:
                self.queued.remove(request)
                request.apply(RequestEvent.EXPIRED)
                expired.append(request)
            elif request.state is RequestState.SENT:
                request.apply(RequestEvent.EXPIRED)
                expired.append(request)
        silent = None
        for under_way in (self._awaiting_response, self.one_way):
            # mutation: silent-broker-never-times-out
            if under_way and under_way[0].disconnect_at <= now:
                silent = under_way[0]
        idle = not len(self) and now >= self._idle_since + self._max_idle_s
        return DeadlineResult(expired, silent, idle)

    def sent_requests(self) -> list[InFlightRequest[T]]:
        """The calls of which bytes may have reached the broker, the oldest first."""
        return [*self._awaiting_response, *self.one_way]

    def close(self) -> list[InFlightRequest[T]]:
        """The connection has ended: all calls that somebody still waits for, the oldest first."""
        # mutation: queued-requests-hang-after-disconnect
        left = [
            request
            for request in (*self._awaiting_response, *self.one_way, *self.queued)
            if request.state <= RequestState.SENT
        ]
        self._awaiting_response.clear()
        self.one_way.clear()
        self.queued.clear()
        self._deadlines.clear()
        return left

    def _update_idle_since(self, now: float) -> None:
        if not self._awaiting_response and not self.queued and not self.one_way:
            self._idle_since = now

    def _prune_deadlines(self) -> None:
        live = len(self.queued) + len(self._awaiting_response) + len(self.one_way)
        if len(self._deadlines) > 2 * live + STALE_HEAP_ENTRIES:
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
