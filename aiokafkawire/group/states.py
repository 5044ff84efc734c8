"""What a member of a consumer group can be in. A state owns its data.

`membership_machine` holds the table that binds states and events.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from aiokafkawire.errors import KafkaError
from aiokafkawire.runtime.interfaces import NEVER
from aiokafkawire.types import NodeId, TopicPartition

__all__ = (
    "NEW_MEMBER",
    "NO_GENERATION",
    "Assigned",
    "Assigning",
    "Assignment",
    "AttemptingJoin",
    "AwaitingAssignment",
    "AwaitingMemberId",
    "BackingOff",
    "CooperativeRejoin",
    "CooperativeRejoinInFlight",
    "Fenced",
    "FindingCoordinator",
    "Generation",
    "HeartbeatState",
    "InGeneration",
    "JoinFailed",
    "JoinIdentity",
    "JoinResponseMember",
    "Joining",
    "Leaving",
    "MembershipClosed",
    "MembershipState",
    "NextAction",
    "PendingLeave",
    "PollTimedOut",
    "Reassigning",
    "RejoinBackoff",
    "Rejoining",
    "Resyncing",
    "RevocationDue",
    "Revoking",
    "Stable",
    "Syncing",
    "Unjoined",
)

NO_GENERATION = -1
"""The generation of whoever is not a member; also that of commits outside a group."""

Assignment = tuple[TopicPartition, ...]


class NextAction(enum.Enum):
    """What a member does once its partitions are given back."""

    JOIN = "join"
    LEAVE = "leave"
    CLOSE = "close"


@dataclass(frozen=True, slots=True)
class Generation:
    """A membership: what a broker checks at each Heartbeat, SyncGroup and OffsetCommit."""

    member_id: str
    number: int
    protocol: str
    topics: tuple[str, ...]
    """The subscription that it was joined with."""
    is_leader: bool


@dataclass(frozen=True, slots=True)
class HeartbeatState:
    """The heartbeats of a member. Times are absolute seconds."""

    node: NodeId | None
    """The coordinator; None while it is being looked for."""
    request: int | None
    """The heartbeat or the look-up that is under way."""
    next_at: float
    session_ends: float
    """Without an answer by then the coordinator has forgotten the member, or is not there."""
    attempt: int = 0
    timeout_logged: bool = False
    """Whether a whole session has passed without an answer, and that was told."""

    @property
    def deadline(self) -> float:
        return (
            self.session_ends if self.request is not None else min(self.next_at, self.session_ends)
        )


@dataclass(frozen=True, slots=True)
class JoinResponseMember:
    """One member as the leader sees it; `metadata` is its encoded subscription."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


class MembershipState:
    """What all states answer: which requests they wait for, and when they want to be woken."""

    __slots__ = ()

    @property
    def awaited(self) -> tuple[int | None, ...]:
        return ()

    @property
    def deadline(self) -> float:
        return NEVER


@dataclass(frozen=True, slots=True)
class Unjoined(MembershipState):
    """No subscription, no membership."""


@dataclass(frozen=True, slots=True)
class JoinIdentity:
    """Who wants to come in: "" until the coordinator gave a member id."""

    member_id: str = ""
    last_generation: int = NO_GENERATION
    """The last generation that this member id had."""
    attempt: int = 0
    """Failures in a row."""


NEW_MEMBER = JoinIdentity()


class AttemptingJoin(MembershipState):
    """On the way in."""

    __slots__ = ()
    identity: JoinIdentity


@dataclass(frozen=True, slots=True)
class FindingCoordinator(AttemptingJoin):
    identity: JoinIdentity
    request: int

    @property
    def awaited(self) -> tuple[int | None, ...]:
        return (self.request,)


@dataclass(frozen=True, slots=True)
class BackingOff(AttemptingJoin):
    """Waits before the next attempt: at `node` if that is known, else it is looked for."""

    identity: JoinIdentity
    node: NodeId | None
    until: float

    @property
    def deadline(self) -> float:
        return self.until


@dataclass(frozen=True, slots=True)
class Joining(AttemptingJoin):
    """A JoinGroup is under way; the coordinator may park it for the whole rebalance timeout."""

    identity: JoinIdentity
    node: NodeId
    topics: tuple[str, ...]
    request: int

    @property
    def awaited(self) -> tuple[int | None, ...]:
        return (self.request,)


class InGeneration(MembershipState):
    """A member of a generation; its heartbeats go on in every such state."""

    __slots__ = ()
    generation: Generation
    heartbeat: HeartbeatState

    @property
    def awaited(self) -> tuple[int | None, ...]:
        return (self.heartbeat.request,)

    @property
    def deadline(self) -> float:
        return self.heartbeat.deadline


class AwaitingAssignment(InGeneration):
    """A member that waits for what the generation gives it; `request` is for that."""

    __slots__ = ()
    request: int
    attempt: int

    @property
    def awaited(self) -> tuple[int | None, ...]:
        return (self.request, self.heartbeat.request)


@dataclass(frozen=True, slots=True)
class Assigning(AwaitingAssignment):
    """The leader: its assignor divides the partitions."""

    generation: Generation
    heartbeat: HeartbeatState
    request: int
    attempt: int


@dataclass(frozen=True, slots=True)
class Syncing(AwaitingAssignment):
    """A SyncGroup is under way; its answer brings the partitions."""

    generation: Generation
    heartbeat: HeartbeatState
    request: int
    attempt: int


class Assigned(InGeneration):
    """A member that owns partitions; only a `Stable` one may own none."""

    __slots__ = ()
    assignment: Assignment


@dataclass(frozen=True, slots=True)
class Stable(Assigned):
    """A member with its partitions, and no rebalance that it knows of."""

    generation: Generation
    heartbeat: HeartbeatState
    assignment: Assignment


@dataclass(frozen=True, slots=True)
class RevocationDue(Assigned):
    """Partitions have to go, and the application is still at work on what it was given.

    `to_revoke` are all of them (eager), or those that the new generation takes away (cooperative):
    `to_add` are then what it brings, to be told of afterwards.
    """

    generation: Generation
    heartbeat: HeartbeatState
    assignment: Assignment
    to_revoke: Assignment
    to_add: Assignment | None = None


@dataclass(frozen=True, slots=True)
class Revoking(Assigned):
    """The application's callback and the commit run; then `to_revoke` is given back."""

    generation: Generation
    heartbeat: HeartbeatState
    assignment: Assignment
    to_revoke: Assignment
    request: int
    next_action: NextAction
    to_add: Assignment | None = None

    @property
    def awaited(self) -> tuple[int | None, ...]:
        return (self.request, self.heartbeat.request)


@dataclass(frozen=True, slots=True)
class PendingLeave:
    """A member that shall leave lets the rebalance come to its end first, up to `by` (seconds).

    In the middle of it the coordinator takes no commits.
    """

    next_action: NextAction
    deadline: float


class CooperativeRejoin(Assigned):
    """A member on its way into the next generation, which goes on with what it owns (KIP-429)."""

    __slots__ = ()
    attempt: int

    @property
    def pending_leave(self) -> PendingLeave | None:
        return None


class CooperativeRejoinInFlight(CooperativeRejoin):
    """A keeper that waits for an answer."""

    __slots__ = ()
    request: int

    @property
    def awaited(self) -> tuple[int | None, ...]:
        return (self.request, self.heartbeat.request)

    @property
    def deadline(self) -> float:
        return min(
            self.heartbeat.deadline, self.pending_leave.deadline if self.pending_leave else NEVER
        )


@dataclass(frozen=True, slots=True)
class RejoinBackoff(CooperativeRejoin):
    """Waits before it joins again, and for the coordinator if that is being looked for."""

    generation: Generation
    heartbeat: HeartbeatState
    assignment: Assignment
    attempt: int
    until: float

    @property
    def deadline(self) -> float:
        if self.heartbeat.node is None:
            return self.heartbeat.deadline
        return min(self.until, self.heartbeat.deadline)


@dataclass(frozen=True, slots=True)
class Rejoining(CooperativeRejoinInFlight):
    """A JoinGroup is under way at `node`, of a member of an earlier generation."""

    generation: Generation
    heartbeat: HeartbeatState
    assignment: Assignment
    attempt: int
    request: int
    node: NodeId
    topics: tuple[str, ...]
    pending_leave: PendingLeave | None = None


@dataclass(frozen=True, slots=True)
class Reassigning(CooperativeRejoinInFlight, AwaitingAssignment):
    """As `Assigning`, with the partitions of the generation before."""

    generation: Generation
    heartbeat: HeartbeatState
    assignment: Assignment
    request: int
    attempt: int
    pending_leave: PendingLeave | None = None


@dataclass(frozen=True, slots=True)
class Resyncing(CooperativeRejoinInFlight, AwaitingAssignment):
    """As `Syncing`, with the partitions of the generation before."""

    generation: Generation
    heartbeat: HeartbeatState
    assignment: Assignment
    request: int
    attempt: int
    pending_leave: PendingLeave | None = None


@dataclass(frozen=True, slots=True)
class PollTimedOut(MembershipState):
    """Left, because the application did not call for max_poll_interval_ms; joins when it does."""


@dataclass(frozen=True, slots=True)
class AwaitingMemberId(MembershipState):
    """Wants to leave, but only the answer to its first JoinGroup says as whom."""

    request: int
    next_action: NextAction
    until: float

    @property
    def awaited(self) -> tuple[int | None, ...]:
        return (self.request,)

    @property
    def deadline(self) -> float:
        return self.until


@dataclass(frozen=True, slots=True)
class Leaving(MembershipState):
    request: int
    next_action: NextAction
    until: float

    @property
    def awaited(self) -> tuple[int | None, ...]:
        return (self.request,)

    @property
    def deadline(self) -> float:
        return self.until


@dataclass(frozen=True, slots=True)
class Fenced(MembershipState):
    """Another member runs under the same group_instance_id."""

    error: KafkaError
    reported: bool = False


@dataclass(frozen=True, slots=True)
class JoinFailed(MembershipState):
    """The group could not be joined. Once the application was `told`, its next call tries anew."""

    error: KafkaError
    reported: bool = False


@dataclass(frozen=True, slots=True)
class MembershipClosed(MembershipState):
    pass
