"""Detection of brokers that leave requests unanswered."""

from __future__ import annotations

import math
from typing import Any, cast

import pytest

from aiokafkawire.connection.channel import Channel
from aiokafkawire.connection.connection_kinds import ConnectionKind
from aiokafkawire.connection.in_flight_requests import (
    ChannelLimits,
    InFlightRequest,
    InFlightRequests,
)
from aiokafkawire.connection.silence import LATE_CHECK_S, SilenceDetector
from aiokafkawire.wire import ApiKey


class Connection:
    """Requests of one connection, without a connection."""

    def __init__(self, api_key: ApiKey = ApiKey.PRODUCE) -> None:
        self._api_key = api_key
        self._in_flight: InFlightRequests = InFlightRequests(
            0.0,
            ChannelLimits(5, request_timeout_s=30.0, max_idle_s=600.0, max_frame_bytes=1),
        )

    @property
    def oldest_unanswered(self) -> InFlightRequest | None:
        return next(iter(self._in_flight.sent_requests()), None)

    def send(self, now: float) -> None:
        request = InFlightRequest(
            self._in_flight.next_correlation_id, now + 30.0, self._api_key, 4, [b"frame"]
        )
        assert self._in_flight.submit(request, now)

    def answer(self, now: float) -> None:
        oldest = self._in_flight.sent_requests()[0]
        self._in_flight.complete_next(oldest.correlation_id, now)


class Watched:
    def __init__(self, max_wait_s: float = 0.0, **connections: Connection) -> None:
        self._detector = SilenceDetector(max_wait_s)
        self._channels = {ConnectionKind[kind]: each for kind, each in connections.items()}

    def since(self, now: float) -> float:
        self._detector.check(cast("dict[ConnectionKind, Channel]", self._channels), now)
        return self._detector.since

    @property
    def api(self) -> str:
        return self._detector.api


@pytest.fixture
def produce() -> Connection:
    return Connection()


def test_a_request_without_a_response_is_silence_from_its_start(produce: Connection):
    watched = Watched(PRODUCE=produce)
    assert watched.since(0.0) == math.inf
    produce.send(1.0)
    for now in (2.0, 4.0, 5.9):
        assert watched.since(now) == math.inf
    assert watched.since(6.0) == 1.0
    assert watched.api == "Produce"
    assert watched.since(8.0) == 1.0
    produce.answer(9.0)
    assert watched.since(9.5) == math.inf


def test_each_response_ends_a_silence(produce: Connection):
    watched = Watched(PRODUCE=produce)
    for now in (0.0, 0.1, 0.2):
        produce.send(now)
    assert watched.since(1.0) == math.inf
    produce.answer(4.0)  # a slow broker, but not a silent one
    assert watched.since(5.5) == math.inf
    produce.answer(6.0)
    assert watched.since(7.5) == math.inf
    assert watched.since(10.4) == math.inf
    assert watched.since(10.6) == 5.5  # the last check before a response


def test_a_joining_member_does_not_count():
    join = Connection(ApiKey.JOIN_GROUP)
    watched = Watched(JOIN=join)
    join.send(0.0)
    for now in range(0, 60, 2):
        assert watched.since(now) == math.inf


@pytest.mark.parametrize(("kind", "api"), [("FETCH", "FETCH"), ("SHARE", "SHARE_FETCH")])
def test_a_fetch_may_wait(kind: str, api: str):
    fetch = Connection(ApiKey[api])
    watched = Watched(20.0, **{kind: fetch})
    fetch.send(0.0)
    for now in range(0, 25, 2):
        assert watched.since(now) == math.inf
    assert watched.since(25.0) == 0.0


def test_a_blocked_event_loop_is_not_a_silence(produce: Connection):
    watched = Watched(PRODUCE=produce)
    assert watched.since(0.0) == math.inf
    produce.send(0.1)
    late = LATE_CHECK_S + 2.0
    assert watched.since(late) == math.inf  # the response may be in the socket
    assert watched.since(late + 2.0) == math.inf
    assert watched.since(late + 4.0) == math.inf
    assert watched.since(late + 5.0) == late


def test_the_longest_silence_counts(produce: Connection):
    general: Any = Connection(ApiKey.METADATA)
    watched = Watched(PRODUCE=produce, GENERAL=general)
    general.send(0.0)
    produce.send(1.0)
    for now in (2.0, 4.0):
        assert watched.since(now) == math.inf
    assert watched.since(6.0) == 0.0
    assert watched.api == "Metadata"
