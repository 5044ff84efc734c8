"""Value types of the public interface."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from math import isnan
from numbers import Real
from typing import TYPE_CHECKING, Any, NamedTuple, Never, TypeVar

__all__ = (
    "NO_LEADER_EPOCH",
    "NO_TIMESTAMP",
    "AnyPartition",
    "GroupMetadata",
    "KeyT",
    "NodeId",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "OffsetsArgument",
    "PartitionArgument",
    "PartitionT",
    "PingResult",
    "ProducerIdAndEpoch",
    "RecordMetadata",
    "SentKeyT",
    "SentValueT",
    "TimestampType",
    "TopicPartition",
    "ValueT",
    "no_partition_text",
    "no_timestamp_text",
    "parse_topic_partition",
    "parse_topic_partitions",
    "partitions_by_topic",
    "require_timeout",
    "require_topic_name",
)

if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault

    KeyT = TypeVarWithDefault("KeyT", default=bytes)
    ValueT = TypeVarWithDefault("ValueT", default=bytes)
    Bytes = bytes | bytearray | memoryview
    SentKeyT = TypeVarWithDefault("SentKeyT", default=Bytes)
    SentValueT = TypeVarWithDefault("SentValueT", default=Bytes)
else:
    KeyT, ValueT = TypeVar("KeyT"), TypeVar("ValueT")
    SentKeyT, SentValueT = TypeVar("SentKeyT"), TypeVar("SentValueT")

NodeId = int

NO_LEADER_EPOCH = -1
"""Unknown leader epoch, which brokers do not validate (Kafka's NO_PARTITION_LEADER_EPOCH)."""

MAX_PARTITION = 2**31 - 1
MAX_TOPIC_BYTES = 2**15 - 1

NO_TIMESTAMP = -1
"""Timestamp of records in message format 0, which has none; in milliseconds."""


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def partitions_by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    """Group partitions by topic and keep their order."""
    grouped: defaultdict[str, list[TopicPartition]] = defaultdict(list)
    for tp in partitions:
        grouped[tp.topic].append(tp)
    return dict(grouped)


AnyPartition = TopicPartition | tuple[str, int]
"""A partition as applications may pass it."""

PartitionArgument = AnyPartition | Iterable[AnyPartition]


def parse_topic_partitions(given: Iterable[PartitionArgument]) -> list[TopicPartition]:
    """Parse the arguments of a call that takes partitions one by one or as an iterable.

    Raises:
        TypeError: An argument is not a topic name with a partition number.
        ValueError: A name or number does not fit into a request.
    """
    partitions: list[TopicPartition] = []
    for argument in given:
        one_by_one: Iterable[Any] = [argument] if _is_pair(argument) else _members(argument)
        partitions.extend(parse_topic_partition(pair) for pair in one_by_one)
    return partitions


def parse_topic_partition(given: tuple[str, int]) -> TopicPartition:
    """Parse a partition.

    Raises:
        TypeError: The argument is not a topic name with a partition number.
        ValueError: The name or number does not fit into a request.
    """
    if not _is_pair(given) or isinstance(given[1], bool) or not isinstance(given[1], int):
        raise TypeError(f"a partition must be a (topic, number) tuple, not {given!r}")
    topic, number = given
    if not -MAX_PARTITION <= number <= MAX_PARTITION:
        raise ValueError(f"a partition number must be at most {MAX_PARTITION}, not {number}")
    if not (topic.isascii() and len(topic) <= MAX_TOPIC_BYTES):
        _check_topic(topic)
    return TopicPartition(topic, number)


def _check_topic(topic: str) -> None:
    try:
        size = len(topic.encode())
    except UnicodeEncodeError as error:
        raise ValueError(
            f"topic {topic!r:.80} cannot be encoded as UTF-8: {error.reason}"
        ) from None
    if size > MAX_TOPIC_BYTES:
        raise ValueError(f"a topic name must have at most {MAX_TOPIC_BYTES} bytes, not {size}")


def require_topic_name(name: str, hint: str = "") -> None:
    """Raise `ValueError`, with `hint` at the end, for a name that brokers refuse for a topic."""
    if not _TOPIC_NAME.fullmatch(name) or name in {".", ".."}:
        raise ValueError(
            f"{name!r:.300} is not a valid topic name: only ASCII letters, digits, '.', '_' and"
            f" '-' are allowed{hint}"
        )
    if len(name) > MAX_TOPIC_NAME_LENGTH:
        raise ValueError(
            f"{name!r:.30}… is not a valid topic name: it has {len(name):,} characters, of at most"
            f" {MAX_TOPIC_NAME_LENGTH}{hint}"
        )


MAX_TOPIC_NAME_LENGTH = 249
"""A file name of at most 255 bytes has to hold it, with the partition."""

_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]+")
"""Topic names that brokers of all releases allow, from 0.8 on."""


def _is_pair(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], str)


def _members(argument: Any) -> Iterable[Any]:
    if isinstance(argument, str) or not isinstance(argument, Iterable):
        return [argument]
    return argument


class TimestampType(IntEnum):
    """Source of a record's timestamp: bit 3 of the batch attributes."""

    NONE = -1
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


def require_timeout(name: str, value: Any) -> None:
    """Raise `TypeError` or `ValueError`, with the argument's name, unless it is a number."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} must be a number, not {value!r:.80}")
    if isnan(value):
        raise ValueError(f"{name} must be a number, not nan")


def require_whole_number(name: str, value: Any, example: str) -> None:
    """Raise `TypeError`, with the argument's name and what to write, unless it is an integer."""
    if type(value) is not int:
        raise TypeError(f"{name} must be a whole number, not {value!r:.80}: write {example}")


def no_partition_text(topic: str, partition: int, partitions: Collection[int]) -> str:
    """Return the error text for a partition that a topic with these `partitions` lacks."""
    count = len(partitions)
    text = "1 partition" if count == 1 else f"{count} partitions"
    if 0 <= partition < count:
        # The partition numbers in the metadata may have gaps.
        numbers = ", ".join(map(str, sorted(partitions)[:MAX_LISTED_PARTITIONS]))
        text += f" ({numbers}{', …' if count > MAX_LISTED_PARTITIONS else ''})"
    return f"topic {topic!r} has no partition {partition}: it has {text}"


MAX_LISTED_PARTITIONS = 20
"""Limit of partition numbers in an error text."""


def no_timestamp_text(of: object) -> str:
    """Return the `AttributeError` text for `timestamp`, the attribute's name in other clients."""
    return (
        f"{type(of).__name__!r} object has no attribute 'timestamp': use timestamp_ms,"
        " milliseconds since 1970"
    )


class RecordMetadata(NamedTuple):
    """Position of a produced record in the log.

    Attributes:
        topic: The topic.
        partition: The partition.
        offset: Offset of the record; -1 if unknown: with `acks=0`, or for a duplicate whose offset
            the broker no longer knows.
        timestamp_ms: Stored timestamp, in milliseconds since 1970.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int

    @property
    def topic_partition(self) -> TopicPartition:
        """Topic and partition as `TopicPartition`."""
        return TopicPartition(self.topic, self.partition)

    @property
    def timestamp(self: Never) -> Never:  # type: ignore[misc]
        """Raise an error that names `timestamp_ms`."""
        raise AttributeError(no_timestamp_text(self))


class ProducerIdAndEpoch(NamedTuple):
    """Id and epoch of an idempotent producer; a higher epoch fences lower ones."""

    producer_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """Committed offset of a partition.

    Attributes:
        offset: Offset of the next record to read.
        metadata: Text of the application that is stored with the offset.
        leader_epoch: Leader epoch of the last record read (KIP-320); -1 if unknown.
    """

    offset: int
    metadata: str = ""
    leader_epoch: int = NO_LEADER_EPOCH


# The key type of Mapping is invariant, so a dict[TopicPartition, int] is no Mapping of tuples.
PartitionT = TypeVar("PartitionT", bound=tuple[str, int])

OffsetsArgument = Mapping[PartitionT, int | OffsetAndMetadata]
"""Offsets by partition as applications may pass them."""


@dataclass(frozen=True, slots=True)
class OffsetAndTimestamp:
    """Offset of the first record at or after a timestamp.

    Attributes:
        offset: Offset of the record.
        timestamp_ms: Timestamp of the record, in milliseconds since 1970.
        leader_epoch: Leader epoch of the record; -1 if unknown.
    """

    offset: int
    timestamp_ms: int
    leader_epoch: int = NO_LEADER_EPOCH

    @property
    def timestamp(self: Never) -> Never:  # type: ignore[misc]
        """Raise an error that names `timestamp_ms`."""
        raise AttributeError(no_timestamp_text(self))


@dataclass(frozen=True, slots=True)
class GroupMetadata:
    """Membership of a consumer, for offsets that a transaction commits (KIP-447).

    The coordinator rejects offsets from a member that is no longer in the generation. It checks
    nothing without a generation and a member id.

    Attributes:
        group_id: The group.
        generation_id: Generation of the group; -1 without one.
        member_id: Member id that the coordinator assigned.
        group_instance_id: Id of a static member (KIP-345).
    """

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class PingResult:
    """Brokers that responded to a `ping`.

    Attributes:
        brokers: Each broker that responded, named as in errors and log lines
            (`"1 at 10.0.0.5:9092"`; a bootstrap address without a node id).
        latency_ms: Latency of the slowest broker, in milliseconds. It includes the time to connect
            if no connection was open.
    """

    brokers: tuple[str, ...]
    latency_ms: float
