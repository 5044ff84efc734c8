"""IncrementalAlterConfigs: set, reset, extend and shorten configs (KIP-339)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.apis.config_requests import Change, alter_each, check_config_names
from aiokafkawire.broker.configs import (
    BROKER_CONFIGS,
    GROUP_CONFIGS,
    TOPIC_CONFIGS,
    ConfigDef,
    ConfigResourceType,
    ConfigType,
)
from aiokafkawire.broker.configs.definitions import split_list
from aiokafkawire.broker.loggers import check_level, check_logger
from aiokafkawire.broker.request_context import RequestContext
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)

__all__ = ("error_response", "handle")


class Operation(IntEnum):
    """Operation on a config, numbered as in the request."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


DEFINITIONS: Mapping[ConfigResourceType, Mapping[str, ConfigDef]] = {
    ConfigResourceType.TOPIC: TOPIC_CONFIGS,
    ConfigResourceType.BROKER: BROKER_CONFIGS,
    ConfigResourceType.GROUP: GROUP_CONFIGS,
}
"""Definitions by which the controller knows lists; it has none for client metrics."""


async def handle(
    context: RequestContext, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    results = alter_each(
        context, request.resources, _check_and_change, validate_only=request.validate_only
    )
    return IncrementalAlterConfigsResponse(
        throttle_time_ms=0, responses=[_response(*result) for result in results]
    )


def error_response(
    request: IncrementalAlterConfigsRequest, version: int, code: int
) -> IncrementalAlterConfigsResponse:
    return IncrementalAlterConfigsResponse(
        throttle_time_ms=0,
        responses=[_response(resource, code, None) for resource in request.resources],
    )


def _response(
    resource: IncrementalAlterConfigsResource, code: int, message: str | None
) -> IncrementalAlterConfigsResourceResponse:
    return IncrementalAlterConfigsResourceResponse(
        error_code=code,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def _check_and_change(resource: IncrementalAlterConfigsResource) -> Change:
    check_config_names(
        resource.configs,
        [
            config.name
            for config in resource.configs
            if config.value is None and config.config_operation != Operation.DELETE
        ],
    )

    def change(resource_type: ConfigResourceType, present: Mapping[str, str]) -> dict[str, str]:
        configs = dict(present)
        for each in resource.configs:
            _apply(configs, each, resource_type)
        return configs

    if resource.resource_type == ConfigResourceType.BROKER_LOGGER:
        _check_loggers(resource)
    return change


def _check_loggers(resource: IncrementalAlterConfigsResource) -> None:
    """Raise `ApiError` for a logger or level that does not exist."""
    for each in resource.configs:
        operation = each.config_operation
        if operation in {Operation.APPEND, Operation.SUBTRACT}:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"{Operation(operation).name} operation is not allowed for the BROKER_LOGGER"
                " resource",
            )
        check_logger(each.name)
        if operation == Operation.SET:
            check_level(each.name, each.value or "")


def _apply(
    configs: dict[str, str], change: IncrementalAlterableConfig, resource_type: ConfigResourceType
) -> None:
    name, operation = change.name, change.config_operation
    if operation not in set(Operation):
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR)
    if operation == Operation.DELETE:
        configs.pop(name, None)
        return
    value = change.value or ""
    if operation == Operation.SET:
        configs[name] = value
        return
    definition = DEFINITIONS.get(resource_type, {}).get(name)
    if definition is None or definition.config_type is not ConfigType.LIST:
        raise ApiError(
            ErrorCode.INVALID_CONFIG,
            f"Can't {Operation(operation).name} to key {name} because its type is not LIST.",
        )
    items = split_list(configs.get(name, definition.default or ""))
    for item in split_list(value):
        if operation == Operation.APPEND and item not in items:
            items.append(item)
        elif operation == Operation.SUBTRACT and item in items:
            items.remove(item)
    configs[name] = ",".join(items)
