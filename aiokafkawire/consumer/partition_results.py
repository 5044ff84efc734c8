"""The response of one broker for many partitions: a value or an error for each partition."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

from aiokafkawire.cluster.metadata import MetadataSnapshot
from aiokafkawire.errors import KafkaError, ProtocolError
from aiokafkawire.types import NodeId, TopicPartition
from aiokafkawire.wire.error_codes import ErrorCode, error_for

__all__ = ("CONSUMER_REPLICA_ID", "PartitionResults", "by_leader")

CONSUMER_REPLICA_ID = -1
"""ReplicaId of a consumer, in requests that followers send too."""

T = TypeVar("T")


class PartitionResults(Generic[T]):
    """The response of `node` to one `api` request: each partition is in `found` or in `failed`."""

    def __init__(self, api: str, node: NodeId) -> None:
        self._api = api
        self._node = node
        self.found: dict[TopicPartition, T] = {}
        self.failed: dict[TopicPartition, KafkaError] = {}

    def add(self, tp: TopicPartition, error_code: int, value: T) -> None:
        """Add the response for one requested partition."""
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

    def finish(self, requested: Iterable[TopicPartition]) -> bool:
        """Fail the requested partitions that the response has left out.

        Returns:
            True if the broker returned an error for a partition: the metadata may be stale.
        """
        stale = bool(self.failed)
        for tp in requested:
            if tp not in self.found and tp not in self.failed:
                self.failed[tp] = ProtocolError(
                    "the response does not contain the partition",
                    api=self._api,
                    broker=str(self._node),
                    topic=tp.topic,
                    partition=tp.partition,
                )
        return stale


def by_leader(
    metadata: MetadataSnapshot, tps: Iterable[TopicPartition]
) -> dict[NodeId, list[TopicPartition]]:
    """Group partitions by their leader's node; partitions without a known leader are left out."""
    grouped: dict[NodeId, list[TopicPartition]] = {}
    for tp in tps:
        leader = metadata.leader(tp)
        if leader is not None:
            grouped.setdefault(leader.node, []).append(tp)
    return grouped
