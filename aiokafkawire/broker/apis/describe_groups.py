"""DescribeGroups: state and members of groups."""

from __future__ import annotations

from aiokafkawire.broker.acls import AclOperation, ResourceType
from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.apis.group_requests import check_coordinator
from aiokafkawire.broker.groups.classic_group import ClassicGroup
from aiokafkawire.broker.groups.events import ClassicGroupState
from aiokafkawire.broker.request_context import RequestContext
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from aiokafkawire.wire.messages.metadata import AUTHORIZED_OPERATIONS_OMITTED

__all__ = ("error_response", "handle")

FIRST_NOT_FOUND_VERSION = 6


async def handle(context: RequestContext, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    return DescribeGroupsResponse(
        groups=[
            _described(
                context,
                group_id,
                context.authorized_operations(ResourceType.GROUP, group_id)
                if request.include_authorized_operations
                else AUTHORIZED_OPERATIONS_OMITTED,
            )
            for group_id in request.groups
        ]
    )


def error_response(
    request: DescribeGroupsRequest, version: int, code: int
) -> DescribeGroupsResponse:
    return DescribeGroupsResponse(
        groups=[_group_without_details(group_id, code) for group_id in request.groups]
    )


def _described(context: RequestContext, group_id: str, operations: int) -> DescribedGroup:
    try:
        check_coordinator(context, group_id, AclOperation.DESCRIBE, allow_empty_id=True)
    except ApiError as error:
        return _group_without_details(group_id, error.code)
    group = context.state.group_coordinator.get(group_id)
    gone = not isinstance(group, ClassicGroup) or (
        group.state is ClassicGroupState.EMPTY and not context.release.keeps_empty_groups
    )
    if not isinstance(group, ClassicGroup) or gone:
        described = _group_without_details(group_id, ErrorCode.NONE, ClassicGroupState.DEAD.value)
        if context.version >= FIRST_NOT_FOUND_VERSION:
            reason = (
                "not found."
                if group is None or isinstance(group, ClassicGroup)
                else "is not a classic group."
            )
            described.error_code = ErrorCode.GROUP_ID_NOT_FOUND
            described.error_message = f"Group {group_id} {reason}"
        described.authorized_operations = operations
        return described
    stable = group.state is ClassicGroupState.STABLE
    return DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group_id,
        group_state=(
            context.release.syncing_state_name
            if group.state is ClassicGroupState.COMPLETING_REBALANCE
            else group.state.value
        ),
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol or "") if stable else "",
        members=_members(group, stable=stable),
        authorized_operations=operations,
    )


def _members(group: ClassicGroup, *, stable: bool) -> list[DescribedGroupMember]:
    return [
        DescribedGroupMember(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=f"/{member.client_host}",
            member_metadata=member.metadata(group.protocol) if stable else b"",
            member_assignment=member.assignment,
        )
        for member in group.members.values()
    ]


def _group_without_details(group_id: str, code: int, state: str = "") -> DescribedGroup:
    return DescribedGroup(
        error_code=code,
        group_id=group_id,
        group_state=state,
        protocol_type="",
        protocol_data="",
        members=[],
    )
