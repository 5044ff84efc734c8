"""Configs that clients set, and the values that apply."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.callbacks import Callbacks
from aiokafkawire.broker.configs.brokers import BROKER_CONFIGS, validate_broker_configs
from aiokafkawire.broker.configs.definitions import ConfigDef, ConfigResourceType, ConfigSource
from aiokafkawire.broker.configs.resources import (
    validate_client_metrics_configs,
    validate_group_configs,
)
from aiokafkawire.broker.configs.topics import TOPIC_CONFIGS
from aiokafkawire.broker.options import BrokerConfig
from aiokafkawire.wire import ErrorCode

__all__ = ("DEFAULT_BROKER", "MAX_RESOURCES", "ConfigValue", "DynamicConfigs", "LogConfig")

DEFAULT_BROKER = ""
"""Name of the resource with the configs of all brokers."""

MAX_RESOURCES = 10_000
"""Limit of groups and client metrics subscriptions that have configs."""

MIN_INSYNC_REPLICAS = "min.insync.replicas"

DEFAULTS = BrokerConfig()

NO_LIMIT = -1


class ConfigValue(NamedTuple):
    """Value of a config with its name and source."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Config of the log of a partition; None and -1 are no limit."""

    segment_bytes: int
    retention_bytes: int
    retention_ms: int | None = None

    @classmethod
    def from_options(cls, options: BrokerConfig) -> LogConfig:
        """Return the config of a log without configs that clients set."""
        return cls(options.segment_bytes, options.retention_bytes)


class DynamicConfigs:
    """Configs of topics, brokers, groups and client metrics that clients set.

    The value of a topic config is that of the topic, else that of the broker, else that of all
    brokers, else that of the options. With `requires_cluster_min_insync`, min.insync.replicas is
    always set for all brokers, as Kafka does with eligible leader replicas (KIP-966).
    """

    def __init__(self, options: BrokerConfig) -> None:
        self.options = options
        self.requires_cluster_min_insync = False
        self.on_change = Callbacks()
        self._configs: dict[tuple[ConfigResourceType, str], dict[str, str]] = {}
        self._topic_values: dict[tuple[str, str, int], str] = {}
        self._log_configs: dict[tuple[str, int], LogConfig] = {}

    # --- resources ---------------------------------------------------------------------------

    def of(self, resource_type: ConfigResourceType, name: str) -> Mapping[str, str]:
        """Return the configs that were set for a resource."""
        configs = self._configs.get((resource_type, name), {})
        if (resource_type, name) == (ConfigResourceType.BROKER, DEFAULT_BROKER) and (
            self.requires_cluster_min_insync
        ):
            return {MIN_INSYNC_REPLICAS: str(self.options.min_insync_replicas), **configs}
        return configs

    def names(self, resource_type: ConfigResourceType) -> list[str]:
        """Return the names of the resources of a type that have configs."""
        return [name for kind, name in self._configs if kind is resource_type]

    def validate(
        self, resource_type: ConfigResourceType, name: str, configs: Mapping[str, str]
    ) -> dict[str, str]:
        """Return the configs of a broker, group or subscription as DescribeConfigs shows them.

        Raises:
            ApiError: A config is unknown or invalid, or too many resources have configs.
        """
        if resource_type is ConfigResourceType.BROKER:
            return validate_broker_configs(configs)
        is_new = configs and (resource_type, name) not in self._configs
        if is_new and len(self.names(resource_type)) >= MAX_RESOURCES:
            raise ApiError(
                ErrorCode.POLICY_VIOLATION,
                f"at most {MAX_RESOURCES} {resource_type.name.lower()} resources have configs",
            )
        if resource_type is ConfigResourceType.GROUP:
            return validate_group_configs(configs, self.options)
        return validate_client_metrics_configs(configs)

    def replace(
        self, resource_type: ConfigResourceType, name: str, configs: Mapping[str, str]
    ) -> None:
        """Set all configs of a resource; without configs it is removed."""
        if configs:
            self._configs[resource_type, name] = dict(configs)
        else:
            self._configs.pop((resource_type, name), None)
        self.changed()

    def changed(self) -> None:
        """Apply a change, also one of the configs of a topic."""
        self._topic_values.clear()
        self._log_configs.clear()
        self.on_change.notify()

    # --- values ------------------------------------------------------------------------------

    def broker_values(self, name: str, config: ConfigDef, node_id: int) -> Iterator[ConfigValue]:
        """Return the values of a broker config, the one that applies first."""
        for source, broker in (
            (ConfigSource.DYNAMIC_BROKER_CONFIG, str(node_id)),
            (ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG, DEFAULT_BROKER),
        ):
            value = self.of(ConfigResourceType.BROKER, broker).get(name)
            if value is not None:
                yield ConfigValue(name, value, source)
        option, default = config.value(self.options), config.value(DEFAULTS)
        if option != default:
            yield ConfigValue(name, option, ConfigSource.STATIC_BROKER_CONFIG)
        if default is not None:
            yield ConfigValue(name, default, ConfigSource.DEFAULT_CONFIG)

    def broker_value(self, name: str, node_id: int) -> str:
        """Return the value of a broker config that applies to a node."""
        found = next(self.broker_values(name, BROKER_CONFIGS[name], node_id), None)
        return "" if found is None or found.value is None else found.value

    def topic_values(
        self, own: Mapping[str, str], name: str, config: ConfigDef, node_id: int
    ) -> Iterator[ConfigValue]:
        """Return the values of a config of a topic with the configs `own`, as `broker_values`."""
        if name in own:
            yield ConfigValue(name, own[name], ConfigSource.DYNAMIC_TOPIC_CONFIG)
        if config.server_property:
            of_broker = BROKER_CONFIGS[config.server_property]
            yield from self.broker_values(config.server_property, of_broker, node_id)

    def topic_value(self, topic: str, own: Mapping[str, str], name: str, node_id: int) -> str:
        """Return the value that applies to a topic, which is kept until something changes.

        Args:
            topic: Name of the topic.
            own: Configs of the topic.
            name: Name of the config.
            node_id: Broker whose configs apply where the topic has none.
        """
        value = self._topic_values.get((topic, name, node_id))
        if value is None:
            config = TOPIC_CONFIGS[name]
            found = next(self.topic_values(own, name, config, node_id), None)
            value = (found.value if found else config.value(self.options)) or ""
            self._topic_values[topic, name, node_id] = value
        return value

    def log_config(self, topic: str, own: Mapping[str, str], node_id: int) -> LogConfig:
        """Return the config of the logs of a topic on a node.

        Logs are not compacted. The option `retention_bytes` limits the memory of a log with
        cleanup.policy=compact. Records are deleted by time only if a client or the creator of the
        topic has set `retention.ms`.
        """
        config = self._log_configs.get((topic, node_id))
        if config is None:
            config = self._log_configs[topic, node_id] = self._make_log_config(topic, own, node_id)
        return config

    def _make_log_config(self, topic: str, own: Mapping[str, str], node_id: int) -> LogConfig:
        segment_bytes = int(self.topic_value(topic, own, "segment.bytes", node_id))
        if "delete" not in self.topic_value(topic, own, "cleanup.policy", node_id):
            return LogConfig(segment_bytes, self.options.retention_bytes)
        definition = TOPIC_CONFIGS["retention.ms"]
        age = next(self.topic_values(own, "retention.ms", definition, node_id), None)
        retention_ms = None if age is None or age.value is None else int(age.value)
        return LogConfig(
            segment_bytes,
            int(self.topic_value(topic, own, "retention.bytes", node_id)),
            None if retention_ms == NO_LIMIT else retention_ms,
        )

    # --- the store ---------------------------------------------------------------------------

    def to_json(self) -> list[dict[str, Any]]:
        """Return what `load` takes."""
        return [
            {"type": int(kind), "name": name, "configs": configs}
            for (kind, name), configs in self._configs.items()
        ]

    def load(self, saved: Iterable[Mapping[str, Any]]) -> None:
        """Load the configs that another start of the broker stored."""
        for entry in saved:
            key = (ConfigResourceType(entry["type"]), str(entry["name"]))
            self._configs[key] = dict(entry["configs"])
