"""DescribeConfigs: the configs of topics and nodes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from aiokafkawire.broker.acls import AclOperation
from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.apis.config_requests import MALFORMED, authorize_configs
from aiokafkawire.broker.configs import (
    BROKER_CONFIGS,
    CLIENT_METRICS_CONFIGS,
    GROUP_CONFIGS,
    TOPIC_CONFIGS,
    ConfigDef,
    ConfigResourceType,
    ConfigSource,
    ConfigType,
)
from aiokafkawire.broker.configs.brokers import DYNAMIC_CONFIGS
from aiokafkawire.broker.configs.dynamic import DEFAULT_BROKER, ConfigValue
from aiokafkawire.broker.request_context import RequestContext
from aiokafkawire.broker.topics import check_topic_name
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

__all__ = ("describe_topic", "error_response", "handle")

T = ConfigResourceType

UNKNOWN = 0

GROUP_CONFIGS_SINCE = "4.0"
CLIENT_METRICS_SINCE = "3.7"
EMPTY_MESSAGE_SINCE = "2.6"
"""Earlier releases describe such resources without configs, and have null for no message."""


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
    no_message = "" if context.release.since(EMPTY_MESSAGE_SINCE) else None
    try:
        authorize_configs(
            context,
            AclOperation.DESCRIBE_CONFIGS,
            resource.resource_type,
            resource.resource_name,
        )
        configs = list(_configs(context, resource.resource_type, resource.resource_name))
    except ApiError as error:
        result = _result(resource, error.code, error.message or no_message)
        if resource.resource_type not in set(T) and not context.release.since("2.4"):
            result.resource_type = UNKNOWN
        return result
    wanted = resource.configuration_keys
    result = _result(resource, ErrorCode.NONE, no_message)
    result.configs = [each for each in configs if wanted is None or each.name in wanted]
    for each in result.configs:
        if not request.include_documentation:
            each.documentation = None
        if not request.include_synonyms:
            each.synonyms = []
        if context.version == 0:
            each.is_default = each.config_source == ConfigSource.DEFAULT_CONFIG
    return result


def _configs(
    context: RequestContext, resource_type: int, name: str
) -> Iterable[DescribeConfigsResourceResult]:
    if resource_type == T.TOPIC:
        return _topic_configs(context, name)
    if resource_type == T.BROKER:
        return _broker_configs(context, name)
    if resource_type == T.GROUP:
        return _group_configs(context, name)
    if resource_type == T.CLIENT_METRICS:
        return _client_metrics_configs(context, name)
    if resource_type == T.BROKER_LOGGER:
        _check_logger_node(context, name)
        return map(_logger, context.state.loggers.describe().items())
    raise ApiError(ErrorCode.INVALID_REQUEST, MALFORMED)


def _logger(level: tuple[str, str]) -> DescribeConfigsResourceResult:
    name, value = level
    return DescribeConfigsResourceResult(
        name=name,
        value=value,
        read_only=False,
        config_source=ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG,
        is_sensitive=False,
    )


def _topic_configs(context: RequestContext, name: str) -> Iterator[DescribeConfigsResourceResult]:
    check_topic_name(name)
    # Earlier releases described a missing topic with the defaults.
    must_exist = context.release.since("2.0") or name in context.cluster.all_topics()
    yield from describe_topic(context, context.cluster.topic(name).configs if must_exist else {})


def describe_topic(
    context: RequestContext, own: Mapping[str, str]
) -> Iterator[DescribeConfigsResourceResult]:
    """Return the configs of a topic for which the configs `own` are set."""
    dynamic, node_id = context.cluster.dynamic_configs, context.node_id
    for key, config in TOPIC_CONFIGS.items():
        if config.since and not context.release.since(config.since):
            continue
        values = dynamic.topic_values(own, key, config, node_id)
        yield _config(key, config, values, default=config.value(dynamic.options))


def _broker_configs(context: RequestContext, name: str) -> Iterator[DescribeConfigsResourceResult]:
    dynamic, node_id = context.cluster.dynamic_configs, context.node_id
    if name == DEFAULT_BROKER:
        for key, value in dynamic.of(T.BROKER, DEFAULT_BROKER).items():
            source = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
            yield _broker_config(key, [ConfigValue(key, value, source)])
        return
    _check_node(context, name)
    for key in ("node.id", "broker.id"):
        yield _static_config(key, ConfigType.INT, name)
    rack = context.cluster.racks.get(node_id)
    if rack is not None:
        yield _static_config("broker.rack", ConfigType.STRING, rack)
    set_by_clients = {**dynamic.of(T.BROKER, DEFAULT_BROKER), **dynamic.of(T.BROKER, name)}
    for key in (*BROKER_CONFIGS, *(each for each in set_by_clients if each not in BROKER_CONFIGS)):
        config = BROKER_CONFIGS.get(key, NO_DEFINITION)
        yield _broker_config(key, dynamic.broker_values(key, config, node_id))


NO_DEFINITION = ConfigDef(ConfigType.STRING, None)
"""Of a broker config with an unknown name."""


def _broker_config(name: str, values: Iterable[ConfigValue]) -> DescribeConfigsResourceResult:
    config = BROKER_CONFIGS.get(name)
    if config is not None:
        return _config(name, config, values, read_only=name not in DYNAMIC_CONFIGS)
    # It may be a password.
    hidden = [ConfigValue(value.name, None, value.source) for value in values]
    result = _config(name, NO_DEFINITION, hidden, read_only=True)
    result.is_sensitive, result.config_type = True, 0
    return result


def _group_configs(context: RequestContext, name: str) -> Iterator[DescribeConfigsResourceResult]:
    if not context.release.since(GROUP_CONFIGS_SINCE):
        return
    if not name:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
    dynamic = context.cluster.dynamic_configs
    own = dynamic.of(T.GROUP, name)
    for key, config in GROUP_CONFIGS.items():
        if config.since and not context.release.since(config.since):
            continue
        values = (
            [ConfigValue(key, own[key], ConfigSource.DYNAMIC_GROUP_CONFIG)] if key in own else []
        )
        of_broker = BROKER_CONFIGS.get(config.server_property, config)
        property_name = config.server_property or key
        values += dynamic.broker_values(property_name, of_broker, context.node_id)
        yield _config(key, config, values)


def _client_metrics_configs(
    context: RequestContext, name: str
) -> Iterator[DescribeConfigsResourceResult]:
    if not context.release.since(CLIENT_METRICS_SINCE):
        return
    if not name:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty"
        )
    own: Mapping[str, str] = context.cluster.dynamic_configs.of(T.CLIENT_METRICS, name)
    for key, config in CLIENT_METRICS_CONFIGS.items():
        values = (
            [ConfigValue(key, own[key], ConfigSource.DYNAMIC_CLIENT_METRICS_CONFIG)]
            if key in own
            else []
        )
        yield _config(key, config, values, default=config.default)


def _check_node(context: RequestContext, name: str) -> None:
    try:
        node_id = int(name)
    except ValueError:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}"
        ) from None
    if node_id != context.node_id:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {context.node_id} or empty string,"
            f" but received {name}",
        )


def _check_logger_node(context: RequestContext, name: str) -> None:
    if not name:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
    if name != str(context.node_id):
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {context.node_id} but received {name}",
        )


def _static_config(name: str, config_type: ConfigType, value: str) -> DescribeConfigsResourceResult:
    values = [ConfigValue(name, value, ConfigSource.STATIC_BROKER_CONFIG)]
    return _config(name, ConfigDef(config_type), values, read_only=True)


def _config(
    name: str,
    config: ConfigDef,
    values: Iterable[ConfigValue],
    *,
    default: str | None = None,
    read_only: bool = False,
) -> DescribeConfigsResourceResult:
    """Return a config; the first value applies, else the default."""
    synonyms = [
        DescribeConfigsSynonym(name=each.name, value=each.value, source=each.source)
        for each in values
    ]
    return DescribeConfigsResourceResult(
        name=name,
        value=synonyms[0].value if synonyms else default,
        read_only=read_only,
        config_source=synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG,
        is_sensitive=False,
        synonyms=synonyms,
        config_type=config.config_type,
        documentation=config.documentation,
    )
