"""Common parts of the APIs that describe and alter configs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

from aiokafkawire.broker.acls import AclOperation, ResourceType
from aiokafkawire.broker.api_error import ApiError, invalid_request
from aiokafkawire.broker.configs import GROUP_CONFIGS, ConfigResourceType
from aiokafkawire.broker.configs.definitions import ConfigDef
from aiokafkawire.broker.configs.dynamic import DEFAULT_BROKER, MIN_INSYNC_REPLICAS
from aiokafkawire.broker.configs.topics import TOPIC_CONFIGS, validate_topic_configs
from aiokafkawire.broker.request_context import RequestContext
from aiokafkawire.broker.topics import check_topic_name
from aiokafkawire.wire import ErrorCode

__all__ = ("alter_each", "authorize_configs", "check_node_id")

T = ConfigResourceType

MALFORMED = (
    "This most likely occurs because of a request being malformed by the client library or the"
    " message was sent to an incompatible broker. See the broker logs for more details."
)


class ConfigChange(Protocol):
    """A config in a request."""

    name: str
    value: str | None


class Resource(Protocol):
    """A resource in a request."""

    resource_type: int
    resource_name: str


R = TypeVar("R", bound=Resource)

Change = Callable[[ConfigResourceType, Mapping[str, str]], dict[str, str]]
"""Returns the new configs that are set for a resource of a type, from the present ones."""


def authorize_configs(
    context: RequestContext, operation: AclOperation, resource_type: int, name: str
) -> None:
    """Raise `ApiError` unless the principal may perform the operation on a resource's configs."""
    if resource_type == T.TOPIC:
        context.authorize(operation, ResourceType.TOPIC, name, "Topic authorization failed.")
    elif resource_type == T.GROUP:
        context.authorize(operation, ResourceType.GROUP, name, "Group authorization failed.")
    elif resource_type in set(T):
        context.authorize(operation, ResourceType.CLUSTER, message="Cluster authorization failed.")


def alter_each(
    context: RequestContext,
    resources: Sequence[R],
    change: Callable[[R], Change],
    *,
    validate_only: bool,
) -> list[tuple[R, ErrorCode, str | None]]:
    """Alter the configs of resources.

    Args:
        context: The request.
        resources: Resources of the request.
        change: Checks the configs of a resource and returns how they change. Raises `ApiError`.
        validate_only: Check everything, but change nothing.

    Returns:
        Each resource with its error code and message.
    """
    keys = [(each.resource_type, each.resource_name) for each in resources]
    results: list[tuple[R, ErrorCode, str | None]] = []
    for resource, key in zip(resources, keys, strict=True):
        try:
            if keys.count(key) > 1:
                raise invalid_request("Each resource must appear at most once.")
            authorize_configs(context, AclOperation.ALTER_CONFIGS, *key)
            _alter(context, resource, change(resource), validate_only=validate_only)
        except ApiError as error:
            results.append((resource, error.code, error.message))
        else:
            results.append((resource, ErrorCode.NONE, None))
    return results


def check_config_names(configs: Sequence[ConfigChange], without_value: Sequence[str]) -> None:
    """Raise `ApiError` if a config is named twice or lacks a value."""
    if without_value:
        raise invalid_request(f"Null value not supported for : {', '.join(without_value)}")
    if len({config.name for config in configs}) < len(configs):
        raise invalid_request("Error due to duplicate config keys")


def check_node_id(context: RequestContext, name: str) -> None:
    """Raise `ApiError` unless a resource is this node."""
    try:
        node_id = int(name)
    except ValueError:
        raise invalid_request(f"Node id must be an integer, but it is: {name}") from None
    if node_id != context.node_id:
        raise invalid_request(
            f"Unexpected broker id, expected {context.node_id}, but received {name}"
        )


def _alter(
    context: RequestContext, resource: Resource, change: Change, *, validate_only: bool
) -> None:
    name, cluster = resource.resource_name, context.cluster
    if resource.resource_type not in set(T):
        raise invalid_request(f"Unknown resource type {resource.resource_type}")
    resource_type = T(resource.resource_type)
    _check_resource_name(context, resource_type, name)
    if resource_type is T.TOPIC:
        _check_topic(context, name)
        configs = validate_topic_configs(change(resource_type, cluster.topic(name).configs))
        _check_release(context, configs, TOPIC_CONFIGS, "topic")
    elif resource_type is T.BROKER_LOGGER:
        # Levels are not stored: they last until the broker stops.
        configs = change(resource_type, context.state.loggers.levels)
        if not validate_only:
            context.state.loggers.replace(configs)
        return
    else:
        dynamic = cluster.dynamic_configs
        configs = change(resource_type, dynamic.of(resource_type, name))
        configs = dynamic.validate(resource_type, name, configs)
        if resource_type is T.GROUP:
            _check_release(context, configs, GROUP_CONFIGS, "group")
        if resource_type is T.BROKER and dynamic.requires_cluster_min_insync:
            configs = _check_min_insync(context, name, configs)
    if not validate_only:
        cluster.alter_configs(resource_type, name, configs)


def _check_release(
    context: RequestContext,
    configs: Mapping[str, str],
    definitions: Mapping[str, ConfigDef],
    kind: str,
) -> None:
    """Raise `ApiError` if a config is of a later release."""
    for name in configs:
        if definitions[name].since and not context.release.since(definitions[name].since):
            raise ApiError(ErrorCode.INVALID_CONFIG, f"Unknown {kind} config name: {name}")


def _check_topic(context: RequestContext, name: str) -> None:
    if not name:
        raise invalid_request("Default topic resources are not allowed.")
    check_topic_name(name)
    if name not in context.cluster.all_topics():
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")


def _check_resource_name(
    context: RequestContext, resource_type: ConfigResourceType, name: str
) -> None:
    if resource_type is T.BROKER_LOGGER or (resource_type is T.BROKER and name != DEFAULT_BROKER):
        check_node_id(context, name)
    elif resource_type is T.GROUP and not name:
        raise invalid_request("Default group resources are not allowed.")
    elif resource_type is T.CLIENT_METRICS and not name:
        raise invalid_request("Subscription name can't be empty")


def _check_min_insync(
    context: RequestContext, name: str, configs: dict[str, str]
) -> dict[str, str]:
    """Check min.insync.replicas of brokers, and leave it out where it is that of the options."""
    value = configs.get(MIN_INSYNC_REPLICAS)
    if name != DEFAULT_BROKER and value is not None:
        raise ApiError(
            ErrorCode.INVALID_CONFIG,
            "Broker-level min.insync.replicas cannot be altered while ELR is enabled.",
        )
    if name == DEFAULT_BROKER and value is None:
        raise ApiError(
            ErrorCode.INVALID_CONFIG,
            "Cluster-level min.insync.replicas cannot be removed while ELR is enabled.",
        )
    if value == str(context.state.options.min_insync_replicas):
        del configs[MIN_INSYNC_REPLICAS]
    return configs
