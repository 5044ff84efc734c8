"""DeleteGroups: forget groups without members, together with what they committed."""

from __future__ import annotations

from aiokafkawire.broker.apis.group_requests import check_coordinator
from aiokafkawire.broker.call import Call
from aiokafkawire.broker.refusal import Refusal
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)

__all__ = ("failed", "handle")


async def handle(call: Call, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(
        throttle_time_ms=0,
        results=[
            DeletableGroupResult(group_id=group_id, error_code=_deleted(call, group_id))
            for group_id in dict.fromkeys(request.groups_names)
        ],
    )


def failed(request: DeleteGroupsRequest, version: int, code: int) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(
        throttle_time_ms=0,
        results=[
            DeletableGroupResult(group_id=group_id, error_code=code)
            for group_id in request.groups_names
        ],
    )


def _deleted(call: Call, group_id: str) -> ErrorCode:
    try:
        check_coordinator(call, group_id, named=False)
        code = call.state.groups.delete(group_id)
        if not code:
            call.state.transactions.forget_offsets(group_id)
    except Refusal as refusal:
        return refusal.code
    return code
