"""Resources with configs, as requests and errors have them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from aiokafkawire.admin.items import ItemResult
from aiokafkawire.admin.response_values import known_member
from aiokafkawire.admin.types.configs import ConfigResource, ConfigResourceType
from aiokafkawire.types import NodeId
from aiokafkawire.wire.messages.alter_configs import AlterConfigsResponse
from aiokafkawire.wire.messages.incremental_alter_configs import IncrementalAlterConfigsResponse

__all__ = ("broker_of", "read_altered", "read_resource", "resource_context")


def read_resource(resource_type: int, name: str) -> ConfigResource:
    """Return a resource of a response."""
    return ConfigResource(
        known_member(ConfigResourceType, resource_type, ConfigResourceType.UNKNOWN), name
    )


def broker_of(resource: ConfigResource) -> NodeId | None:
    """Return the node id of the broker that alone can answer; None if any can."""
    if not isinstance(resource, ConfigResource):
        raise TypeError(f"a resource must be a ConfigResource, not {resource!r:.80}")
    if not resource.name or resource.type not in {
        ConfigResourceType.BROKER,
        ConfigResourceType.BROKER_LOGGER,
    }:
        return None
    try:
        return int(resource.name)
    except ValueError:
        raise ValueError(
            f"the name of a broker resource must be a node id, not {resource.name!r:.80}"
        ) from None


def resource_context(resource: ConfigResource) -> Mapping[str, Any]:
    """Return a resource as attributes of `KafkaError`."""
    match resource.type:
        case ConfigResourceType.TOPIC:
            return {"topic": resource.name}
        case ConfigResourceType.GROUP:
            return {"group": resource.name}
    return {}


def read_altered(
    response: AlterConfigsResponse | IncrementalAlterConfigsResponse,
) -> Iterator[ItemResult]:
    """Yield the result of each resource whose configs were to change."""
    for result in response.responses:
        resource = read_resource(result.resource_type, result.resource_name)
        yield ItemResult(resource, None, result.error_code, result.error_message)
