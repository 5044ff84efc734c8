"""State machine of the push of client metrics (KIP-714).

Only one request is in flight. Its response, its failure or its timeout completes it, before the
next event of the machine.

Protocol source: GetTelemetrySubscriptions and PushTelemetry of Kafka's protocol guide.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from aiokafkawire.records.compression import Compression
from aiokafkawire.runtime import NEVER
from aiokafkawire.runtime.state_machine import Transitions, each_of, transition
from aiokafkawire.wire import ZERO_UUID, ErrorCode, error_for

from . import events, states
from .events import TelemetryEffect, TelemetryEvent, TelemetrySubscription
from .states import TelemetryState

__all__ = ("NO_CLIENT_INSTANCE_ID", "TRANSITIONS", "TelemetryMachine")

DEFAULT_PUSH_INTERVAL_S = 300.0
"""Interval if a broker names none, and after a failed request before the first subscription."""

MIN_PUSH_INTERVAL_S = 0.1
"""The shortest interval that Kafka allows for a subscription."""

MIN_JITTER = 0.5
"""The first push is sent after 0.5 to 1.5 intervals, so that clients do not push all at once."""

DEFAULT_MAX_BYTES = 1_048_576
"""Kafka's default of `telemetry.max.bytes`, if a broker names no limit."""

ALL_METRICS = "*"

NO_CLIENT_INSTANCE_ID = "the broker assigned no client instance id"

MAX_PREFIXES = 1_000
"""Limit of requested prefixes: each metric is compared with them all."""

_REFRESH_CODES = frozenset(
    {ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE}
)
"""Another subscription is needed at once."""

_WAIT_CODES = frozenset({ErrorCode.TELEMETRY_TOO_LARGE, ErrorCode.THROTTLING_QUOTA_EXCEEDED})
"""Another subscription is needed after an interval. All other codes end the pushes, as in Java."""

Outcome = tuple[TelemetryState, Sequence[TelemetryEffect]]


class TelemetryMachine:
    """Decides when a client asks for subscriptions and when it pushes.

    Attributes:
        state: State.
        client_instance_id: Id that a broker assigned; zero before the first response.
        push_interval_s: Interval of the last subscription, in seconds.
    """

    def __init__(self) -> None:
        self.state: TelemetryState = states.SubscriptionNeeded()
        self.client_instance_id: UUID = ZERO_UUID
        self.push_interval_s = DEFAULT_PUSH_INTERVAL_S
        self._refused_compression_types: set[int] = set()

    @property
    def request_at(self) -> float:
        """When the next `TelemetryRequestDue` may come; `NEVER` while there is nothing to send."""
        match self.state:
            case states.SubscriptionNeeded() | states.PushNeeded():
                return self.state.request_at
            case states.TerminatingPushNeeded():
                return 0.0
        return NEVER

    def handle(self, event: TelemetryEvent, now: float) -> Sequence[TelemetryEffect]:
        """Handle an event and return the effects to perform.

        Args:
            event: The event.
            now: Current time in seconds.

        Raises:
            InvalidTransition: The event cannot happen in this state.
        """
        handler = transition(TRANSITIONS, self.state, event)
        self.state, effects = handler(self, self.state, event, now)
        return effects

    def read_subscription(self, event: events.SubscriptionReceived) -> TelemetrySubscription:
        """Keep the client instance id and the interval, and return what to push."""
        self.assign_client_instance_id(event.client_instance_id)
        interval_s = DEFAULT_PUSH_INTERVAL_S
        if event.push_interval_ms > 0:
            interval_s = max(event.push_interval_ms / 1_000, MIN_PUSH_INTERVAL_S)
        self.push_interval_s = interval_s
        metrics = ("",) if ALL_METRICS in event.requested_metrics else event.requested_metrics
        return TelemetrySubscription(
            event.subscription_id,
            interval_s,
            self._choose_compression(event.accepted_compression_types),
            event.telemetry_max_bytes if event.telemetry_max_bytes > 0 else DEFAULT_MAX_BYTES,
            event.delta_temporality,
            metrics[:MAX_PREFIXES],
        )

    def assign_client_instance_id(self, assigned: UUID) -> None:
        """Keep the id of the first response. It stays the same until the client is stopped."""
        if self.client_instance_id == ZERO_UUID:
            self.client_instance_id = assigned

    def refuse_compression(self, compression_type: int) -> None:
        """Note that a broker refused a compression type."""
        self._refused_compression_types.add(compression_type)

    def _choose_compression(self, accepted: Sequence[int]) -> int:
        """Return the first type that the client has; brokers list them by preference."""
        usable = {int(each) for each in Compression} - self._refused_compression_types
        return next((each for each in accepted if each in usable), int(Compression.NONE))


# --- requests -----------------------------------------------------------------------------------


def request_subscription(
    machine: TelemetryMachine, state: TelemetryState, event: TelemetryEvent, now: float
) -> Outcome:
    request = events.SendSubscriptionRequest(machine.client_instance_id)
    return states.SubscriptionInProgress(), (request,)


def push(
    machine: TelemetryMachine, state: states.PushNeeded, event: TelemetryEvent, now: float
) -> Outcome:
    sent = events.SendPush(machine.client_instance_id, state.subscription, terminating=False)
    return states.PushInProgress(state.subscription), (sent,)


def push_terminating(
    machine: TelemetryMachine,
    state: states.TerminatingPushNeeded,
    event: TelemetryEvent,
    now: float,
) -> Outcome:
    sent = events.SendPush(machine.client_instance_id, state.subscription, terminating=True)
    return states.TerminatingPushInProgress(), (sent,)


# --- responses ----------------------------------------------------------------------------------


def subscribe(
    machine: TelemetryMachine,
    state: TelemetryState,
    event: events.SubscriptionReceived,
    now: float,
) -> Outcome:
    """Push from now on, or ask again after an interval if the broker wants no metrics.

    Java sends nothing any more either after a response without an id.
    """
    if event.client_instance_id == ZERO_UUID:
        return states.Terminated(), (events.ReportDisabled(NO_CLIENT_INSTANCE_ID),)
    subscription = machine.read_subscription(event)
    if not subscription.requested_metrics:
        return states.SubscriptionNeeded(now + subscription.push_interval_s), ()
    first_push_at = now + (MIN_JITTER + event.jitter) * subscription.push_interval_s
    return states.PushNeeded(subscription, first_push_at), ()


def retry_subscription(
    machine: TelemetryMachine, state: TelemetryState, event: events.SubscriptionFailed, now: float
) -> Outcome:
    """Ask again after an interval. No error leads to a request at once, which might loop."""
    code = event.error_code
    if code is not None and code not in _REFRESH_CODES | _WAIT_CODES:
        return states.Terminated(), (events.ReportDisabled(error_for(code).reason),)
    return states.SubscriptionNeeded(now + machine.push_interval_s), ()


def wait_for_next_push(
    machine: TelemetryMachine, state: states.PushInProgress, event: TelemetryEvent, now: float
) -> Outcome:
    next_push_at = now + state.subscription.push_interval_s
    return states.PushNeeded(state.subscription, next_push_at), ()


def refresh_subscription(
    machine: TelemetryMachine,
    state: states.PushInProgress,
    event: events.PushFailed,
    now: float,
) -> Outcome:
    """Ask for a subscription again, at once if that corrects the error."""
    code = event.error_code
    if code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE:
        machine.refuse_compression(state.subscription.compression_type)
    if code in _REFRESH_CODES:
        return states.SubscriptionNeeded(now), ()
    if code is None or code in _WAIT_CODES:
        return states.SubscriptionNeeded(now + state.subscription.push_interval_s), ()
    return states.Terminated(), (events.ReportDisabled(error_for(code).reason),)


# --- closing ------------------------------------------------------------------------------------


def terminate(
    machine: TelemetryMachine, state: TelemetryState, event: TelemetryEvent, now: float
) -> Outcome:
    return states.Terminated(), ()


def prepare_terminating_push(
    machine: TelemetryMachine,
    state: states.PushNeeded | states.PushInProgress,
    event: TelemetryEvent,
    now: float,
) -> Outcome:
    return states.TerminatingPushNeeded(state.subscription), ()


TRANSITIONS: Transitions[TelemetryMachine, TelemetryState, TelemetryEffect] = {
    (states.SubscriptionNeeded, events.TelemetryRequestDue): request_subscription,
    (states.SubscriptionInProgress, events.SubscriptionReceived): subscribe,
    (states.SubscriptionInProgress, events.SubscriptionFailed): retry_subscription,
    (states.PushNeeded, events.TelemetryRequestDue): push,
    (states.PushInProgress, events.PushSucceeded): wait_for_next_push,
    (states.PushInProgress, events.PushFailed): refresh_subscription,
    (states.TerminatingPushNeeded, events.TelemetryRequestDue): push_terminating,
    (states.TerminatingPushInProgress, events.PushSucceeded): terminate,
    (states.TerminatingPushInProgress, events.PushFailed): terminate,
    **each_of(
        (states.PushNeeded, states.PushInProgress),
        {events.TelemetryCloseRequested: prepare_terminating_push},
    ),
    **each_of(
        (
            states.SubscriptionNeeded,
            states.SubscriptionInProgress,
            states.TerminatingPushNeeded,
            states.TerminatingPushInProgress,
            states.Terminated,
        ),
        {events.TelemetryCloseRequested: terminate},
    ),
}
"""Handlers by state and event; other pairs raise `InvalidTransition`."""
