"""ListConfigResources: names of resources with configs (KIP-1142)."""

from __future__ import annotations

from aiokafkawire.broker.acls import AclOperation, ResourceType
from aiokafkawire.broker.configs import ConfigResourceType
from aiokafkawire.broker.request_context import RequestContext
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

__all__ = ("error_response", "handle")

T = ConfigResourceType

ALL_TYPES = (T.GROUP, T.CLIENT_METRICS, T.BROKER_LOGGER, T.BROKER, T.TOPIC)
"""Types in the order of Kafka's response."""


async def handle(
    context: RequestContext, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    if not context.is_authorized(AclOperation.DESCRIBE_CONFIGS, ResourceType.CLUSTER):
        return error_response(request, context.version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if context.version == 0:
        wanted = {int(T.CLIENT_METRICS)}
    else:
        wanted = set(request.resource_types or ALL_TYPES)
    if not wanted <= set(ALL_TYPES):
        return error_response(request, context.version, ErrorCode.UNSUPPORTED_VERSION)
    return ListConfigResourcesResponse(
        throttle_time_ms=0,
        error_code=ErrorCode.NONE,
        config_resources=[
            ConfigResource(resource_name=name, resource_type=resource_type)
            for resource_type in ALL_TYPES
            if resource_type in wanted
            for name in _names(context, resource_type)
        ],
    )


def error_response(
    request: ListConfigResourcesRequest, version: int, code: int
) -> ListConfigResourcesResponse:
    return ListConfigResourcesResponse(throttle_time_ms=0, error_code=code, config_resources=[])


def _names(context: RequestContext, resource_type: ConfigResourceType) -> list[str]:
    if resource_type is T.TOPIC:
        return list(context.cluster.all_topics())
    if resource_type in {T.BROKER, T.BROKER_LOGGER}:
        return [str(node_id) for node_id in context.cluster.live]
    return context.cluster.dynamic_configs.names(resource_type)
