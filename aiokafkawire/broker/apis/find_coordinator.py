"""FindCoordinator: the coordinator of a group or transactional id."""

from __future__ import annotations

from aiokafkawire.broker.acls import AclOperation, ResourceType
from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.request_context import Disconnect, RequestContext
from aiokafkawire.broker.topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

__all__ = ("error_response", "handle")

GROUP = 0
TRANSACTION = 1
RESOURCE_TYPES = {GROUP: ResourceType.GROUP, TRANSACTION: ResourceType.TRANSACTIONAL_ID}
INTERNAL_TOPICS = {GROUP: CONSUMER_OFFSETS, TRANSACTION: TRANSACTION_STATE}
SHOWN_SINCE = "0.8.2"
"""Earlier releases keep committed offsets in ZooKeeper."""

FIRST_KEYS_VERSION = 4
NO_NODE = -1


async def handle(
    context: RequestContext, request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    keys = request.coordinator_keys if context.version >= FIRST_KEYS_VERSION else [request.key]
    return _response(context.version, [_find(context, key, request.key_type) for key in keys])


def error_response(
    request: FindCoordinatorRequest, version: int, code: int
) -> FindCoordinatorResponse:
    keys = request.coordinator_keys if version >= FIRST_KEYS_VERSION else [request.key]
    return _response(version, [_nowhere(key, code, None) for key in keys])


def _response(version: int, coordinators: list[Coordinator]) -> FindCoordinatorResponse:
    if version >= FIRST_KEYS_VERSION:
        return FindCoordinatorResponse(coordinators=coordinators)
    (only,) = coordinators
    return FindCoordinatorResponse(
        error_code=only.error_code,
        error_message=only.error_message,
        node_id=only.node_id,
        host=only.host,
        port=only.port,
    )


def _find(context: RequestContext, key: str, key_type: int) -> Coordinator:
    resource_type = RESOURCE_TYPES.get(key_type)
    if resource_type is None:
        if not context.release.since("2.4"):
            raise Disconnect(f"there is no coordinator for key type {key_type}")
        return _nowhere(key, ErrorCode.INVALID_REQUEST, f"no coordinator for key type {key_type}")
    try:
        context.authorize(AclOperation.DESCRIBE, resource_type, key)
    except ApiError as error:
        return _nowhere(key, error.code, None)
    if context.release.since(SHOWN_SINCE):
        context.cluster.create_internal_topic(INTERNAL_TOPICS[key_type])
    node = context.cluster.coordinator(key)
    address = context.addresses.get(node)
    if address is None:
        return _nowhere(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, None)
    return Coordinator(
        key=key,
        node_id=node,
        host=address.host,
        port=address.port,
        error_code=ErrorCode.NONE,
        error_message="",
    )


def _nowhere(key: str, code: int, message: str | None) -> Coordinator:
    return Coordinator(
        key=key, node_id=NO_NODE, host="", port=NO_NODE, error_code=code, error_message=message
    )
