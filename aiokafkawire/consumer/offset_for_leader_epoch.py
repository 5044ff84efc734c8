"""OffsetForLeaderEpoch: where leader epochs end in the leaders' logs (KIP-320)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from aiokafkawire.cluster.cluster import Cluster
from aiokafkawire.cluster.routing import ToNode
from aiokafkawire.errors import KafkaError
from aiokafkawire.types import NodeId, TopicPartition, partitions_by_topic
from aiokafkawire.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

from .partition_results import CONSUMER_REPLICA_ID, PartitionResults

__all__ = ("EpochEnd", "EpochQuery", "fetch_epoch_ends")

FIRST_WITH_CURRENT_EPOCH = 2
"""Without the current epoch a stale leader may respond."""


class EpochQuery(NamedTuple):
    """The end of `epoch`, requested from the leader of `current_leader_epoch`."""

    epoch: int
    current_leader_epoch: int


class EpochEnd(NamedTuple):
    """The largest epoch up to the requested one, and its end offset; both -1 if there is none."""

    epoch: int
    end_offset: int


async def fetch_epoch_ends(
    cluster: Cluster,
    node: NodeId,
    queries: Mapping[TopicPartition, EpochQuery],
    deadline: float,
) -> PartitionResults[EpochEnd]:
    """Send one request to one broker. Errors are in the result, not raised."""
    results: PartitionResults[EpochEnd] = PartitionResults("OffsetForLeaderEpoch", node)
    try:
        response = await cluster.request(
            _request(queries),
            to=ToNode(node),
            deadline=deadline,
            retry=False,
            min_version=FIRST_WITH_CURRENT_EPOCH,
        )
    except KafkaError as error:
        cluster.request_update()
        results.failed = dict.fromkeys(queries, error)
        return results
    for topic in response.topics:
        for entry in topic.partitions:
            tp = TopicPartition(topic.topic, entry.partition)
            if tp in queries:
                results.add(tp, entry.error_code, EpochEnd(entry.leader_epoch, entry.end_offset))
    if results.finish(queries):
        cluster.request_update()
    return results


def _request(queries: Mapping[TopicPartition, EpochQuery]) -> OffsetForLeaderEpochRequest:
    topics = [
        OffsetForLeaderTopic(
            topic=topic,
            partitions=[
                OffsetForLeaderPartition(
                    partition=tp.partition,
                    current_leader_epoch=queries[tp].current_leader_epoch,
                    leader_epoch=queries[tp].epoch,
                )
                for tp in tps
            ],
        )
        for topic, tps in partitions_by_topic(queries).items()
    ]
    return OffsetForLeaderEpochRequest(replica_id=CONSUMER_REPLICA_ID, topics=topics)
