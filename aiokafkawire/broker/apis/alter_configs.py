"""AlterConfigs: replace all configs of a resource."""

from __future__ import annotations

from collections.abc import Mapping

from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.apis.config_requests import Change, alter_each, check_config_names
from aiokafkawire.broker.configs import ConfigResourceType
from aiokafkawire.broker.request_context import RequestContext
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)

__all__ = ("error_response", "handle")


async def handle(context: RequestContext, request: AlterConfigsRequest) -> AlterConfigsResponse:
    results = alter_each(
        context, request.resources, _check_and_change, validate_only=request.validate_only
    )
    return AlterConfigsResponse(
        throttle_time_ms=0, responses=[_response(*result) for result in results]
    )


def error_response(request: AlterConfigsRequest, version: int, code: int) -> AlterConfigsResponse:
    return AlterConfigsResponse(
        throttle_time_ms=0,
        responses=[_response(resource, code, None) for resource in request.resources],
    )


def _response(
    resource: AlterConfigsResource, code: int, message: str | None
) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=code,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def _check_and_change(resource: AlterConfigsResource) -> Change:
    if resource.resource_type == ConfigResourceType.BROKER_LOGGER:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource.resource_type}")
    check_config_names(
        resource.configs, [config.name for config in resource.configs if config.value is None]
    )
    configs = {config.name: config.value or "" for config in resource.configs}

    def change(resource_type: ConfigResourceType, present: Mapping[str, str]) -> dict[str, str]:
        return configs

    return change
