"""Conversion of groups with members between the two protocols, both ways (KIP-848)."""

from __future__ import annotations

from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.groups.classic_group import ClassicGroup
from aiokafkawire.broker.groups.consumer_group.classic_protocol import assignment_data
from aiokafkawire.broker.groups.consumer_group.group import ConsumerGroup
from aiokafkawire.broker.groups.consumer_group.java_order import (
    hash_order,
    text_hash,
    timeline_order,
)
from aiokafkawire.broker.groups.consumer_group.member import (
    ClassicProtocolMember,
    ConsumerGroupMember,
)
from aiokafkawire.broker.groups.events import ClassicGroupState
from aiokafkawire.broker.groups.members import (
    ClassicGroupMember,
    PersistedGroup,
    elect_protocol,
)
from aiokafkawire.broker.groups.subscriptions import is_consumer_group
from aiokafkawire.errors import MalformedMessage
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.consumer_protocol import decode_assignment, decode_subscription

__all__ = ("DOWNGRADING_POLICIES", "UPGRADING_POLICIES", "downgrade", "upgrade")

UPGRADING_POLICIES = frozenset({"bidirectional", "upgrade"})
"""Migration policies that convert classic groups with members."""

DOWNGRADING_POLICIES = frozenset({"bidirectional", "downgrade"})
"""Migration policies that convert consumer groups when only classic members are left."""


def upgrade(classic: ClassicGroup, group: ConsumerGroup, policy: str) -> None:
    """Put the members of a classic group into a new consumer group.

    They keep their partitions, and their generation as the member epoch.

    Raises:
        ApiError: The group cannot be converted.
    """
    if policy not in UPGRADING_POLICIES:
        raise _refusal(classic, "online upgrade is disabled")
    if not is_consumer_group(classic):
        raise _refusal(classic, "the group does not use the consumer embedded protocol")
    if len(classic.members) >= group.settings.max_size:
        raise _refusal(classic, "the group size exceeds the maximum consumer group size")
    try:
        listed = hash_order(classic.members, text_hash)
        members = [_to_consumer(classic, group, classic.members[each]) for each in listed]
    except MalformedMessage as error:
        raise _refusal(classic, "the embedded consumer protocol is malformed") from error
    group.adopt(members, classic.generation)


def downgrade(group: ConsumerGroup, joined: str | None = None) -> PersistedGroup:
    """Return the classic group that a consumer group with classic members only becomes.

    The first member of Kafka's map leads; `joined` is added after the others.
    """
    listed = timeline_order(group.data.members, group.data.most_members)
    listed.sort(key=lambda member_id: member_id == joined)
    members = [_to_classic(group, group.data.members[member_id]) for member_id in listed]
    return PersistedGroup(
        state=ClassicGroupState.STABLE,
        generation=group.data.epoch,
        protocol_type="consumer",
        protocol=elect_protocol(members),
        leader=members[0].member_id,
        members=tuple(members),
    )


def _refusal(classic: ClassicGroup, reason: str) -> ApiError:
    return ApiError(
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Cannot upgrade classic group {classic.group_id} to consumer group because {reason}.",
    )


def _to_consumer(
    classic: ClassicGroup, group: ConsumerGroup, member: ClassicGroupMember
) -> ConsumerGroupMember:
    protocol = classic.protocol or member.protocols[0][0]
    subscription = decode_subscription(member.metadata(protocol))
    topics = group.topics.topics
    assignment = decode_assignment(member.assignment)
    return ConsumerGroupMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=subscription.rack_id,
        client_id=member.client_id,
        client_host=f"/{member.client_host}",
        subscribed_names=tuple(sorted(set(subscription.topics))),
        rebalance_timeout_ms=round(member.rebalance_timeout_s * 1000),
        classic=ClassicProtocolMember(round(member.session_timeout_s * 1000), member.protocols),
        epoch=classic.generation,
        previous_epoch=classic.generation,
        assigned={
            topics[each.topic].topic_id: dict.fromkeys(sorted(each.partitions), classic.generation)
            for each in assignment.assigned_partitions
            if each.topic in topics
        },
    )


def _to_classic(group: ConsumerGroup, member: ConsumerGroupMember) -> ClassicGroupMember:
    assert member.classic is not None
    target = group.data.target.get(member.member_id, {})
    return ClassicGroupMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host.removeprefix("/"),
        session_timeout_s=member.classic.session_timeout_ms / 1000,
        rebalance_timeout_s=member.rebalance_timeout_ms / 1000,
        protocols=member.classic.protocols,
        session_deadline=0.0,
        assignment=assignment_data(member, target, group.topics),
        is_new=False,
    )
