"""Requests about configs to the embedded broker."""

from __future__ import annotations

from typing import Any

from aiokafkawire.broker import Broker
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from aiokafkawire.wire.messages.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)

from .raw_client import connected

TOPIC, CLUSTER, CLIENT_METRICS, GROUP = 2, 4, 16, 32
"""Resource types; the cluster is the broker without a name."""

SET = 0

Change = tuple[str, int, str | None]


async def alter(
    broker: Broker,
    resource_type: int,
    name: str,
    *changes: Change,
    node: int | None = None,
    version: int = 1,
    validate_only: bool = False,
) -> tuple[ErrorCode, str | None]:
    """Send IncrementalAlterConfigs for one resource; return its error code and message."""
    resource = IncrementalAlterConfigsResource(
        resource_type=resource_type,
        resource_name=name,
        configs=[
            IncrementalAlterableConfig(name=key, config_operation=operation, value=value)
            for key, operation, value in changes
        ],
    )
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    async with connected(broker, node) as client:
        (result,) = (await client.call(request, version)).responses
    assert (result.resource_type, result.resource_name) == (resource_type, name)
    return ErrorCode(result.error_code), result.error_message


async def set_config(
    broker: Broker, resource_type: int, name: str, key: str, value: str, *, node: int | None = None
) -> None:
    """Set one config."""
    result = await alter(broker, resource_type, name, (key, SET, value), node=node)
    assert result == (ErrorCode.NONE, None)


async def described(
    broker: Broker, resource_type: int, name: str, node: int | None = None
) -> dict[str, Any]:
    """Return the configs of a resource by name, with synonyms and documentation."""
    resource = DescribeConfigsResource(
        resource_type=resource_type, resource_name=name, configuration_keys=None
    )
    request = DescribeConfigsRequest(
        resources=[resource], include_synonyms=True, include_documentation=True
    )
    async with connected(broker, node) as client:
        (result,) = (await client.call(request, 4)).results
    assert result.error_code == ErrorCode.NONE, result.error_message
    return {config.name: config for config in result.configs}
