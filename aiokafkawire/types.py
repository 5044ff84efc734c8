"""Small values that stand in the public interface."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

__all__ = (
    "ANY_LEADER_EPOCH",
    "NO_TIMESTAMP",
    "NodeId",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "RecordMetadata",
    "TimestampType",
    "TopicPartition",
)

NodeId = int

ANY_LEADER_EPOCH = -1
"""A leader epoch that is not known; brokers then do not check it."""

NO_TIMESTAMP = -1
"""The timestamp of records of message format 0, in milliseconds."""


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class TimestampType(IntEnum):
    """Who set a record's timestamp (bit 3 of a batch's attributes)."""

    NONE = -1
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


@dataclass(frozen=True, slots=True)
class RecordMetadata:
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


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """A committed position: the offset of the next record to read, and the application's note."""

    offset: int
    metadata: str = ""
    leader_epoch: int = ANY_LEADER_EPOCH


@dataclass(frozen=True, slots=True)
class OffsetAndTimestamp:
    """The first offset at or after a timestamp (milliseconds since 1970)."""

    offset: int
    timestamp_ms: int
    leader_epoch: int = ANY_LEADER_EPOCH
