"""Arguments and results of the operations on groups of all types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from aiokafkawire.admin.types.acl_operation import AclOperation
from aiokafkawire.types import NodeId, TopicPartition

__all__ = (
    "ClassicGroupDescription",
    "ConsumerGroupDescription",
    "ConsumerGroupListing",
    "GroupLag",
    "GroupListing",
    "GroupState",
    "GroupType",
    "MemberDescription",
    "OffsetReset",
    "PartitionLag",
)


class _KafkaName(StrEnum):
    """Enum whose values are Kafka's names; unknown ones become UNKNOWN."""

    @classmethod
    def _missing_(cls, value: object) -> Self:
        text = str(value).lower()
        for member in cls:
            if member.value.lower() == text:
                return member
        return cls("Unknown")


class GroupType(_KafkaName):
    """Protocol of a group."""

    UNKNOWN = "Unknown"
    CONSUMER = "Consumer"
    CLASSIC = "Classic"
    SHARE = "Share"
    STREAMS = "Streams"


class GroupState(_KafkaName):
    """State of a group. Which states exist depends on its type."""

    UNKNOWN = "Unknown"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"
    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    NOT_READY = "NotReady"


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group in `list_groups`.

    Attributes:
        group_id: Name of the group.
        type: Type of the group; None before Kafka 3.8.
        protocol: Protocol type, "consumer" for consumers and "" for a group without members that
            has only committed offsets.
        group_state: State of the group; None before Kafka 2.6.
    """

    group_id: str
    type: GroupType | None
    protocol: str
    group_state: GroupState | None

    @property
    def is_simple_consumer_group(self) -> bool:
        """True if the group has committed offsets and no members ever joined it."""
        return self.type is GroupType.CLASSIC and not self.protocol


@dataclass(frozen=True, slots=True)
class ConsumerGroupListing:
    """A group in `list_consumer_groups`; see `GroupListing`."""

    group_id: str
    is_simple_consumer_group: bool
    group_state: GroupState | None
    type: GroupType | None


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """A member of a consumer group.

    Attributes:
        member_id: Id of the member.
        group_instance_id: Id of a static member; None for a dynamic one.
        rack_id: Rack of the member; None if unknown, always in classic groups.
        client_id: Client id that the member sends.
        host: Address from which the member connects.
        assignment: Assigned partitions, in order; empty during a rebalance of a classic group.
        target_assignment: Partitions that the member will have after the reconciliation (KIP-848);
            None in classic groups.
        member_epoch: Epoch of the member; None in classic groups.
        upgraded: True if the member uses the consumer protocol in a group of that type, False if
            it still uses the classic one; None if the broker does not report it.
    """

    member_id: str
    group_instance_id: str | None
    rack_id: str | None
    client_id: str
    host: str
    assignment: tuple[TopicPartition, ...] = ()
    target_assignment: tuple[TopicPartition, ...] | None = None
    member_epoch: int | None = None
    upgraded: bool | None = None


@dataclass(frozen=True, slots=True)
class ConsumerGroupDescription:
    """A consumer group, of the classic or the consumer type.

    Attributes:
        group_id: Name of the group.
        is_simple_consumer_group: True if no member ever joined the group.
        members: The members, in the broker's order.
        partition_assignor: Name of the assignor; "" if there is none.
        type: Type of the group.
        group_state: State of the group.
        coordinator_id: Node id of the coordinator.
        authorized_operations: Operations of the principal on the group; None unless asked for.
        group_epoch: Epoch of the group; None for a classic group.
        target_assignment_epoch: Epoch of the target assignment; None for a classic group.
    """

    group_id: str
    is_simple_consumer_group: bool
    members: tuple[MemberDescription, ...]
    partition_assignor: str
    type: GroupType
    group_state: GroupState
    coordinator_id: NodeId
    authorized_operations: frozenset[AclOperation] | None = None
    group_epoch: int | None = None
    target_assignment_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class ClassicGroupDescription:
    """A group of the classic type; it need not be one of consumers.

    Attributes:
        group_id: Name of the group.
        protocol: Protocol type, such as "consumer" or "connect"; "" if no member ever joined.
        protocol_data: Protocol that the group has chosen, such as the name of an assignor.
        members: The members; only those of consumers have an assignment.
        state: State of the group.
        coordinator_id: Node id of the coordinator.
        authorized_operations: Operations of the principal on the group; None unless asked for.
    """

    group_id: str
    protocol: str
    protocol_data: str
    members: tuple[MemberDescription, ...]
    state: GroupState
    coordinator_id: NodeId
    authorized_operations: frozenset[AclOperation] | None = None

    @property
    def is_simple_consumer_group(self) -> bool:
        """True if the group has committed offsets and no members ever joined it."""
        return not self.protocol


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """Lag of a group in a partition, in offsets.

    Attributes:
        committed_offset: Offset of the next record to read; None without a committed offset.
        log_end_offset: Offset after the last record; None if unknown.
    """

    committed_offset: int | None
    log_end_offset: int | None

    @property
    def lag(self) -> int | None:
        """Offsets from the committed one to the end; None if either is unknown."""
        if self.committed_offset is None or self.log_end_offset is None:
            return None
        return max(self.log_end_offset - self.committed_offset, 0)


@dataclass(frozen=True, slots=True)
class GroupLag:
    """Lag of a group, by partition with a committed offset."""

    group_id: str
    partitions: Mapping[TopicPartition, PartitionLag]

    @property
    def lag(self) -> int | None:
        """Sum of the lags, in offsets; None if one is unknown, or without committed offsets."""
        lags = [each.lag for each in self.partitions.values()]
        known = [each for each in lags if each is not None]
        return sum(known) if known and len(known) == len(lags) else None


@dataclass(frozen=True, slots=True)
class OffsetReset:
    """Change of a committed offset by `reset_group_offsets`.

    Attributes:
        current_offset: Committed offset before; None without one.
        new_offset: Committed offset after, or with `dry_run` the one that it would be.
    """

    current_offset: int | None
    new_offset: int
