"""Rules of partition reassignment (KIP-455), as in KRaft's PartitionReassignmentReplicas."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.wire import ErrorCode

__all__ = (
    "ReassignedPartition",
    "check_reassignment",
    "check_replication_factor",
    "complete_reassignment",
    "revert_reassignment",
    "start_reassignment",
)

ASSIGNMENT = "The manual partition assignment includes"


class ReassignedPartition(Protocol):
    """Replicas of a partition, with those that a reassignment adds and removes."""

    topic: str
    index: int
    replicas: list[int]
    isr: list[int]
    elr: list[int]
    adding: list[int]
    removing: list[int]


def check_reassignment(
    partition: ReassignedPartition, target: Sequence[int], registered: Collection[int]
) -> None:
    """Raise `ApiError` unless a partition can be moved to these replicas."""
    reason = ""
    if not target:
        reason = f"{ASSIGNMENT} an empty replica list."
    for position, node in enumerate(target):
        if node not in registered:
            reason = f"{ASSIGNMENT} broker {node}, but no such broker is registered."
        elif node in target[:position]:
            reason = f"{ASSIGNMENT} the broker {node} more than once."
        if reason:
            break
    if reason:
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)


def check_replication_factor(partition: ReassignedPartition, target: Sequence[int]) -> None:
    """Raise `ApiError` if the reassignment changes the replication factor (KIP-860)."""
    current = [node for node in partition.replicas if node not in partition.removing]
    if len(current) != len(target):
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The replication factor is changed from {len(current)} to {len(target)}",
        )


def start_reassignment(partition: ReassignedPartition, target: Sequence[int]) -> bool:
    """Add the new replicas; the old ones stay until the new ones are in sync.

    Returns:
        True if that changed the replicas or their order.
    """
    before = partition.replicas
    removing = [node for node in before if node not in target]
    adding = [node for node in target if node not in before]
    partition.replicas = [*target, *removing]
    # As in Kafka, an earlier reassignment goes on unless this one replaces its replicas.
    partition.removing = removing or partition.removing
    partition.adding = adding or partition.adding
    return partition.replicas != before


def revert_reassignment(partition: ReassignedPartition, *, is_unclean_allowed: bool) -> None:
    """Remove the new replicas again. Raises `ApiError`."""
    if not partition.adding and not partition.removing:
        raise ApiError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    isr = [node for node in partition.isr if node not in partition.adding]
    if not isr and not is_unclean_allowed:
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Unable to revert partition assignment for {partition.topic}:{partition.index} because"
            " it would require an unclean leader election.",
        )
    _keep(partition, [node for node in partition.replicas if node not in partition.adding])
    partition.isr = isr or partition.replicas[:1]


def complete_reassignment(partition: ReassignedPartition) -> bool:
    """Complete a reassignment if all new replicas are in sync; return True if it completed."""
    if not partition.adding and not partition.removing:
        return False
    if not set(partition.adding) <= set(partition.isr):
        return False
    rest = [node for node in partition.replicas if node not in partition.removing]
    if not any(node in partition.isr for node in rest):
        return False
    _keep(partition, rest)
    return True


def _keep(partition: ReassignedPartition, replicas: list[int]) -> None:
    """Reduce a partition to these replicas, without a reassignment."""
    partition.replicas = replicas
    partition.isr = [node for node in partition.isr if node in replicas]
    partition.elr = [node for node in partition.elr if node in replicas]
    partition.adding, partition.removing = [], []
