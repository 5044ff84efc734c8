"""Configs of groups and of client metrics subscriptions, as in Kafka 4.3."""

from __future__ import annotations

import re
from collections.abc import Mapping

from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.configs.definitions import (
    BOOLEAN,
    INT,
    LIST,
    STRING,
    ConfigDef,
    InvalidConfigValue,
    parse_all,
    split_list,
)
from aiokafkawire.broker.options import BrokerConfig
from aiokafkawire.wire import ErrorCode

__all__ = (
    "CLIENT_METRICS_CONFIGS",
    "GROUP_CONFIGS",
    "validate_client_metrics_configs",
    "validate_group_configs",
)

_OFFSET_RESET = re.compile(r"earliest|latest|by_duration:P(?!$)(\d+D)?(T(?=\d)[\d.]+[HMS].*)?")

GROUP_CONFIGS: Mapping[str, ConfigDef] = {
    "consumer.assignment.interval.ms": ConfigDef(
        INT,
        "1000",
        "Least time between two assignments of a consumer group, in ms.",
        server_property="group.consumer.assignment.interval.ms",
        low=0,
    ),
    "consumer.heartbeat.interval.ms": ConfigDef(
        INT,
        "5000",
        "Heartbeat interval of the members of a consumer group, in ms.",
        server_property="group.consumer.heartbeat.interval.ms",
        low=1,
    ),
    "consumer.session.timeout.ms": ConfigDef(
        INT,
        "45000",
        "Session timeout of the members of a consumer group, in ms.",
        server_property="group.consumer.session.timeout.ms",
        low=1,
    ),
    "errors.deadletterqueue.copy.record.enable": ConfigDef(
        BOOLEAN,
        "false",
        "Whether dead letters of a share group have the key and value of their record.",
        since="4.4",
    ),
    "errors.deadletterqueue.topic.name": ConfigDef(
        STRING, "", "Topic for records that a share group gives up; none by default.", since="4.4"
    ),
    "share.assignment.interval.ms": ConfigDef(
        INT,
        "1000",
        "Least time between two assignments of a share group, in ms.",
        server_property="group.share.assignment.interval.ms",
        low=0,
    ),
    "share.auto.offset.reset": ConfigDef(
        STRING, "latest", "Where a share group starts: earliest, latest or by_duration:DURATION."
    ),
    "share.delivery.count.limit": ConfigDef(
        INT,
        "5",
        "Times that a share group delivers a record before it is archived.",
        server_property="group.share.delivery.count.limit",
        low=2,
    ),
    "share.heartbeat.interval.ms": ConfigDef(
        INT,
        "5000",
        "Heartbeat interval of the members of a share group, in ms.",
        server_property="group.share.heartbeat.interval.ms",
        low=1,
    ),
    "share.isolation.level": ConfigDef(
        STRING,
        "read_uncommitted",
        "Whether a share group reads records of transactions that are not committed.",
        valid_values=("read_committed", "read_uncommitted"),
    ),
    "share.partition.max.record.locks": ConfigDef(
        INT,
        "2000",
        "Records of a partition that a share group may have acquired.",
        server_property="group.share.partition.max.record.locks",
        low=100,
    ),
    "share.record.lock.duration.ms": ConfigDef(
        INT,
        "30000",
        "Time after which an acquired record is released, in ms.",
        server_property="group.share.record.lock.duration.ms",
        low=1_000,
    ),
    "share.renew.acknowledge.enable": ConfigDef(
        BOOLEAN, "true", "Whether members may renew the lock of an acquired record."
    ),
    "share.session.timeout.ms": ConfigDef(
        INT,
        "45000",
        "Session timeout of the members of a share group, in ms.",
        server_property="group.share.session.timeout.ms",
        low=1,
    ),
    "streams.assignment.interval.ms": ConfigDef(
        INT,
        "1000",
        "Least time between two assignments of a streams group, in ms.",
        server_property="group.streams.assignment.interval.ms",
        low=0,
    ),
    "streams.heartbeat.interval.ms": ConfigDef(
        INT,
        "5000",
        "Heartbeat interval of the members of a streams group, in ms.",
        server_property="group.streams.heartbeat.interval.ms",
        low=1,
    ),
    "streams.initial.rebalance.delay.ms": ConfigDef(
        INT,
        "3000",
        "Time that the first rebalance of a streams group waits for more members, in ms.",
        server_property="group.streams.initial.rebalance.delay.ms",
        low=0,
    ),
    "streams.num.standby.replicas": ConfigDef(
        INT,
        "0",
        "Standby replicas of each task of a streams group.",
        server_property="group.streams.num.standby.replicas",
        low=0,
    ),
    "streams.session.timeout.ms": ConfigDef(
        INT,
        "45000",
        "Session timeout of the members of a streams group, in ms.",
        server_property="group.streams.session.timeout.ms",
        low=1,
    ),
}
"""Configs that a group accepts."""

_HEARTBEAT_MS, _SESSION_MS = (5_000, 15_000), (45_000, 60_000)

_LOWERED: Mapping[str, str] = {
    "consumer.session.timeout.ms": "group_consumer_min_session_timeout_ms",
    "consumer.heartbeat.interval.ms": "group_consumer_min_heartbeat_interval_ms",
    "share.session.timeout.ms": "group_share_min_session_timeout_ms",
    "share.heartbeat.interval.ms": "group_share_min_heartbeat_interval_ms",
    "share.record.lock.duration.ms": "group_share_min_record_lock_duration_ms",
}
"""Options of the broker that lower the limit of a config."""

_GROUP_LIMITS: Mapping[str, tuple[int, int]] = {
    "consumer.heartbeat.interval.ms": _HEARTBEAT_MS,
    "consumer.session.timeout.ms": _SESSION_MS,
    "share.heartbeat.interval.ms": _HEARTBEAT_MS,
    "share.session.timeout.ms": _SESSION_MS,
    "share.delivery.count.limit": (2, 10),
    "share.partition.max.record.locks": (100, 4_000),
    "share.record.lock.duration.ms": (15_000, 60_000),
    "streams.heartbeat.interval.ms": _HEARTBEAT_MS,
    "streams.session.timeout.ms": _SESSION_MS,
    "streams.num.standby.replicas": (0, 2),
}
"""Lowest and highest value of a group config, by the defaults of Kafka's broker configs."""

CLIENT_METRICS_CONFIGS: Mapping[str, ConfigDef] = {
    "interval.ms": ConfigDef(INT, "300000", "Interval at which clients push metrics, in ms."),
    "match": ConfigDef(LIST, "", "Clients that push metrics, as name=pattern."),
    "metrics": ConfigDef(LIST, "", "Prefixes of the names of the metrics that clients push."),
}
"""Configs that a client metrics subscription accepts."""

MIN_INTERVAL_MS, MAX_INTERVAL_MS = 100, 3_600_000

_MATCHED = frozenset(
    {
        *("client_instance_id", "client_id", "client_software_name", "client_software_version"),
        *("client_source_address", "client_source_port"),
    }
)


def validate_group_configs(
    configs: Mapping[str, str], options: BrokerConfig | None = None
) -> dict[str, str]:
    """Return the configs of a group in the form that DescribeConfigs shows.

    Args:
        configs: Values by name.
        options: Options of the broker, which may lower limits.

    Raises:
        ApiError: A config is unknown or invalid.
    """
    values = parse_all(configs, GROUP_CONFIGS, "group")
    reset = values.get("share.auto.offset.reset", "latest")
    if not _OFFSET_RESET.fullmatch(reset):
        name = "share.auto.offset.reset"
        raise InvalidConfigValue(
            name,
            reset,
            f"Invalid value `{reset}` for configuration {name}. The value must be either"
            " 'earliest', 'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'.",
        )
    for name, (lowest, high) in _GROUP_LIMITS.items():
        has_option = options is not None and name in _LOWERED
        low = getattr(options, _LOWERED[name]) if has_option else lowest
        if name not in values or low <= int(values[name]) <= high:
            continue
        kind, _, rest = name.partition(".")
        rest = rest.removeprefix("num.")
        below = int(values[name]) < low
        raise ApiError(
            ErrorCode.INVALID_CONFIG,
            f"{name} must be {'greater' if below else 'less'} than or equal to"
            f" group.{kind}.{'min' if below else 'max'}.{rest}",
        )
    return values


def validate_client_metrics_configs(configs: Mapping[str, str]) -> dict[str, str]:
    """Return the configs of a subscription in the form that DescribeConfigs shows.

    Raises:
        ApiError: A config is unknown or invalid.
    """
    for name in configs:
        if name not in CLIENT_METRICS_CONFIGS:
            raise ApiError(
                ErrorCode.INVALID_REQUEST, f"Unknown client metrics configuration: {name}"
            )
    values = parse_all(configs, CLIENT_METRICS_CONFIGS, "client metrics")
    interval = int(values.get("interval.ms", MIN_INTERVAL_MS))
    if not MIN_INTERVAL_MS <= interval <= MAX_INTERVAL_MS:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"Invalid value {interval} for interval.ms, interval must be between"
            f" {MIN_INTERVAL_MS} and {MAX_INTERVAL_MS} (1 hour)",
        )
    for item in split_list(values.get("match", "")):
        name, separator, pattern = item.partition("=")
        if not separator or name.strip() not in _MATCHED or not _is_pattern(pattern.strip()):
            raise ApiError(ErrorCode.INVALID_CONFIG, f"Illegal client matching pattern: {item}")
    return values


def _is_pattern(text: str) -> bool:
    try:
        re.compile(text)
    except re.error:
        return False
    return True
