"""DeleteGroups: delete empty groups and their committed offsets."""

from __future__ import annotations

from aiokafkawire.broker.acls import AclOperation
from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.apis.group_requests import check_coordinator
from aiokafkawire.broker.request_context import RequestContext
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)

__all__ = ("error_response", "handle")


async def handle(context: RequestContext, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(
        throttle_time_ms=0,
        results=[
            DeletableGroupResult(group_id=group_id, error_code=_deleted(context, group_id))
            for group_id in dict.fromkeys(request.groups_names)
        ],
    )


def error_response(request: DeleteGroupsRequest, version: int, code: int) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(
        throttle_time_ms=0,
        results=[
            DeletableGroupResult(group_id=group_id, error_code=code)
            for group_id in request.groups_names
        ],
    )


def _deleted(context: RequestContext, group_id: str) -> ErrorCode:
    try:
        check_coordinator(context, group_id, AclOperation.DELETE, allow_empty_id=True)
        code = context.state.group_coordinator.delete(group_id)
        if not code:
            context.state.transaction_coordinator.delete_offsets(group_id)
    except ApiError as error:
        return error.code
    return code
