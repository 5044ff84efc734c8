"""Topics and partitions on the command line, and the partitions that exist of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from aiokafkawire.cli.admin_command import split_errors
from aiokafkawire.cli.error_text import CommandFailed, no_topic
from aiokafkawire.errors import BrokerError, InvalidOption
from aiokafkawire.types import TopicPartition, no_partition_text
from aiokafkawire.wire import ErrorCode

if TYPE_CHECKING:
    from aiokafkawire.admin import Admin, TopicDescription

__all__ = (
    "OPTIONAL_PARTITIONS",
    "PARTITIONS_METAVAR",
    "PartitionArgument",
    "describe_existing",
    "expand_partitions",
    "parse_partitions",
)

PARTITIONS_METAVAR = "TOPIC[:PARTITIONS]..."
OPTIONAL_PARTITIONS = "[TOPIC[:PARTITIONS]]..."
"""Arguments that `parse_partitions` parses: orders, orders:0, orders:0,2-4."""

PartitionArgument = TopicPartition | str
"""A partition, or the name of a topic for all of its partitions."""

RANGE = re.compile(r"(\d{1,10})(?:-(\d{1,10}))?", re.ASCII)
MAX_PARTITIONS = 100_000
"""Limit of the partitions of one argument."""


def parse_partitions(arguments: Iterable[str]) -> list[PartitionArgument]:
    """Parse topics, and partitions as `orders:0,2-4`. Raises `InvalidOption`."""
    parsed: dict[PartitionArgument, None] = {}
    for argument in arguments:
        topic, colon, numbers = argument.partition(":")
        if not topic:
            raise InvalidOption(f"{argument!r} has no topic: give TOPIC or TOPIC:PARTITIONS")
        if not colon:
            parsed[topic] = None
            continue
        for each in numbers.split(","):
            parsed |= dict.fromkeys(TopicPartition(topic, n) for n in _parse_range(each, argument))
    return [*parsed]


def _parse_range(text: str, argument: str) -> range:
    match = RANGE.fullmatch(text)
    if match is not None:
        first = int(match[1])
        last = first if match[2] is None else int(match[2])
        if first <= last < first + MAX_PARTITIONS:
            return range(first, last + 1)
    raise InvalidOption(f"{argument!r}: partitions are numbers and ranges, as orders:0,2-4")


async def describe_existing(admin: Admin, names: Iterable[str]) -> dict[str, TopicDescription]:
    """Describe topics. Raises `CommandFailed` with the closest name for one that does not exist."""
    wanted = list(dict.fromkeys(names))
    results: dict[Any, Any] = await admin.describe_topics(wanted, return_errors=True)
    found, errors = split_errors(results)
    for error in errors:
        if isinstance(error, BrokerError) and error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            known = list(await admin.list_topics(include_internal=True))
            name = str(error.topic)
            raise no_topic(name, known)
        raise error
    return found


async def expand_partitions(
    admin: Admin, given: Sequence[PartitionArgument]
) -> list[TopicPartition]:
    """Return the partitions of topics, and those given one by one; without any, of all topics.

    Raises:
        CommandFailed: A topic or a partition does not exist.
    """
    names = [each if isinstance(each, str) else each.topic for each in given]
    described = await describe_existing(
        admin, names if given else await admin.list_topics(include_internal=True)
    )
    expanded: dict[TopicPartition, None] = {}
    for each in given or list(described):
        if isinstance(each, str):
            expanded |= dict.fromkeys(TopicPartition(each, n) for n in described[each].partitions)
            continue
        known = described[each.topic].partitions
        if each.partition not in known:
            raise CommandFailed(no_partition_text(each.topic, each.partition, known))
        expanded[each] = None
    return [*expanded]
