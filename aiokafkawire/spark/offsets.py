"""Offsets of many partitions, as they stand in options and in the offsets of a stream.

The JSON is that of Spark's own Kafka connector: `{"topic":{"0":23,"1":-2}}`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aiokafkawire.errors import InvalidOption
from aiokafkawire.types import TopicPartition

__all__ = (
    "EARLIEST",
    "LATEST",
    "GlobalOffsetRangeLimit",
    "GlobalTimestampRangeLimit",
    "OffsetRangeLimit",
    "PartitionOffsets",
    "SpecificOffsetRangeLimit",
    "SpecificTimestampRangeLimit",
    "from_nested",
    "offsets_from_json",
    "offsets_to_json",
    "partitions_from_json",
    "timestamps_from_json",
    "to_nested",
)

LATEST = -1
EARLIEST = -2

PartitionOffsets = dict[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class GlobalOffsetRangeLimit:
    """`EARLIEST` or `LATEST` of every partition."""

    offset: int


@dataclass(frozen=True, slots=True)
class SpecificOffsetRangeLimit:
    """Each partition's own offset, `EARLIEST` or `LATEST`."""

    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class GlobalTimestampRangeLimit:
    """The first record of every partition at or after a time, in milliseconds since 1970."""

    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class SpecificTimestampRangeLimit:
    """The same with a time for each partition."""

    timestamps_ms: Mapping[TopicPartition, int]


OffsetRangeLimit = (
    GlobalOffsetRangeLimit
    | SpecificOffsetRangeLimit
    | GlobalTimestampRangeLimit
    | SpecificTimestampRangeLimit
)
"""Where reading begins or ends."""


def to_nested(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """By topic and partition, both in order: equal offsets become equal text."""
    nested: dict[str, dict[str, int]] = {}
    for topic, partition in sorted(offsets):
        nested.setdefault(topic, {})[str(partition)] = offsets[TopicPartition(topic, partition)]
    return nested


def offsets_to_json(offsets: Mapping[TopicPartition, int]) -> str:
    """As the JVM's connector writes them: without spaces."""
    return json.dumps(to_nested(offsets), separators=(",", ":"))


def from_nested(nested: Any, what: str) -> PartitionOffsets:
    """The reverse of `to_nested`. Raises `InvalidOption`, which says `what` it is about."""
    found: PartitionOffsets = {}
    if not isinstance(nested, dict):
        raise _invalid_offsets(what, nested)
    for topic, by_partition in nested.items():
        if not isinstance(by_partition, dict):
            raise _invalid_offsets(what, nested)
        for partition, offset in by_partition.items():
            if not partition.isdecimal() or isinstance(offset, bool) or not isinstance(offset, int):
                raise _invalid_offsets(what, nested)
            found[TopicPartition(topic, int(partition))] = offset
    return found


def offsets_from_json(text: str, what: str) -> PartitionOffsets:
    """Raises `InvalidOption`, also for offsets below `EARLIEST`."""
    found = from_nested(_parse_json(text, what), what)
    for tp, offset in found.items():
        if offset < EARLIEST:
            raise InvalidOption(
                f"{what}: the offset of {tp} is {offset}; the least is -2, earliest"
            )
    return found


def timestamps_from_json(text: str, what: str) -> dict[TopicPartition, int]:
    """Milliseconds since 1970 for each partition. Raises `InvalidOption`."""
    found = from_nested(_parse_json(text, what), what)
    for tp, timestamp_ms in found.items():
        if timestamp_ms < 0:
            raise InvalidOption(f"{what}: the timestamp of {tp} is negative: {timestamp_ms}")
    return found


def partitions_from_json(text: str, what: str) -> tuple[TopicPartition, ...]:
    """Partitions as `assign` has them, `{"topic":[0,1]}`, sorted. Raises `InvalidOption`."""
    nested = _parse_json(text, what)
    example = 'partitions by topic, as {"topicA":[0,1]}'
    if not isinstance(nested, dict):
        raise InvalidOption(f"{what} must be JSON of {example}, not {text!r:.200}")
    found: dict[TopicPartition, None] = {}
    for topic, numbers in nested.items():
        if not isinstance(numbers, list) or not all(type(n) is int and n >= 0 for n in numbers):
            raise InvalidOption(f"{what} must be JSON of {example}, not {text!r:.200}")
        found.update({TopicPartition(topic, number): None for number in numbers})
    return tuple(sorted(found))


def _parse_json(text: str, what: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise InvalidOption(f"{what} is no JSON: {error} in {text!r:.200}") from None


def _invalid_offsets(what: str, given: Any) -> InvalidOption:
    return InvalidOption(
        f'{what} must be numbers by topic and partition, as {{"topicA":{{"0":23,"1":-2}}}},'
        f" not {json.dumps(given):.200}"
    )
