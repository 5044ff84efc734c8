"""States of a member of the consumer protocol. A state owns the data that is valid only in it.

Names follow Java's `MemberState` where the state is the same. `table` has the table of transitions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from aiokafkawire.group.membership.states import MembershipState, NextAction
from aiokafkawire.group.topic_id_partition import Partitions, TopicIdPartition
from aiokafkawire.runtime.interfaces import NEVER
from aiokafkawire.types import NodeId

__all__ = (
    "JOIN_EPOCH",
    "NOTHING_ASSIGNED",
    "ConsumerJoining",
    "ConsumerRevocationDue",
    "ConsumerRevoking",
    "ConsumerStable",
    "HeartbeatSchedule",
    "InGroup",
    "InHeartbeats",
    "LeavingUnpolled",
    "Reconciling",
    "ReportedFields",
    "TargetAssignment",
)

JOIN_EPOCH = 0
"""Member epoch of a heartbeat that joins."""


@dataclass(frozen=True, slots=True)
class TargetAssignment:
    """All partitions that the coordinator lets the member own now.

    `unresolved` are partitions of topics whose names are not known yet, by topic id.
    """

    partitions: Partitions = ()
    unresolved: Mapping[UUID, tuple[int, ...]] = field(default_factory=dict)

    def resolve(self, names: Mapping[UUID, str]) -> TargetAssignment:
        """Return the assignment with the names of more topics."""
        found = [
            TopicIdPartition(topic_id, names[topic_id], partition)
            for topic_id, numbers in self.unresolved.items()
            if topic_id in names
            for partition in numbers
        ]
        if not found:
            return self
        return TargetAssignment(
            tuple(sorted({*self.partitions, *found})),
            {
                topic_id: numbers
                for topic_id, numbers in self.unresolved.items()
                if topic_id not in names
            },
        )


NOTHING_ASSIGNED = TargetAssignment()


@dataclass(frozen=True, slots=True)
class ReportedFields:
    """Fields of a heartbeat that are sent again only if they changed."""

    topics: tuple[str, ...]
    owned: Partitions
    pattern: str | None = None


@dataclass(frozen=True, slots=True)
class HeartbeatSchedule:
    """Heartbeats of a member. Times are in seconds of the runtime's clock."""

    node: NodeId | None
    """The coordinator; None while it is unknown."""
    next_at: float
    request: int | None = None
    """Number of the heartbeat or FindCoordinator request in flight."""
    in_flight: ReportedFields | None = None
    reported: ReportedFields | None = None
    """Fields that the coordinator knows. None before the first response and after a failure: the
    next heartbeat is a full one, to which the coordinator responds with the assignment."""
    attempt: int = 0
    """Consecutive failures."""
    keeps_alive: bool = False
    """The next heartbeat has only the epoch: the coordinator has refused the subscribed topics."""
    failing_since: float | None = None
    """Time of the first of consecutive UNKNOWN_SERVER_ERROR responses."""

    @property
    def deadline(self) -> float:
        return NEVER if self.request is not None else self.next_at


class InHeartbeats(MembershipState):
    """Base of the states that send heartbeats."""

    __slots__ = ()
    heartbeat: HeartbeatSchedule

    @property
    def awaited(self) -> tuple[int | None, ...]:
        return (getattr(self, "request", None), self.heartbeat.request)

    @property
    def deadline(self) -> float:
        return self.heartbeat.deadline

    @property
    def checks_poll_timer(self) -> bool:
        """True if the member leaves when the application does not poll in time."""
        return True


@dataclass(frozen=True, slots=True)
class ConsumerJoining(InHeartbeats):
    """Finding the coordinator, or joining with epoch 0 and without partitions.

    `unreleased_until` is set after UNRELEASED_INSTANCE_ID: the time at which the former member with
    this group instance id must have timed out.
    """

    heartbeat: HeartbeatSchedule
    unreleased_until: float | None = None

    @property
    def checks_poll_timer(self) -> bool:
        """True once the coordinator is known, as in Java."""
        return self.heartbeat.node is not None

    @property
    def is_rebalancing(self) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class LeavingUnpolled(MembershipState):
    """Leaving, because the application did not poll. With `rejoins` it has polled meanwhile."""

    request: int
    until: float
    rejoins: bool = False

    @property
    def deadline(self) -> float:
        return self.until


class InGroup(InHeartbeats):
    """Base of the states of a member with an epoch.

    `owned` are the partitions that the consumer owns, `target` those it should own.
    """

    __slots__ = ()
    epoch: int
    owned: Partitions
    target: TargetAssignment


@dataclass(frozen=True, slots=True)
class ConsumerStable(InGroup):
    """The member owns its target assignment, as far as the names of its topics are known."""

    heartbeat: HeartbeatSchedule
    epoch: int
    owned: Partitions = ()
    target: TargetAssignment = NOTHING_ASSIGNED


class Reconciling(InGroup):
    """Base of the states in which partitions must be revoked."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class ConsumerRevocationDue(Reconciling):
    """Partitions must be revoked, but the application still processes their records."""

    heartbeat: HeartbeatSchedule
    epoch: int
    owned: Partitions
    target: TargetAssignment


@dataclass(frozen=True, slots=True)
class ConsumerRevoking(Reconciling):
    """The rebalance callback and the commit are running. `to_revoke` is revoked afterwards.

    `ended` is the state that follows if the coordinator ended the membership meanwhile.
    """

    heartbeat: HeartbeatSchedule
    epoch: int
    owned: Partitions
    target: TargetAssignment
    to_revoke: Partitions
    request: int
    next_action: NextAction
    ended: MembershipState | None = None

    @property
    def checks_poll_timer(self) -> bool:
        """False: `rebalance_callback_timeout_ms` limits the revocation, which ends first."""
        return False

    @property
    def is_rebalancing(self) -> bool:
        return True
