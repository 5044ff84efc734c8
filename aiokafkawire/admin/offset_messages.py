"""Requests about committed offsets of groups, and the reading of their responses."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from aiokafkawire.admin.items import ItemResult, partial_failure
from aiokafkawire.errors import KafkaError
from aiokafkawire.types import (
    NO_LEADER_EPOCH,
    OffsetAndMetadata,
    TopicPartition,
    partitions_by_topic,
)
from aiokafkawire.wire import ErrorCode, error_for
from aiokafkawire.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from aiokafkawire.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
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

__all__ = (
    "FIRST_FOR_ALL_TOPICS",
    "FIRST_IN_KAFKA",
    "FIRST_WITH_GROUPS",
    "FIRST_WITH_REQUIRE_STABLE",
    "LAST_WITH_TOPIC_NAMES",
    "FetchedPartition",
    "Offsets",
    "as_offset",
    "commit_request",
    "committed_offset",
    "delete_request",
    "fetch_request",
    "offset_and_metadata",
    "read_fetched",
    "read_partition_errors",
)

FIRST_IN_KAFKA = 1
"""Version 0 of OffsetCommit and OffsetFetch uses ZooKeeper."""
FIRST_FOR_ALL_TOPICS = 2
FIRST_WITH_REQUIRE_STABLE = 7
FIRST_WITH_GROUPS = 8
"""Versions of OffsetFetch."""
LAST_WITH_TOPIC_NAMES = 9
"""Later versions of OffsetFetch and OffsetCommit name topics by topic id only."""

_MAX_OFFSET = 2**63 - 1

V = TypeVar("V")

FetchedPartition = OffsetFetchResponsePartition | OffsetFetchResponsePartitions

Offsets = dict[TopicPartition, OffsetAndMetadata | None]
"""Committed offsets; None where a partition has none."""


def as_offset(offset: int | OffsetAndMetadata) -> OffsetAndMetadata:
    """Return an argument as `OffsetAndMetadata`.

    Raises:
        TypeError: The argument is no offset.
        ValueError: The offset is negative or too large.
    """
    if isinstance(offset, int) and not isinstance(offset, bool):
        offset = OffsetAndMetadata(offset)
    if not isinstance(offset, OffsetAndMetadata):
        raise TypeError(f"an offset must be int or OffsetAndMetadata, not {offset!r}")
    if not 0 <= offset.offset <= _MAX_OFFSET:
        raise ValueError(f"an offset must be 0 to 2^63 - 1, not {offset.offset}")
    return offset


def fetch_request(
    groups: Mapping[str, Collection[TopicPartition] | None], require_stable: bool, version: int
) -> OffsetFetchRequest:
    """Return the request for offsets of groups; None instead of partitions for all of them."""
    if version >= FIRST_WITH_GROUPS:
        return OffsetFetchRequest(
            groups=[
                OffsetFetchRequestGroup(
                    group_id=group,
                    topics=None
                    if partitions is None
                    else [
                        OffsetFetchRequestTopics(
                            name=topic, partition_indexes=[tp.partition for tp in tps]
                        )
                        for topic, tps in partitions_by_topic(partitions).items()
                    ],
                )
                for group, partitions in groups.items()
            ],
            require_stable=require_stable,
        )
    ((group, partitions),) = groups.items()
    topics = None
    if partitions is not None:
        topics = [
            OffsetFetchRequestTopic(name=topic, partition_indexes=[tp.partition for tp in tps])
            for topic, tps in partitions_by_topic(partitions).items()
        ]
    return OffsetFetchRequest(group_id=group, topics=topics, require_stable=require_stable)


def offset_and_metadata(partition: FetchedPartition) -> OffsetAndMetadata | None:
    """Return the committed offset of a partition; None without one."""
    offset, leader_epoch = partition.committed_offset, partition.committed_leader_epoch
    if offset < 0:
        return None
    return OffsetAndMetadata(
        offset, partition.metadata or "", leader_epoch if leader_epoch >= 0 else NO_LEADER_EPOCH
    )


def committed_offset(partition: FetchedPartition) -> int | None:
    """Return the committed offset of a partition as a number; None without one."""
    return partition.committed_offset if partition.committed_offset >= 0 else None


def read_fetched(
    response: OffsetFetchResponse,
    value: Callable[[FetchedPartition], V],
    group: str | None = None,
) -> Iterator[ItemResult]:
    """Yield the offsets of each group.

    If the offsets of some partitions are refused, the value is a `PartialFailure`.

    Args:
        response: The response.
        value: Form of the offsets: `offset_and_metadata` or `committed_offset`.
        group: Name of the group of a response without groups.
    """
    if group is not None:
        yield _fetched(group, response.error_code, response.topics, value)
        return
    for each in response.groups:
        yield _fetched(each.group_id, each.error_code, each.topics, value)


def _fetched(
    group: str,
    code: int,
    topics: Sequence[OffsetFetchResponseTopic] | Sequence[OffsetFetchResponseTopics],
    value: Callable[[FetchedPartition], V],
) -> ItemResult:
    if code != ErrorCode.NONE:
        return ItemResult(group, code=code)
    offsets: dict[TopicPartition, V] = {}
    failed: dict[TopicPartition, KafkaError] = {}
    for topic in topics:
        name = topic.name
        for partition in topic.partitions:
            tp = TopicPartition(name, partition.partition_index)
            if not partition.error_code:
                offsets[tp] = value(partition)
            elif partition.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT:
                return ItemResult(group, code=ErrorCode.UNSTABLE_OFFSET_COMMIT)
            else:
                failed[tp] = error_for(
                    partition.error_code,
                    api="OffsetFetch",
                    group=group,
                    topic=tp.topic,
                    partition=tp.partition,
                )
    if failed:
        return ItemResult(group, partial_failure(offsets, failed, "partitions"))
    return ItemResult(group, offsets)


def commit_request(
    group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]
) -> OffsetCommitRequest:
    """Return the request that commits offsets for a group without active members."""
    return OffsetCommitRequest(
        group_id=group,
        topics=[
            OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=tp.partition,
                        committed_offset=offsets[tp].offset,
                        committed_leader_epoch=offsets[tp].leader_epoch,
                        committed_metadata=offsets[tp].metadata,
                    )
                    for tp in tps
                ],
            )
            for topic, tps in partitions_by_topic(offsets).items()
        ],
    )


def read_partition_errors(
    response: OffsetCommitResponse | OffsetDeleteResponse,
) -> Iterator[ItemResult]:
    """Yield the result of each partition."""
    for topic in response.topics:
        for partition in topic.partitions:
            tp = TopicPartition(topic.name, partition.partition_index)
            yield ItemResult(tp, code=partition.error_code)


def delete_request(group: str, partitions: Iterable[TopicPartition]) -> OffsetDeleteRequest:
    """Return the request that deletes committed offsets."""
    return OffsetDeleteRequest(
        group_id=group,
        topics=[
            OffsetDeleteRequestTopic(
                name=topic,
                partitions=[
                    OffsetDeleteRequestPartition(partition_index=tp.partition) for tp in tps
                ],
            )
            for topic, tps in partitions_by_topic(partitions).items()
        ],
    )
