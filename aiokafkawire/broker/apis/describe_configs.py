"""DescribeConfigs: the configs of topics and nodes."""

from __future__ import annotations

from collections.abc import Iterator

from aiokafkawire.broker.acls import AclOperation, ResourceType
from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.cluster_state import check_topic_name
from aiokafkawire.broker.config_defs import (
    BROKER_CONFIGS,
    TOPIC_CONFIGS,
    ConfigDef,
    ConfigSource,
    ConfigType,
)
from aiokafkawire.broker.options import BrokerConfig
from aiokafkawire.broker.request_context import RequestContext
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

__all__ = ("error_response", "handle")

DEFAULTS = BrokerConfig()

TOPIC, BROKER = 2, 4
"""Resource types that have configs here."""

UNKNOWN = 0
GROUP = 32

WITHOUT_CONFIGS = (16, GROUP)
"""Resource types without configs here: client metrics and groups."""

KNOWN_TYPES = (TOPIC, BROKER, *WITHOUT_CONFIGS)


async def handle(
    context: RequestContext, request: DescribeConfigsRequest
) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(
        throttle_time_ms=0,
        results=[_describe(context, request, resource) for resource in request.resources],
    )


def error_response(
    request: DescribeConfigsRequest, version: int, code: int
) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(
        throttle_time_ms=0,
        results=[_result(resource, code, None) for resource in request.resources],
    )


def _result(
    resource: DescribeConfigsResource, code: int, message: str | None
) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=code,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[],
    )


def _describe(
    context: RequestContext, request: DescribeConfigsRequest, resource: DescribeConfigsResource
) -> DescribeConfigsResult:
    try:
        _authorize(context, resource)
        if resource.resource_type == TOPIC:
            configs = list(_topic_configs(context, resource.resource_name))
        elif resource.resource_type == BROKER:
            configs = list(_broker_configs(context, resource.resource_name))
        elif resource.resource_type in WITHOUT_CONFIGS:
            configs = []
        else:
            raise ApiError(
                ErrorCode.INVALID_REQUEST, f"unknown resource type {resource.resource_type}"
            )
    except ApiError as error:
        result = _result(resource, error.code, str(error))
        if resource.resource_type not in KNOWN_TYPES and not context.release.since("2.4"):
            result.resource_type = UNKNOWN
        return result
    wanted = resource.configuration_keys
    result = _result(resource, ErrorCode.NONE, None)
    result.configs = [each for each in configs if wanted is None or each.name in wanted]
    for each in result.configs:
        each.documentation = None
        if not request.include_synonyms:
            each.synonyms = []
        if context.version == 0:
            each.is_default = each.config_source == ConfigSource.DEFAULT
    return result


def _authorize(context: RequestContext, resource: DescribeConfigsResource) -> None:
    operation, name = AclOperation.DESCRIBE_CONFIGS, resource.resource_name
    if resource.resource_type == TOPIC:
        context.authorize(operation, ResourceType.TOPIC, name, "Topic authorization failed.")
    elif resource.resource_type == GROUP:
        context.authorize(operation, ResourceType.GROUP, name, "Group authorization failed.")
    elif resource.resource_type in KNOWN_TYPES:
        context.authorize(operation, ResourceType.CLUSTER, message="Cluster authorization failed.")


def _topic_configs(context: RequestContext, name: str) -> Iterator[DescribeConfigsResourceResult]:
    check_topic_name(name)
    # Earlier releases described a missing topic with the defaults.
    must_exist = context.release.since("2.0") or name in context.cluster.topics
    own_configs = context.cluster.topic(name).configs if must_exist else {}
    for key, config in TOPIC_CONFIGS.items():
        synonyms = []
        if key in own_configs:
            on_this_node = own_configs[key]
            synonyms.append(
                DescribeConfigsSynonym(name=key, value=on_this_node, source=ConfigSource.TOPIC)
            )
        if config.server_property:
            synonyms.append(_broker_synonym(context, config.server_property, config))
        default = config.value(context.state.options)
        yield _config(key, config, synonyms, default=default)


def _broker_configs(context: RequestContext, name: str) -> Iterator[DescribeConfigsResourceResult]:
    if not name:
        # There are no cluster-wide defaults.
        return
    if name != str(context.node_id):
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"this is node {context.node_id}, ask node {name!r}",
        )
    yield _static_config("node.id", ConfigType.INT, name)
    yield _static_config("broker.id", ConfigType.INT, name)
    rack = context.cluster.racks.get(context.node_id)
    if rack is not None:
        yield _static_config("broker.rack", ConfigType.STRING, rack)
    for key, config in BROKER_CONFIGS.items():
        yield _config(key, config, [_broker_synonym(context, key, config)], read_only=True)


def _static_config(name: str, config_type: ConfigType, value: str) -> DescribeConfigsResourceResult:
    synonym = DescribeConfigsSynonym(name=name, value=value, source=ConfigSource.STATIC_BROKER)
    return _config(name, ConfigDef(config_type), [synonym], read_only=True)


def _broker_synonym(
    context: RequestContext, name: str, config: ConfigDef
) -> DescribeConfigsSynonym:
    """Return the value of the whole node."""
    value = config.value(context.state.options)
    source = ConfigSource.DEFAULT if value == config.value(DEFAULTS) else ConfigSource.STATIC_BROKER
    return DescribeConfigsSynonym(name=name, value=value, source=source)


def _config(
    name: str,
    config: ConfigDef,
    synonyms: list[DescribeConfigsSynonym],
    *,
    default: str = "",
    read_only: bool = False,
) -> DescribeConfigsResourceResult:
    """Return a config; the first synonym applies, else the default."""
    return DescribeConfigsResourceResult(
        name=name,
        value=synonyms[0].value if synonyms else default,
        read_only=read_only,
        config_source=synonyms[0].source if synonyms else ConfigSource.DEFAULT,
        is_sensitive=False,
        synonyms=synonyms,
        config_type=config.config_type,
    )
