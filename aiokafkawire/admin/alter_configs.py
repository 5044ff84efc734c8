"""Changes of configs by AlterConfigs, for brokers before Kafka 2.3."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from aiokafkawire.admin.config_resources import broker_of, read_altered, resource_context
from aiokafkawire.admin.items import ItemRequest
from aiokafkawire.admin.requester import Requester
from aiokafkawire.admin.routing import Target
from aiokafkawire.admin.types.configs import (
    AlterConfigOp,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigResourceType,
    ConfigSource,
)
from aiokafkawire.errors import KafkaError, UnsupportedVersion
from aiokafkawire.wire import ApiKey
from aiokafkawire.wire.messages.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
)

__all__ = ("AlterByReplacement", "replacement")


class AlterByReplacement:
    """Replaces all configs of resources by the current ones with changes.

    Args:
        requester: Sends the requests.
        operations: Changes by resource.
        validate_only: Only check the requests.
    """

    def __init__(
        self,
        requester: Requester,
        operations: Mapping[ConfigResource, Sequence[AlterConfigOp]],
        *,
        validate_only: bool,
    ) -> None:
        self._requester = requester
        self._operations = operations
        self._validate_only = validate_only

    async def alter(
        self, current: Mapping[ConfigResource, dict[str, ConfigEntry] | KafkaError]
    ) -> dict[ConfigResource, KafkaError | None]:
        """Alter the resources whose current configs are known; return the error of each."""
        results: dict[ConfigResource, KafkaError | None] = {}
        values: dict[ConfigResource, dict[str, str | None]] = {}
        for resource, entries in current.items():
            if isinstance(entries, KafkaError):
                results[resource] = entries
                continue
            try:
                values[resource] = replacement(resource, entries, self._operations[resource])
            except UnsupportedVersion as error:
                results[resource] = error
        results |= await self._requester.request_items(self._request(values), values)
        return {resource: results[resource] for resource in current}

    def _request(
        self, values: Mapping[ConfigResource, Mapping[str, str | None]]
    ) -> ItemRequest[Any, None]:
        def build(resources: Sequence[ConfigResource], *_: int) -> AlterConfigsRequest:
            return AlterConfigsRequest(
                resources=[
                    AlterConfigsResource(
                        resource_type=resource.type,
                        resource_name=resource.name,
                        configs=[
                            AlterableConfig(name=name, value=value)
                            for name, value in values[resource].items()
                        ],
                    )
                    for resource in resources
                ],
                validate_only=self._validate_only,
            )

        return ItemRequest(
            api_key=ApiKey.ALTER_CONFIGS,
            build=build,
            read=read_altered,
            target=Target.NAMED_BROKER,
            locate=broker_of,
            context=resource_context,
        )


def replacement(
    resource: ConfigResource,
    entries: Mapping[str, ConfigEntry],
    operations: Sequence[AlterConfigOp],
) -> dict[str, str | None]:
    """Return all configs that a resource has after some changes.

    Raises:
        UnsupportedVersion: A secret would be lost, as brokers do not return its value.
    """
    kept = (
        ConfigSource.DYNAMIC_TOPIC_CONFIG
        if resource.type is ConfigResourceType.TOPIC
        else ConfigSource.DYNAMIC_BROKER_CONFIG
        if resource.name
        else ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    )
    values = {entry.name: entry.value for entry in entries.values() if entry.source is kept}
    for change in operations:
        before = entries[change.name].value if change.name in entries else None
        items = [item for item in (before or "").split(",") if item]
        changed = [item for item in (change.value or "").split(",") if item]
        match change.op_type:
            case AlterConfigOpType.DELETE:
                values.pop(change.name, None)
            case AlterConfigOpType.APPEND:
                added = [item for item in changed if item not in items]
                values[change.name] = ",".join([*items, *added])
            case AlterConfigOpType.SUBTRACT:
                values[change.name] = ",".join(item for item in items if item not in changed)
            case _:
                values[change.name] = change.value
    lost = [
        name
        for name, value in values.items()
        if value is None and name in entries and entries[name].is_sensitive
    ]
    if lost:
        raise UnsupportedVersion(
            f"the broker has AlterConfigs only, which would delete the secret {lost[0]!r} of"
            f" {resource}: IncrementalAlterConfigs needs Kafka 2.3 or later",
            api="AlterConfigs",
        )
    return values
