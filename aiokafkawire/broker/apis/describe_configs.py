"""DescribeConfigs: what topics and nodes are set to."""

from __future__ import annotations

from collections.abc import Iterator

from aiokafkawire.broker.call import Call
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

TOPIC, BROKER = 2, 4
"""The kinds of resources that are told of."""


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
        else:
            raise Refusal(
                ErrorCode.INVALID_REQUEST, f"resource type {resource.resource_type} is not known"
            )
    except Refusal as refusal:
        return _result(resource, refusal.code, str(refusal))
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
    topic = call.cluster.topic(name)
    for key, setting in TOPIC_SETTINGS.items():
        own = topic.configs.get(key)
        default = setting.value(call.state.options)
        synonyms = [DescribeConfigsSynonym(name=key, value=own, source=Source.TOPIC)]
        if setting.of_broker:
            source = Source.STATIC_BROKER if setting.option else Source.DEFAULT
            synonyms.append(
                DescribeConfigsSynonym(name=setting.of_broker, value=default, source=source)
            )
        yield _config(
            key,
            setting,
            value=default if own is None else own,
            source=Source.DEFAULT if own is None else Source.TOPIC,
            synonyms=synonyms[own is None :],
        )


def _of_node(call: Call, name: str) -> Iterator[DescribeConfigsResourceResult]:
    if not name:
        # The defaults of the whole cluster, of which there are none.
        return
    if name != str(call.node_id):
        raise Refusal(
            ErrorCode.INVALID_REQUEST,
            f"this is node {call.node_id}, which does not know the configs of node {name!r}",
        )
    own = {"node.id": Setting(Kind.INT, name), "broker.id": Setting(Kind.INT, name)}
    rack = call.cluster.racks.get(call.node_id)
    if rack is not None:
        own["broker.rack"] = Setting(Kind.STRING, rack)
    for key, setting in {**own, **BROKER_SETTINGS}.items():
        value = setting.value(call.state.options)
        source = Source.STATIC_BROKER
        synonym = DescribeConfigsSynonym(name=key, value=value, source=source)
        yield _config(key, setting, value=value, source=source, synonyms=[synonym])


def _config(
    name: str,
    setting: Setting,
    *,
    value: str,
    source: Source,
    synonyms: list[DescribeConfigsSynonym],
) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=name,
        value=value,
        read_only=source is Source.STATIC_BROKER,
        config_source=source,
        is_sensitive=False,
        synonyms=synonyms,
        config_type=setting.kind,
    )
