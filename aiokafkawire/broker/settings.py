"""Kafka's own names for what topics and nodes are set to: their kinds, defaults and values here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from aiokafkawire.broker.options import BrokerConfig
from aiokafkawire.broker.refusal import Refusal
from aiokafkawire.wire import ErrorCode

__all__ = (
    "BROKER_SETTINGS",
    "TOPIC_SETTINGS",
    "InvalidValue",
    "Kind",
    "Setting",
    "Source",
    "checked_topic_configs",
)

MAX_LONG = str(2**63 - 1)


class Kind(IntEnum):
    """The type of a setting, as DescribeConfigs numbers them."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


class Source(IntEnum):
    """Where the value of a setting comes from, as DescribeConfigs numbers it."""

    TOPIC = 1
    STATIC_BROKER = 4
    DEFAULT = 5


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting. `option` is ours that gives the value, `of_broker` the name for a whole node.

    `allowed`: the only values, if they can be told.
    """

    kind: Kind
    default: str = ""
    option: str = ""
    of_broker: str = ""
    allowed: tuple[str, ...] = ()

    def value(self, options: BrokerConfig) -> str:
        """The value where nothing else was set."""
        if not self.option:
            return self.default
        found = getattr(options, self.option)
        return str(found).lower() if isinstance(found, bool) else str(found)

    def accepts(self, value: str) -> bool:
        """Whether a topic can be given that value."""
        if self.allowed:
            return value in self.allowed
        try:
            if self.kind in {Kind.INT, Kind.LONG}:
                int(value)
            elif self.kind is Kind.DOUBLE:
                float(value)
        except ValueError:
            return False
        return True


BOOLEAN = ("true", "false")

TOPIC_SETTINGS: Mapping[str, Setting] = {
    "cleanup.policy": Setting(Kind.LIST, "delete", of_broker="log.cleanup.policy"),
    "compression.type": Setting(Kind.STRING, "producer", of_broker="compression.type"),
    "delete.retention.ms": Setting(Kind.LONG, "86400000"),
    "file.delete.delay.ms": Setting(Kind.LONG, "60000"),
    "flush.messages": Setting(Kind.LONG, MAX_LONG),
    "flush.ms": Setting(Kind.LONG, MAX_LONG),
    "index.interval.bytes": Setting(Kind.INT, "4096"),
    "max.compaction.lag.ms": Setting(Kind.LONG, MAX_LONG),
    "max.message.bytes": Setting(
        Kind.INT, option="max_message_bytes", of_broker="message.max.bytes"
    ),
    "message.timestamp.after.max.ms": Setting(
        Kind.LONG, option="timestamp_after_max_ms", of_broker="log.message.timestamp.after.max.ms"
    ),
    "message.timestamp.before.max.ms": Setting(Kind.LONG, MAX_LONG),
    "message.timestamp.type": Setting(
        Kind.STRING, "CreateTime", allowed=("CreateTime", "LogAppendTime")
    ),
    "min.cleanable.dirty.ratio": Setting(Kind.DOUBLE, "0.5"),
    "min.compaction.lag.ms": Setting(Kind.LONG, "0"),
    "min.insync.replicas": Setting(
        Kind.INT, option="min_insync_replicas", of_broker="min.insync.replicas"
    ),
    "preallocate": Setting(Kind.BOOLEAN, "false", allowed=BOOLEAN),
    "retention.bytes": Setting(
        Kind.LONG, option="retention_bytes", of_broker="log.retention.bytes"
    ),
    "retention.ms": Setting(Kind.LONG, "604800000"),
    "segment.bytes": Setting(Kind.INT, option="segment_bytes", of_broker="log.segment.bytes"),
    "segment.index.bytes": Setting(Kind.INT, "10485760"),
    "segment.jitter.ms": Setting(Kind.LONG, "0"),
    "segment.ms": Setting(Kind.LONG, "604800000"),
    "unclean.leader.election.enable": Setting(Kind.BOOLEAN, "false", allowed=BOOLEAN),
}
"""What a topic can be given. Most is kept and told, and has no effect here."""

BROKER_SETTINGS: Mapping[str, Setting] = {
    "auto.create.topics.enable": Setting(Kind.BOOLEAN, option="auto_create_topics"),
    "connections.max.idle.ms": Setting(Kind.LONG, option="connections_max_idle_ms"),
    "fetch.max.bytes": Setting(Kind.INT, option="max_fetch_bytes"),
    "group.initial.rebalance.delay.ms": Setting(
        Kind.INT, option="group_initial_rebalance_delay_ms"
    ),
    "group.max.session.timeout.ms": Setting(Kind.INT, option="group_max_session_timeout_ms"),
    "group.max.size": Setting(Kind.INT, option="group_max_size"),
    "group.min.session.timeout.ms": Setting(Kind.INT, option="group_min_session_timeout_ms"),
    "log.message.timestamp.after.max.ms": Setting(Kind.LONG, option="timestamp_after_max_ms"),
    "log.retention.bytes": Setting(Kind.LONG, option="retention_bytes"),
    "log.segment.bytes": Setting(Kind.INT, option="segment_bytes"),
    "max.connections": Setting(Kind.INT, option="max_connections"),
    "message.max.bytes": Setting(Kind.INT, option="max_message_bytes"),
    "min.insync.replicas": Setting(Kind.INT, option="min_insync_replicas"),
    "num.partitions": Setting(Kind.INT, option="default_partitions"),
    "offset.metadata.max.bytes": Setting(Kind.INT, option="offset_metadata_max_bytes"),
    "socket.request.max.bytes": Setting(Kind.INT, option="max_request_bytes"),
    "transaction.max.timeout.ms": Setting(Kind.INT, option="transaction_max_timeout_ms"),
}
"""What a node tells of itself: the settings of Kafka that our options stand for."""


class InvalidValue(Refusal):
    """There is such a setting, but it cannot be that."""


def checked_topic_configs(configs: Mapping[str, str | None]) -> dict[str, str]:
    """The settings for a new topic. Raises `Refusal`."""
    checked = {}
    for name, value in configs.items():
        setting = TOPIC_SETTINGS.get(name)
        if setting is None:
            raise Refusal(ErrorCode.INVALID_CONFIG, f"unknown topic config {name!r}")
        if value is None:
            raise Refusal(ErrorCode.INVALID_CONFIG, f"topic config {name!r} has no value")
        if not setting.accepts(value):
            raise InvalidValue(
                ErrorCode.INVALID_CONFIG, f"topic config {name!r} cannot be {value!r}"
            )
        checked[name] = value
    return checked
