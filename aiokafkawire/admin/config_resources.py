"""Resources with configs, as requests and errors have them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, TypeVar, cast

from aiokafkawire.admin.types.configs import ConfigResource, ConfigResourceType
from aiokafkawire.types import NodeId

__all__ = ("broker_of", "known_member", "read_resource", "resource_context")

_Enum = TypeVar("_Enum", bound=IntEnum)


def known_member(kind: type[_Enum], number: int, otherwise: _Enum) -> _Enum:
    """Return the member of an enumeration, or `otherwise` for a number that is newer."""
    # Faster than calling the class, for the many configs of many resources.
    member = kind._value2member_map_.get(number)
    return cast("_Enum", member) if member is not None else otherwise


def read_resource(resource_type: int, name: str) -> ConfigResource:
    """Return a resource of a response."""
    return ConfigResource(
        known_member(ConfigResourceType, resource_type, ConfigResourceType.UNKNOWN), name
    )


def broker_of(resource: ConfigResource) -> NodeId | None:
    """Return the node id of the broker that alone can answer; None if any can."""
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
