"""Members of the classic protocol in a consumer group: JoinGroup, SyncGroup and Heartbeat.

They are reconciled like the others. The generation is the member epoch, and the partitions that a
subscription names as owned acknowledge a revocation.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from uuid import UUID

from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.groups.consumer_group.core import JOIN, REBALANCE, SYNC, GroupCore
from aiokafkawire.broker.groups.consumer_group.member import (
    ClassicProtocolMember,
    ConsumerGroupMember,
    MemberState,
    OwnedPartitions,
)
from aiokafkawire.broker.groups.consumer_group.topics import TopicsImage
from aiokafkawire.broker.groups.events import (
    GroupReply,
    Heartbeat,
    Join,
    JoinResult,
    Sync,
    SyncResult,
)
from aiokafkawire.broker.groups.subscriptions import CONSUMER_PROTOCOL_TYPE
from aiokafkawire.errors import MalformedMessage
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.consumer_protocol import (
    ConsumerProtocolSubscription,
    decode_subscription,
    encode_assignment,
)

__all__ = ("assignment_data", "heartbeat", "join", "sync", "to_owned")

LATEST_VERSION = 3
"""Latest version of an encoded assignment."""

_VERSION = struct.Struct(">h")


def join(group: GroupCore, event: Join, now: float) -> None:
    """Handle JoinGroup, which is answered at once.

    Raises:
        ApiError: The member cannot join.
    """
    _check_protocols(group, event)
    if event.instance_id is None and not event.member_id and event.requires_known_member_id:
        result = JoinResult(code=ErrorCode.MEMBER_ID_REQUIRED, member_id=event.new_member_id)
        group.add(GroupReply(event.reply, result))
        return
    group.check_size(event.member_id)
    try:
        subscription = decode_subscription(event.protocols[0][1])
    except MalformedMessage as error:
        raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL) from error
    replaced = None if event.instance_id is None else group.data.static_member(event.instance_id)
    member = _joining_member(group, event)
    updated = replace(
        member,
        instance_id=event.instance_id,
        rack_id=subscription.rack_id,
        rebalance_timeout_ms=round(event.rebalance_timeout_s * 1000),
        server_assignor=None,
        subscribed_names=tuple(sorted(set(subscription.topics))),
        subscribed_regex="",
        client_id=event.client_id,
        client_host=f"/{event.client_host}",
        classic=ClassicProtocolMember(round(event.session_timeout_s * 1000), event.protocols),
    )
    owned = to_owned(subscription, group.topics)
    if replaced is not None and replaced.classic is None and group.may_downgrade(updated.member_id):
        after = group.downgrade_with(member, updated, owned, now)
        group.add(GroupReply(event.reply, _joined(after)))
        return
    after = group.update_member(member, updated, owned, now, event.timestamp_ms)
    group.extend_session(after, now)
    group.timers.cancel((JOIN, after.member_id))
    group.timers.set((SYNC, after.member_id), now + event.rebalance_timeout_s)
    group.add(GroupReply(event.reply, _joined(after)))


def sync(group: GroupCore, event: Sync, now: float) -> None:
    """Handle SyncGroup: the member gets its partitions; assignments in the request are ignored.

    Raises:
        ApiError: The member must rejoin, or is not a member.
    """
    member = _classic_member(group, event.member_id, event.instance_id, event.generation)
    assert member.classic is not None
    names = [name for name, _ in member.classic.protocols]
    if event.protocol_type not in {None, CONSUMER_PROTOCOL_TYPE} or (
        event.protocol is not None and event.protocol not in names
    ):
        raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    is_behind = member.epoch < group.rejoin_epoch
    if is_behind and member.state is not MemberState.UNREVOKED_PARTITIONS:
        _expect_join(group, member, now)
        raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS)
    group.timers.cancel((SYNC, member.member_id))
    group.extend_session(member, now)
    result = SyncResult(
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocol=names[0],
        assignment=assignment_data(member, member.assigned, group.topics),
    )
    group.add(GroupReply(event.reply, result))


def heartbeat(group: GroupCore, event: Heartbeat, now: float) -> None:
    """Handle Heartbeat: the member must rejoin if its assignment can go on.

    Raises:
        ApiError: The group has no such member, or the member has another epoch.
    """
    member = _classic_member(group, event.member_id, event.instance_id, event.generation)
    group.extend_session(member, now)
    code = ErrorCode.NONE
    is_waiting = member.state is MemberState.UNRELEASED_PARTITIONS
    if (
        member.epoch < group.rejoin_epoch
        or member.state is MemberState.UNREVOKED_PARTITIONS
        or (is_waiting and not _waits_for_any(group, member))
    ):
        code = ErrorCode.REBALANCE_IN_PROGRESS
        _expect_join(group, member, now)
    group.add(GroupReply(event.reply, code))


def to_owned(subscription: ConsumerProtocolSubscription, topics: TopicsImage) -> OwnedPartitions:
    """Return the partitions that a subscription names as owned; an eager member owns none."""
    return {
        topics.topics[each.topic].topic_id: frozenset(each.partitions)
        for each in subscription.owned_partitions
        if each.topic in topics.topics
    }


def assignment_data(
    member: ConsumerGroupMember, partitions: Mapping[UUID, Iterable[int]], topics: TopicsImage
) -> bytes:
    """Return partitions in the version of the member's own subscription."""
    assert member.classic is not None
    version: int = _VERSION.unpack_from(member.classic.protocols[0][1])[0]
    return encode_assignment(
        [
            (topics.names[topic], partition)
            for topic, parts in partitions.items()
            if topic in topics.names
            for partition in sorted(parts)
        ],
        version=min(version, LATEST_VERSION),
    )


def _joined(member: ConsumerGroupMember) -> JoinResult:
    assert member.classic is not None
    return JoinResult(
        member_id=member.member_id,
        generation=member.epoch,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocol=member.classic.protocols[0][0],
    )


def _check_protocols(group: GroupCore, event: Join) -> None:
    """Raise `ApiError` unless all classic members have a protocol in common."""
    others = [
        member.classic
        for member in group.data.members.values()
        if member.classic is not None and member.member_id != event.member_id
    ]
    votes = Counter(name for other in others for name, _ in other.protocols)
    fits = not others or any(votes[name] == len(others) for name, _ in event.protocols)
    if event.protocol_type != CONSUMER_PROTOCOL_TYPE or not event.protocols or not fits:
        raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)


def _joining_member(group: GroupCore, event: Join) -> ConsumerGroupMember:
    """Return the member of a JoinGroup, a new one if it is not known. Raises `ApiError`."""
    member_id = event.member_id or event.new_member_id
    if event.instance_id is None:
        found = group.data.members.get(member_id)
        return found or ConsumerGroupMember(member_id=member_id)
    if event.member_id:
        return group.check_instance(event.member_id, event.instance_id)
    existing = group.data.static_member(event.instance_id)
    if existing is None:
        return ConsumerGroupMember(member_id=member_id, instance_id=event.instance_id)
    return group.replace_static(existing, member_id)


def _classic_member(
    group: GroupCore, member_id: str, instance_id: str | None, generation: int
) -> ConsumerGroupMember:
    if instance_id is not None:
        group.check_instance(member_id, instance_id)
    member = group.get_member(member_id)
    if member.classic is None:
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
    if generation != member.epoch:
        raise ApiError(ErrorCode.ILLEGAL_GENERATION)
    return member


def _waits_for_any(group: GroupCore, member: ConsumerGroupMember) -> bool:
    """Return True while another member owns a partition of the member's target."""
    return any(
        part not in member.assigned.get(topic, {}) and group.data.is_owned(topic, part)
        for topic, parts in group.data.target.get(member.member_id, {}).items()
        for part in parts
    )


def _expect_join(group: GroupCore, member: ConsumerGroupMember, now: float) -> None:
    """Give the member its rebalance timeout to rejoin."""
    timer = JOIN, member.member_id
    if timer not in group.timers and (REBALANCE, member.member_id) not in group.timers:
        group.timers.set(timer, now + member.rebalance_timeout_ms / 1000)
