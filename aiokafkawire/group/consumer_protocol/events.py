"""Events of the machine that the classic protocol does not have; the others are shared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from aiokafkawire.errors import KafkaError
from aiokafkawire.group.membership.events import MembershipEvent, RequestCompleted

from .states import TargetAssignment

__all__ = (
    "HeartbeatResponded",
    "InstanceIdUnreleased",
    "MemberFenced",
    "ProtocolUnavailable",
    "TopicsResolved",
    "TopicsUnauthorized",
)


@dataclass(frozen=True, slots=True)
class TopicsResolved(MembershipEvent):
    """The metadata has changed. `names` has the names of topics by id."""

    names: Mapping[UUID, str]


@dataclass(frozen=True, slots=True)
class HeartbeatResponded(RequestCompleted):
    """A heartbeat succeeded. `target` is None if the assignment has not changed."""

    request: int
    epoch: int
    interval_s: float
    target: TargetAssignment | None


@dataclass(frozen=True, slots=True)
class MemberFenced(RequestCompleted):
    """The coordinator does not know the member or its epoch any more."""

    request: int
    error: KafkaError


@dataclass(frozen=True, slots=True)
class ProtocolUnavailable(RequestCompleted):
    """The cluster lacks the consumer protocol, or the group is of another type."""

    request: int
    error: KafkaError


@dataclass(frozen=True, slots=True)
class TopicsUnauthorized(RequestCompleted):
    """The principal may not see a subscribed topic. The heartbeat had no effect."""

    request: int
    error: KafkaError


@dataclass(frozen=True, slots=True)
class InstanceIdUnreleased(RequestCompleted):
    """A member with the same group instance id has neither left nor timed out."""

    request: int
    error: KafkaError
