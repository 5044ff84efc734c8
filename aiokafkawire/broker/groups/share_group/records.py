"""Records of a share group in `__consumer_offsets`, equal to Kafka's."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from aiokafkawire.broker.groups.consumer_group.assignors import Assignment
from aiokafkawire.broker.groups.consumer_group.records import GroupRecord
from aiokafkawire.broker.groups.share_group.member import ShareGroupMember
from aiokafkawire.wire.messages import share_group_records as messages

__all__ = (
    "PartitionsByTopic",
    "assignment_metadata",
    "current_assignment",
    "group_metadata",
    "member_metadata",
    "state_partitions",
    "target_assignment",
    "to_partitions",
)

PartitionsByTopic = Mapping[UUID, tuple[str, frozenset[int]]]
"""Name and partitions of topics by id."""


def group_metadata(group_id: str, epoch: int, metadata_hash: int) -> GroupRecord:
    return GroupRecord(
        messages.ShareGroupMetadataKey(group_id=group_id),
        messages.ShareGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash),
    )


def member_metadata(group_id: str, member: ShareGroupMember) -> GroupRecord:
    return GroupRecord(
        messages.ShareGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id),
        messages.ShareGroupMemberMetadataValue(
            rack_id=member.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=list(member.subscribed_names),
        ),
    )


def assignment_metadata(group_id: str, epoch: int, timestamp_ms: int) -> GroupRecord:
    return GroupRecord(
        messages.ShareGroupTargetAssignmentMetadataKey(group_id=group_id),
        messages.ShareGroupTargetAssignmentMetadataValue(
            assignment_epoch=epoch, assignment_timestamp=timestamp_ms
        ),
    )


def target_assignment(group_id: str, member_id: str, target: Assignment) -> GroupRecord:
    return GroupRecord(
        messages.ShareGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        messages.ShareGroupTargetAssignmentMemberValue(
            topic_partitions=[
                messages.ShareGroupRecordTopicPartition(topic_id=topic, partitions=list(parts))
                for topic, parts in target.items()
            ]
        ),
    )


def current_assignment(group_id: str, member: ShareGroupMember) -> GroupRecord:
    return GroupRecord(
        messages.ShareGroupCurrentMemberAssignmentKey(
            group_id=group_id, member_id=member.member_id
        ),
        messages.ShareGroupCurrentMemberAssignmentValue(
            member_epoch=member.epoch,
            previous_member_epoch=member.previous_epoch,
            state=0,
            assigned_partitions=[
                messages.ShareGroupRecordTopicPartitions(topic_id=topic, partitions=list(parts))
                for topic, parts in member.assigned.items()
            ],
        ),
    )


def state_partitions(
    group_id: str, initializing: PartitionsByTopic, initialized: PartitionsByTopic
) -> GroupRecord:
    return GroupRecord(
        messages.ShareGroupStatePartitionMetadataKey(group_id=group_id),
        messages.ShareGroupStatePartitionMetadataValue(
            initializing_topics=_infos(initializing),
            initialized_topics=_infos(initialized),
            deleting_topics=[],
        ),
    )


def _infos(topics: PartitionsByTopic) -> list[messages.TopicPartitionsInfo]:
    return [
        messages.TopicPartitionsInfo(topic_id=topic, topic_name=name, partitions=sorted(parts))
        for topic, (name, parts) in topics.items()
    ]


def to_partitions(infos: list[messages.TopicPartitionsInfo]) -> PartitionsByTopic:
    """Return the partitions of a record."""
    return {each.topic_id: (each.topic_name, frozenset(each.partitions)) for each in infos}
