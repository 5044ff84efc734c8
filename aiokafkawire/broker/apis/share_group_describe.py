"""ShareGroupDescribe: epochs, members and assignments of share groups (KIP-932)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from uuid import UUID

from aiokafkawire.broker.acls import AclOperation, ResourceType
from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.apis.group_requests import check_coordinator
from aiokafkawire.broker.features import SHARE_VERSION
from aiokafkawire.broker.groups.share_group.group import ShareGroup
from aiokafkawire.broker.request_context import RequestContext
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.share_group_describe import (
    DescribedShareGroup,
    ShareGroupDescribeAssignment,
    ShareGroupDescribeMember,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    ShareGroupDescribeTopicPartitions,
)

__all__ = ("error_response", "handle")


async def handle(
    context: RequestContext, request: ShareGroupDescribeRequest
) -> ShareGroupDescribeResponse:
    if not context.state.finalized_features.get(SHARE_VERSION):
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
    return ShareGroupDescribeResponse(throttle_time_ms=0, groups=groups)


def error_response(
    request: ShareGroupDescribeRequest, version: int, code: int
) -> ShareGroupDescribeResponse:
    return ShareGroupDescribeResponse(
        throttle_time_ms=0,
        groups=[_without_details(group_id, code) for group_id in request.group_ids],
    )


def _described(context: RequestContext, group_id: str) -> DescribedShareGroup:
    check_coordinator(context, group_id, AclOperation.DESCRIBE, allow_empty_id=True)
    group = context.state.group_coordinator.get(group_id)
    if not isinstance(group, ShareGroup):
        reason = "not found." if group is None else "is not a share group."
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {reason}")
    data = group.data
    for name in sorted(data.subscribed_topics()):
        if not context.is_authorized(AclOperation.DESCRIBE, ResourceType.TOPIC, name):
            raise ApiError(
                ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                "The group has described topic(s) that the client is not authorized to describe.",
            )
    return DescribedShareGroup(
        error_code=ErrorCode.NONE,
        group_id=group_id,
        group_state=data.state.value,
        group_epoch=data.epoch,
        assignment_epoch=data.assignment_epoch,
        assignor_name=group.assignor,
        members=[
            ShareGroupDescribeMember(
                member_id=member.member_id,
                rack_id=member.rack_id,
                member_epoch=member.epoch,
                client_id=member.client_id,
                client_host=member.client_host,
                subscribed_topic_names=list(member.subscribed_names),
                assignment=_assignment(context, member.assigned),
            )
            for member in data.members.values()
        ],
    )


def _assignment(
    context: RequestContext, partitions: Mapping[UUID, Iterable[int]]
) -> ShareGroupDescribeAssignment:
    """Return partitions with the names of their topics; deleted topics are left out."""
    names = context.state.group_coordinator.share_groups.topics().names
    return ShareGroupDescribeAssignment(
        topic_partitions=[
            ShareGroupDescribeTopicPartitions(
                topic_id=topic, topic_name=names[topic], partitions=sorted(parts)
            )
            for topic, parts in partitions.items()
            if topic in names
        ]
    )


def _without_details(group_id: str, code: int, message: str | None = None) -> DescribedShareGroup:
    return DescribedShareGroup(
        error_code=code,
        error_message=message,
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=[],
    )
