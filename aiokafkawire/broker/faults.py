"""Misbehaviour on demand, and the log of what clients asked."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from aiokafkawire.records.batch import CRC_POSITION, MAGIC_POSITION
from aiokafkawire.records.legacy import HEAD_BYTES
from aiokafkawire.runtime import Signal
from aiokafkawire.wire import ApiKey, Buffer, Request, Response
from aiokafkawire.wire.messages.fetch import FetchResponse, PartitionData

__all__ = (
    "MAX_LOGGED_BYTES",
    "MAX_LOGGED_REQUESTS",
    "Action",
    "Answer",
    "Close",
    "Corrupt",
    "Delay",
    "Drop",
    "Fault",
    "Faults",
    "RequestLog",
    "SeenRequest",
)

RESPONSE_HEADER_BYTES = 8
"""The length of a frame and the correlation id: a client that cannot read them learns no more."""

CHECKSUM_POSITIONS = {0: HEAD_BYTES, 1: HEAD_BYTES, 2: CRC_POSITION}
"""Where a batch has its checksum, by the number of its format."""

MAX_LOGGED_REQUESTS = 10_000
MAX_LOGGED_BYTES = 32 * 2**20
"""Requests in the log keep their records alive; older ones go when it is over either bound."""

MAX_MALFORMED = 100
"""Of what was no request the last ones are told."""


@dataclass(slots=True, eq=False, kw_only=True)
class SeenRequest:
    """One request as it came in, and what became of it.

    `connection` tells a node's connections apart. `at` is when it came in and `answered_at` when
    its answer went out, in seconds on the clock of the broker's runtime; None if it did not go out.
    `carried_out`: the handler ran to its end, whether a fault let the answer go out or not.
    `response` is what the handler gave, or a fault instead of it: None while there is none, and
    for a Fetch in the log, where records would be kept alive.
    """

    api_key: ApiKey
    version: int
    node_id: int
    client_id: str
    correlation_id: int
    connection: int
    size_bytes: int
    message: Request[Any]
    at: float
    response: Response | None = None
    carried_out: bool = False
    answered_at: float | None = None


@dataclass(frozen=True, slots=True)
class Delay:
    """Wait before the request is carried out; later ones of the connection wait behind it."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Drop:
    """Never answer, and nothing else on that connection any more, as a broker that hangs.

    `carried_out` carries out the request before: only the answer is lost.
    """

    carried_out: bool = False


@dataclass(frozen=True, slots=True)
class Close:
    """Close the connection instead of an answer; `carried_out` as with `Drop`."""

    carried_out: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer with an error code, in every field that has one to give.

    `carried_out` carries out the request before, as a leader does whose replicas are too late.
    """

    error_code: int
    carried_out: bool = False


@dataclass(frozen=True, slots=True)
class Corrupt:
    """Carry out the request, and damage the answer on its way.

    Every byte behind the correlation id is inverted, or only the one at `position` there (negative
    counts from the end). With `records` it is the checksum of the first batch of each partition in
    the answer to a Fetch instead, so that the answer itself can be read.
    """

    position: int | None = None
    records: bool = False

    def response(self, response: Response) -> Response:
        """An answer whose records are damaged, if they shall be."""
        if not self.records or not isinstance(response, FetchResponse):
            return response
        return replace(
            response,
            responses=[
                replace(topic, partitions=[_with_wrong_checksum(each) for each in topic.partitions])
                for topic in response.responses
            ],
        )

    def frame(self, buffers: list[Buffer]) -> list[Buffer]:
        """The bytes of an answer, damaged if it is not its records that shall be."""
        if self.records:
            return buffers
        frame = bytearray().join(buffers)
        body = range(RESPONSE_HEADER_BYTES, len(frame))
        for position in body if self.position is None else body[self.position :][:1]:
            frame[position] ^= 0xFF
        return [frame]


Outcome = Delay | Drop | Close | Answer | Corrupt | Response | None
Action = (
    Delay
    | Drop
    | Close
    | Answer
    | Corrupt
    | Callable[[SeenRequest], "Outcome | Awaitable[Outcome]"]
)
"""A function is given the request and returns what to do, a response to send, or None to pass."""


def _with_wrong_checksum(partition: PartitionData) -> PartitionData:
    records = bytearray(partition.records or b"")
    if len(records) > MAGIC_POSITION:
        records[CHECKSUM_POSITIONS[records[MAGIC_POSITION]]] ^= 0xFF
    return replace(partition, records=bytes(records))


@dataclass(slots=True, eq=False)
class Fault:
    """A rule that is in force until it is removed or used up. `hits` counts its uses."""

    owner: Faults
    api_key: ApiKey | None
    action: Action
    node: int | None
    times: int | None
    hits: int = 0

    def remove(self) -> None:
        """End it. May be called again."""
        self.owner.remove(self)

    def matches(self, seen: SeenRequest) -> bool:
        return (
            (self.api_key is None or self.api_key == seen.api_key)
            and (self.node is None or self.node == seen.node_id)
            and (self.times is None or self.hits < self.times)
        )


class Faults:
    """The rules in force, in the order in which they were made."""

    def __init__(self) -> None:
        self._faults: list[Fault] = []

    def add(
        self, api_key: ApiKey | None, action: Action, node: int | None, times: int | None
    ) -> Fault:
        fault = Fault(self, api_key, action, node, times)
        self._faults.append(fault)
        return fault

    def remove(self, fault: Fault) -> None:
        if fault in self._faults:
            self._faults.remove(fault)

    def clear(self) -> None:
        self._faults.clear()

    def matching(self, seen: SeenRequest) -> Iterator[Fault]:
        """The rules for a request; one made or removed meanwhile counts at once."""
        done: list[Fault] = []
        while True:
            fault = next((f for f in self._faults if f not in done and f.matches(seen)), None)
            if fault is None:
                return
            done.append(fault)
            yield fault


class RequestLog:
    """The last requests, oldest first."""

    def __init__(self) -> None:
        self._seen: OrderedDict[SeenRequest, int] = OrderedDict()
        self._size_bytes = 0
        self._watchers: dict[Callable[[SeenRequest], None], None] = {}
        self._arrivals: dict[Callable[[SeenRequest], None], None] = {}
        self.unreadable: deque[str] = deque(maxlen=MAX_MALFORMED)
        """What came in that is no request: which connection, and what is wrong with it."""

    def __len__(self) -> int:
        return len(self._seen)

    def __iter__(self) -> Iterator[SeenRequest]:
        return iter(list(self._seen))

    def __getitem__(self, index: int) -> SeenRequest:
        return list(self._seen)[index]

    def append(self, seen: SeenRequest) -> None:
        """A request came in."""
        self._seen[seen] = seen.size_bytes
        self._trim(seen.size_bytes)
        for on_request in list(self._arrivals):
            on_request(seen)

    def record_outcome(
        self, seen: SeenRequest, response: Response | None, *, carried_out: bool
    ) -> None:
        """Put down what became of a request, before its answer goes out."""
        seen.response, seen.carried_out = response, carried_out
        for watcher in list(self._watchers):
            watcher(seen)
        if seen.api_key is ApiKey.FETCH:
            seen.response = None

    def record_response_sent(self, seen: SeenRequest, now: float, size_bytes: int) -> None:
        """The answer goes out; what is kept of it counts too."""
        seen.answered_at = now
        if seen.response is not None and seen in self._seen:
            self._seen[seen] += size_bytes
            self._trim(size_bytes)

    def watch(self, watcher: Callable[[SeenRequest], None]) -> Callable[[], None]:
        """Have each request told once its answer is made, also those that the log loses later.

        It is called in the broker's event loop, before the answer goes out (`answered_at` is still
        None), and must not wait. Returns what ends it, which may be called again.
        """
        self._watchers[watcher] = None

        def end() -> None:
            self._watchers.pop(watcher, None)

        return end

    async def wait_for(
        self, matching: Callable[[SeenRequest], bool], count: int, deadline: float
    ) -> list[SeenRequest]:
        """The matching ones once there are so many, or those that there are at the deadline.

        The log is looked through once; after that only what comes in.
        """
        fresh, found = list(self._seen), list[SeenRequest]()
        signal = Signal()

        def on_request(seen: SeenRequest) -> None:
            fresh.append(seen)
            signal.set()

        self._arrivals[on_request] = None
        try:
            while True:
                found += [seen for seen in fresh if matching(seen)]
                fresh.clear()
                if len(found) >= count or not await signal.wait(deadline):
                    return found
        finally:
            del self._arrivals[on_request]

    def of(self, api_key: ApiKey, *, node: int | None = None) -> list[SeenRequest]:
        """The requests of one API, at one node if given."""
        return [
            seen for seen in self._seen if seen.api_key == api_key and node in {None, seen.node_id}
        ]

    def clear(self) -> None:
        """Forget them; watchers stay."""
        self._seen.clear()
        self._size_bytes = 0

    def _trim(self, size_bytes: int) -> None:
        self._size_bytes += size_bytes
        while len(self._seen) > MAX_LOGGED_REQUESTS or (
            self._size_bytes > MAX_LOGGED_BYTES and len(self._seen) > 1
        ):
            self._size_bytes -= self._seen.popitem(last=False)[1]
