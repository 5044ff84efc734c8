"""OffsetFetch requests and their responses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from aiokafkawire.connection import VersionedRequest
from aiokafkawire.errors import KafkaError, ProtocolError
from aiokafkawire.types import OffsetAndMetadata, TopicPartition, partitions_by_topic
from aiokafkawire.wire import ZERO_UUID, ApiKey
from aiokafkawire.wire.error_codes import ErrorCode, error_for
from aiokafkawire.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

from .membership.states import NO_GENERATION
from .responses import group_error

__all__ = (
    "FIRST_WITH_REQUIRE_STABLE",
    "Committed",
    "MemberEpochRejected",
    "offset_fetch_request",
    "read_committed_offsets",
)

LAST_WITH_TOPIC_NAMES = 9
FIRST_WITH_GROUPS = 8
FIRST_WITH_REQUIRE_STABLE = 7

Committed = Mapping[TopicPartition, OffsetAndMetadata | None]

_EPOCH_REJECTED_CODES = frozenset(
    {
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
    }
)


class MemberEpochRejected(KafkaError):
    """The coordinator has another epoch of the member, or does not know it (KIP-848).

    No offset is known then: the lookup is repeated with the epoch of the next heartbeat.
    """


FetchedPartition = OffsetFetchResponsePartition | OffsetFetchResponsePartitions


def offset_fetch_request(
    group_id: str,
    partitions: Sequence[TopicPartition],
    ids: Mapping[str, UUID],
    *,
    member_id: str | None = None,
    member_epoch: int = NO_GENERATION,
) -> tuple[VersionedRequest[OffsetFetchResponse], int | None]:
    """Return an OffsetFetch request, and the highest version to use (None: any).

    Versions from 10 name topics by id, so they need the ids of all topics. From v7 on, a partition
    fails with a retriable error while a transaction has uncommitted offsets for it (KIP-447).
    From v9 on the coordinator checks the epoch of a member of the consumer protocol (KIP-848).
    """
    grouped = partitions_by_topic(partitions)

    def build(version: int) -> OffsetFetchRequest:
        stable = version >= FIRST_WITH_REQUIRE_STABLE
        if version < FIRST_WITH_GROUPS:
            topics = [
                OffsetFetchRequestTopic(name=topic, partition_indexes=[tp.partition for tp in tps])
                for topic, tps in grouped.items()
            ]
            return OffsetFetchRequest(group_id=group_id, topics=topics, require_stable=stable)
        group = OffsetFetchRequestGroup(
            group_id=group_id,
            member_id=member_id,
            member_epoch=member_epoch,
            topics=[
                OffsetFetchRequestTopics(
                    name=topic,
                    topic_id=ids.get(topic, ZERO_UUID),
                    partition_indexes=[tp.partition for tp in tps],
                )
                for topic, tps in grouped.items()
            ],
        )
        # mutation: offsets-fetched-without-require-stable
        return OffsetFetchRequest(groups=[group], require_stable=stable)

    all_known = all(ids.get(topic, ZERO_UUID) != ZERO_UUID for topic in grouped)
    # mutation: topic-id-missing-in-offset-fetch
    max_version = None if all_known else LAST_WITH_TOPIC_NAMES
    return VersionedRequest(ApiKey.OFFSET_FETCH, build), max_version


def read_committed_offsets(
    response: OffsetFetchResponse,
    group_id: str,
    partitions: Sequence[TopicPartition],
    ids: Mapping[str, UUID],
    *,
    has_epoch: bool = False,
) -> Committed:
    """Return the committed offsets of a response; `has_epoch` if the request had a member epoch.

    Raises:
        ProtocolError: The response lacks the group or a partition.
        MemberEpochRejected: The coordinator refused the member id or the epoch.
        BrokerError: The response has another error code.
    """
    topics: Sequence[OffsetFetchResponseTopic | OffsetFetchResponseTopics] = response.topics
    error_code = response.error_code
    if response.groups:
        group = next((group for group in response.groups if group.group_id == group_id), None)
        if group is None:
            raise ProtocolError(f"the response does not contain group {group_id!r}")
        topics, error_code = group.topics, group.error_code
    if error_code != ErrorCode.NONE:
        error = group_error(error_code, "OffsetFetch", group=group_id)
        if has_epoch and error_code in _EPOCH_REJECTED_CODES:
            # mutation: stale-epoch-counts-as-no-offset
            raise MemberEpochRejected(error.reason, retriable=True, api="OffsetFetch") from error
        raise error
    names = {topic_id: name for name, topic_id in ids.items() if topic_id != ZERO_UUID}
    returned: dict[TopicPartition, FetchedPartition] = {}
    for topic in topics:
        # Newer versions have the id of a topic instead of its name.
        name = topic.name or names.get(getattr(topic, "topic_id", ZERO_UUID), "")
        for partition in topic.partitions:
            returned[TopicPartition(name, partition.partition_index)] = partition
    committed: dict[TopicPartition, OffsetAndMetadata | None] = {}
    for tp in partitions:
        entry = returned.get(tp)
        if entry is None:
            raise ProtocolError(
                "the response does not contain the partition",
                api="OffsetFetch",
                topic=tp.topic,
                partition=tp.partition,
            )
        unknown = entry.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if entry.error_code != ErrorCode.NONE and not unknown:
            raise error_for(
                entry.error_code, api="OffsetFetch", topic=tp.topic, partition=tp.partition
            )
        # Without a committed offset, brokers return offset -1, or for ZooKeeper error code 3.
        committed[tp] = (
            None
            if unknown or entry.committed_offset < 0
            else OffsetAndMetadata(
                entry.committed_offset, entry.metadata or "", entry.committed_leader_epoch
            )
        )
    return committed
