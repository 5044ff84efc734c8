"""UnregisterBroker: forget a node (KIP-631)."""

from __future__ import annotations

from aiokafkawire.broker.acls import AclOperation, ResourceType
from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.request_context import RequestContext
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)

__all__ = ("error_response", "handle")


async def handle(
    context: RequestContext, request: UnregisterBrokerRequest
) -> UnregisterBrokerResponse:
    try:
        context.authorize(AclOperation.ALTER, ResourceType.CLUSTER)
        context.cluster.metadata.unregister(request.broker_id, context.cluster.live)
    except ApiError as error:
        return UnregisterBrokerResponse(
            throttle_time_ms=0, error_code=error.code, error_message=error.message
        )
    return UnregisterBrokerResponse(throttle_time_ms=0, error_code=ErrorCode.NONE, error_message="")


def error_response(
    request: UnregisterBrokerRequest, version: int, code: int
) -> UnregisterBrokerResponse:
    return UnregisterBrokerResponse(throttle_time_ms=0, error_code=code, error_message=None)
