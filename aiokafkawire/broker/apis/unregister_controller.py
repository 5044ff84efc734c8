"""UnregisterController: forget a controller, which is a node here."""

from __future__ import annotations

from aiokafkawire.broker.acls import AclOperation, ResourceType
from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.features import METADATA_VERSION
from aiokafkawire.broker.request_context import RequestContext
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.unregister_controller import (
    UnregisterControllerRequest,
    UnregisterControllerResponse,
)

__all__ = ("error_response", "handle")

FIRST_METADATA_VERSION = 33


async def handle(
    context: RequestContext, request: UnregisterControllerRequest
) -> UnregisterControllerResponse:
    metadata = context.cluster.metadata
    try:
        context.authorize(AclOperation.ALTER, ResourceType.CLUSTER)
        levels = metadata.features.finalized(context.state.oldest_release)
        if levels.get(METADATA_VERSION, 0) < FIRST_METADATA_VERSION:
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION,
                "The current MetadataVersion is too old to support controller unregistration.",
            )
        metadata.unregister_controller(request.controller_id, context.cluster.live)
    except ApiError as error:
        return UnregisterControllerResponse(
            throttle_time_ms=0, error_code=error.code, error_message=error.message
        )
    return error_response(request, context.version, ErrorCode.NONE)


def error_response(
    request: UnregisterControllerRequest, version: int, code: int
) -> UnregisterControllerResponse:
    return UnregisterControllerResponse(throttle_time_ms=0, error_code=code, error_message=None)
