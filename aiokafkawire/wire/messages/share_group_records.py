"""Records of __consumer_offsets for share groups (KIP-932)."""

from uuid import UUID

from aiokafkawire.wire.primitives import int8, int32, int64
from aiokafkawire.wire.schema import Message, Struct, data, field, struct

__all__ = (
    "ShareGroupCurrentMemberAssignmentKey",
    "ShareGroupCurrentMemberAssignmentValue",
    "ShareGroupMemberMetadataKey",
    "ShareGroupMemberMetadataValue",
    "ShareGroupMetadataKey",
    "ShareGroupMetadataValue",
    "ShareGroupRecordTopicInfo",
    "ShareGroupRecordTopicPartition",
    "ShareGroupRecordTopicPartitions",
    "ShareGroupStatePartitionMetadataKey",
    "ShareGroupStatePartitionMetadataValue",
    "ShareGroupTargetAssignmentMemberKey",
    "ShareGroupTargetAssignmentMemberValue",
    "ShareGroupTargetAssignmentMetadataKey",
    "ShareGroupTargetAssignmentMetadataValue",
    "TopicPartitionsInfo",
)


@data(name="ShareGroupMetadataKey", versions="0", flexible="none")
class ShareGroupMetadataKey(Message):
    group_id: str


@data(name="ShareGroupMetadataValue", versions="0", flexible="0+")
class ShareGroupMetadataValue(Message):
    epoch: int32
    metadata_hash: int64


@data(name="ShareGroupMemberMetadataKey", versions="0", flexible="none")
class ShareGroupMemberMetadataKey(Message):
    group_id: str
    member_id: str


@data(name="ShareGroupMemberMetadataValue", versions="0", flexible="0+")
class ShareGroupMemberMetadataValue(Message):
    rack_id: str | None
    client_id: str
    client_host: str
    subscribed_topic_names: list[str]


@data(name="ShareGroupTargetAssignmentMetadataKey", versions="0", flexible="none")
class ShareGroupTargetAssignmentMetadataKey(Message):
    group_id: str


@data(name="ShareGroupTargetAssignmentMetadataValue", versions="0", flexible="0+")
class ShareGroupTargetAssignmentMetadataValue(Message):
    assignment_epoch: int32
    assignment_timestamp: int64 = field(default=0, tag=0)


@data(name="ShareGroupTargetAssignmentMemberKey", versions="0", flexible="none")
class ShareGroupTargetAssignmentMemberKey(Message):
    group_id: str
    member_id: str


@struct
class ShareGroupRecordTopicPartition(Struct):
    topic_id: UUID
    partitions: list[int32]


@data(name="ShareGroupTargetAssignmentMemberValue", versions="0", flexible="0+")
class ShareGroupTargetAssignmentMemberValue(Message):
    topic_partitions: list[ShareGroupRecordTopicPartition]


@data(name="ShareGroupCurrentMemberAssignmentKey", versions="0", flexible="none")
class ShareGroupCurrentMemberAssignmentKey(Message):
    group_id: str
    member_id: str


@struct
class ShareGroupRecordTopicPartitions(Struct):
    topic_id: UUID
    partitions: list[int32]


@data(name="ShareGroupCurrentMemberAssignmentValue", versions="0", flexible="0+")
class ShareGroupCurrentMemberAssignmentValue(Message):
    member_epoch: int32
    previous_member_epoch: int32
    state: int8
    assigned_partitions: list[ShareGroupRecordTopicPartitions]


@data(name="ShareGroupStatePartitionMetadataKey", versions="0", flexible="none")
class ShareGroupStatePartitionMetadataKey(Message):
    group_id: str


@struct
class TopicPartitionsInfo(Struct):
    topic_id: UUID
    topic_name: str
    partitions: list[int32]


@struct
class ShareGroupRecordTopicInfo(Struct):
    topic_id: UUID
    topic_name: str


@data(name="ShareGroupStatePartitionMetadataValue", versions="0", flexible="0+")
class ShareGroupStatePartitionMetadataValue(Message):
    initializing_topics: list[TopicPartitionsInfo]
    initialized_topics: list[TopicPartitionsInfo]
    deleting_topics: list[ShareGroupRecordTopicInfo]
