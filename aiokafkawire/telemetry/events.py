"""Events and effects of the state machine that pushes client metrics (KIP-714)."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

__all__ = (
    "PushFailed",
    "PushSucceeded",
    "ReportDisabled",
    "SendPush",
    "SendSubscriptionRequest",
    "SubscriptionFailed",
    "SubscriptionReceived",
    "TelemetryCloseRequested",
    "TelemetryEffect",
    "TelemetryEvent",
    "TelemetryRequestDue",
    "TelemetrySubscription",
)


@dataclass(frozen=True, slots=True)
class TelemetrySubscription:
    """Metrics that a broker asked for, from a GetTelemetrySubscriptions response.

    Attributes:
        subscription_id: Id that each push carries.
        push_interval_s: Time between two pushes, in seconds.
        compression_type: Compression of the pushes.
        max_bytes: Maximum size of a push, compressed.
        delta_temporality: True if totals count from the last push, False if from the start.
        requested_metrics: Prefixes of the names of metrics; an empty prefix matches all.
    """

    subscription_id: int
    push_interval_s: float
    compression_type: int
    max_bytes: int
    delta_temporality: bool
    requested_metrics: tuple[str, ...]

    def requests(self, name: str) -> bool:
        """Return whether the broker wants a metric."""
        return name.startswith(self.requested_metrics)


# --- events ---


class TelemetryEvent:
    __slots__ = ()


@dataclass(frozen=True, slots=True)
class TelemetryRequestDue(TelemetryEvent):
    """The next request is due, and a broker can take it."""


@dataclass(frozen=True, slots=True)
class SubscriptionReceived(TelemetryEvent):
    """A broker answered GetTelemetrySubscriptions.

    `jitter` is a random number from 0 up to 1, for the first push.
    """

    client_instance_id: UUID
    subscription_id: int
    push_interval_ms: int
    accepted_compression_types: tuple[int, ...]
    telemetry_max_bytes: int
    delta_temporality: bool
    requested_metrics: tuple[str, ...]
    jitter: float


@dataclass(frozen=True, slots=True)
class SubscriptionFailed(TelemetryEvent):
    """GetTelemetrySubscriptions failed; `error_code` is None without a response."""

    error_code: int | None


@dataclass(frozen=True, slots=True)
class PushSucceeded(TelemetryEvent):
    """A broker took the push."""


@dataclass(frozen=True, slots=True)
class PushFailed(TelemetryEvent):
    """PushTelemetry failed, or the push was too large; `error_code` is None without a response."""

    error_code: int | None


@dataclass(frozen=True, slots=True)
class TelemetryCloseRequested(TelemetryEvent):
    """The client is closing. No request is in flight any more."""


# --- effects ---


@dataclass(frozen=True, slots=True)
class SendSubscriptionRequest:
    """Send GetTelemetrySubscriptions."""

    client_instance_id: UUID


@dataclass(frozen=True, slots=True)
class SendPush:
    """Send PushTelemetry; `terminating` with the last push of the client."""

    client_instance_id: UUID
    subscription: TelemetrySubscription
    terminating: bool


@dataclass(frozen=True, slots=True)
class ReportDisabled:
    """Log that no metrics are pushed any more, and why."""

    reason: str


TelemetryEffect = SendSubscriptionRequest | SendPush | ReportDisabled
