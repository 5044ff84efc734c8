"""Arguments and results of the operations on log directories (KIP-113)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from aiokafkawire.errors import KafkaError
from aiokafkawire.types import NodeId, TopicPartition

__all__ = ("LogDirDescription", "ReplicaInfo", "ReplicaLogDirInfo", "TopicPartitionReplica")


class TopicPartitionReplica(NamedTuple):
    """A replica: a partition on a broker."""

    topic: str
    partition: int
    broker_id: NodeId

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} on broker {self.broker_id}"


@dataclass(frozen=True, slots=True)
class ReplicaInfo:
    """A replica in a log directory.

    Attributes:
        size_bytes: Size of its log segments.
        offset_lag: Offsets that it is behind the high watermark, or for a future replica behind
            the current one.
        is_future: True if the replica is being moved to this directory.
    """

    size_bytes: int
    offset_lag: int
    is_future: bool


@dataclass(frozen=True, slots=True)
class LogDirDescription:
    """A log directory of a broker.

    Attributes:
        error: Failure of the directory, such as KAFKA_STORAGE_ERROR; None if it is online.
        replica_infos: Replicas in it by partition.
        total_bytes: Size of its volume; None before Kafka 3.3 or if unknown.
        usable_bytes: Free space of its volume; None before Kafka 3.3 or if unknown.
        is_cordoned: True if it gets no new replicas (Kafka 4.3+).
    """

    error: KafkaError | None
    replica_infos: Mapping[TopicPartition, ReplicaInfo]
    total_bytes: int | None = None
    usable_bytes: int | None = None
    is_cordoned: bool = False


@dataclass(frozen=True, slots=True)
class ReplicaLogDirInfo:
    """Directories of a replica.

    Attributes:
        current_replica_log_dir: Path of its directory; None if the broker does not have the
            replica, or the directory is offline.
        current_replica_offset_lag: Offsets behind the high watermark; None without a directory.
        future_replica_log_dir: Path of the directory that it is being moved to, or None.
        future_replica_offset_lag: Offsets behind the current replica, or None.
    """

    current_replica_log_dir: str | None = None
    current_replica_offset_lag: int | None = None
    future_replica_log_dir: str | None = None
    future_replica_offset_lag: int | None = None
