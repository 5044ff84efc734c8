"""ControlledShutdown: the controller moves the leaders of a node that is about to stop."""

from __future__ import annotations

from aiokafkawire.broker.acls import AclOperation, ResourceType
from aiokafkawire.broker.request_context import RequestContext
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)

__all__ = ("error_response", "handle")


async def handle(
    context: RequestContext, request: ControlledShutdownRequest
) -> ControlledShutdownResponse:
    if not context.is_authorized(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER):
        return error_response(request, context.version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    replication = context.state.replication
    assert replication is not None, "this API needs replicate=True"
    registry = replication.controller_context
    if registry.controller_id != context.node_id:
        return error_response(request, context.version, ErrorCode.STALE_CONTROLLER_EPOCH)
    if request.broker_id not in registry.live:
        return error_response(request, context.version, ErrorCode.BROKER_NOT_AVAILABLE)
    return ControlledShutdownResponse(
        error_code=ErrorCode.NONE,
        remaining_partitions=[
            RemainingPartition(topic_name=topic, partition_index=index)
            for topic, index in registry.move_leaders_off(request.broker_id)
        ],
    )


def error_response(
    request: ControlledShutdownRequest, version: int, code: int
) -> ControlledShutdownResponse:
    return ControlledShutdownResponse(error_code=code, remaining_partitions=[])
