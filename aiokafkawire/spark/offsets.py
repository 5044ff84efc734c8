"""Offsets per partition in options and in the checkpoints of streams.

The JSON is that of Spark's Kafka connector: `{"topic":{"0":23,"1":-2}}`.
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
    """`EARLIEST` or `LATEST` for all partitions."""

    offset: int


@dataclass(frozen=True, slots=True)
class SpecificOffsetRangeLimit:
    """An offset for each partition, which may be `EARLIEST` or `LATEST`."""

    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class GlobalTimestampRangeLimit:
    """The first record at or after one timestamp for all partitions, in milliseconds since 1970."""

    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class SpecificTimestampRangeLimit:
    """The first record at or after a timestamp for each partition, in milliseconds since 1970."""

    timestamps_ms: Mapping[TopicPartition, int]


OffsetRangeLimit = (
    GlobalOffsetRangeLimit
    | SpecificOffsetRangeLimit
    | GlobalTimestampRangeLimit
    | SpecificTimestampRangeLimit
)
"""The start or the end of the offsets that a query reads."""


def to_nested(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """Group offsets by topic and partition, sorted so that equal offsets give equal JSON."""
    nested: dict[str, dict[str, int]] = {}
    for topic, partition in sorted(offsets):
        nested.setdefault(topic, {})[str(partition)] = offsets[TopicPartition(topic, partition)]
    return nested


def offsets_to_json(offsets: Mapping[TopicPartition, int]) -> str:
    """Return offsets as JSON without spaces, as Spark's connector writes them."""
    return json.dumps(to_nested(offsets), separators=(",", ":"))


def from_nested(nested: Any, what: str) -> PartitionOffsets:
    """Read the result of `to_nested`.

    Args:
        nested: Offsets by topic and partition.
        what: The name of the option, for the error.

    Raises:
        InvalidOption: `nested` has another structure.
    """
    offsets: PartitionOffsets = {}
    if not isinstance(nested, dict):
        raise _invalid_offsets(what, nested)
    for topic, by_partition in nested.items():
        if not isinstance(by_partition, dict):
            raise _invalid_offsets(what, nested)
        for partition, offset in by_partition.items():
            if not partition.isdecimal() or isinstance(offset, bool) or not isinstance(offset, int):
                raise _invalid_offsets(what, nested)
            offsets[TopicPartition(topic, int(partition))] = offset
    return offsets


def offsets_from_json(text: str, what: str) -> PartitionOffsets:
    """Parse offsets from JSON.

    Raises:
        InvalidOption: The JSON is invalid, or an offset is below -2.
    """
    offsets = from_nested(_parse_json(text, what), what)
    for tp, offset in offsets.items():
        if offset < EARLIEST:
            raise InvalidOption(
                f"{what}: offset {offset} of {tp} is invalid; use 0 or more, -1 for latest or -2"
                " for earliest"
            )
    return offsets


def timestamps_from_json(text: str, what: str) -> dict[TopicPartition, int]:
    """Parse a timestamp for each partition, in milliseconds since 1970, from JSON.

    Raises:
        InvalidOption: The JSON is invalid, or a timestamp is negative.
    """
    timestamps = from_nested(_parse_json(text, what), what)
    for tp, timestamp_ms in timestamps.items():
        if timestamp_ms < 0:
            raise InvalidOption(f"{what}: the timestamp of {tp} is negative: {timestamp_ms}")
    return timestamps


def partitions_from_json(text: str, what: str) -> tuple[TopicPartition, ...]:
    """Parse the partitions of the option `assign`, `{"topic":[0,1]}`, and sort them.

    Raises:
        InvalidOption: The JSON is invalid.
    """
    nested = _parse_json(text, what)
    example = 'partitions by topic, such as {"topicA":[0,1]}'
    if not isinstance(nested, dict):
        raise InvalidOption(f"{what} must be JSON of {example}, not {text!r:.200}")
    partitions: dict[TopicPartition, None] = {}
    for topic, numbers in nested.items():
        if not isinstance(numbers, list) or not all(type(n) is int and n >= 0 for n in numbers):
            raise InvalidOption(f"{what} must be JSON of {example}, not {text!r:.200}")
        partitions.update({TopicPartition(topic, number): None for number in numbers})
    return tuple(sorted(partitions))


def _parse_json(text: str, what: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise InvalidOption(f"{what} is not valid JSON: {error} in {text!r:.200}") from None


def _invalid_offsets(what: str, given: Any) -> InvalidOption:
    return InvalidOption(
        f'{what} must be numbers by topic and partition, such as {{"topicA":{{"0":23,"1":-2}}}},'
        f" not {json.dumps(given):.200}"
    )
