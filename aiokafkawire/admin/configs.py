"""Operations on configs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Literal, overload

from aiokafkawire.admin.alter_configs import AlterByReplacement
from aiokafkawire.admin.arguments import check_configs
from aiokafkawire.admin.config_resources import (
    broker_of,
    read_altered,
    read_resource,
    resource_context,
)
from aiokafkawire.admin.items import (
    PARTITION_LOOKUPS,
    ItemRequest,
    ItemResult,
    finish_items,
)
from aiokafkawire.admin.operations import Operations
from aiokafkawire.admin.requester import Requester
from aiokafkawire.admin.response_values import known_member
from aiokafkawire.admin.routing import Target
from aiokafkawire.admin.types.configs import (
    AlterConfigOp,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigResourceType,
    ConfigSource,
    ConfigSynonym,
    ConfigType,
)
from aiokafkawire.errors import KafkaError, UnsupportedVersion
from aiokafkawire.wire import ApiKey
from aiokafkawire.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from aiokafkawire.wire.messages.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from aiokafkawire.wire.messages.list_config_resources import ListConfigResourcesRequest

__all__ = ("ConfigOperations",)

MAX_RESOURCES_PER_REQUEST = 200
"""Resources in one DescribeConfigs request; the requests go to several brokers in parallel."""

FIRST_WITH_SOURCES = 1
FIRST_WITH_DOCUMENTATION = 3
FIRST_WITH_RESOURCE_TYPES = 1
"""ListConfigResources version for other resources than client metrics (KIP-1142)."""

Resources = Iterable[ConfigResource] | Mapping[ConfigResource, Collection[str] | None]
Changes = Mapping[ConfigResource, Mapping[str, str | None] | Iterable[AlterConfigOp]]


class ConfigOperations(Operations):
    """Operations on configs."""

    @overload
    async def describe_configs(
        self,
        resources: Resources,
        *,
        include_synonyms: bool = False,
        include_documentation: bool = False,
        timeout_ms: int | None = None,
        return_errors: Literal[False] = False,
    ) -> dict[ConfigResource, dict[str, ConfigEntry]]: ...

    @overload
    async def describe_configs(
        self,
        resources: Resources,
        *,
        include_synonyms: bool = False,
        include_documentation: bool = False,
        timeout_ms: int | None = None,
        return_errors: bool,
    ) -> dict[ConfigResource, dict[str, ConfigEntry] | KafkaError]: ...

    async def describe_configs(
        self,
        resources: Resources,
        *,
        include_synonyms: bool = False,
        include_documentation: bool = False,
        timeout_ms: int | None = None,
        return_errors: bool = False,
    ) -> Mapping[ConfigResource, dict[str, ConfigEntry] | KafkaError]:
        """Describe the configs of topics, brokers and other resources.

        ::

            orders = ConfigResource(ConfigResourceType.TOPIC, "orders")
            configs = await admin.describe_configs([orders])
            retention_ms = configs[orders]["retention.ms"].value

        Args:
            resources: The resources, or the names of the configs of each (None: all).
            include_synonyms: Ask for the places that each value may come from (Kafka 1.1+).
            include_documentation: Ask for the description of each config (Kafka 2.6+).
            timeout_ms: Timeout in milliseconds; defaults to `default_api_timeout_ms`.
            return_errors: Return errors as results, instead of raising `PartialFailure`.

        Returns:
            The configs by name, by resource.

        Raises:
            PartialFailure: Some resources could not be described, such as topics that do not exist.
            UnsupportedVersion: The brokers are older than 0.11, or do not support what is asked.
            KafkaError: No broker could answer.
        """
        names = resources if isinstance(resources, Mapping) else dict.fromkeys(resources)
        results = await describe_configs(
            self._requester(timeout_ms),
            names,
            include_synonyms=include_synonyms,
            include_documentation=include_documentation,
        )
        return finish_items(results, "resources", return_errors=return_errors)

    async def incremental_alter_configs(
        self,
        changes: Changes,
        *,
        validate_only: bool = False,
        timeout_ms: int | None = None,
        return_errors: bool = False,
    ) -> dict[ConfigResource, KafkaError | None]:
        """Change some configs of resources; all others stay as they are.

        Brokers before 2.3 have AlterConfigs only, which replaces all configs of a resource. The
        client then reads the configs first and sends them with the changes, so that a change by
        another client at the same moment is lost. A resource with a secret cannot be altered so.

        ::

            orders = ConfigResource(ConfigResourceType.TOPIC, "orders")
            await admin.incremental_alter_configs({orders: {"retention.ms": "3600000"}})

        Args:
            changes: New values by name, or a list of `AlterConfigOp`, by resource. None resets a
                config to its default.
            validate_only: Only check the request.
            timeout_ms: Timeout in milliseconds; defaults to `default_api_timeout_ms`.
            return_errors: Return errors as results, instead of raising `PartialFailure`.

        Returns:
            None for each resource that was altered.

        Raises:
            PartialFailure: Some resources were not altered, such as with an unknown config
                (INVALID_CONFIG).
            UnsupportedVersion: Brokers before 0.11 cannot alter configs by request.
            KafkaError: No broker could answer.
        """
        operations = {resource: _operations(given) for resource, given in changes.items()}
        requester = self._requester(timeout_ms)
        results: Mapping[ConfigResource, KafkaError | None]
        results = await requester.request_items(_alter(operations, validate_only), operations)
        outdated = [
            resource
            for resource, result in results.items()
            if isinstance(result, UnsupportedVersion)
        ]
        if outdated:
            older = AlterByReplacement(requester, operations, validate_only=validate_only)
            current = await describe_configs(requester, dict.fromkeys(outdated))
            results = {**results, **await older.alter(current)}
        return finish_items(results, "resources", return_errors=return_errors)

    async def list_config_resources(
        self, types: Iterable[ConfigResourceType] = (), *, timeout_ms: int | None = None
    ) -> list[ConfigResource]:
        """List the resources that may have configs (KIP-1142).

        Args:
            types: Types of the resources; defaults to all. CLIENT_METRICS alone needs Kafka 3.7+,
                the others 4.1+.
            timeout_ms: Timeout in milliseconds; defaults to `default_api_timeout_ms`.

        Returns:
            The resources in order of type and name.

        Raises:
            UnsupportedVersion: The brokers are too old.
            KafkaError: No broker could answer.
        """
        wanted = list(types)
        only_metrics = wanted == [ConfigResourceType.CLIENT_METRICS]
        response = await self._requester(timeout_ms).request(
            ListConfigResourcesRequest(resource_types=[] if only_metrics else list(wanted)),
            min_version=0 if only_metrics else FIRST_WITH_RESOURCE_TYPES,
            max_version=0 if only_metrics else None,
        )
        found = {
            read_resource(each.resource_type, each.resource_name)
            for each in response.config_resources
        }
        return sorted(found)

    async def list_client_metrics_resources(self, *, timeout_ms: int | None = None) -> list[str]:
        """List the client metrics subscriptions (KIP-1000, Kafka 3.7+).

        Args:
            timeout_ms: Timeout in milliseconds; defaults to `default_api_timeout_ms`.

        Returns:
            Names of the subscriptions in order.

        Raises:
            UnsupportedVersion: The brokers are too old.
            KafkaError: No broker could answer.
        """
        resources = await self.list_config_resources(
            [ConfigResourceType.CLIENT_METRICS], timeout_ms=timeout_ms
        )
        return [resource.name for resource in resources]


async def describe_configs(
    requester: Requester,
    names: Mapping[ConfigResource, Collection[str] | None],
    *,
    include_synonyms: bool = False,
    include_documentation: bool = False,
) -> dict[ConfigResource, dict[str, ConfigEntry] | KafkaError]:
    """Return the configs of each resource, or its error."""

    def build(resources: Sequence[ConfigResource], *_: int) -> DescribeConfigsRequest:
        return DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(
                    resource_type=resource.type,
                    resource_name=resource.name,
                    configuration_keys=None if (keys := names[resource]) is None else list(keys),
                )
                for resource in resources
            ],
            include_synonyms=include_synonyms,
            include_documentation=include_documentation,
        )

    request: ItemRequest[ConfigResource, dict[str, ConfigEntry]] = ItemRequest(
        api_key=ApiKey.DESCRIBE_CONFIGS,
        build=build,
        read=_EntryReader().read,
        target=Target.NAMED_BROKER,
        locate=broker_of,
        context=resource_context,
        min_version=max(
            FIRST_WITH_SOURCES * include_synonyms, FIRST_WITH_DOCUMENTATION * include_documentation
        ),
        max_unknown=PARTITION_LOOKUPS,
        max_items=MAX_RESOURCES_PER_REQUEST,
    )
    return await requester.request_items(request, names)


class _EntryReader:
    """Reads the configs of resources; equal configs, such as defaults, are the same object."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], ConfigEntry] = {}

    def read(self, response: DescribeConfigsResponse) -> Iterable[ItemResult]:
        for result in response.results:
            resource = read_resource(result.resource_type, result.resource_name)
            entries = {config.name: self._entry(resource.type, config) for config in result.configs}
            yield ItemResult(resource, entries, result.error_code, result.error_message)

    def _entry(
        self, kind: ConfigResourceType, config: DescribeConfigsResourceResult
    ) -> ConfigEntry:
        if config.synonyms or config.config_source < 0:
            return _entry(kind, config)
        key = (
            config.name,
            config.value,
            config.read_only,
            config.config_source,
            config.is_sensitive,
            config.config_type,
            config.documentation,
        )
        entry = self._known.get(key)
        if entry is None:
            entry = self._known[key] = _entry(kind, config)
        return entry


def _entry(kind: ConfigResourceType, config: DescribeConfigsResourceResult) -> ConfigEntry:
    source = known_member(ConfigSource, config.config_source, ConfigSource.UNKNOWN)
    if config.config_source < 0:  # v0
        if config.is_default:
            source = ConfigSource.DEFAULT_CONFIG
        elif kind is ConfigResourceType.TOPIC:
            source = ConfigSource.DYNAMIC_TOPIC_CONFIG
        else:
            source = ConfigSource.STATIC_BROKER_CONFIG
    return ConfigEntry(
        config.name,
        config.value,
        source,
        config.read_only,
        config.is_sensitive,
        tuple(
            ConfigSynonym(
                each.name, each.value, known_member(ConfigSource, each.source, ConfigSource.UNKNOWN)
            )
            for each in config.synonyms
        ),
        known_member(ConfigType, config.config_type, ConfigType.UNKNOWN),
        config.documentation or None,
    )


def _operations(
    given: Mapping[str, str | None] | Iterable[AlterConfigOp],
) -> tuple[AlterConfigOp, ...]:
    if not isinstance(given, Mapping):
        return tuple(given)
    check_configs(given)
    return tuple(
        AlterConfigOp(
            name, value, AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
        )
        for name, value in given.items()
    )


def _alter(
    operations: Mapping[ConfigResource, Sequence[AlterConfigOp]], validate_only: bool
) -> ItemRequest[ConfigResource, None]:
    def build(resources: Sequence[ConfigResource], *_: int) -> IncrementalAlterConfigsRequest:
        return IncrementalAlterConfigsRequest(
            resources=[
                IncrementalAlterConfigsResource(
                    resource_type=resource.type,
                    resource_name=resource.name,
                    configs=[
                        IncrementalAlterableConfig(
                            name=change.name, config_operation=change.op_type, value=change.value
                        )
                        for change in operations[resource]
                    ],
                )
                for resource in resources
            ],
            validate_only=validate_only,
        )

    return ItemRequest(
        api_key=ApiKey.INCREMENTAL_ALTER_CONFIGS,
        build=build,
        read=read_altered,
        target=Target.NAMED_BROKER,
        locate=broker_of,
        context=resource_context,
        max_unknown=PARTITION_LOOKUPS,
    )
