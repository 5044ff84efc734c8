"""Every event in every state of the push of client metrics, and the rules of KIP-714."""

from __future__ import annotations

import dataclasses
from uuid import UUID

import pytest

from aiokafkawire.records.compression import Compression
from aiokafkawire.runtime import NEVER
from aiokafkawire.runtime.state_machine import InvalidTransition
from aiokafkawire.telemetry import events, states
from aiokafkawire.telemetry.events import TelemetrySubscription
from aiokafkawire.telemetry.state_machine import (
    DEFAULT_MAX_BYTES,
    DEFAULT_PUSH_INTERVAL_S,
    MAX_PREFIXES,
    MIN_PUSH_INTERVAL_S,
    TRANSITIONS,
    TelemetryMachine,
)
from aiokafkawire.wire import ZERO_UUID
from aiokafkawire.wire import ErrorCode as E
from tests import golden

ME = UUID(int=7)
NOW = 1_000.0
INTERVAL_S = 60.0
SUBSCRIPTION = TelemetrySubscription(5, INTERVAL_S, Compression.ZSTD, 1_000, True, ("",))

RECEIVED = events.SubscriptionReceived(
    client_instance_id=ME,
    subscription_id=5,
    push_interval_ms=60_000,
    accepted_compression_types=(Compression.ZSTD, Compression.GZIP),
    telemetry_max_bytes=1_000,
    delta_temporality=True,
    requested_metrics=("",),
    jitter=0.25,
)

STATES: tuple[states.TelemetryState, ...] = (
    states.SubscriptionNeeded(),
    states.SubscriptionInProgress(),
    states.PushNeeded(SUBSCRIPTION, NOW),
    states.PushInProgress(SUBSCRIPTION),
    states.TerminatingPushNeeded(SUBSCRIPTION),
    states.TerminatingPushInProgress(),
    states.Terminated(),
)

EVENTS: dict[str, events.TelemetryEvent] = {
    "request due": events.TelemetryRequestDue(),
    "subscription": RECEIVED,
    "subscription without metrics": dataclasses.replace(RECEIVED, requested_metrics=()),
    "subscription without id": dataclasses.replace(RECEIVED, client_instance_id=ZERO_UUID),
    "subscription failed": events.SubscriptionFailed(None),
    "subscription INVALID_REQUEST": events.SubscriptionFailed(E.INVALID_REQUEST),
    "subscription UNKNOWN_SUBSCRIPTION_ID": events.SubscriptionFailed(E.UNKNOWN_SUBSCRIPTION_ID),
    "subscription THROTTLING_QUOTA_EXCEEDED": events.SubscriptionFailed(
        E.THROTTLING_QUOTA_EXCEEDED
    ),
    "pushed": events.PushSucceeded(),
    "push failed": events.PushFailed(None),
    **{
        f"push {code.name}": events.PushFailed(code)
        for code in (
            E.UNKNOWN_SUBSCRIPTION_ID,
            E.UNSUPPORTED_COMPRESSION_TYPE,
            E.TELEMETRY_TOO_LARGE,
            E.THROTTLING_QUOTA_EXCEEDED,
            E.INVALID_REQUEST,
            E.INVALID_RECORD,
            E.UNSUPPORTED_VERSION,
            E.UNKNOWN_SERVER_ERROR,
        )
    },
    "close": events.TelemetryCloseRequested(),
}

EXPECTED = golden.read("telemetry")
"""The next state, when its next request is due, and the effects. Other pairs do not exist."""


def machine_in(state: states.TelemetryState) -> TelemetryMachine:
    machine = TelemetryMachine()
    machine.state = state
    return machine


def observed() -> dict[tuple[str, str], str]:
    """Return the outcome by state and event."""
    table = {}
    for state in STATES:
        for name, event in EVENTS.items():
            if (type(state), type(event)) not in TRANSITIONS:
                continue
            machine = machine_in(state)
            effects = machine.handle(event, NOW)
            outcome = type(machine.state).__name__
            if isinstance(machine.state, states.SubscriptionNeeded | states.PushNeeded):
                outcome += f" after {machine.request_at - NOW:g} s"
            outcome += "".join(f", {type(effect).__name__}" for effect in effects)
            table[type(state).__name__, name] = outcome
    return table


def test_each_state_and_event_has_its_outcome() -> None:
    assert observed() == EXPECTED


def test_the_table_has_no_state_or_event_that_is_not_tested() -> None:
    assert {state for state, _ in TRANSITIONS} == {type(state) for state in STATES}
    assert {event for _, event in TRANSITIONS} == {type(event) for event in EVENTS.values()}


@pytest.mark.parametrize("state", STATES, ids=lambda state: type(state).__name__)
def test_other_events_cannot_happen(state: states.TelemetryState) -> None:
    for event in EVENTS.values():
        if (type(state), type(event)) not in TRANSITIONS:
            with pytest.raises(InvalidTransition):
                machine_in(state).handle(event, NOW)


@pytest.mark.parametrize("state", STATES, ids=lambda state: type(state).__name__)
def test_when_the_next_request_is_due(state: states.TelemetryState) -> None:
    due = {states.SubscriptionNeeded: 0.0, states.PushNeeded: NOW, states.TerminatingPushNeeded: 0}
    assert machine_in(state).request_at == due.get(type(state), NEVER)


def subscribed(received: events.SubscriptionReceived = RECEIVED) -> TelemetryMachine:
    machine = machine_in(states.SubscriptionInProgress())
    machine.handle(received, NOW)
    return machine


def pushing(machine: TelemetryMachine) -> events.SendPush:
    (effect,) = machine.handle(events.TelemetryRequestDue(), NOW)
    assert isinstance(effect, events.SendPush)
    return effect


@pytest.mark.parametrize(("jitter", "wait_s"), [(0.0, 30.0), (0.5, 60.0), (0.99, 89.4)])
def test_the_first_push_comes_after_a_random_part_of_the_interval(
    jitter: float, wait_s: float
) -> None:
    machine = subscribed(dataclasses.replace(RECEIVED, jitter=jitter))
    assert machine.request_at - NOW == pytest.approx(wait_s)
    assert pushing(machine) == events.SendPush(ME, SUBSCRIPTION, terminating=False)
    machine.handle(events.PushSucceeded(), NOW)
    assert machine.request_at - NOW == INTERVAL_S


def test_the_client_instance_id_is_kept() -> None:
    machine, due = TelemetryMachine(), events.TelemetryRequestDue()
    assert machine.handle(due, NOW) == (events.SendSubscriptionRequest(ZERO_UUID),)
    machine.handle(RECEIVED, NOW)
    pushing(machine)
    machine.handle(events.PushFailed(E.UNKNOWN_SUBSCRIPTION_ID), NOW)
    assert machine.handle(due, NOW) == (events.SendSubscriptionRequest(ME),)


def test_the_interval_of_the_last_subscription_counts_after_a_failure() -> None:
    machine = TelemetryMachine()
    machine.handle(events.TelemetryRequestDue(), NOW)
    machine.handle(events.SubscriptionFailed(None), NOW)
    assert machine.request_at - NOW == DEFAULT_PUSH_INTERVAL_S
    machine.handle(events.TelemetryRequestDue(), NOW)
    machine.handle(RECEIVED, NOW)
    pushing(machine)
    machine.handle(events.PushFailed(E.UNKNOWN_SUBSCRIPTION_ID), NOW)
    machine.handle(events.TelemetryRequestDue(), NOW)
    machine.handle(events.SubscriptionFailed(None), NOW)
    assert machine.request_at - NOW == INTERVAL_S


@pytest.mark.parametrize(
    ("interval_ms", "interval_s"),
    [(0, DEFAULT_PUSH_INTERVAL_S), (-1, DEFAULT_PUSH_INTERVAL_S), (1, MIN_PUSH_INTERVAL_S)],
)
def test_an_interval_is_at_least_the_shortest_of_kafka(interval_ms: int, interval_s: float) -> None:
    machine = subscribed(dataclasses.replace(RECEIVED, push_interval_ms=interval_ms))
    assert pushing(machine).subscription.push_interval_s == interval_s


def test_a_limit_that_is_no_limit_is_replaced() -> None:
    machine = subscribed(dataclasses.replace(RECEIVED, telemetry_max_bytes=0))
    assert pushing(machine).subscription.max_bytes == DEFAULT_MAX_BYTES


@pytest.mark.parametrize(
    ("accepted", "chosen"),
    [((), 0), ((9,), 0), ((9, 2, 1), 2), ((0, 4), 0)],
)
def test_the_first_known_compression_is_used(accepted: tuple[int, ...], chosen: int) -> None:
    machine = subscribed(dataclasses.replace(RECEIVED, accepted_compression_types=accepted))
    assert pushing(machine).subscription.compression_type == chosen


def test_a_refused_compression_is_not_used_again() -> None:
    machine = subscribed()
    for compression in (Compression.ZSTD, Compression.GZIP, Compression.NONE):
        assert pushing(machine).subscription.compression_type == compression
        machine.handle(events.PushFailed(E.UNSUPPORTED_COMPRESSION_TYPE), NOW)
        machine.handle(events.TelemetryRequestDue(), NOW)
        machine.handle(RECEIVED, NOW)


@pytest.mark.parametrize(
    ("requested", "name", "is_requested"),
    [
        (("",), "a.b", True),
        (("*",), "a.b", True),
        (("a.", "c"), "a.b", True),
        (("a.", "c"), "b", False),
        (("a.b.c",), "a.b", False),
    ],
)
def test_metrics_are_requested_by_prefix(
    requested: tuple[str, ...], name: str, is_requested: bool
) -> None:
    machine = subscribed(dataclasses.replace(RECEIVED, requested_metrics=requested))
    assert pushing(machine).subscription.requests(name) is is_requested


def test_the_number_of_prefixes_is_limited() -> None:
    many = tuple(f"m{number}" for number in range(MAX_PREFIXES + 1))
    machine = subscribed(dataclasses.replace(RECEIVED, requested_metrics=many))
    assert pushing(machine).subscription.requested_metrics == many[:-1]


def test_the_last_push_is_terminating() -> None:
    machine = subscribed()
    machine.handle(events.TelemetryCloseRequested(), NOW)
    assert pushing(machine) == events.SendPush(ME, SUBSCRIPTION, terminating=True)
