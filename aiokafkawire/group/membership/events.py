"""Events of the membership machine.

A `RequestCompleted` event has the number of its request, so that late events are recognized.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from aiokafkawire.errors import KafkaError
from aiokafkawire.types import NodeId

from .context import GroupMembershipOperation
from .states import Assignment, JoinedMember

__all__ = (
    "AssignmentComputed",
    "CloseRequested",
    "CommitRejected",
    "CoordinatorFound",
    "CoordinatorLoadInProgress",
    "CoordinatorNotFound",
    "CoordinatorUnavailable",
    "DeadlineReached",
    "FatalErrorOccurred",
    "GroupErrorReported",
    "GroupLeft",
    "HeartbeatSucceeded",
    "IllegalGeneration",
    "InstanceFenced",
    "JoinedAsFollower",
    "JoinedAsLeader",
    "MemberIdAssigned",
    "MembershipEvent",
    "PartitionsRevoked",
    "PollStarted",
    "ProtocolViolation",
    "RebalanceInProgress",
    "RejoinRequested",
    "RequestCompleted",
    "SessionTimeoutRejected",
    "Subscribed",
    "Synced",
    "UnknownMemberId",
    "UnknownServerErrorReceived",
    "Unsubscribed",
)


class MembershipEvent:
    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Subscribed(MembershipEvent):
    """The subscription is now `topics`, which is sorted, or a `pattern` for the coordinator."""

    topics: tuple[str, ...]
    pattern: str | None = None


@dataclass(frozen=True, slots=True)
class Unsubscribed(MembershipEvent):
    pass


@dataclass(frozen=True, slots=True)
class CloseRequested(MembershipEvent):
    deadline: float
    operation: GroupMembershipOperation = "default"


@dataclass(frozen=True, slots=True)
class PollStarted(MembershipEvent):
    """The application polled. Records returned before are processed."""


@dataclass(frozen=True, slots=True)
class RejoinRequested(MembershipEvent):
    """The number of partitions of a topic changed, so the leader's assignment is outdated."""

    reason: str


@dataclass(frozen=True, slots=True)
class CommitRejected(MembershipEvent):
    """A commit was rejected. An immediate heartbeat finds out why."""


@dataclass(frozen=True, slots=True)
class GroupErrorReported(MembershipEvent):
    """The final error was reported to the application."""


@dataclass(frozen=True, slots=True)
class DeadlineReached(MembershipEvent):
    """A deadline may have passed."""


class RequestCompleted(MembershipEvent):
    """Base of the events that complete the request with this number."""

    __slots__ = ()
    request: int


@dataclass(frozen=True, slots=True)
class CoordinatorFound(RequestCompleted):
    request: int
    node: NodeId


@dataclass(frozen=True, slots=True)
class CoordinatorNotFound(RequestCompleted):
    """No broker knows the coordinator at present."""

    request: int


@dataclass(frozen=True, slots=True)
class JoinedAsFollower(RequestCompleted):
    """`coordinator_assigns`: this is a group of the consumer protocol, which has no leader."""

    request: int
    member_id: str
    generation: int
    protocol: str
    coordinator_assigns: bool = False


@dataclass(frozen=True, slots=True)
class JoinedAsLeader(RequestCompleted):
    """`skip_assignment`: a static member came back and its assignment remains (KIP-814)."""

    request: int
    member_id: str
    generation: int
    protocol: str
    members: tuple[JoinedMember, ...]
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True)
class MemberIdAssigned(RequestCompleted):
    """MEMBER_ID_REQUIRED: rejoin with this member id (KIP-394)."""

    request: int
    member_id: str


@dataclass(frozen=True, slots=True)
class SessionTimeoutRejected(RequestCompleted):
    request: int
    error: KafkaError


@dataclass(frozen=True, slots=True)
class AssignmentComputed(RequestCompleted):
    """The assignor returned. `assignments` has the encoded assignment per member id."""

    request: int
    assignments: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class Synced(RequestCompleted):
    request: int
    assignment: Assignment


@dataclass(frozen=True, slots=True)
class HeartbeatSucceeded(RequestCompleted):
    request: int


@dataclass(frozen=True, slots=True)
class RebalanceInProgress(RequestCompleted):
    request: int


@dataclass(frozen=True, slots=True)
class CoordinatorUnavailable(RequestCompleted):
    """The coordinator moved, is unreachable or did not respond."""

    request: int


@dataclass(frozen=True, slots=True)
class CoordinatorLoadInProgress(RequestCompleted):
    """The coordinator is still loading the group's state."""

    request: int


@dataclass(frozen=True, slots=True)
class UnknownMemberId(RequestCompleted):
    request: int


@dataclass(frozen=True, slots=True)
class IllegalGeneration(RequestCompleted):
    request: int


@dataclass(frozen=True, slots=True)
class ProtocolViolation(RequestCompleted):
    """A response contradicts itself or its request."""

    request: int
    reason: str


@dataclass(frozen=True, slots=True)
class InstanceFenced(RequestCompleted):
    request: int
    error: KafkaError


@dataclass(frozen=True, slots=True)
class UnknownServerErrorReceived(RequestCompleted):
    """UNKNOWN_SERVER_ERROR: the cause is unknown and may be temporary."""

    request: int
    error: KafkaError


@dataclass(frozen=True, slots=True)
class FatalErrorOccurred(RequestCompleted):
    """A request failed with an error that is not retriable."""

    request: int
    error: KafkaError


@dataclass(frozen=True, slots=True)
class PartitionsRevoked(RequestCompleted):
    """The rebalance callback and the last commit are complete."""

    request: int


@dataclass(frozen=True, slots=True)
class GroupLeft(RequestCompleted):
    """LeaveGroup succeeded or failed."""

    request: int
