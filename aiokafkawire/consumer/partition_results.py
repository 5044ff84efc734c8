"""What one node answers about many partitions: a value or an error for each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

from aiokafkawire.cluster.metadata import MetadataSnapshot
from aiokafkawire.errors import KafkaError, ProtocolError
from aiokafkawire.types import NodeId, TopicPartition
from aiokafkawire.wire.error_codes import ErrorCode, error_for

__all__ = ("CONSUMER_REPLICA_ID", "PartitionResults", "by_leader")

CONSUMER_REPLICA_ID = -1
"""Who asks, where a replica may ask too."""

T = TypeVar("T")


class PartitionResults(Generic[T]):
    """What `node` answers to one request of `api`: each partition is in `found` or in `failed`."""

    def __init__(self, api: str, node: NodeId) -> None:
        self._api = api
        self._node = node
        self.found: dict[TopicPartition, T] = {}
        self.failed: dict[TopicPartition, KafkaError] = {}

    def add(self, tp: TopicPartition, error_code: int, value: T) -> None:
        """What the node says of one partition that it was asked for."""
        if error_code == ErrorCode.NONE:
            self.found[tp] = value
            return
        self.failed[tp] = error_for(
            error_code,
            api=self._api,
            broker=str(self._node),
            topic=tp.topic,
            partition=tp.partition,
        )

    def close(self, asked: Iterable[TopicPartition]) -> bool:
        """No more answers come. Whether the metadata may be stale: a partition was refused."""
        stale = bool(self.failed)
        for tp in asked:
            if tp not in self.found and tp not in self.failed:
                self.failed[tp] = ProtocolError(
                    "the answer leaves a partition out",
                    api=self._api,
                    broker=str(self._node),
                    topic=tp.topic,
                    partition=tp.partition,
                )
        return stale


def by_leader(
    metadata: MetadataSnapshot, tps: Iterable[TopicPartition]
) -> dict[NodeId, list[TopicPartition]]:
    """Partitions by the node that leads them; those without a leader are left out."""
    grouped: dict[NodeId, list[TopicPartition]] = {}
    for tp in tps:
        leader = metadata.leader(tp)
        if leader is not None:
            grouped.setdefault(leader.node, []).append(tp)
    return grouped
