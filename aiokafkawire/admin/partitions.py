"""Partitions of an operation, given one by one or by topic."""

from __future__ import annotations

from collections.abc import Iterable

from aiokafkawire.admin.items import topic_context
from aiokafkawire.admin.locations import topic_metadata
from aiokafkawire.admin.requester import Requester
from aiokafkawire.cluster import MetadataSnapshot
from aiokafkawire.errors import KafkaError
from aiokafkawire.types import AnyPartition, NodeId, TopicPartition, parse_topic_partition
from aiokafkawire.wire import ErrorCode, error_for

__all__ = ("expand_partitions",)


async def expand_partitions(
    requester: Requester,
    partitions: Iterable[AnyPartition | str] | None,
    *,
    broker_id: NodeId | None = None,
) -> dict[TopicPartition, KafkaError | None]:
    """Return the partitions of topics that are given by name, and those given one by one.

    Args:
        requester: The call.
        partitions: Partitions and names of topics; None for all topics.
        broker_id: Leave out partitions without a replica on this node.

    Returns:
        None for each partition. A topic that does not exist is partition 0 with an error.
    """
    if isinstance(partitions, str):
        raise TypeError("partitions must be an iterable, not a str")
    if partitions is None:
        snapshot = await topic_metadata(requester, None)
        return dict.fromkeys(_all_partitions(snapshot, sorted(snapshot.topics), broker_id))
    given = list(partitions)
    topics = list(dict.fromkeys(each if isinstance(each, str) else each[0] for each in given))
    needed = broker_id is not None or any(isinstance(each, str) for each in given)
    snapshot = await topic_metadata(requester, topics) if needed else MetadataSnapshot()
    expanded: dict[TopicPartition, KafkaError | None] = {}
    for each in given:
        if isinstance(each, str) and each not in snapshot.topics:
            code = snapshot.errors.get(each, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            error = error_for(code, api="Metadata", **topic_context(each))
            expanded[TopicPartition(each, 0)] = error
        elif isinstance(each, str):
            expanded |= dict.fromkeys(_all_partitions(snapshot, [each], broker_id))
        else:
            tp = parse_topic_partition(each)
            if _is_on(snapshot, tp, broker_id):
                expanded[tp] = None
    return expanded


def _all_partitions(
    snapshot: MetadataSnapshot, topics: Iterable[str], broker_id: NodeId | None
) -> list[TopicPartition]:
    every = (
        TopicPartition(topic, number)
        for topic in topics
        for number in sorted(snapshot.topics[topic].partitions)
    )
    return [tp for tp in every if _is_on(snapshot, tp, broker_id)]


def _is_on(snapshot: MetadataSnapshot, tp: TopicPartition, broker_id: NodeId | None) -> bool:
    if broker_id is None:
        return True
    topic = snapshot.topics.get(tp.topic)
    partition = None if topic is None else topic.partitions.get(tp.partition)
    return partition is not None and broker_id in partition.replicas
