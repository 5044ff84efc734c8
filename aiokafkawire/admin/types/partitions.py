"""Arguments and results of the operations on partitions and their replicas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from aiokafkawire.types import NodeId

__all__ = (
    "HIGH_WATERMARK",
    "ElectionType",
    "ListedOffset",
    "NewPartitions",
    "OffsetSpec",
    "PartitionReassignment",
)

HIGH_WATERMARK = -1
"""Offset for `delete_records` that deletes all records up to the high watermark."""


@dataclass(frozen=True, slots=True)
class NewPartitions:
    """More partitions of a topic, for `create_partitions`.

    Attributes:
        total_count: Number of partitions that the topic has afterwards.
        new_assignments: Node ids of the replicas of each new partition, the preferred leader
            first. By default the brokers assign replicas.
    """

    total_count: int
    new_assignments: Sequence[Sequence[NodeId]] | None = None


class ElectionType(IntEnum):
    """Election of a partition leader."""

    PREFERRED = 0
    """The first replica becomes leader, if it is in sync."""

    UNCLEAN = 1
    """Any live replica becomes leader if no in-sync replica is live. Records may be lost."""


@dataclass(frozen=True, slots=True)
class PartitionReassignment:
    """A reassignment in progress.

    Attributes:
        replicas: Node ids of all replicas, with those that are being added and removed.
        adding_replicas: Node ids of the replicas that are being added.
        removing_replicas: Node ids of the replicas that are being removed.
    """

    replicas: tuple[NodeId, ...]
    adding_replicas: tuple[NodeId, ...]
    removing_replicas: tuple[NodeId, ...]


class OffsetSpec(IntEnum):
    """Offset for `list_offsets`, instead of a timestamp."""

    LATEST = -1
    """The high watermark, or with `read_committed` the last stable offset."""

    EARLIEST = -2
    """The start of the log."""

    MAX_TIMESTAMP = -3
    """The record with the highest timestamp (KIP-734, Kafka 3.0+)."""

    EARLIEST_LOCAL = -4
    """The first offset on the leader's own disk (KIP-405, Kafka 3.5+)."""

    LATEST_TIERED = -5
    """The last offset in remote storage (KIP-1005, Kafka 3.9+)."""

    EARLIEST_PENDING_UPLOAD = -6
    """The first offset that is not in remote storage yet (KIP-1023, Kafka 4.2+)."""


@dataclass(frozen=True, slots=True)
class ListedOffset:
    """An offset in `list_offsets`.

    Attributes:
        offset: The offset; None if no record is that young, or there is no such offset.
        timestamp_ms: Timestamp of the record, in milliseconds since 1970; None for an offset that
            was not found by a timestamp.
        leader_epoch: Leader epoch of the record; None before Kafka 2.1 or if unknown.
    """

    offset: int | None
    timestamp_ms: int | None = None
    leader_epoch: int | None = None
