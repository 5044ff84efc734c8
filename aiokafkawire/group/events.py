"""What a member of a consumer group can hear.

An `Answer` carries the number of the request that it answers, so that a late one is told from the
one that the state waits for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from aiokafkawire.errors import KafkaError
from aiokafkawire.types import NodeId

from .states import Assignment, JoinedMember

__all__ = (
    "Answer",
    "ApplicationEntered",
    "AssignmentMade",
    "Closing",
    "Contradicted",
    "CoordinatorFound",
    "CoordinatorLoading",
    "CoordinatorLost",
    "CoordinatorMissing",
    "Doubted",
    "Event",
    "GenerationOutdated",
    "HeartbeatAnswered",
    "InstanceFenced",
    "JoinedAsFollower",
    "JoinedAsLeader",
    "LeftGroup",
    "MemberIdAssigned",
    "MemberUnknown",
    "RebalanceBegan",
    "Refused",
    "Rejoin",
    "Revoked",
    "ServerFailed",
    "SessionTimeoutRefused",
    "Subscribed",
    "Synced",
    "Tick",
    "Told",
    "Unsubscribed",
)


class Event:
    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Subscribed(Event):
    """The topics to read are these from now on (sorted; not empty)."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Unsubscribed(Event):
    pass


@dataclass(frozen=True, slots=True)
class Closing(Event):
    deadline: float


@dataclass(frozen=True, slots=True)
class ApplicationEntered(Event):
    """The application called: what it was given before counts as processed."""


@dataclass(frozen=True, slots=True)
class Rejoin(Event):
    """What was assigned is out of date: the leader saw that a topic's partitions changed."""

    reason: str


@dataclass(frozen=True, slots=True)
class Doubted(Event):
    """A commit was refused: a heartbeat at once tells why."""


@dataclass(frozen=True, slots=True)
class Told(Event):
    """The application was told why nothing comes any more."""


@dataclass(frozen=True, slots=True)
class Tick(Event):
    """A deadline may have come."""


class Answer(Event):
    """An event that answers the request of this number."""

    __slots__ = ()
    request: int


@dataclass(frozen=True, slots=True)
class CoordinatorFound(Answer):
    request: int
    node: NodeId


@dataclass(frozen=True, slots=True)
class CoordinatorMissing(Answer):
    """No broker could say who the coordinator is; later one may."""

    request: int


@dataclass(frozen=True, slots=True)
class JoinedAsFollower(Answer):
    request: int
    member_id: str
    generation: int
    protocol: str


@dataclass(frozen=True, slots=True)
class JoinedAsLeader(Answer):
    """`skip_assignment` is set for a static member that came back: the old assignment stands."""

    request: int
    member_id: str
    generation: int
    protocol: str
    members: tuple[JoinedMember, ...]
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True)
class MemberIdAssigned(Answer):
    """MEMBER_ID_REQUIRED: join again under this id."""

    request: int
    member_id: str


@dataclass(frozen=True, slots=True)
class SessionTimeoutRefused(Answer):
    request: int
    error: KafkaError


@dataclass(frozen=True, slots=True)
class AssignmentMade(Answer):
    """The assignor's result: the encoded assignment of each member id."""

    request: int
    assignments: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class Synced(Answer):
    request: int
    assignment: Assignment


@dataclass(frozen=True, slots=True)
class HeartbeatAnswered(Answer):
    request: int


@dataclass(frozen=True, slots=True)
class RebalanceBegan(Answer):
    request: int


@dataclass(frozen=True, slots=True)
class CoordinatorLost(Answer):
    """It is another broker, or it cannot be reached, or did not answer."""

    request: int


@dataclass(frozen=True, slots=True)
class CoordinatorLoading(Answer):
    """It is the right broker, and is reading the group's state."""

    request: int


@dataclass(frozen=True, slots=True)
class MemberUnknown(Answer):
    request: int


@dataclass(frozen=True, slots=True)
class GenerationOutdated(Answer):
    request: int


@dataclass(frozen=True, slots=True)
class Contradicted(Answer):
    """The answer contradicts itself or what was asked."""

    request: int
    reason: str


@dataclass(frozen=True, slots=True)
class InstanceFenced(Answer):
    request: int
    error: KafkaError


@dataclass(frozen=True, slots=True)
class ServerFailed(Answer):
    """The coordinator failed inside, and does not say of what: it may pass, or not."""

    request: int
    error: KafkaError


@dataclass(frozen=True, slots=True)
class Refused(Answer):
    """An error that no repetition mends."""

    request: int
    error: KafkaError


@dataclass(frozen=True, slots=True)
class Revoked(Answer):
    """The application gave its partitions back."""

    request: int


@dataclass(frozen=True, slots=True)
class LeftGroup(Answer):
    """LeaveGroup was answered, or could not be."""

    request: int
