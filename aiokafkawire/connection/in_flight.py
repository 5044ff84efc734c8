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
    "Call",
    "CallEvent",
    "CallState",
    "Due",
    "InFlight",
    "QueueFull",
)

MAX_QUEUED = 10_000
"""Requests that wait for a slot of one connection; each has a caller that waits with it."""

MAX_CORRELATION_ID = 2**31 - 1

STALE_HEAP_ENTRIES = 64
"""Deadlines of finished calls that may stay in the heap, beyond as many as there are calls."""

T = TypeVar("T")


class CallState(IntEnum):
    """Where a request stands. An abandoned one keeps its slot: its answer still comes."""

    QUEUED = 0
    SENT = 1
    ABANDONED = 2
    DONE = 3


class CallEvent(IntEnum):
    """What can happen to a request."""

    WRITTEN = 0
    ANSWERED = 1
    EXPIRED = 2
    CANCELLED = 3


TRANSITIONS = {
    (CallState.QUEUED, CallEvent.WRITTEN): CallState.SENT,
    (CallState.QUEUED, CallEvent.EXPIRED): CallState.DONE,
    (CallState.QUEUED, CallEvent.CANCELLED): CallState.DONE,
    (CallState.SENT, CallEvent.ANSWERED): CallState.DONE,
    (CallState.SENT, CallEvent.EXPIRED): CallState.ABANDONED,
    (CallState.SENT, CallEvent.CANCELLED): CallState.ABANDONED,
    (CallState.ABANDONED, CallEvent.ANSWERED): CallState.DONE,
}
"""What each event makes of a request. A pair that is absent cannot happen."""

# Up to Python 3.11 an enumeration looks for its members by a long way.
_SENT, _ABANDONED = CallState.SENT, CallState.ABANDONED
_WRITTEN, _ANSWERED = CallEvent.WRITTEN, CallEvent.ANSWERED


class QueueFull(Exception):
    """`MAX_QUEUED` requests wait already."""


@dataclass(slots=True, eq=False)
class Call(Generic[T]):
    """One request. `payload` is the caller's; the machine never looks into it.

    After `deadline` nobody waits for the answer any more. After `limit` the broker counts as
    silent, if this request is the oldest that is unanswered or being written. `sent`: bytes of it
    may have reached the broker, since `sent_at`.
    """

    correlation_id: int
    deadline: float
    limit: float
    payload: T
    expects_response: bool
    state: CallState = CallState.QUEUED
    sent: bool = False
    sent_at: float = math.inf

    def on(self, event: CallEvent) -> None:
        try:
            self.state = TRANSITIONS[self.state, event]
        except KeyError:
            self.state = enum_transition(TRANSITIONS, self.state, event)  # which says what is wrong


class Due(NamedTuple, Generic[T]):
    """What time has brought: calls whose caller must hear of it, and what ends the connection."""

    expired: list[Call[T]]
    silent: Call[T] | None
    idle: bool


class InFlight(Generic[T]):
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
        self.queue: deque[Call[T]] = deque()
        self._waiting: deque[Call[T]] = deque()
        self.one_way: list[Call[T]] = []
        self._deadlines: list[tuple[float, int, Call[T]]] = []
        self.throttled_until = -math.inf
        self.closes_when_idle = max_idle_s == 0.0
        self._idle_since = now
        self.last_one_way: T | None = None

    def __len__(self) -> int:
        """Requests that are queued, being written, or unanswered."""
        return len(self.queue) + len(self._waiting) + len(self.one_way)

    def next_write_at(self, now: float) -> float:
        """When `take` will give something, if nothing else happens; infinity if it will not."""
        if not self.queue:
            return math.inf
        if now < self.throttled_until:
            return self.throttled_until
        full = self.queue[0].expects_response and len(self._waiting) >= self._max_in_flight
        return math.inf if full else now

    def submit(self, payload: T, deadline: float, expects_response: bool) -> Call[T]:
        """Queue a request that was encoded with `next_correlation_id`. Raises `QueueFull`."""
        if len(self.queue) >= self._max_queued:
            raise QueueFull
        call = Call(self.next_correlation_id, deadline, math.inf, payload, expects_response)
        self.queue.append(call)
        self._number(call)
        return call

    def begin(self, payload: T, deadline: float, now: float) -> Call[T] | None:
        """`submit` and `take` in one, for a request that expects a response and has nothing in its
        way: it is to be written now. None if something is, and then nothing is done."""
        waiting = self._waiting
        # mutation: throttle-ignored
        if self.queue or len(waiting) >= self._max_in_flight or now < self.throttled_until:
            return None
        # mutation: request-times-out-before-deadline
        limit = max(deadline, now + self._request_timeout_s)
        call = Call(self.next_correlation_id, deadline, limit, payload, True, _SENT, True, now)
        waiting.append(call)
        self._number(call)
        return call

    def _number(self, call: Call[T]) -> None:
        """Note the deadline of a call that bears the next correlation id."""
        number = call.correlation_id
        # mutation: correlation-ids-reused
        self.next_correlation_id = 0 if number == MAX_CORRELATION_ID else number + 1
        if len(self._deadlines) > STALE_HEAP_ENTRIES:
            self._forget_finished()
        heapq.heappush(self._deadlines, (call.deadline, number, call))

    def take(self, now: float) -> list[Call[T]]:
        """The calls to write now, in their order, as slots and throttling allow."""
        taken: list[Call[T]] = []
        if now < self.throttled_until:
            return taken
        while self.queue:
            call = self.queue[0]
            if call.expects_response:
                if len(self._waiting) >= self._max_in_flight:
                    break
                self._waiting.append(call)
            else:
                self.one_way.append(call)
            # mutation: queued-request-times-out-before-deadline
            call.limit = max(call.deadline, now + self._request_timeout_s)
            self.queue.popleft()
            call.on(_WRITTEN)
            call.sent = True
            call.sent_at = now
            taken.append(call)
        return taken

    def written(self, now: float) -> list[Call[T]]:
        """All that was taken is on its way; the calls that expect no answer are done."""
        finished, self.one_way = self.one_way, []
        for call in finished:
            call.on(_ANSWERED)
            self.last_one_way = call.payload
        self._note_idle(now)
        return finished

    def answered(self, correlation_id: int, now: float) -> tuple[Call[T], bool]:
        """The call that an answer is for, and whether somebody waits for it.

        Raises `ProtocolError` if it is not the oldest one.
        """
        if not self._waiting or self._waiting[0].correlation_id != correlation_id:
            raise ProtocolError(self._explain(correlation_id))
        call = self._waiting.popleft()
        wanted = call.state is _SENT
        call.on(_ANSWERED)
        # The heap would keep the answer alive, which may be a fetch of many MiB.
        deadlines = self._deadlines
        while deadlines and deadlines[0][2].state >= _ABANDONED:
            heapq.heappop(deadlines)
        if not self._waiting and not self.queue and not self.one_way:
            self._idle_since = now
        return call, wanted

    def cancel(self, call: Call[T], now: float) -> None:
        """Its caller has gone. Sent, it keeps its slot until its answer comes."""
        if call.state is CallState.QUEUED:
            self.queue.remove(call)
            call.on(CallEvent.CANCELLED)
            self._note_idle(now)
        elif call.state is CallState.SENT:
            # mutation: cancelled-request-frees-its-slot
            call.on(CallEvent.CANCELLED)

    def throttle(self, until: float) -> None:
        """The broker asked for silence; write nothing before `until`."""
        self.throttled_until = max(self.throttled_until, until)

    def close_when_idle(self) -> None:
        """End the connection as soon as nothing is under way on it."""
        self._max_idle_s = 0.0
        self.closes_when_idle = True

    def next_deadline(self, now: float) -> float:
        """When `due` may next have something to say, if nothing else happens before."""
        while self._deadlines and self._deadlines[0][2].state >= CallState.ABANDONED:
            heapq.heappop(self._deadlines)
        earliest = self._deadlines[0][0] if self._deadlines else math.inf
        for under_way in (self._waiting, self.one_way):
            if under_way:
                earliest = min(earliest, under_way[0].limit)
        if not len(self):
            return min(earliest, self._idle_since + self._max_idle_s)
        # Whatever is under way may end now, unobserved: look no later than its idle time after.
        return earliest if self.closes_when_idle else min(earliest, now + self._max_idle_s)

    def due(self, now: float) -> Due[T]:
        """What the time `now` has brought."""
        expired: list[Call[T]] = []
        while self._deadlines and self._deadlines[0][0] <= now:
            call = heapq.heappop(self._deadlines)[2]
            if call.state is CallState.QUEUED:
                self.queue.remove(call)
                call.on(CallEvent.EXPIRED)
                expired.append(call)
            elif call.state is CallState.SENT:
                call.on(CallEvent.EXPIRED)
                expired.append(call)
        silent = None
        for under_way in (self._waiting, self.one_way):
            # mutation: silent-broker-never-times-out
            if under_way and under_way[0].limit <= now:
                silent = under_way[0]
        idle = not len(self) and now >= self._idle_since + self._max_idle_s
        return Due(expired, silent, idle)

    def unanswered(self) -> list[Call[T]]:
        """The calls of which bytes may have reached the broker, the oldest first."""
        return [*self._waiting, *self.one_way]

    def close(self) -> list[Call[T]]:
        """The connection has ended: all calls that somebody still waits for, the oldest first."""
        # mutation: queued-requests-hang-after-disconnect
        left = [
            call
            for call in (*self._waiting, *self.one_way, *self.queue)
            if call.state <= CallState.SENT
        ]
        self._waiting.clear()
        self.one_way.clear()
        self.queue.clear()
        self._deadlines.clear()
        return left

    def _note_idle(self, now: float) -> None:
        if not self._waiting and not self.queue and not self.one_way:
            self._idle_since = now

    def _forget_finished(self) -> None:
        live = len(self.queue) + len(self._waiting) + len(self.one_way)
        if len(self._deadlines) > 2 * live + STALE_HEAP_ENTRIES:
            self._deadlines = [
                item for item in self._deadlines if item[2].state < CallState.ABANDONED
            ]
            heapq.heapify(self._deadlines)

    def _explain(self, correlation_id: int) -> str:
        if any(call.correlation_id == correlation_id for call in self._waiting):
            kind = "out of order"
        elif 0 <= correlation_id < self.next_correlation_id:
            kind = "repeated, or for a request without a response"
        else:
            kind = "unknown"
        expected = (
            f"the oldest unanswered request is {self._waiting[0].correlation_id}"
            if self._waiting
            else "no request is unanswered"
        )
        return f"a response with correlation id {correlation_id} is {kind}: {expected}"
