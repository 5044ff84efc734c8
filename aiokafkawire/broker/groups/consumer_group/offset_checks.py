"""Checks of commits and fetches of offsets by members of a consumer group."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.groups.consumer_group.group import ConsumerGroup
from aiokafkawire.broker.groups.consumer_group.member import ConsumerGroupMember
from aiokafkawire.broker.groups.events import ValidateOffsetCommit
from aiokafkawire.wire import ErrorCode

__all__ = ("CheckPartition", "accept_partition", "check_member_commit", "check_member_fetch")

FIRST_MEMBER_EPOCH_VERSION = 9
"""First version of OffsetCommit that members of the consumer protocol may use."""

FIRST_STALE_EPOCH_VERSION = 6
"""First version of TxnOffsetCommit with STALE_MEMBER_EPOCH (KIP-1319)."""

CheckPartition = Callable[[UUID, int], ErrorCode]
"""Returns the error of a commit of one partition."""


def accept_partition(topic: UUID, partition: int) -> ErrorCode:
    """Accept the commit of any partition."""
    return ErrorCode.NONE


def check_member_commit(
    group: ConsumerGroup, event: ValidateOffsetCommit, version: int
) -> CheckPartition:
    """Return the check of each partition of a commit.

    Args:
        group: The group.
        event: Member and epoch of the request.
        version: Version of OffsetCommit or TxnOffsetCommit.

    Raises:
        ApiError: The group does not accept any commit of the member.
    """
    is_simple = not event.member_id and event.instance_id is None
    if event.generation < 0 and (group.is_unused or (event.transactional and is_simple)):
        return accept_partition
    member = group.get_member(event.member_id)
    if event.instance_id is not None:
        group.check_instance(event.member_id, event.instance_id)
    has_generation = member.classic is not None
    if event.transactional:
        has_generation = has_generation or version < FIRST_STALE_EPOCH_VERSION
    elif not has_generation and version < FIRST_MEMBER_EPOCH_VERSION:
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION)
    if event.generation == member.epoch:
        return accept_partition
    stale = ErrorCode.ILLEGAL_GENERATION if has_generation else ErrorCode.STALE_MEMBER_EPOCH
    if event.generation > member.epoch or not group.settings.checks_assignment_epochs:
        raise ApiError(stale)

    def check(topic: UUID, partition: int) -> ErrorCode:
        assigned_at = _assignment_epoch(member, topic, partition)
        is_owner = assigned_at is not None and assigned_at <= event.generation
        return ErrorCode.NONE if is_owner else stale

    return check


def check_member_fetch(group: ConsumerGroup, member_id: str | None, epoch: int) -> None:
    """Raise `ApiError` unless a member may fetch offsets; no member at all always may."""
    if member_id is None and epoch < 0:
        return
    if epoch != group.get_member(member_id or "").epoch:
        raise ApiError(ErrorCode.STALE_MEMBER_EPOCH)


def _assignment_epoch(member: ConsumerGroupMember, topic: UUID, partition: int) -> int | None:
    """Return the epoch at which a member got a partition that it still owns."""
    for partitions in (member.assigned, member.pending_revocation):
        epoch = partitions.get(topic, {}).get(partition)
        if epoch is not None:
            return epoch
    return None
