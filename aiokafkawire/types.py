"""Small values that stand in the public interface."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple, Never, TypeVar

__all__ = (
    "NO_LEADER_EPOCH",
    "NO_TIMESTAMP",
    "AnyPartition",
    "GroupMetadata",
    "NodeId",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "OffsetsArgument",
    "PartitionArgument",
    "PartitionT",
    "PingResult",
    "ProducerIdAndEpoch",
    "RecordMetadata",
    "TimestampType",
    "TopicPartition",
    "no_timestamp_text",
    "parse_topic_partition",
    "parse_topic_partitions",
    "partitions_by_topic",
)

NodeId = int

NO_LEADER_EPOCH = -1
"""A leader epoch that is not known; brokers then do not check it."""

MAX_PARTITION = 2**31 - 1
MAX_TOPIC_BYTES = 2**15 - 1

NO_TIMESTAMP = -1
"""The timestamp of records of message format 0, in milliseconds."""


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def partitions_by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    """Partitions grouped by topic, in the order in which they come."""
    grouped: dict[str, list[TopicPartition]] = {}
    for tp in partitions:
        grouped.setdefault(tp.topic, []).append(tp)
    return grouped


AnyPartition = TopicPartition | tuple[str, int]
"""One partition as an application may give it."""

PartitionArgument = AnyPartition | Iterable[AnyPartition]


def parse_topic_partitions(given: Iterable[PartitionArgument]) -> list[TopicPartition]:
    """The partitions of a call that takes them one by one, or all in one iterable.

    Raises TypeError for anything that is not a topic's name and a partition's number, and
    ValueError for what no request can carry.
    """
    found: list[TopicPartition] = []
    for argument in given:
        one_by_one: Iterable[Any] = [argument] if _is_pair(argument) else _members(argument)
        found.extend(parse_topic_partition(pair) for pair in one_by_one)
    return found


def parse_topic_partition(given: tuple[str, int]) -> TopicPartition:
    """One partition. Raises TypeError for anything that is not a topic's name and a number, and
    ValueError for what no request can carry."""
    if not _is_pair(given) or isinstance(given[1], bool) or not isinstance(given[1], int):
        raise TypeError(f"a partition is (topic, number), not {given!r}")
    topic, number = given
    if not -MAX_PARTITION <= number <= MAX_PARTITION:
        raise ValueError(f"a partition's number is at most {MAX_PARTITION}, not {number}")
    if not (topic.isascii() and len(topic) <= MAX_TOPIC_BYTES):
        _check_topic(topic)
    return TopicPartition(topic, number)


def _check_topic(topic: str) -> None:
    try:
        size = len(topic.encode())
    except UnicodeEncodeError as error:
        raise ValueError(f"{topic!r:.80} has no UTF-8 form: {error.reason}") from None
    if size > MAX_TOPIC_BYTES:
        raise ValueError(f"a topic's name takes at most {MAX_TOPIC_BYTES} bytes, not {size}")


def _is_pair(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], str)


def _members(argument: Any) -> Iterable[Any]:
    if isinstance(argument, str) or not isinstance(argument, Iterable):
        return [argument]
    return argument


class TimestampType(IntEnum):
    """Who set a record's timestamp (bit 3 of a batch's attributes)."""

    NONE = -1
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


def no_timestamp_text(of: object) -> str:
    """Return the text of an `AttributeError` for `timestamp`, the name in other clients."""
    return (
        f"{type(of).__name__!r} object has no attribute 'timestamp': timestamp_ms has milliseconds"
        " since 1970"
    )


class RecordMetadata(NamedTuple):
    """Where a produced record stands in the log.

    `offset` is -1 when it is not known (acks=0, or a duplicate whose offset the broker forgot).
    `timestamp_ms` is the time of the record as stored, in milliseconds since 1970.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def timestamp(self: Never) -> Never:  # type: ignore[misc]
        """Raise an error that names `timestamp_ms`."""
        raise AttributeError(no_timestamp_text(self))


class ProducerIdAndEpoch(NamedTuple):
    """Who numbers the batches of an idempotent producer; a higher epoch fences a lower one."""

    producer_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """A committed position: the offset of the next record to read, and the application's note."""

    offset: int
    metadata: str = ""
    leader_epoch: int = NO_LEADER_EPOCH


# The key type of Mapping is invariant, so a dict[TopicPartition, int] is no Mapping of tuples.
PartitionT = TypeVar("PartitionT", bound=tuple[str, int])

OffsetsArgument = Mapping[PartitionT, int | OffsetAndMetadata]
"""Offsets by partition as an application may give them."""


@dataclass(frozen=True, slots=True)
class OffsetAndTimestamp:
    """The first offset at or after a timestamp (milliseconds since 1970)."""

    offset: int
    timestamp_ms: int
    leader_epoch: int = NO_LEADER_EPOCH

    @property
    def timestamp(self: Never) -> Never:  # type: ignore[misc]
        """Raise an error that names `timestamp_ms`."""
        raise AttributeError(no_timestamp_text(self))


@dataclass(frozen=True, slots=True)
class GroupMetadata:
    """A member's place in its group, which a transaction that commits its offsets names (KIP-447).

    A coordinator refuses the offsets of a member that is not in this generation any more. Without a
    generation and a member id it checks nothing.
    """

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class PingResult:
    """The brokers that answered a `ping`.

    Attributes:
        brokers: Each broker that was asked and answered, named as in errors and log lines
            (`"1 at 10.0.0.5:9092"`; a bootstrap address without a node id).
        latency_ms: Time that the slowest of them took, including the time to connect where no
            connection was open.
    """

    brokers: tuple[str, ...]
    latency_ms: float
