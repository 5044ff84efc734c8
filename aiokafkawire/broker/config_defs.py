"""Topic and broker configs by Kafka's names: types, defaults and values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.options import BrokerConfig
from aiokafkawire.wire import ErrorCode

__all__ = (
    "BROKER_CONFIGS",
    "TOPIC_CONFIGS",
    "ConfigDef",
    "ConfigSource",
    "ConfigType",
    "InvalidConfigValue",
    "validate_topic_configs",
)

MAX_LONG = str(2**63 - 1)


class ConfigType(IntEnum):
    """Type of a config, numbered as in DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


class ConfigSource(IntEnum):
    """Source of the value of a config, numbered as in DescribeConfigs."""

    TOPIC = 1
    STATIC_BROKER = 4
    DEFAULT = 5


@dataclass(frozen=True, slots=True)
class ConfigDef:
    """Definition of a topic or broker config.

    `option` is the option of `Broker` with the value, `server_property` the broker config that is
    the default of a topic config, `valid_values` the accepted values where they can be listed.
    """

    config_type: ConfigType
    default: str = ""
    option: str = ""
    server_property: str = ""
    valid_values: tuple[str, ...] = ()

    def value(self, options: BrokerConfig) -> str:
        """Return the value that applies without a topic override."""
        if not self.option:
            return self.default
        value = getattr(options, self.option)
        return str(value).lower() if isinstance(value, bool) else str(value)

    def is_valid(self, value: str) -> bool:
        """Return True if a topic can be given this value."""
        if self.valid_values:
            return value in self.valid_values
        try:
            if self.config_type in {ConfigType.INT, ConfigType.LONG}:
                int(value)
            elif self.config_type is ConfigType.DOUBLE:
                float(value)
        except ValueError:
            return False
        return True


BOOLEAN = ("true", "false")

TOPIC_CONFIGS: Mapping[str, ConfigDef] = {
    "cleanup.policy": ConfigDef(ConfigType.LIST, "delete", server_property="log.cleanup.policy"),
    "compression.type": ConfigDef(
        ConfigType.STRING, "producer", server_property="compression.type"
    ),
    "delete.retention.ms": ConfigDef(ConfigType.LONG, "86400000"),
    "file.delete.delay.ms": ConfigDef(ConfigType.LONG, "60000"),
    "flush.messages": ConfigDef(ConfigType.LONG, MAX_LONG),
    "flush.ms": ConfigDef(ConfigType.LONG, MAX_LONG),
    "index.interval.bytes": ConfigDef(ConfigType.INT, "4096"),
    "max.compaction.lag.ms": ConfigDef(ConfigType.LONG, MAX_LONG),
    "max.message.bytes": ConfigDef(
        ConfigType.INT, option="max_message_bytes", server_property="message.max.bytes"
    ),
    "message.timestamp.after.max.ms": ConfigDef(
        ConfigType.LONG,
        option="timestamp_after_max_ms",
        server_property="log.message.timestamp.after.max.ms",
    ),
    "message.timestamp.before.max.ms": ConfigDef(ConfigType.LONG, MAX_LONG),
    "message.timestamp.type": ConfigDef(
        ConfigType.STRING, "CreateTime", valid_values=("CreateTime", "LogAppendTime")
    ),
    "min.cleanable.dirty.ratio": ConfigDef(ConfigType.DOUBLE, "0.5"),
    "min.compaction.lag.ms": ConfigDef(ConfigType.LONG, "0"),
    "min.insync.replicas": ConfigDef(
        ConfigType.INT, option="min_insync_replicas", server_property="min.insync.replicas"
    ),
    "preallocate": ConfigDef(ConfigType.BOOLEAN, "false", valid_values=BOOLEAN),
    "retention.bytes": ConfigDef(
        ConfigType.LONG, option="retention_bytes", server_property="log.retention.bytes"
    ),
    "retention.ms": ConfigDef(ConfigType.LONG, "604800000"),
    "segment.bytes": ConfigDef(
        ConfigType.INT, option="segment_bytes", server_property="log.segment.bytes"
    ),
    "segment.index.bytes": ConfigDef(ConfigType.INT, "10485760"),
    "segment.jitter.ms": ConfigDef(ConfigType.LONG, "0"),
    "segment.ms": ConfigDef(ConfigType.LONG, "604800000"),
    "unclean.leader.election.enable": ConfigDef(ConfigType.BOOLEAN, "false", valid_values=BOOLEAN),
}
"""Configs that a topic accepts. Most are stored and described but have no effect."""

BROKER_CONFIGS: Mapping[str, ConfigDef] = {
    "auto.create.topics.enable": ConfigDef(ConfigType.BOOLEAN, option="auto_create_topics"),
    "connections.max.idle.ms": ConfigDef(ConfigType.LONG, option="connections_max_idle_ms"),
    "fetch.max.bytes": ConfigDef(ConfigType.INT, option="max_fetch_bytes"),
    "group.initial.rebalance.delay.ms": ConfigDef(
        ConfigType.INT, option="group_initial_rebalance_delay_ms"
    ),
    "group.max.session.timeout.ms": ConfigDef(
        ConfigType.INT, option="group_max_session_timeout_ms"
    ),
    "group.max.size": ConfigDef(ConfigType.INT, option="group_max_size"),
    "group.min.session.timeout.ms": ConfigDef(
        ConfigType.INT, option="group_min_session_timeout_ms"
    ),
    "log.message.timestamp.after.max.ms": ConfigDef(
        ConfigType.LONG, option="timestamp_after_max_ms"
    ),
    "log.retention.bytes": ConfigDef(ConfigType.LONG, option="retention_bytes"),
    "log.segment.bytes": ConfigDef(ConfigType.INT, option="segment_bytes"),
    "max.connections": ConfigDef(ConfigType.INT, option="max_connections"),
    "message.max.bytes": ConfigDef(ConfigType.INT, option="max_message_bytes"),
    "min.insync.replicas": ConfigDef(ConfigType.INT, option="min_insync_replicas"),
    "num.partitions": ConfigDef(ConfigType.INT, option="default_partitions"),
    "offset.metadata.max.bytes": ConfigDef(ConfigType.INT, option="offset_metadata_max_bytes"),
    "socket.request.max.bytes": ConfigDef(ConfigType.INT, option="max_request_bytes"),
    "transaction.max.timeout.ms": ConfigDef(ConfigType.INT, option="transaction_max_timeout_ms"),
}
"""Configs that a node describes: Kafka's names of the options of `Broker`."""


class InvalidConfigValue(ApiError):
    """The config exists, but the value is invalid."""


def validate_topic_configs(configs: Mapping[str, str | None]) -> dict[str, str]:
    """Return the configs of a new topic. Raises `ApiError`."""
    checked = {}
    for name, value in configs.items():
        config = TOPIC_CONFIGS.get(name)
        if config is None:
            raise ApiError(ErrorCode.INVALID_CONFIG, f"unknown topic config {name!r}")
        if value is None:
            raise ApiError(ErrorCode.INVALID_CONFIG, f"topic config {name!r} has no value")
        if not config.is_valid(value):
            raise InvalidConfigValue(
                ErrorCode.INVALID_CONFIG, f"topic config {name!r} cannot be {value!r}"
            )
        checked[name] = value
    return checked
