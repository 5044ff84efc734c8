"""Records of __consumer_offsets for groups of the consumer protocol (KIP-848)."""

from uuid import UUID

from aiokafkawire.wire.primitives import int8, int32, int64
from aiokafkawire.wire.schema import Message, Struct, data, field, struct

__all__ = (
    "ClassicMemberMetadata",
    "ClassicProtocol",
    "ConsumerGroupCurrentMemberAssignmentKey",
    "ConsumerGroupCurrentMemberAssignmentValue",
    "ConsumerGroupMemberMetadataKey",
    "ConsumerGroupMemberMetadataValue",
    "ConsumerGroupMetadataKey",
    "ConsumerGroupMetadataValue",
    "ConsumerGroupPartitionMetadataKey",
    "ConsumerGroupPartitionMetadataValue",
    "ConsumerGroupRecordPartitionMetadata",
    "ConsumerGroupRecordTopicMetadata",
    "ConsumerGroupRecordTopicPartition",
    "ConsumerGroupRecordTopicPartitions",
    "ConsumerGroupRegularExpressionKey",
    "ConsumerGroupRegularExpressionValue",
    "ConsumerGroupTargetAssignmentMemberKey",
    "ConsumerGroupTargetAssignmentMemberValue",
    "ConsumerGroupTargetAssignmentMetadataKey",
    "ConsumerGroupTargetAssignmentMetadataValue",
)


@data(name="ConsumerGroupMetadataKey", versions="0", flexible="none")
class ConsumerGroupMetadataKey(Message):
    group_id: str


@data(name="ConsumerGroupMetadataValue", versions="0", flexible="0+")
class ConsumerGroupMetadataValue(Message):
    epoch: int32
    metadata_hash: int64 = field(default=0, tag=0)


@data(name="ConsumerGroupPartitionMetadataKey", versions="0", flexible="none")
class ConsumerGroupPartitionMetadataKey(Message):
    group_id: str


@struct
class ConsumerGroupRecordPartitionMetadata(Struct):
    partition: int32
    racks: list[str]


@struct
class ConsumerGroupRecordTopicMetadata(Struct):
    topic_id: UUID
    topic_name: str
    num_partitions: int32
    partition_metadata: list[ConsumerGroupRecordPartitionMetadata]


@data(name="ConsumerGroupPartitionMetadataValue", versions="0", flexible="0+")
class ConsumerGroupPartitionMetadataValue(Message):
    topics: list[ConsumerGroupRecordTopicMetadata]


@data(name="ConsumerGroupMemberMetadataKey", versions="0", flexible="none")
class ConsumerGroupMemberMetadataKey(Message):
    group_id: str
    member_id: str


@struct
class ClassicProtocol(Struct):
    name: str
    metadata: bytes


@struct
class ClassicMemberMetadata(Struct):
    session_timeout_ms: int32 = 0
    supported_protocols: list[ClassicProtocol] = field(default_factory=list)


@data(name="ConsumerGroupMemberMetadataValue", versions="0", flexible="0+")
class ConsumerGroupMemberMetadataValue(Message):
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    subscribed_topic_names: list[str]
    subscribed_topic_regex: str | None
    rebalance_timeout_ms: int32 = -1
    server_assignor: str | None
    classic_member_metadata: ClassicMemberMetadata | None = field(
        default_factory=ClassicMemberMetadata, tag=0
    )


@data(name="ConsumerGroupTargetAssignmentMetadataKey", versions="0", flexible="none")
class ConsumerGroupTargetAssignmentMetadataKey(Message):
    group_id: str


@data(name="ConsumerGroupTargetAssignmentMetadataValue", versions="0", flexible="0+")
class ConsumerGroupTargetAssignmentMetadataValue(Message):
    assignment_epoch: int32
    assignment_timestamp: int64 = field(default=0, tag=0)


@data(name="ConsumerGroupTargetAssignmentMemberKey", versions="0", flexible="none")
class ConsumerGroupTargetAssignmentMemberKey(Message):
    group_id: str
    member_id: str


@struct
class ConsumerGroupRecordTopicPartition(Struct):
    topic_id: UUID
    partitions: list[int32]


@data(name="ConsumerGroupTargetAssignmentMemberValue", versions="0", flexible="0+")
class ConsumerGroupTargetAssignmentMemberValue(Message):
    topic_partitions: list[ConsumerGroupRecordTopicPartition]


@data(name="ConsumerGroupCurrentMemberAssignmentKey", versions="0", flexible="none")
class ConsumerGroupCurrentMemberAssignmentKey(Message):
    group_id: str
    member_id: str


@struct
class ConsumerGroupRecordTopicPartitions(Struct):
    topic_id: UUID
    partitions: list[int32]
    assignment_epochs: list[int32] | None = field(default_factory=list, tag=0)


@data(name="ConsumerGroupCurrentMemberAssignmentValue", versions="0", flexible="0+")
class ConsumerGroupCurrentMemberAssignmentValue(Message):
    member_epoch: int32
    previous_member_epoch: int32
    state: int8
    assigned_partitions: list[ConsumerGroupRecordTopicPartitions]
    partitions_pending_revocation: list[ConsumerGroupRecordTopicPartitions]


@data(name="ConsumerGroupRegularExpressionKey", versions="0", flexible="none")
class ConsumerGroupRegularExpressionKey(Message):
    group_id: str
    regular_expression: str


@data(name="ConsumerGroupRegularExpressionValue", versions="0", flexible="0+")
class ConsumerGroupRegularExpressionValue(Message):
    topics: list[str]
    version: int64
    timestamp: int64
