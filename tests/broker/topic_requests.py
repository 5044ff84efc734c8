"""A valid request of each API of configs, records, log directories and topic partitions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from aiokafkawire.wire import ApiKey, ErrorCode, Request
from aiokafkawire.wire.messages import (
    alter_configs,
    incremental_alter_configs,
    list_config_resources,
)

__all__ = ("TOPIC_REQUESTS",)

TOPIC = 2


def replaced_configs(version: int, topic_id: UUID) -> Request[Any]:
    config = alter_configs.AlterableConfig(name="flush.ms", value="1")
    resource = alter_configs.AlterConfigsResource(
        resource_type=TOPIC, resource_name="t", configs=[config]
    )
    return alter_configs.AlterConfigsRequest(resources=[resource], validate_only=False)


def altered_configs(version: int, topic_id: UUID) -> Request[Any]:
    config = incremental_alter_configs.IncrementalAlterableConfig(
        name="flush.ms", config_operation=0, value="1"
    )
    resource = incremental_alter_configs.IncrementalAlterConfigsResource(
        resource_type=TOPIC, resource_name="t", configs=[config]
    )
    return incremental_alter_configs.IncrementalAlterConfigsRequest(
        resources=[resource], validate_only=False
    )


TOPIC_REQUESTS: dict[ApiKey, tuple[Callable[[int, UUID], Request[Any]], set[ErrorCode]]] = {
    ApiKey.ALTER_CONFIGS: (replaced_configs, {ErrorCode.NONE}),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (altered_configs, {ErrorCode.NONE}),
    ApiKey.LIST_CONFIG_RESOURCES: (
        lambda v, i: list_config_resources.ListConfigResourcesRequest(
            resource_types=[TOPIC] if v else []
        ),
        {ErrorCode.NONE},
    ),
}
