"""ShareFetch and ShareAcknowledge requests of a session, and the events for their responses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from uuid import UUID

from aiokafkawire.errors import KafkaError
from aiokafkawire.group.topic_id_partition import TopicIdPartition
from aiokafkawire.types import NodeId
from aiokafkawire.wire.error_codes import ErrorCode, error_for
from aiokafkawire.wire.messages.share_acknowledge import (
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgementBatch,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
)
from aiokafkawire.wire.messages.share_fetch import (
    ShareFetchAcknowledgementBatch,
    ShareFetchForgottenTopic,
    ShareFetchPartition,
    ShareFetchPartitionData,
    ShareFetchResponse,
    ShareFetchTopic,
)

from .acknowledgements import PartitionAcknowledgements
from .locks import AcquisitionLock
from .session_events import AcquiredOffsets, FetchedPartition, SendAcknowledge, SendFetch

__all__ = (
    "acknowledge_errors",
    "acknowledge_request",
    "fetch_topics",
    "fetched_partition",
    "new_leader",
)

MAX_ACQUIRED_RECORDS = 1_000_000
"""Most records that one response may claim to have acquired; brokers allow 4,000 a partition."""


def fetch_topics(
    effect: SendFetch,
) -> tuple[list[ShareFetchTopic], list[ShareFetchForgottenTopic]]:
    """Return the topics of a ShareFetch, and those that the session forgets."""
    topics: dict[UUID, ShareFetchTopic] = {}
    for partition in sorted(effect.added.union(effect.acknowledgements)):
        topic = topics.setdefault(
            partition.topic_id, ShareFetchTopic(topic_id=partition.topic_id, partitions=[])
        )
        topic.partitions.append(
            ShareFetchPartition(
                partition_index=partition.partition,
                acknowledgement_batches=[
                    ShareFetchAcknowledgementBatch(
                        first_offset=first, last_offset=last, acknowledge_types=types
                    )
                    for first, last, types in _batches(effect.acknowledgements, partition)
                ],
            )
        )
    forgotten: dict[UUID, ShareFetchForgottenTopic] = {}
    for partition in sorted(effect.forgotten):
        forgotten_topic = forgotten.setdefault(
            partition.topic_id,
            ShareFetchForgottenTopic(topic_id=partition.topic_id, partitions=[]),
        )
        forgotten_topic.partitions.append(partition.partition)
    return list(topics.values()), list(forgotten.values())


def _batches(
    acknowledgements: Mapping[TopicIdPartition, PartitionAcknowledgements],
    partition: TopicIdPartition,
) -> Iterable[tuple[int, int, list[int]]]:
    return acknowledgements[partition].batches() if partition in acknowledgements else ()


def acknowledge_request(
    effect: SendAcknowledge, group_id: str, member_id: str
) -> ShareAcknowledgeRequest:
    """Build a ShareAcknowledge."""
    topics: dict[UUID, AcknowledgeTopic] = {}
    for partition, acknowledgements in sorted(effect.acknowledgements.items()):
        topic = topics.setdefault(
            partition.topic_id, AcknowledgeTopic(topic_id=partition.topic_id, partitions=[])
        )
        topic.partitions.append(
            AcknowledgePartition(
                partition_index=partition.partition,
                acknowledgement_batches=[
                    ShareAcknowledgementBatch(
                        first_offset=first, last_offset=last, acknowledge_types=types
                    )
                    for first, last, types in acknowledgements.batches()
                ],
            )
        )
    return ShareAcknowledgeRequest(
        group_id=group_id,
        member_id=member_id,
        share_session_epoch=effect.epoch,
        is_renew_ack=any(sent.renews for sent in effect.acknowledgements.values()),
        topics=list(topics.values()),
    )


def acknowledge_errors(
    response: ShareAcknowledgeResponse,
    sent: Mapping[TopicIdPartition, PartitionAcknowledgements],
    broker: str,
) -> dict[TopicIdPartition, KafkaError | None]:
    """Return the result of each partition in the response."""
    by_id = {(partition.topic_id, partition.partition): partition for partition in sent}
    errors: dict[TopicIdPartition, KafkaError | None] = {}
    for topic in response.responses:
        for data in topic.partitions:
            partition = by_id.get((topic.topic_id, data.partition_index))
            if partition is not None:
                errors[partition] = partition_error(
                    data.error_code, data.error_message, partition, "ShareAcknowledge", broker
                )
    return errors


def partition_error(
    code: int, message: str | None, partition: TopicIdPartition, api: str, broker: str
) -> KafkaError | None:
    """Return the error for a code of one partition; None for 0."""
    if code == ErrorCode.NONE:
        return None
    error = error_for(
        code, api=api, broker=broker, topic=partition.topic, partition=partition.partition
    )
    if message:
        error.reason += f" ({message})"
    return error


def fetched_partition(
    data: ShareFetchPartitionData, partition: TopicIdPartition, broker: str, lock: AcquisitionLock
) -> FetchedPartition:
    """Return the results of one partition of a ShareFetch response.

    Ranges that are empty, descending, overlapping or too large are ignored: a broker never sends
    them.
    """
    ranges: list[AcquiredOffsets] = []
    next_offset, left = 0, MAX_ACQUIRED_RECORDS
    for acquired in sorted(data.acquired_records, key=lambda entry: entry.first_offset):
        first, last = acquired.first_offset, acquired.last_offset
        if next_offset <= first <= last and last - first < left:
            ranges.append(AcquiredOffsets(first, last, acquired.delivery_count))
            next_offset, left = last + 1, left - (last - first + 1)
    return FetchedPartition(
        partition,
        lock,
        partition_error(data.error_code, data.error_message, partition, "ShareFetch", broker),
        partition_error(
            data.acknowledge_error_code,
            data.acknowledge_error_message,
            partition,
            "ShareFetch",
            broker,
        ),
        tuple(ranges),
    )


def new_leader(
    data: ShareFetchPartitionData, response: ShareFetchResponse
) -> tuple[NodeId, int, tuple[str, int] | None] | None:
    """Return the new leader, its epoch and its address (KIP-951); None if the response has none."""
    # Without an error the field has defaults.
    if data.error_code not in {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH}:
        return None
    leader = data.current_leader
    if leader.leader_id < 0:
        return None
    endpoints = {node.node_id: (node.host, node.port) for node in response.node_endpoints}
    return leader.leader_id, leader.leader_epoch, endpoints.get(leader.leader_id)
