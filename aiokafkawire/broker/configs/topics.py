"""Topic configs, as in Kafka 4.3."""

from __future__ import annotations

from collections.abc import Mapping

from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.configs.definitions import (
    ANY_REPLICA,
    BOOLEAN,
    DOUBLE,
    INT,
    LIST,
    LONG,
    MAX_LONG,
    STRING,
    THROTTLED_REPLICAS,
    ConfigDef,
    InvalidConfigValue,
    parse_all,
    split_list,
)
from aiokafkawire.wire import ErrorCode

__all__ = ("TOPIC_CONFIGS", "validate_new_topic_configs", "validate_topic_configs")

CODECS = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")

MIN_SEGMENT_BYTES = 2**20

THROTTLED = (
    "leader.replication.throttled.replicas",
    "follower.replication.throttled.replicas",
)

TOPIC_CONFIGS: Mapping[str, ConfigDef] = {
    "cleanup.policy": ConfigDef(
        LIST,
        "delete",
        "Whether old segments are deleted, compacted, or both.",
        server_property="log.cleanup.policy",
        valid_values=("compact", "delete"),
    ),
    "compression.gzip.level": ConfigDef(
        INT,
        "-1",
        "Level of gzip where the broker compresses with it; -1 is the codec's default.",
        server_property="compression.gzip.level",
    ),
    "compression.lz4.level": ConfigDef(
        INT,
        "9",
        "Level of lz4 where the broker compresses with it.",
        server_property="compression.lz4.level",
        low=1,
        high=17,
    ),
    "compression.type": ConfigDef(
        STRING,
        "producer",
        "Codec in which batches are stored; `producer` keeps the codec of each batch.",
        server_property="compression.type",
        valid_values=CODECS,
    ),
    "compression.zstd.level": ConfigDef(
        INT,
        "3",
        "Level of zstd where the broker compresses with it.",
        server_property="compression.zstd.level",
        low=-131_072,
        high=22,
    ),
    "delete.retention.ms": ConfigDef(
        LONG,
        "86400000",
        "Time for which compaction keeps tombstones, in ms.",
        server_property="log.cleaner.delete.retention.ms",
        low=0,
    ),
    "errors.deadletterqueue.group.enable": ConfigDef(
        BOOLEAN, "false", "Whether share groups may write their dead letters here.", since="4.4"
    ),
    "file.delete.delay.ms": ConfigDef(
        LONG,
        "60000",
        "Time after which the file of a deleted segment is removed, in ms.",
        server_property="log.segment.delete.delay.ms",
        low=0,
    ),
    "flush.messages": ConfigDef(
        LONG,
        MAX_LONG,
        "Number of records after which the log is synced to disk.",
        server_property="log.flush.interval.messages",
        low=1,
    ),
    "flush.ms": ConfigDef(
        LONG,
        MAX_LONG,
        "Time after which the log is synced to disk, in ms.",
        server_property="log.flush.interval.ms",
        low=0,
    ),
    "follower.replication.throttled.replicas": ConfigDef(
        LIST, "", "Replicas that are throttled as followers, as partition:broker, or `*` for all."
    ),
    "index.interval.bytes": ConfigDef(
        INT,
        "4096",
        "Bytes of the log between two entries of the offset index.",
        server_property="log.index.interval.bytes",
        low=0,
    ),
    "leader.replication.throttled.replicas": ConfigDef(
        LIST, "", "Replicas that are throttled as leaders, as partition:broker, or `*` for all."
    ),
    "local.retention.bytes": ConfigDef(
        LONG,
        "-2",
        "Size of the local part of a tiered log; -2 is `retention.bytes`.",
        server_property="log.local.retention.bytes",
        low=-2,
    ),
    "local.retention.ms": ConfigDef(
        LONG,
        "-2",
        "Age of the local part of a tiered log, in ms; -2 is `retention.ms`.",
        server_property="log.local.retention.ms",
        low=-2,
    ),
    "max.compaction.lag.ms": ConfigDef(
        LONG,
        MAX_LONG,
        "Longest time that a record may wait for compaction, in ms.",
        server_property="log.cleaner.max.compaction.lag.ms",
        low=1,
    ),
    "max.message.bytes": ConfigDef(
        INT,
        "1048588",
        "Largest record batch, after compression.",
        option="max_message_bytes",
        server_property="message.max.bytes",
        low=0,
    ),
    "message.timestamp.after.max.ms": ConfigDef(
        LONG,
        "3600000",
        "How far a record timestamp may be after the broker's clock, in ms.",
        option="timestamp_after_max_ms",
        server_property="log.message.timestamp.after.max.ms",
        low=0,
    ),
    "message.timestamp.before.max.ms": ConfigDef(
        LONG,
        MAX_LONG,
        "How far a record timestamp may be before the broker's clock, in ms.",
        server_property="log.message.timestamp.before.max.ms",
        low=0,
    ),
    "message.timestamp.type": ConfigDef(
        STRING,
        "CreateTime",
        "Whether records keep the producer's timestamp or get the time of the append.",
        server_property="log.message.timestamp.type",
        valid_values=("CreateTime", "LogAppendTime"),
    ),
    "min.cleanable.dirty.ratio": ConfigDef(
        DOUBLE,
        "0.5",
        "Share of the log that must be dirty before it is compacted.",
        server_property="log.cleaner.min.cleanable.ratio",
        low=0,
        high=1,
    ),
    "min.compaction.lag.ms": ConfigDef(
        LONG,
        "0",
        "Shortest time for which a record is not compacted, in ms.",
        server_property="log.cleaner.min.compaction.lag.ms",
        low=0,
    ),
    "min.insync.replicas": ConfigDef(
        INT,
        "1",
        "Replicas that must be in sync for a write with acks=all.",
        option="min_insync_replicas",
        server_property="min.insync.replicas",
        low=1,
    ),
    "preallocate": ConfigDef(
        BOOLEAN,
        "false",
        "Whether the file of a segment is allocated when the segment is created.",
        server_property="log.preallocate",
    ),
    "remote.log.copy.disable": ConfigDef(
        BOOLEAN, "false", "Whether a tiered log stops to copy segments to the remote storage."
    ),
    "remote.log.delete.on.disable": ConfigDef(
        BOOLEAN, "false", "Whether remote segments are deleted when tiered storage is disabled."
    ),
    "remote.storage.enable": ConfigDef(
        BOOLEAN, "false", "Whether the log is tiered. The broker has no remote storage."
    ),
    "retention.bytes": ConfigDef(
        LONG,
        "-1",
        "Size at which a partition deletes old segments; -1 is no limit.",
        option="retention_bytes",
        server_property="log.retention.bytes",
    ),
    "retention.ms": ConfigDef(
        LONG,
        "604800000",
        "Age at which a segment is deleted, in ms; -1 is no limit.",
        server_property="log.retention.ms",
        low=-1,
    ),
    "segment.bytes": ConfigDef(
        INT,
        "1073741824",
        "Size at which a log rolls to a new segment.",
        option="segment_bytes",
        server_property="log.segment.bytes",
        low=MIN_SEGMENT_BYTES,
    ),
    "segment.index.bytes": ConfigDef(
        INT,
        "10485760",
        "Size of the index of a segment.",
        server_property="log.index.size.max.bytes",
        low=4,
    ),
    "segment.jitter.ms": ConfigDef(
        LONG,
        "0",
        "Largest random time by which a segment rolls earlier, in ms.",
        server_property="log.roll.jitter.ms",
        low=0,
    ),
    "segment.ms": ConfigDef(
        LONG,
        "604800000",
        "Time after which a log rolls to a new segment, in ms.",
        server_property="log.roll.ms",
        low=1,
    ),
    "unclean.leader.election.enable": ConfigDef(
        BOOLEAN,
        "false",
        "Whether a replica that is out of sync may become the leader.",
        server_property="unclean.leader.election.enable",
    ),
}
"""Configs that a topic accepts. Most are stored and described but have no effect."""


def validate_new_topic_configs(configs: Mapping[str, str | None]) -> dict[str, str]:
    """Return the configs of a new topic, as `validate_topic_configs`. Raises `ApiError`."""
    without = ",".join(name for name, value in configs.items() if value is None)
    if without:
        raise ApiError(
            ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {without}"
        )
    return validate_topic_configs(
        {name: value for name, value in configs.items() if value is not None}
    )


def validate_topic_configs(configs: Mapping[str, str]) -> dict[str, str]:
    """Return the configs of a topic in the form that DescribeConfigs shows.

    Raises:
        ApiError: A config is unknown or invalid.
    """
    values = parse_all(configs, TOPIC_CONFIGS, "topic")
    for name in THROTTLED:
        _check_throttled(name, values.get(name, ""))
    level = int(values.get("compression.gzip.level", -1))
    if level != -1 and not 1 <= level <= 9:
        raise InvalidConfigValue(
            "compression.gzip.level", level, "Value must be between 1 and 9 or equal to -1"
        )
    if values.get("remote.storage.enable") == "true":
        raise ApiError(
            ErrorCode.INVALID_CONFIG,
            "Tiered Storage functionality is disabled in the broker."
            " Topic cannot be configured with remote log storage.",
        )
    least = int(values.get("min.compaction.lag.ms", 0))
    most = int(values.get("max.compaction.lag.ms", MAX_LONG))
    if least > most:
        raise ApiError(
            ErrorCode.INVALID_CONFIG,
            f"conflict topic config setting min.compaction.lag.ms ({least})"
            f" > max.compaction.lag.ms ({most})",
        )
    return values


def _check_throttled(name: str, value: str) -> None:
    items = split_list(value)
    if items != [ANY_REPLICA] and not all(THROTTLED_REPLICAS.fullmatch(item) for item in items):
        raise InvalidConfigValue(
            name,
            f"[{', '.join(items)}]",
            f"{name} must be the literal '*' or a list of replicas in the following format:"
            " [partitionId]:[brokerId],[partitionId]:[brokerId],...",
        )
