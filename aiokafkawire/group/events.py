"""What a member of a consumer group can hear.

A `RequestCompleted` event has the number of its request, so that late events are recognized.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from aiokafkawire.errors import KafkaError
from aiokafkawire.types import NodeId

from .states import Assignment, JoinResponseMember

__all__ = (
    "AssignmentComputed",
    "CloseRequested",
    "CommitRejected",
    "CoordinatorFound",
    "CoordinatorLoadInProgress",
    "CoordinatorNotFound",
    "CoordinatorUnavailable",
    "DeadlineReached",
    "ErrorReported",
    "FatalErrorOccurred",
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
    """The topics to read are these from now on (sorted; not empty)."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Unsubscribed(MembershipEvent):
    pass


@dataclass(frozen=True, slots=True)
class CloseRequested(MembershipEvent):
    deadline: float


@dataclass(frozen=True, slots=True)
class PollStarted(MembershipEvent):
    """The application called: what it was given before counts as processed."""


@dataclass(frozen=True, slots=True)
class RejoinRequested(MembershipEvent):
    """What was assigned is out of date: the leader saw that a topic's partitions changed."""

    reason: str


@dataclass(frozen=True, slots=True)
class CommitRejected(MembershipEvent):
    """A commit was refused: a heartbeat at once tells why."""


@dataclass(frozen=True, slots=True)
class ErrorReported(MembershipEvent):
    """The application was told why nothing comes any more."""


@dataclass(frozen=True, slots=True)
class DeadlineReached(MembershipEvent):
    """A deadline may have come."""


class RequestCompleted(MembershipEvent):
    """An event that answers the request of this number."""

    __slots__ = ()
    request: int


@dataclass(frozen=True, slots=True)
class CoordinatorFound(RequestCompleted):
    request: int
    node: NodeId


@dataclass(frozen=True, slots=True)
class CoordinatorNotFound(RequestCompleted):
    """No broker could say who the coordinator is; later one may."""

    request: int


@dataclass(frozen=True, slots=True)
class JoinedAsFollower(RequestCompleted):
    request: int
    member_id: str
    generation: int
    protocol: str


@dataclass(frozen=True, slots=True)
class JoinedAsLeader(RequestCompleted):
    """`skip_assignment` is set for a static member that came back: the old assignment stands."""

    request: int
    member_id: str
    generation: int
    protocol: str
    members: tuple[JoinResponseMember, ...]
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True)
class MemberIdAssigned(RequestCompleted):
    """MEMBER_ID_REQUIRED: join again under this id."""

    request: int
    member_id: str


@dataclass(frozen=True, slots=True)
class SessionTimeoutRejected(RequestCompleted):
    request: int
    error: KafkaError


@dataclass(frozen=True, slots=True)
class AssignmentComputed(RequestCompleted):
    """The assignor's result: the encoded assignment of each member id."""

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
    """It is another broker, or it cannot be reached, or did not answer."""

    request: int


@dataclass(frozen=True, slots=True)
class CoordinatorLoadInProgress(RequestCompleted):
    """It is the right broker, and is reading the group's state."""

    request: int


@dataclass(frozen=True, slots=True)
class UnknownMemberId(RequestCompleted):
    request: int


@dataclass(frozen=True, slots=True)
class IllegalGeneration(RequestCompleted):
    request: int


@dataclass(frozen=True, slots=True)
class ProtocolViolation(RequestCompleted):
    """The answer contradicts itself or what was asked."""

    request: int
    reason: str


@dataclass(frozen=True, slots=True)
class InstanceFenced(RequestCompleted):
    request: int
    error: KafkaError


@dataclass(frozen=True, slots=True)
class UnknownServerErrorReceived(RequestCompleted):
    """The coordinator failed inside, and does not say of what: it may pass, or not."""

    request: int
    error: KafkaError


@dataclass(frozen=True, slots=True)
class FatalErrorOccurred(RequestCompleted):
    """An error that no repetition mends."""

    request: int
    error: KafkaError


@dataclass(frozen=True, slots=True)
class PartitionsRevoked(RequestCompleted):
    """The application gave its partitions back."""

    request: int


@dataclass(frozen=True, slots=True)
class GroupLeft(RequestCompleted):
    """LeaveGroup was answered, or could not be."""

    request: int
