"""UpdateMetadata: the controller sends metadata to a node."""

from __future__ import annotations

from aiokafkawire.broker.acls import AclOperation, ResourceType
from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.replication.controller_commands import parse_update_metadata
from aiokafkawire.broker.request_context import RequestContext, require_replica_manager
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.update_metadata import (
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)

__all__ = ("error_response", "handle")


async def handle(context: RequestContext, request: UpdateMetadataRequest) -> UpdateMetadataResponse:
    try:
        context.authorize(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER)
        require_replica_manager(context).update_metadata(
            parse_update_metadata(request, context.version)
        )
    except ApiError as error:
        return UpdateMetadataResponse(error_code=error.code)
    return UpdateMetadataResponse(error_code=ErrorCode.NONE)


def error_response(
    request: UpdateMetadataRequest, version: int, code: int
) -> UpdateMetadataResponse:
    return UpdateMetadataResponse(error_code=code)
