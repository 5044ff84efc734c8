"""Faults that tests inject, and the log of requests."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from aiokafkawire.records.batch import CRC_POSITION, MAGIC_POSITION
from aiokafkawire.records.legacy import LOG_OVERHEAD_BYTES
from aiokafkawire.runtime import AutoResetEvent
from aiokafkawire.wire import ApiKey, Buffer, Request, Response
from aiokafkawire.wire.messages.fetch import FetchPartitionData, FetchResponse
from aiokafkawire.wire.messages.share_fetch import ShareFetchPartitionData, ShareFetchResponse

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
"""Frame length and correlation id; damage there would only end the connection."""

CHECKSUM_POSITIONS = {0: LOG_OVERHEAD_BYTES, 1: LOG_OVERHEAD_BYTES, 2: CRC_POSITION}
"""Position of the checksum in a batch, by magic."""

MAX_LOGGED_REQUESTS = 10_000
MAX_LOGGED_BYTES = 32 * 2**20
"""Limits of the request log. Logged requests keep their records alive."""

MAX_MALFORMED = 100
"""Number of malformed requests that the log keeps."""


@dataclass(slots=True, eq=False, kw_only=True)
class SeenRequest:
    """A received request and its outcome.

    Attributes:
        connection: Number of the connection at its node.
        at: Time of receipt, in seconds of the runtime's clock.
        answered_at: Time at which the response was sent, None if it was not.
        carried_out: The handler completed, whether or not a fault held its response back.
        response: Response of the handler or of a fault. None before there is one, and always for
            a Fetch in the log, since it would keep records alive.
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
    """Wait before handling the request; later requests of the connection wait as well."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Drop:
    """Never respond to this or any later request of the connection, like a hung broker.

    With `carried_out` the request is handled first: only the response is lost.
    """

    carried_out: bool = False


@dataclass(frozen=True, slots=True)
class Close:
    """Close the connection instead of responding; `carried_out` as with `Drop`."""

    carried_out: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """Respond with an error code, in every field that has one.

    With `carried_out` the request is handled first, as by a leader whose followers are too slow.
    """

    error_code: int
    carried_out: bool = False


@dataclass(frozen=True, slots=True)
class Corrupt:
    """Handle the request and damage the response.

    Every byte after the correlation id is inverted, or only the one at `position` (negative counts
    from the end). With `records`, the checksum of the first batch of each partition in a Fetch or
    ShareFetch response is damaged instead, so that the response itself stays readable.
    """

    position: int | None = None
    records: bool = False

    def response(self, response: Response) -> Response:
        """Return the response, with damaged records if `records` is set."""
        if self.records and isinstance(response, FetchResponse):
            return replace(
                response,
                responses=[
                    replace(topic, partitions=[*map(_with_wrong_checksum, topic.partitions)])
                    for topic in response.responses
                ],
            )
        if self.records and isinstance(response, ShareFetchResponse):
            return replace(
                response,
                responses=[
                    replace(topic, partitions=[*map(_with_wrong_checksum, topic.partitions)])
                    for topic in response.responses
                ],
            )
        return response

    def frame(self, buffers: list[Buffer]) -> list[Buffer]:
        """Return the bytes of the response, damaged unless `records` is set."""
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
"""A function gets the request and returns a fault, a response, or None to pass it on."""


FetchedData = TypeVar("FetchedData", FetchPartitionData, ShareFetchPartitionData)


def _with_wrong_checksum(partition: FetchedData) -> FetchedData:
    records = bytearray(partition.records or b"")
    if len(records) > MAGIC_POSITION:
        records[CHECKSUM_POSITIONS[records[MAGIC_POSITION]]] ^= 0xFF
    return replace(partition, records=bytes(records))


@dataclass(slots=True, eq=False)
class Fault:
    """A fault that applies until it is removed or used up. `hits` counts its uses."""

    owner: Faults
    api_key: ApiKey | None
    action: Action
    node: int | None
    times: int | None
    hits: int = 0

    def remove(self) -> None:
        """Remove the fault. Calling it again has no effect."""
        self.owner.remove(self)

    def matches(self, seen: SeenRequest) -> bool:
        return (
            (self.api_key is None or self.api_key == seen.api_key)
            and (self.node is None or self.node == seen.node_id)
            and (self.times is None or self.hits < self.times)
        )


class Faults:
    """Active faults, in the order of their addition."""

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
        """Yield the faults that match; ones added or removed meanwhile are respected."""
        yielded: list[Fault] = []
        while True:
            fault = next(
                (fault for fault in self._faults if fault not in yielded and fault.matches(seen)),
                None,
            )
            if fault is None:
                return
            yielded.append(fault)
            yield fault


class RequestLog:
    """The most recent requests, oldest first."""

    def __init__(self) -> None:
        self._requests: OrderedDict[SeenRequest, int] = OrderedDict()
        self._size_bytes = 0
        self._watchers: dict[Callable[[SeenRequest], None], None] = {}
        self._arrivals: dict[Callable[[SeenRequest], None], None] = {}
        self.unreadable: deque[str] = deque(maxlen=MAX_MALFORMED)
        """Malformed requests: connection and reason."""

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[SeenRequest]:
        return iter(list(self._requests))

    def __getitem__(self, index: int) -> SeenRequest:
        return list(self._requests)[index]

    def append(self, seen: SeenRequest) -> None:
        """Add a received request."""
        self._requests[seen] = seen.size_bytes
        self._trim(seen.size_bytes)
        for on_request in list(self._arrivals):
            on_request(seen)

    def record_outcome(
        self, seen: SeenRequest, response: Response | None, *, carried_out: bool
    ) -> None:
        """Record the outcome of a request before its response is sent."""
        seen.response, seen.carried_out = response, carried_out
        for watcher in list(self._watchers):
            watcher(seen)
        if seen.api_key is ApiKey.FETCH:
            seen.response = None

    def record_response_sent(self, seen: SeenRequest, now: float, size_bytes: int) -> None:
        """Record that a response was sent; its size counts towards the limit of the log."""
        seen.answered_at = now
        if seen.response is not None and seen in self._requests:
            self._requests[seen] += size_bytes
            self._trim(size_bytes)

    def watch(self, watcher: Callable[[SeenRequest], None]) -> Callable[[], None]:
        """Call `watcher` with every request once its response is ready, even if the log drops
        it.

        The watcher runs in the broker's event loop before the response is sent (`answered_at` is
        still None), and must not block.

        Returns:
            A function that removes the watcher. Calling it again has no effect.
        """
        self._watchers[watcher] = None

        def end() -> None:
            self._watchers.pop(watcher, None)

        return end

    async def wait_for(
        self, matching: Callable[[SeenRequest], bool], count: int, deadline: float
    ) -> list[SeenRequest]:
        """Wait for `count` matching requests; return those found until the deadline.

        The log is searched once, and then only new requests.
        """
        unchecked, matches = list(self._requests), list[SeenRequest]()
        signal = AutoResetEvent()

        def on_request(seen: SeenRequest) -> None:
            unchecked.append(seen)
            signal.set()

        self._arrivals[on_request] = None
        try:
            while True:
                matches += [seen for seen in unchecked if matching(seen)]
                unchecked.clear()
                if len(matches) >= count or not await signal.wait(deadline):
                    return matches
        finally:
            del self._arrivals[on_request]

    def of(self, api_key: ApiKey, *, node: int | None = None) -> list[SeenRequest]:
        """Return the requests of one API, optionally at one node."""
        return [
            seen
            for seen in self._requests
            if seen.api_key == api_key and node in {None, seen.node_id}
        ]

    def clear(self) -> None:
        """Clear the log; watchers stay."""
        self._requests.clear()
        self._size_bytes = 0

    def _trim(self, size_bytes: int) -> None:
        self._size_bytes += size_bytes
        while len(self._requests) > MAX_LOGGED_REQUESTS or (
            self._size_bytes > MAX_LOGGED_BYTES and len(self._requests) > 1
        ):
            self._size_bytes -= self._requests.popitem(last=False)[1]
