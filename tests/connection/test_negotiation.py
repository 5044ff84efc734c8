"""Negotiation with every generation of brokers, as a machine: no connection, no clock."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from aiokafkawire.connection.cluster_check import ExpectedNode
from aiokafkawire.connection.negotiation import (
    API_VERSIONS_TIMEOUT_S,
    CONFIRM_TIMEOUT_S,
    PROBES,
    TRANSITIONS,
    AwaitingApiVersions,
    AwaitingConfirmation,
    AwaitingProbe,
    ConnectionChoice,
    ConnectionClosed,
    Negotiation,
    NegotiationAction,
    NegotiationEvent,
    NegotiationFailed,
    ResponseReceived,
    ResponseTimedOut,
    SendRequest,
    VersionsNegotiated,
)
from aiokafkawire.connection.node_api_versions import RELEASES, parse_api_version
from aiokafkawire.errors import BrokerError, ConnectionFailed, ProtocolError
from aiokafkawire.runtime import Address
from aiokafkawire.wire import APIS, ApiKey, ErrorCode, decode, encode
from aiokafkawire.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)

HIGHEST = APIS[ApiKey.API_VERSIONS].max_version
CLOSED = ConnectionClosed("end of stream")
MAX_STEPS = 12


def versions_of(*ranges: tuple[int, int, int], error_code: int = 0) -> ApiVersionsResponse:
    return ApiVersionsResponse(
        error_code=error_code,
        api_keys=[
            ApiVersion(api_key=key, min_version=low, max_version=high) for key, low, high in ranges
        ],
    )


MODERN = versions_of((ApiKey.PRODUCE, 3, 13), (ApiKey.FETCH, 4, 18), (ApiKey.API_VERSIONS, 0, 4))
REFUSED_EMPTY = versions_of(error_code=35)

Broker = Callable[[SendRequest], NegotiationEvent]


def negotiation(api_version: str | None = None) -> Negotiation:
    return Negotiation(parse_api_version(api_version), software="tests", software_version="1")


def run(negotiation: Negotiation, broker: Broker) -> tuple[NegotiationAction, list[SendRequest]]:
    asked: list[SendRequest] = []
    step = negotiation.begin()
    while isinstance(step, SendRequest):
        asked.append(step)
        assert len(asked) <= MAX_STEPS, "negotiation does not end"
        step = negotiation.handle(broker(step))
    return step, asked


def sent_versions(asked: list[SendRequest]) -> list[tuple[int, int]]:
    return [(action.request.api_key, action.version) for action in asked]


def old_broker(release: str, unknown: NegotiationEvent) -> Broker:
    """A broker before 0.10: it answers what it has, `unknown` is what happens to the rest."""

    def broker(action: SendRequest) -> NegotiationEvent:
        span = RELEASES[release].get(action.request.api_key)
        return (
            unknown
            if span is None or action.version > span.max_version
            else ResponseReceived(object())
        )

    return broker


def test_a_current_broker_gets_one_request_in_the_highest_version():
    step, asked = run(negotiation(), lambda _: ResponseReceived(MODERN))
    assert sent_versions(asked) == [(ApiKey.API_VERSIONS, HIGHEST)]
    assert asked[0].timeout_s == API_VERSIONS_TIMEOUT_S
    assert asked[0].connection is ConnectionChoice.CURRENT
    assert isinstance(step, VersionsNegotiated)
    assert step.versions.ranges[ApiKey.FETCH] == (4, 18)
    assert step.versions.release is None
    assert not step.on_additional
    assert asked[0].request.client_software_name == "tests"


def test_the_expected_node_is_sent():
    expecting = Negotiation(
        None, software="tests", software_version="1", expected=ExpectedNode("c", 3, Address("h", 1))
    )
    refused = versions_of((ApiKey.API_VERSIONS, 0, 4), error_code=35)
    answers = {HIGHEST: refused, 4: MODERN}
    step, asked = run(expecting, lambda action: ResponseReceived(answers[action.version]))
    assert [(each.request.cluster_id, each.request.node_id) for each in asked] == [("c", 3)] * 2
    assert isinstance(step, VersionsNegotiated)
    for action in asked:
        decoded = decode(ApiVersionsRequest, action.version, encode(action.request, action.version))
        assert decoded.cluster_id == ("c" if action.version == HIGHEST else None)
    assert not expecting.is_misrouted


@pytest.mark.parametrize("expected", [ExpectedNode("c", 3, Address("h", 1)), None])
def test_a_misrouted_connection_is_refused(expected: ExpectedNode | None):
    negotiating = Negotiation(None, software="tests", software_version="1", expected=expected)
    refused = versions_of(error_code=ErrorCode.REBOOTSTRAP_REQUIRED)
    step, asked = run(negotiating, lambda _: ResponseReceived(refused))
    assert len(asked) == 1
    assert isinstance(step, NegotiationFailed)
    assert negotiating.is_misrouted == (expected is not None)
    if expected is None:
        assert isinstance(step.error, BrokerError)
    else:
        assert isinstance(step.error, ConnectionFailed)
        assert step.error.retriable
        assert "not node 3 of cluster c" in str(step.error)


def test_an_empty_unsupported_version_response_is_followed_by_version_0():
    answers = {HIGHEST: REFUSED_EMPTY, 0: MODERN}
    step, asked = run(negotiation(), lambda action: ResponseReceived(answers[action.version]))
    assert sent_versions(asked) == [(ApiKey.API_VERSIONS, HIGHEST), (ApiKey.API_VERSIONS, 0)]
    assert isinstance(step, VersionsNegotiated)


@pytest.mark.parametrize(
    ("known", "highest", "expected"),
    [(4, 4, [4]), (0, 0, [0]), (4, 3, [4, 3]), (3, 4, [3, 4]), (0, 9, [0, HIGHEST])],
)
def test_a_known_version_saves_a_round_trip(known: int, highest: int, expected: list[int]) -> None:
    """The last three: the broker was downgraded, or upgraded, since the connection before."""

    def broker(request: SendRequest) -> NegotiationEvent:
        ranges = ((ApiKey.PRODUCE, 3, 13), (ApiKey.API_VERSIONS, 0, highest))
        code = 35 if request.version > highest else 0
        return ResponseReceived(versions_of(*ranges, error_code=code))

    again = Negotiation(None, software="tests", software_version="1", known_version=known)
    result, asked = run(again, broker)
    assert isinstance(result, VersionsNegotiated)
    assert [version for _, version in sent_versions(asked)] == expected


def test_a_broker_that_contradicts_itself_is_not_asked_for_ever() -> None:
    def broker(request: SendRequest) -> NegotiationEvent:
        code = 35 if request.version == HIGHEST else 0
        ranges = ((ApiKey.PRODUCE, 3, 13), (ApiKey.API_VERSIONS, 0, HIGHEST))
        return ResponseReceived(versions_of(*ranges, error_code=code))

    again = Negotiation(None, software="tests", software_version="1", known_version=3)
    result, _ = run(again, broker)
    assert isinstance(result, VersionsNegotiated)


def test_below_2_4_no_flexible_versions_are_used():
    ranges = (ApiKey.API_VERSIONS, 0, 4), (ApiKey.JOIN_GROUP, 0, 9)
    step, asked = run(negotiation("2.3"), lambda _: ResponseReceived(versions_of(*ranges)))
    assert sent_versions(asked) == [(ApiKey.API_VERSIONS, 2)]
    assert isinstance(step, VersionsNegotiated)
    assert step.versions.ranges[ApiKey.JOIN_GROUP] == (0, 5)


def test_an_unsupported_version_response_with_a_range_is_followed_by_its_maximum():
    refused = versions_of((ApiKey.API_VERSIONS, 0, 3), error_code=35)
    answers = {HIGHEST: refused, 3: MODERN}
    step, asked = run(negotiation(), lambda action: ResponseReceived(answers[action.version]))
    assert sent_versions(asked) == [(ApiKey.API_VERSIONS, HIGHEST), (ApiKey.API_VERSIONS, 3)]
    assert isinstance(step, VersionsNegotiated)


@pytest.mark.parametrize("reported_range", [(0, HIGHEST), (0, 99), (5, 3), (-1, 3)])
def test_an_unusable_range_falls_back_to_version_0(reported_range: tuple[int, int]):
    refused = versions_of((ApiKey.API_VERSIONS, *reported_range), error_code=35)
    step, asked = run(negotiation(), lambda _: ResponseReceived(refused))
    assert sent_versions(asked) == [(ApiKey.API_VERSIONS, HIGHEST), (ApiKey.API_VERSIONS, 0)]
    assert isinstance(step, NegotiationFailed)
    assert isinstance(step.error, BrokerError)
    assert step.error.code == 35


@pytest.mark.parametrize(
    ("release", "unknown", "rungs"),
    [
        ("0.9", ResponseTimedOut(), 1),
        ("0.8.2", CLOSED, 2),
        ("0.8.1", CLOSED, 3),
        ("0.8.0", CLOSED, 4),
    ],
)
def test_old_brokers_are_detected_by_probes(release: str, unknown: NegotiationEvent, rungs: int):
    step, asked = run(negotiation(), old_broker(release, unknown))
    assert isinstance(step, VersionsNegotiated)
    assert step.versions.release == release
    assert not step.on_additional
    probes = asked[1:-1]
    assert len(probes) == rungs
    assert all(
        action.version == 0 and action.connection is ConnectionChoice.NEW for action in probes
    )
    confirmation = asked[-1]
    assert sent_versions([confirmation]) == [(ApiKey.API_VERSIONS, 0)]
    assert confirmation.connection is ConnectionChoice.ADDITIONAL
    assert confirmation.timeout_s == CONFIRM_TIMEOUT_S


@pytest.mark.parametrize("first", [CLOSED, ResponseTimedOut()])
def test_a_broker_that_was_restarting_is_not_taken_for_an_old_one(first: NegotiationEvent):
    events = iter([first, ResponseReceived(object()), ResponseReceived(MODERN)])
    step, asked = run(negotiation(), lambda _: next(events))
    assert isinstance(step, VersionsNegotiated)
    assert step.versions.release is None
    assert step.on_additional
    assert sent_versions(asked)[-1] == (ApiKey.API_VERSIONS, 0)


@pytest.mark.parametrize("rungs", range(1, len(PROBES) + 1))
@pytest.mark.parametrize(
    ("first", "last"), list(itertools.product([CLOSED, ResponseTimedOut()], repeat=2))
)
def test_lost_responses_are_not_taken_for_an_old_broker(
    first: NegotiationEvent, last: NegotiationEvent, rungs: int
):
    """ApiVersions must fail in the manner of the release that was probed."""
    events = iter([first, *[CLOSED] * (rungs - 1), ResponseReceived(object()), last])
    step, _ = run(negotiation(), lambda _: next(events))
    if first == last == (ResponseTimedOut() if rungs == 1 else CLOSED):
        assert isinstance(step, VersionsNegotiated)
        assert step.versions.release == PROBES[rungs - 1][0]
    else:
        assert isinstance(step, NegotiationFailed)
        assert isinstance(step.error, ConnectionFailed)
        assert step.error.retriable


def test_disconnects_alone_prove_no_old_release():
    step, asked = run(negotiation(), lambda _: CLOSED)
    assert len(asked) == 1 + len(PROBES)
    assert isinstance(step, NegotiationFailed)
    assert isinstance(step.error, ConnectionFailed)
    assert step.error.retriable
    assert "closes them without a response (end of stream)" in str(step.error)


def test_timeouts_alone_prove_no_old_release():
    step, asked = run(negotiation(), lambda _: ResponseTimedOut())
    # Only 0.9 is silent on ApiVersions, and it would have answered this probe.
    assert sent_versions(asked)[1:] == [(ApiKey.LIST_GROUPS, 0)]
    assert isinstance(step, NegotiationFailed)
    assert "does not respond" in str(step.error)


def test_every_sequence_of_disconnects_and_timeouts_ends():
    for pattern in itertools.product([CLOSED, ResponseTimedOut()], repeat=1 + len(PROBES)):
        events = iter(pattern)
        step, _ = run(negotiation(), lambda _, events=events: next(events))
        assert isinstance(step, NegotiationFailed)
        assert step.error.retriable


@pytest.mark.parametrize("release", list(RELEASES))
def test_an_old_api_version_sends_nothing(release: str):
    step, asked = run(negotiation(release), lambda _: CLOSED)
    assert asked == []
    assert isinstance(step, VersionsNegotiated)
    assert step.versions.release == release


@pytest.mark.parametrize("event", [CLOSED, ResponseTimedOut()])
def test_a_newer_api_version_never_probes(event: NegotiationEvent):
    step, asked = run(negotiation("2.8"), lambda _: event)
    assert sent_versions(asked) == [(ApiKey.API_VERSIONS, HIGHEST)]
    assert isinstance(step, NegotiationFailed)


@pytest.mark.parametrize(
    ("response", "error"),
    [
        (versions_of(error_code=58), BrokerError),
        (versions_of(error_code=-1), BrokerError),
        (versions_of(), ProtocolError),
        (versions_of((18, 3, 1)), ProtocolError),
    ],
)
def test_an_unusable_response_fails_with_its_reason(
    response: ApiVersionsResponse, error: type[Exception]
):
    step, asked = run(negotiation(), lambda _: ResponseReceived(response))
    assert len(asked) == 1
    assert isinstance(step, NegotiationFailed)
    assert isinstance(step.error, error)


def test_the_table_has_every_state_and_event():
    states: list[Any] = [AwaitingApiVersions, AwaitingProbe, AwaitingConfirmation]
    events: list[Any] = [ResponseReceived, ConnectionClosed, ResponseTimedOut]
    assert set(TRANSITIONS) == set(itertools.product(states, events))


def test_a_longer_timeout_applies_to_all_requests():
    negotiation = Negotiation(None, software="t", software_version="1", timeout_s=5.0)
    step = negotiation.begin()
    assert isinstance(step, SendRequest)
    assert step.timeout_s == 5.0
