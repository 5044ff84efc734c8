"""Members of a consumer group (KIP-848)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from uuid import UUID

__all__ = (
    "JOIN_EPOCH",
    "LEAVE_EPOCH",
    "LEAVE_STATIC_EPOCH",
    "ClassicProtocolMember",
    "ConsumerGroupMember",
    "MemberState",
    "OwnedPartitions",
    "PartitionEpochs",
)

JOIN_EPOCH, LEAVE_EPOCH, LEAVE_STATIC_EPOCH = 0, -1, -2
"""Epochs in heartbeats: join, leave, and leave as a static member that returns."""

PartitionEpochs = Mapping[UUID, Mapping[int, int]]
"""Partitions by topic, each with the member epoch at which it was assigned."""

OwnedPartitions = Mapping[UUID, frozenset[int]]
"""Partitions by topic that a member reports to own."""


class MemberState(IntEnum):
    """State of a member, numbered as in ConsumerGroupCurrentMemberAssignment."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2


@dataclass(frozen=True, slots=True)
class ClassicProtocolMember:
    """Session timeout and protocols of a member that uses the classic protocol."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupMember:
    """One member. Values never change; `dataclasses.replace` makes the next one.

    `assigned` is what the member may use now, `pending_revocation` what it was asked to revoke and
    has not acknowledged. `classic` is None for a member of the consumer protocol.
    """

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    subscribed_names: tuple[str, ...] = ()
    subscribed_regex: str = ""
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    classic: ClassicProtocolMember | None = None
    epoch: int = JOIN_EPOCH
    previous_epoch: int = JOIN_EPOCH
    state: MemberState = MemberState.STABLE
    assigned: PartitionEpochs = field(default_factory=dict)
    pending_revocation: PartitionEpochs = field(default_factory=dict)

    def has_assignment_of(self, other: ConsumerGroupMember) -> bool:
        """Return True if epochs, state and partitions equal those of another member."""
        return (
            self.epoch == other.epoch
            and self.previous_epoch == other.previous_epoch
            and self.state == other.state
            and self.assigned == other.assigned
            and self.pending_revocation == other.pending_revocation
        )

    def has_metadata_of(self, other: ConsumerGroupMember) -> bool:
        """Return True if all other fields equal those of another member."""
        return self == replace(
            other,
            epoch=self.epoch,
            previous_epoch=self.previous_epoch,
            state=self.state,
            assigned=self.assigned,
            pending_revocation=self.pending_revocation,
        )

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        """Return True if the member has its whole target assignment of an epoch."""
        return self.state is MemberState.STABLE and self.epoch == assignment_epoch
