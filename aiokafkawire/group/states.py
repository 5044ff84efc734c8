"""What a member of a consumer group can be in. A state owns its data.

`membership` holds the table that binds states and events.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from aiokafkawire.errors import KafkaError
from aiokafkawire.runtime.base import NEVER
from aiokafkawire.types import NodeId, TopicPartition

__all__ = (
    "NOBODY",
    "NO_GENERATION",
    "After",
    "Arriving",
    "Assigning",
    "Assignment",
    "AwaitingIdentity",
    "BackingOff",
    "Busy",
    "Closed",
    "Departure",
    "Failed",
    "Fenced",
    "FindingCoordinator",
    "Generation",
    "Identity",
    "Inside",
    "JoinedMember",
    "Joining",
    "Keeper",
    "Lapsed",
    "Leaving",
    "Outside",
    "Owner",
    "Pulse",
    "Reassigning",
    "Rejoining",
    "Resyncing",
    "Returning",
    "RevocationDue",
    "Revoking",
    "Stable",
    "State",
    "Syncing",
    "Unjoined",
)

NO_GENERATION = -1
"""The generation of whoever is not a member; also that of commits outside a group."""

Assignment = tuple[TopicPartition, ...]


class After(enum.Enum):
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
    leads: bool


@dataclass(frozen=True, slots=True)
class Pulse:
    """The heartbeats of a member. Times are absolute seconds."""

    node: NodeId | None
    """The coordinator; None while it is being looked for."""
    request: int | None
    """The heartbeat or the look-up that is under way."""
    next_at: float
    session_ends: float
    """Without an answer by then the coordinator has forgotten the member, or is not there."""
    attempt: int = 0
    silent: bool = False
    """Whether a whole session has passed without an answer, and that was told."""

    @property
    def deadline(self) -> float:
        return (
            self.session_ends if self.request is not None else min(self.next_at, self.session_ends)
        )


@dataclass(frozen=True, slots=True)
class JoinedMember:
    """One member as the leader sees it; `metadata` is its encoded subscription."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


class State:
    """What all states answer: which requests they wait for, and when they want to be woken."""

    __slots__ = ()

    @property
    def awaited(self) -> tuple[int | None, ...]:
        return ()

    @property
    def deadline(self) -> float:
        return NEVER


@dataclass(frozen=True, slots=True)
class Unjoined(State):
    """No subscription, no membership."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Who wants to come in: "" until the coordinator gave a member id."""

    member_id: str = ""
    previous: int = NO_GENERATION
    """The last generation that this member id had."""
    attempt: int = 0
    """Failures in a row."""


NOBODY = Identity()


class Outside(State):
    """On the way in."""

    __slots__ = ()
    identity: Identity


@dataclass(frozen=True, slots=True)
class FindingCoordinator(Outside):
    identity: Identity
    request: int

    @property
    def awaited(self) -> tuple[int | None, ...]:
        return (self.request,)


@dataclass(frozen=True, slots=True)
class BackingOff(Outside):
    """Waits before the next attempt: at `node` if that is known, else it is looked for."""

    identity: Identity
    node: NodeId | None
    until: float

    @property
    def deadline(self) -> float:
        return self.until


@dataclass(frozen=True, slots=True)
class Joining(Outside):
    """A JoinGroup is under way; the coordinator may park it for the whole rebalance timeout."""

    identity: Identity
    node: NodeId
    topics: tuple[str, ...]
    request: int

    @property
    def awaited(self) -> tuple[int | None, ...]:
        return (self.request,)


class Inside(State):
    """A member of a generation; its heartbeats go on in every such state."""

    __slots__ = ()
    generation: Generation
    pulse: Pulse

    @property
    def awaited(self) -> tuple[int | None, ...]:
        return (self.pulse.request,)

    @property
    def deadline(self) -> float:
        return self.pulse.deadline


class Arriving(Inside):
    """A member that waits for what the generation gives it; `request` is for that."""

    __slots__ = ()
    request: int
    attempt: int

    @property
    def awaited(self) -> tuple[int | None, ...]:
        return (self.request, self.pulse.request)


@dataclass(frozen=True, slots=True)
class Assigning(Arriving):
    """The leader: its assignor divides the partitions."""

    generation: Generation
    pulse: Pulse
    request: int
    attempt: int


@dataclass(frozen=True, slots=True)
class Syncing(Arriving):
    """A SyncGroup is under way; its answer brings the partitions."""

    generation: Generation
    pulse: Pulse
    request: int
    attempt: int


class Owner(Inside):
    """A member that owns partitions; only a `Stable` one may own none."""

    __slots__ = ()
    assignment: Assignment


@dataclass(frozen=True, slots=True)
class Stable(Owner):
    """A member with its partitions, and no rebalance that it knows of."""

    generation: Generation
    pulse: Pulse
    assignment: Assignment


@dataclass(frozen=True, slots=True)
class RevocationDue(Owner):
    """Partitions have to go, and the application is still at work on what it was given.

    `going` are all of them (eager), or those that the new generation takes away (cooperative):
    `coming` are then what it brings, to be told of afterwards.
    """

    generation: Generation
    pulse: Pulse
    assignment: Assignment
    going: Assignment
    coming: Assignment | None = None


@dataclass(frozen=True, slots=True)
class Revoking(Owner):
    """The application's callback and the commit run; then `going` is given back."""

    generation: Generation
    pulse: Pulse
    assignment: Assignment
    going: Assignment
    request: int
    after: After
    coming: Assignment | None = None

    @property
    def awaited(self) -> tuple[int | None, ...]:
        return (self.request, self.pulse.request)


@dataclass(frozen=True, slots=True)
class Departure:
    """A member that shall leave lets the rebalance come to its end first, up to `by` (seconds).

    In the middle of it the coordinator takes no commits.
    """

    after: After
    by: float


class Keeper(Owner):
    """A member on its way into the next generation, which goes on with what it owns (KIP-429)."""

    __slots__ = ()
    attempt: int

    @property
    def departure(self) -> Departure | None:
        return None


class Busy(Keeper):
    """A keeper that waits for an answer."""

    __slots__ = ()
    request: int
    leaving: Departure | None

    @property
    def departure(self) -> Departure | None:
        return self.leaving

    @property
    def awaited(self) -> tuple[int | None, ...]:
        return (self.request, self.pulse.request)

    @property
    def deadline(self) -> float:
        return min(self.pulse.deadline, self.leaving.by if self.leaving else NEVER)


@dataclass(frozen=True, slots=True)
class Returning(Keeper):
    """Waits before it joins again, and for the coordinator if that is being looked for."""

    generation: Generation
    pulse: Pulse
    assignment: Assignment
    attempt: int
    until: float

    @property
    def deadline(self) -> float:
        if self.pulse.node is None:
            return self.pulse.deadline
        return min(self.until, self.pulse.deadline)


@dataclass(frozen=True, slots=True)
class Rejoining(Busy):
    """A JoinGroup is under way at `node`, of a member of an earlier generation."""

    generation: Generation
    pulse: Pulse
    assignment: Assignment
    attempt: int
    request: int
    node: NodeId
    topics: tuple[str, ...]
    leaving: Departure | None = None


@dataclass(frozen=True, slots=True)
class Reassigning(Busy, Arriving):
    """As `Assigning`, with the partitions of the generation before."""

    generation: Generation
    pulse: Pulse
    assignment: Assignment
    request: int
    attempt: int
    leaving: Departure | None = None


@dataclass(frozen=True, slots=True)
class Resyncing(Busy, Arriving):
    """As `Syncing`, with the partitions of the generation before."""

    generation: Generation
    pulse: Pulse
    assignment: Assignment
    request: int
    attempt: int
    leaving: Departure | None = None


@dataclass(frozen=True, slots=True)
class Lapsed(State):
    """Left, because the application did not call for max_poll_interval_ms; joins when it does."""


@dataclass(frozen=True, slots=True)
class AwaitingIdentity(State):
    """Wants to leave, but only the answer to its first JoinGroup says as whom."""

    request: int
    after: After
    until: float

    @property
    def awaited(self) -> tuple[int | None, ...]:
        return (self.request,)

    @property
    def deadline(self) -> float:
        return self.until


@dataclass(frozen=True, slots=True)
class Leaving(State):
    request: int
    after: After
    until: float

    @property
    def awaited(self) -> tuple[int | None, ...]:
        return (self.request,)

    @property
    def deadline(self) -> float:
        return self.until


@dataclass(frozen=True, slots=True)
class Fenced(State):
    """Another member runs under the same group_instance_id."""

    error: KafkaError
    told: bool = False


@dataclass(frozen=True, slots=True)
class Failed(State):
    """The group could not be joined. Once the application was `told`, its next call tries anew."""

    error: KafkaError
    told: bool = False


@dataclass(frozen=True, slots=True)
class Closed(State):
    pass
