"""The log level TRACE, the `extra` fields of log lines, and a rate limit for repeated lines."""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Iterable, Mapping
from itertools import islice
from types import MappingProxyType

from aiokafkawire.errors import KafkaError
from aiokafkawire.types import TopicPartition

__all__ = (
    "FIELDS",
    "MAX_LISTED",
    "NO_FIELDS",
    "TRACE",
    "FailureStreak",
    "RateLimit",
    "count_partitions",
    "list_names",
    "list_offsets",
    "list_partitions",
    "log_fields",
)

TRACE = 5
"""The level of one line per request, below DEBUG."""

logging.addLevelName(TRACE, "TRACE")

FIELDS: Mapping[str, str] = MappingProxyType(
    {
        "kafka_client_id": "`client_id` of the client",
        "kafka_group": "`group_id`",
        "kafka_member_id": "member id that the group coordinator assigned",
        "kafka_generation": "generation of the group",
        "kafka_protocol": "assignor that the group uses",
        "kafka_members": "number of members in the group",
        "kafka_idle_members": "number of members without partitions",
        "kafka_cluster_id": "id of the cluster",
        "kafka_broker": "broker, as `3 at host:9092`, or the bootstrap address",
        "kafka_api": "name of the API, as `Produce`",
        "kafka_api_version": "version of the request",
        "kafka_correlation_id": "correlation id of the request",
        "kafka_latency_ms": "time from sending the request to its response or failure",
        "kafka_request_bytes": "size of the request",
        "kafka_response_bytes": "size of the response",
        "kafka_topic": "topic",
        "kafka_partition": "partition number",
        "kafka_partitions": "how many partitions the line is about",
        "kafka_offset": "offset",
        "kafka_attempt": "number of the attempt of a worker to process a record, from 1",
        "kafka_reset": "source of the start position",
        "kafka_transactional_id": "`transactional_id`",
        "kafka_producer_id": "producer id",
        "kafka_producer_epoch": "producer epoch",
        "kafka_throttle_ms": "throttle time in the response of the broker",
        "kafka_outage_ms": "duration of the outage that ended",
        "kafka_error": "class of the error, as `ConnectionLost`",
        "kafka_error_code": "error code of the broker's response",
    }
)
"""The names of all `extra` fields, with their meaning. Values are strings and numbers."""

NO_FIELDS: Mapping[str, str] = MappingProxyType({})

MAX_LISTED = 20
"""Limit of partitions listed in one log line; the others are counted."""

_CONTEXT = ("broker", "api", "transactional_id", "group", "topic", "partition", "offset")


def log_fields(
    base: Mapping[str, object] = NO_FIELDS,
    *,
    error: BaseException | None = None,
    tp: TopicPartition | None = None,
    **values: object,
) -> dict[str, object]:
    """Build the `extra` argument of a log call.

    Args:
        base: Fields of the client, mostly `Supervisor.fields`.
        error: Adds its class, its error code and its context (broker, API, topic, ...).
        tp: Adds topic and partition.
        values: More fields, without their prefix `kafka_`. None leaves a field out.

    Raises:
        KeyError: A field is not in `FIELDS`.
    """
    fields: dict[str, object] = dict(base)
    if error is not None:
        fields["kafka_error"] = type(error).__name__
        _add(fields, "error_code", getattr(error, "code", None))
        if isinstance(error, KafkaError):
            for name in _CONTEXT:
                _add(fields, name, getattr(error, name))
    if tp is not None:
        fields["kafka_topic"], fields["kafka_partition"] = tp
    for name, value in values.items():
        _add(fields, name, value)
    return fields


def _add(fields: dict[str, object], name: str, value: object) -> None:
    if value is None:
        return
    name = f"kafka_{name}"
    if name not in FIELDS:
        raise KeyError(name)
    # JSON formatters do not support enumerations.
    fields[name] = int(value) if isinstance(value, int) else value


def list_partitions(partitions: Collection[TopicPartition]) -> str:
    """Format partitions by topic, at most `MAX_LISTED`: `orders [0, 1], refunds [2]`."""
    by_topic: dict[str, list[int]] = {}
    for topic, number in islice(partitions, MAX_LISTED):
        by_topic.setdefault(topic, []).append(number)
    return _format_by_topic(by_topic, len(partitions))


def list_names(names: Collection[object]) -> str:
    """Format names, at most `MAX_LISTED`: `orders, refunds and 12 more`."""
    text = ", ".join(map(str, islice(names, MAX_LISTED)))
    return f"{text} and {len(names) - MAX_LISTED:,} more" if len(names) > MAX_LISTED else text


def count_partitions(partitions: Collection[object]) -> str:
    """Format the number of partitions: `1 partition`, `12,000 partitions`."""
    return "1 partition" if len(partitions) == 1 else f"{len(partitions):,} partitions"


def list_offsets(offsets: Mapping[TopicPartition, int]) -> str:
    """Format partitions with an offset each, at most `MAX_LISTED`: `orders [0: 17, 1: 5]`."""
    by_topic: dict[str, list[str]] = {}
    for (topic, number), offset in islice(offsets.items(), MAX_LISTED):
        by_topic.setdefault(topic, []).append(f"{number}: {offset}")
    return _format_by_topic(by_topic, len(offsets))


def _format_by_topic(by_topic: Mapping[str, Iterable[object]], total_count: int) -> str:
    names = ", ".join(
        f"{topic} [{', '.join(map(str, entries))}]" for topic, entries in by_topic.items()
    )
    if total_count > MAX_LISTED:
        names += f" and {total_count - MAX_LISTED:,} more"
    return names or "none"


class RateLimit:
    """Logs a line of one kind once per interval at its own level; repetitions go to DEBUG.

    Args:
        interval_s: Seconds before a line of the same kind is logged at its own level again.
        max_kinds: Kinds that are remembered; the oldest is forgotten first.
    """

    __slots__ = ("_interval_s", "_last", "_max_kinds")

    def __init__(self, interval_s: float = 60.0, max_kinds: int = 1_000) -> None:
        self._interval_s = interval_s
        self._max_kinds = max_kinds
        self._last: dict[object, float] = {}

    def level(self, level: int, kind: object, now: float) -> int:
        """Return `level`, or DEBUG if a line of this kind was logged within the interval."""
        if now - self._last.get(kind, -math.inf) < self._interval_s:
            return logging.DEBUG
        self._last.pop(kind, None)
        if len(self._last) >= self._max_kinds:
            del self._last[next(iter(self._last))]
        self._last[kind] = now
        return level


class FailureStreak:
    """Consecutive failures: the first is logged at its own level, the others at DEBUG."""

    __slots__ = ("_since",)

    def __init__(self) -> None:
        self._since: float | None = None

    def failed(self, level: int, now: float) -> int:
        """Return the level to log a failure at."""
        if self._since is not None:
            return logging.DEBUG
        self._since = now
        return level

    def ended(self, now: float) -> float | None:
        """Record a success; return the seconds since the first failure, None without one."""
        since, self._since = self._since, None
        return None if since is None else now - since
