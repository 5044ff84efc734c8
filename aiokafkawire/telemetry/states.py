"""States of the push of client metrics, with Java's names. A state owns the data valid in it."""

from __future__ import annotations

from dataclasses import dataclass

from .events import TelemetrySubscription

__all__ = (
    "PushInProgress",
    "PushNeeded",
    "SubscriptionInProgress",
    "SubscriptionNeeded",
    "TelemetryState",
    "Terminated",
    "TerminatingPushInProgress",
    "TerminatingPushNeeded",
)


@dataclass(frozen=True, slots=True)
class SubscriptionNeeded:
    """The client does not know what to push. It may ask from `request_at` on."""

    request_at: float = 0.0


@dataclass(frozen=True, slots=True)
class SubscriptionInProgress:
    """GetTelemetrySubscriptions is in flight."""


@dataclass(frozen=True, slots=True)
class PushNeeded:
    """The next push is sent at `request_at`."""

    subscription: TelemetrySubscription
    request_at: float


@dataclass(frozen=True, slots=True)
class PushInProgress:
    """PushTelemetry is in flight."""

    subscription: TelemetrySubscription


@dataclass(frozen=True, slots=True)
class TerminatingPushNeeded:
    """The client is closing, and sends its last push next."""

    subscription: TelemetrySubscription


@dataclass(frozen=True, slots=True)
class TerminatingPushInProgress:
    """The last PushTelemetry is in flight."""


@dataclass(frozen=True, slots=True)
class Terminated:
    """Nothing is sent any more: the client has closed, or a broker refused its metrics for good."""


TelemetryState = (
    SubscriptionNeeded
    | SubscriptionInProgress
    | PushNeeded
    | PushInProgress
    | TerminatingPushNeeded
    | TerminatingPushInProgress
    | Terminated
)
