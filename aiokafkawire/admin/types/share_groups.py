"""Results of the operations on share groups (KIP-932)."""

from __future__ import annotations

from dataclasses import dataclass

from aiokafkawire.admin.types.acl_operation import AclOperation
from aiokafkawire.admin.types.groups import GroupState
from aiokafkawire.types import NodeId, TopicPartition

__all__ = ("ShareGroupDescription", "ShareMemberDescription", "SharePartitionOffsetInfo")


@dataclass(frozen=True, slots=True)
class ShareMemberDescription:
    """A member of a share group.

    Attributes:
        member_id: Id of the member.
        rack_id: Rack of the member; None if unknown.
        client_id: Client id that the member sends.
        host: Address from which the member connects.
        assignment: Assigned partitions, in order; other members may have them too.
        member_epoch: Epoch of the member.
    """

    member_id: str
    rack_id: str | None
    client_id: str
    host: str
    assignment: tuple[TopicPartition, ...]
    member_epoch: int


@dataclass(frozen=True, slots=True)
class ShareGroupDescription:
    """A share group.

    Attributes:
        group_id: Name of the group.
        members: The members, in the broker's order.
        group_state: State of the group.
        coordinator_id: Node id of the coordinator.
        group_epoch: Epoch of the group.
        target_assignment_epoch: Epoch of the target assignment.
        authorized_operations: Operations of the principal on the group; None unless asked for.
    """

    group_id: str
    members: tuple[ShareMemberDescription, ...]
    group_state: GroupState
    coordinator_id: NodeId
    group_epoch: int
    target_assignment_epoch: int
    authorized_operations: frozenset[AclOperation] | None = None


@dataclass(frozen=True, slots=True)
class SharePartitionOffsetInfo:
    """Start offset of a share group in a partition.

    Attributes:
        start_offset: Offset of the first record that is not yet consumed.
        leader_epoch: Leader epoch of that record; None if unknown.
        lag: Records that are not yet consumed; None before Kafka 4.2 or if unknown.
    """

    start_offset: int
    leader_epoch: int | None = None
    lag: int | None = None
