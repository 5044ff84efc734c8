"""States of a group member. A state owns the data that is valid only in it.

`table` has the table of transitions.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from aiokafkawire.errors import KafkaError
from aiokafkawire.runtime.interfaces import NEVER
from aiokafkawire.types import NodeId, TopicPartition

__all__ = (
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
    "JoinAttempt",
    "JoinFailed",
    "JoinIdentity",
    "JoinedMember",
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
"""Generation of a consumer that is not a member, and of commits outside a membership."""

Assignment = tuple[TopicPartition, ...]


class NextAction(enum.Enum):
    """Next action of a member after its partitions are revoked."""

    JOIN = "join"
    LEAVE = "leave"
    CLOSE = "close"


@dataclass(frozen=True, slots=True)
class Generation:
    """Membership in one generation. A broker checks it in Heartbeat, SyncGroup and OffsetCommit."""

    member_id: str
    number: int
    protocol: str
    topics: tuple[str, ...]
    """Topics that JoinGroup subscribed to."""
    is_leader: bool


@dataclass(frozen=True, slots=True)
class HeartbeatState:
    """Heartbeats of a member. Times are in seconds of the runtime's clock."""

    node: NodeId | None
    """The coordinator; None while it is unknown."""
    request: int | None
    """Number of the Heartbeat or FindCoordinator request in flight."""
    next_at: float
    session_ends: float
    """Without a response by then, the coordinator removed the member or is unreachable."""
    attempt: int = 0
    timeout_logged: bool = False
    """True after a session timeout without a response has been logged."""

    @property
    def deadline(self) -> float:
        return (
            self.session_ends if self.request is not None else min(self.next_at, self.session_ends)
        )


@dataclass(frozen=True, slots=True)
class JoinedMember:
    """A member in the leader's JoinGroup response. `metadata` is its encoded subscription."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


class MembershipState:
    """Base of all states.

    `awaited` are the numbers of the requests in flight: the `request` of the state, if it has one,
    and that of its heartbeat. `DeadlineReached` is due at `deadline`.
    """

    __slots__ = ()

    @property
    def awaited(self) -> tuple[int | None, ...]:
        return (getattr(self, "request", None),)

    @property
    def deadline(self) -> float:
        return NEVER

    @property
    def is_rebalancing(self) -> bool:
        """True from the revocation of partitions until the new assignment."""
        return False


@dataclass(frozen=True, slots=True)
class Unjoined(MembershipState):
    """Neither subscribed nor a member. For `must_rejoin` see `PollTimedOut`."""

    must_rejoin: bool = False


@dataclass(frozen=True, slots=True)
class JoinAttempt:
    """Why a member joins (KIP-800), and its failures so far, until it has an assignment."""

    reason: str
    failures: int = 0
    """Consecutive failures."""
    must_rejoin: bool = False
    """Rejoin after the assignment: see `PollTimedOut`."""


@dataclass(frozen=True, slots=True)
class JoinIdentity:
    """Member id and generation for JoinGroup. The id is "" until the coordinator assigns one."""

    attempt: JoinAttempt
    member_id: str = ""
    last_generation: int = NO_GENERATION
    """Last generation of this member id."""


class AttemptingJoin(MembershipState):
    """Joining without partitions: finding the coordinator, backing off, or JoinGroup in flight."""

    __slots__ = ()
    identity: JoinIdentity

    @property
    def is_rebalancing(self) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class FindingCoordinator(AttemptingJoin):
    identity: JoinIdentity
    request: int


@dataclass(frozen=True, slots=True)
class BackingOff(AttemptingJoin):
    """Waits for the next attempt. Without a `node`, the coordinator is found first."""

    identity: JoinIdentity
    node: NodeId | None
    until: float

    @property
    def deadline(self) -> float:
        return self.until


@dataclass(frozen=True, slots=True)
class Joining(AttemptingJoin):
    """JoinGroup is in flight. The coordinator may delay it for the whole rebalance timeout."""

    identity: JoinIdentity
    node: NodeId
    topics: tuple[str, ...]
    request: int


class InGeneration(MembershipState):
    """Base of the states of a member of a generation, which sends heartbeats."""

    __slots__ = ()
    generation: Generation
    heartbeat: HeartbeatState

    @property
    def awaited(self) -> tuple[int | None, ...]:
        return (getattr(self, "request", None), self.heartbeat.request)

    @property
    def deadline(self) -> float:
        return self.heartbeat.deadline


class AwaitingAssignment(InGeneration):
    """Base of the states before the assignment arrives. `request` is for the assignment."""

    __slots__ = ()
    request: int
    attempt: JoinAttempt

    @property
    def is_rebalancing(self) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class Assigning(AwaitingAssignment):
    """The leader's assignor is running."""

    generation: Generation
    heartbeat: HeartbeatState
    request: int
    attempt: JoinAttempt


@dataclass(frozen=True, slots=True)
class Syncing(AwaitingAssignment):
    """SyncGroup is in flight. Its response has the assignment."""

    generation: Generation
    heartbeat: HeartbeatState
    request: int
    attempt: JoinAttempt


class Assigned(InGeneration):
    """Base of the states with an assignment, which may be empty only in `Stable`."""

    __slots__ = ()
    assignment: Assignment


@dataclass(frozen=True, slots=True)
class Stable(Assigned):
    """Assigned, and no rebalance is known."""

    generation: Generation
    heartbeat: HeartbeatState
    assignment: Assignment


@dataclass(frozen=True, slots=True)
class RevocationDue(Assigned):
    """Partitions must be revoked, but the application still processes their records.

    `to_revoke` are all partitions (eager) or those that the new assignment lacks (cooperative). In
    the latter case `to_add` are the new ones, which are assigned after the revocation. Then the
    member rejoins for the `reason`.
    """

    generation: Generation
    heartbeat: HeartbeatState
    assignment: Assignment
    to_revoke: Assignment
    reason: str
    to_add: Assignment | None = None


@dataclass(frozen=True, slots=True)
class Revoking(Assigned):
    """The rebalance callback and the commit are running. `to_revoke` is revoked afterwards.

    Then the member rejoins for the `reason`, or leaves if `next_action` says so. `owes_rejoin`: it
    leaves instead of a rejoin without which partitions have no owner.
    """

    generation: Generation
    heartbeat: HeartbeatState
    assignment: Assignment
    to_revoke: Assignment
    request: int
    next_action: NextAction
    reason: str = ""
    to_add: Assignment | None = None
    owes_rejoin: bool = False

    @property
    def is_rebalancing(self) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class PendingLeave:
    """A member that leaves after the rebalance, at the latest at `deadline`.

    During a rebalance the coordinator rejects commits.
    """

    next_action: NextAction
    deadline: float


class CooperativeRejoin(Assigned):
    """Base of the states of a member that rejoins and keeps its partitions (KIP-429)."""

    __slots__ = ()
    attempt: JoinAttempt

    @property
    def pending_leave(self) -> PendingLeave | None:
        return None

    @property
    def is_rebalancing(self) -> bool:
        return True


class CooperativeRejoinInFlight(CooperativeRejoin):
    """Base of the cooperative rejoin states with a request in flight."""

    __slots__ = ()
    request: int

    @property
    def deadline(self) -> float:
        return min(
            self.heartbeat.deadline, self.pending_leave.deadline if self.pending_leave else NEVER
        )


@dataclass(frozen=True, slots=True)
class RejoinBackoff(CooperativeRejoin):
    """Waits to rejoin until the backoff ends at `until` and the coordinator is known."""

    generation: Generation
    heartbeat: HeartbeatState
    assignment: Assignment
    attempt: JoinAttempt
    until: float

    @property
    def deadline(self) -> float:
        if self.heartbeat.node is None:
            return self.heartbeat.deadline
        return min(self.until, self.heartbeat.deadline)


@dataclass(frozen=True, slots=True)
class Rejoining(CooperativeRejoinInFlight):
    """JoinGroup with owned partitions is in flight to `node`."""

    generation: Generation
    heartbeat: HeartbeatState
    assignment: Assignment
    attempt: JoinAttempt
    request: int
    node: NodeId
    topics: tuple[str, ...]
    pending_leave: PendingLeave | None = None


@dataclass(frozen=True, slots=True)
class Reassigning(CooperativeRejoinInFlight, AwaitingAssignment):
    """As `Assigning`, with the partitions of the previous generation."""

    generation: Generation
    heartbeat: HeartbeatState
    assignment: Assignment
    request: int
    attempt: JoinAttempt
    pending_leave: PendingLeave | None = None


@dataclass(frozen=True, slots=True)
class Resyncing(CooperativeRejoinInFlight, AwaitingAssignment):
    """As `Syncing`, with the partitions of the previous generation."""

    generation: Generation
    heartbeat: HeartbeatState
    assignment: Assignment
    request: int
    attempt: JoinAttempt
    pending_leave: PendingLeave | None = None


@dataclass(frozen=True, slots=True)
class PollTimedOut(MembershipState):
    """Left the group after max_poll_interval_ms without a poll. The next poll rejoins.

    A static member returns to the same generation. Partitions that it should have revoked there
    are unassigned until it rejoins again, so it `must_rejoin`. If it does not return, it leaves
    with its `member_id`, which is "" for a member that has left.
    """

    must_rejoin: bool = False
    member_id: str = ""


@dataclass(frozen=True, slots=True)
class AwaitingMemberId(MembershipState):
    """Leaves as soon as the response to its first JoinGroup has the member id."""

    request: int
    next_action: NextAction
    until: float

    @property
    def deadline(self) -> float:
        return self.until


@dataclass(frozen=True, slots=True)
class Leaving(MembershipState):
    request: int
    next_action: NextAction
    until: float

    @property
    def deadline(self) -> float:
        return self.until


@dataclass(frozen=True, slots=True)
class Fenced(MembershipState):
    """Another member uses the same group_instance_id. Final."""

    error: KafkaError
    reported: bool = False


@dataclass(frozen=True, slots=True)
class JoinFailed(MembershipState):
    """Joining failed. After the error is `reported`, the next poll tries again.

    For `must_rejoin` see `PollTimedOut`.
    """

    error: KafkaError
    reported: bool = False
    must_rejoin: bool = False


@dataclass(frozen=True, slots=True)
class MembershipClosed(MembershipState):
    pass
