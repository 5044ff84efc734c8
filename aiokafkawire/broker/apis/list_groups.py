"""ListGroups: the groups that this node coordinates."""

from __future__ import annotations

from aiokafkawire.broker.acls import AclOperation, ResourceType
from aiokafkawire.broker.groups.consumer_group.group import ConsumerGroup
from aiokafkawire.broker.groups.events import ClassicGroupState
from aiokafkawire.broker.groups.group_coordinator import Group
from aiokafkawire.broker.groups.share_group.group import ShareGroup
from aiokafkawire.broker.groups.subscriptions import CONSUMER_PROTOCOL_TYPE
from aiokafkawire.broker.request_context import RequestContext
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.list_groups import (
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)

__all__ = ("error_response", "handle")

CLASSIC, CONSUMER, SHARE = "classic", "consumer", "share"
EMPTY = ClassicGroupState.EMPTY.value


async def handle(context: RequestContext, request: ListGroupsRequest) -> ListGroupsResponse:
    states = [state.lower() for state in request.states_filter]
    types = [name.lower() for name in request.types_filter]
    sees_all = context.is_authorized(AclOperation.DESCRIBE, ResourceType.CLUSTER)
    loading = context.state.coordinator_loader.is_loading_any(context.node_id)
    return ListGroupsResponse(
        error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if loading else ErrorCode.NONE,
        groups=[
            listed
            for group in context.state.group_coordinator
            if context.cluster.coordinator(group.group_id) == context.node_id
            and (listed := _listed(group))
            and (listed.group_state != EMPTY or context.release.keeps_empty_groups)
            and (not states or listed.group_state.lower() in states)
            and (not types or listed.group_type in types)
            and (
                sees_all
                or context.is_authorized(AclOperation.DESCRIBE, ResourceType.GROUP, group.group_id)
            )
        ],
    )


def _listed(group: Group) -> ListedGroup:
    if isinstance(group, ConsumerGroup):
        return ListedGroup(
            group_id=group.group_id,
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            group_state=group.data.state.value,
            group_type=CONSUMER,
        )
    if isinstance(group, ShareGroup):
        return ListedGroup(
            group_id=group.group_id,
            protocol_type=SHARE,
            group_state=group.data.state.value,
            group_type=SHARE,
        )
    return ListedGroup(
        group_id=group.group_id,
        protocol_type=group.protocol_type or "",
        group_state=group.state.value,
        group_type=CLASSIC,
    )


def error_response(request: ListGroupsRequest, version: int, code: int) -> ListGroupsResponse:
    return ListGroupsResponse(error_code=code, groups=[])
