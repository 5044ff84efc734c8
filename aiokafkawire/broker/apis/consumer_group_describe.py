"""ConsumerGroupDescribe: epochs, members and assignments of consumer groups (KIP-848)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from uuid import UUID

from aiokafkawire.broker.acls import AclOperation, ResourceType
from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.apis.group_requests import check_coordinator
from aiokafkawire.broker.features import GROUP_VERSION
from aiokafkawire.broker.groups.consumer_group.group import ConsumerGroup
from aiokafkawire.broker.groups.consumer_group.member import ConsumerGroupMember
from aiokafkawire.broker.request_context import RequestContext
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeAssignment,
    ConsumerGroupDescribeMember,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupDescribeTopicPartitions,
    DescribedConsumerGroup,
)

__all__ = ("error_response", "handle")

CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1


async def handle(
    context: RequestContext, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    if not context.state.finalized_features.get(GROUP_VERSION):
        return error_response(request, context.version, ErrorCode.UNSUPPORTED_VERSION)
    groups = []
    for group_id in request.group_ids:
        try:
            described = _described(context, group_id)
        except ApiError as error:
            described = _without_details(group_id, error.code, error.message)
        else:
            if request.include_authorized_operations:
                described.authorized_operations = context.authorized_operations(
                    ResourceType.GROUP, group_id
                )
        groups.append(described)
    return ConsumerGroupDescribeResponse(throttle_time_ms=0, groups=groups)


def error_response(
    request: ConsumerGroupDescribeRequest, version: int, code: int
) -> ConsumerGroupDescribeResponse:
    return ConsumerGroupDescribeResponse(
        throttle_time_ms=0,
        groups=[_without_details(group_id, code) for group_id in request.group_ids],
    )


def _described(context: RequestContext, group_id: str) -> DescribedConsumerGroup:
    check_coordinator(context, group_id, AclOperation.DESCRIBE, allow_empty_id=True)
    group = context.state.group_coordinator.get(group_id)
    if not isinstance(group, ConsumerGroup):
        reason = "not found." if group is None else "is not a consumer group."
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {reason}")
    data = group.data
    topics = {name for member in data.members.values() for name in data.subscribed_by(member)}
    for name in sorted(topics):
        if not context.is_authorized(AclOperation.DESCRIBE, ResourceType.TOPIC, name):
            raise ApiError(
                ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                "The group has described topic(s) that the client is not authorized to describe.",
            )
    return DescribedConsumerGroup(
        error_code=ErrorCode.NONE,
        group_id=group_id,
        group_state=data.state.value,
        group_epoch=data.epoch,
        assignment_epoch=data.assignment_epoch,
        assignor_name=group.assignor,
        members=[_member(context, group, member) for member in data.members.values()],
    )


def _member(
    context: RequestContext, group: ConsumerGroup, member: ConsumerGroupMember
) -> ConsumerGroupDescribeMember:
    # A partition is the member's until it has acknowledged the revocation.
    assigned = {
        topic: [*member.assigned.get(topic, ()), *member.pending_revocation.get(topic, ())]
        for topic in {**member.assigned, **member.pending_revocation}
    }
    return ConsumerGroupDescribeMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.subscribed_names),
        subscribed_topic_regex=member.subscribed_regex,
        assignment=_assignment(context, assigned),
        target_assignment=_assignment(context, group.data.target.get(member.member_id, {})),
        member_type=CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
    )


def _assignment(
    context: RequestContext, partitions: Mapping[UUID, Iterable[int]]
) -> ConsumerGroupDescribeAssignment:
    """Return partitions with the names of their topics; deleted topics are left out."""
    names = context.state.group_coordinator.consumer_groups.topics().names
    return ConsumerGroupDescribeAssignment(
        topic_partitions=[
            ConsumerGroupDescribeTopicPartitions(
                topic_id=topic, topic_name=names[topic], partitions=sorted(parts)
            )
            for topic, parts in partitions.items()
            if topic in names
        ]
    )


def _without_details(
    group_id: str, code: int, message: str | None = None
) -> DescribedConsumerGroup:
    return DescribedConsumerGroup(
        error_code=code,
        error_message=message,
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=[],
    )
