"""DescribeConfigs: what topics and nodes are set to."""

from __future__ import annotations

from collections.abc import Iterator

from aiokafkawire.broker.call import Call
from aiokafkawire.broker.options import BrokerConfig
from aiokafkawire.broker.refusal import Refusal
from aiokafkawire.broker.settings import (
    BROKER_SETTINGS,
    TOPIC_SETTINGS,
    Kind,
    Setting,
    Source,
)
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

__all__ = ("failed", "handle")

DEFAULTS = BrokerConfig()

TOPIC, BROKER = 2, 4
"""The kinds of resources that are told of."""

UNKNOWN = 0

WITHOUT_SETTINGS = (16, 32)
"""Client metrics and groups: nothing of them can be set here."""

KNOWN_TYPES = (TOPIC, BROKER, *WITHOUT_SETTINGS)


async def handle(call: Call, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(
        throttle_time_ms=0,
        results=[_described(call, request, resource) for resource in request.resources],
    )


def failed(request: DescribeConfigsRequest, version: int, code: int) -> DescribeConfigsResponse:
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


def _described(
    call: Call, request: DescribeConfigsRequest, resource: DescribeConfigsResource
) -> DescribeConfigsResult:
    try:
        if resource.resource_type == TOPIC:
            configs = list(_of_topic(call, resource.resource_name))
        elif resource.resource_type == BROKER:
            configs = list(_of_node(call, resource.resource_name))
        elif resource.resource_type in WITHOUT_SETTINGS:
            configs = []
        else:
            raise Refusal(
                ErrorCode.INVALID_REQUEST, f"resource type {resource.resource_type} is not known"
            )
    except Refusal as refusal:
        result = _result(resource, refusal.code, str(refusal))
        if resource.resource_type not in KNOWN_TYPES and not call.release.since("2.4"):
            result.resource_type = UNKNOWN
        return result
    wanted = resource.configuration_keys
    result = _result(resource, ErrorCode.NONE, None)
    result.configs = [each for each in configs if wanted is None or each.name in wanted]
    for each in result.configs:
        each.documentation = None
        if not request.include_synonyms:
            each.synonyms = []
        if call.version == 0:
            each.is_default = each.config_source == Source.DEFAULT
    return result


def _of_topic(call: Call, name: str) -> Iterator[DescribeConfigsResourceResult]:
    check_topic_name(name)
    # Of a topic that there is not it was once told what one would begin with.
    told = call.release.since("2.0") or name in call.cluster.topics
    own_configs = call.cluster.topic(name).configs if told else {}
    for key, setting in TOPIC_SETTINGS.items():
        synonyms = []
        if key in own_configs:
            own = own_configs[key]
            synonyms.append(DescribeConfigsSynonym(name=key, value=own, source=Source.TOPIC))
        if setting.of_broker:
            synonyms.append(_of_option(call, setting.of_broker, setting))
        default = setting.value(call.state.options)
        yield _config(key, setting, synonyms, default=default)


def _of_node(call: Call, name: str) -> Iterator[DescribeConfigsResourceResult]:
    if not name:
        # The defaults of the whole cluster, of which there are none.
        return
    if name != str(call.node_id):
        raise Refusal(
            ErrorCode.INVALID_REQUEST,
            f"this is node {call.node_id}, which does not know the configs of node {name!r}",
        )
    yield _given("node.id", Kind.INT, name)
    yield _given("broker.id", Kind.INT, name)
    rack = call.cluster.racks.get(call.node_id)
    if rack is not None:
        yield _given("broker.rack", Kind.STRING, rack)
    for key, setting in BROKER_SETTINGS.items():
        yield _config(key, setting, [_of_option(call, key, setting)], read_only=True)


def _given(name: str, kind: Kind, value: str) -> DescribeConfigsResourceResult:
    synonym = DescribeConfigsSynonym(name=name, value=value, source=Source.STATIC_BROKER)
    return _config(name, Setting(kind), [synonym], read_only=True)


def _of_option(call: Call, name: str, setting: Setting) -> DescribeConfigsSynonym:
    """What the whole node is set to."""
    value = setting.value(call.state.options)
    source = Source.DEFAULT if value == setting.value(DEFAULTS) else Source.STATIC_BROKER
    return DescribeConfigsSynonym(name=name, value=value, source=source)


def _config(
    name: str,
    setting: Setting,
    synonyms: list[DescribeConfigsSynonym],
    *,
    default: str = "",
    read_only: bool = False,
) -> DescribeConfigsResourceResult:
    """The first of the synonyms is in force, else the default."""
    return DescribeConfigsResourceResult(
        name=name,
        value=synonyms[0].value if synonyms else default,
        read_only=read_only,
        config_source=synonyms[0].source if synonyms else Source.DEFAULT,
        is_sensitive=False,
        synonyms=synonyms,
        config_type=setting.kind,
    )
