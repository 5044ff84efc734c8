"""Records of __consumer_offsets for groups of Kafka Streams (KIP-1071)."""

from aiokafkawire.wire.primitives import int8, int16, int32, int64, uint16
from aiokafkawire.wire.schema import Message, Struct, data, field, struct

__all__ = (
    "CurrentTaskIds",
    "LastAssignmentConfig",
    "StreamsGroupCurrentMemberAssignmentKey",
    "StreamsGroupCurrentMemberAssignmentValue",
    "StreamsGroupMemberMetadataKey",
    "StreamsGroupMemberMetadataValue",
    "StreamsGroupMetadataKey",
    "StreamsGroupMetadataValue",
    "StreamsGroupRecordCopartitionGroup",
    "StreamsGroupRecordEndpoint",
    "StreamsGroupRecordKeyValue",
    "StreamsGroupRecordSubtopology",
    "StreamsGroupRecordTaskIds",
    "StreamsGroupRecordTopicInfo",
    "StreamsGroupTargetAssignmentMemberKey",
    "StreamsGroupTargetAssignmentMemberValue",
    "StreamsGroupTargetAssignmentMetadataKey",
    "StreamsGroupTargetAssignmentMetadataValue",
    "StreamsGroupTopologyKey",
    "StreamsGroupTopologyValue",
    "TopicConfig",
)


@data(name="StreamsGroupMetadataKey", versions="0", flexible="none")
class StreamsGroupMetadataKey(Message):
    group_id: str


@struct
class LastAssignmentConfig(Struct):
    key: str
    value: str


@data(name="StreamsGroupMetadataValue", versions="0", flexible="0+")
class StreamsGroupMetadataValue(Message):
    epoch: int32
    metadata_hash: int64
    validated_topology_epoch: int32 = field(default=-1, tag=0)
    last_assignment_configs: list[LastAssignmentConfig] | None = field(default_factory=list, tag=1)


@data(name="StreamsGroupMemberMetadataKey", versions="0", flexible="none")
class StreamsGroupMemberMetadataKey(Message):
    group_id: str
    member_id: str


@struct
class StreamsGroupRecordEndpoint(Struct):
    host: str
    port: uint16


@struct
class StreamsGroupRecordKeyValue(Struct):
    key: str
    value: str


@data(name="StreamsGroupMemberMetadataValue", versions="0", flexible="0+")
class StreamsGroupMemberMetadataValue(Message):
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int32 = -1
    topology_epoch: int32
    process_id: str
    user_endpoint: StreamsGroupRecordEndpoint | None = None
    client_tags: list[StreamsGroupRecordKeyValue]


@data(name="StreamsGroupTopologyKey", versions="0", flexible="none")
class StreamsGroupTopologyKey(Message):
    group_id: str


@struct
class TopicConfig(Struct):
    key: str
    value: str


@struct
class StreamsGroupRecordTopicInfo(Struct):
    name: str
    partitions: int32
    replication_factor: int16
    topic_configs: list[TopicConfig]


@struct
class StreamsGroupRecordCopartitionGroup(Struct):
    source_topics: list[int16]
    source_topic_regex: list[int16]
    repartition_source_topics: list[int16]


@struct
class StreamsGroupRecordSubtopology(Struct):
    subtopology_id: str
    source_topics: list[str]
    source_topic_regex: list[str]
    state_changelog_topics: list[StreamsGroupRecordTopicInfo]
    repartition_sink_topics: list[str]
    repartition_source_topics: list[StreamsGroupRecordTopicInfo]
    copartition_groups: list[StreamsGroupRecordCopartitionGroup]


@data(name="StreamsGroupTopologyValue", versions="0", flexible="0+")
class StreamsGroupTopologyValue(Message):
    epoch: int32
    subtopologies: list[StreamsGroupRecordSubtopology]


@data(name="StreamsGroupTargetAssignmentMetadataKey", versions="0", flexible="none")
class StreamsGroupTargetAssignmentMetadataKey(Message):
    group_id: str


@data(name="StreamsGroupTargetAssignmentMetadataValue", versions="0", flexible="0+")
class StreamsGroupTargetAssignmentMetadataValue(Message):
    assignment_epoch: int32
    assignment_timestamp: int64 = field(default=0, tag=0)


@data(name="StreamsGroupTargetAssignmentMemberKey", versions="0", flexible="none")
class StreamsGroupTargetAssignmentMemberKey(Message):
    group_id: str
    member_id: str


@struct
class StreamsGroupRecordTaskIds(Struct):
    subtopology_id: str
    partitions: list[int32]


@data(name="StreamsGroupTargetAssignmentMemberValue", versions="0", flexible="0+")
class StreamsGroupTargetAssignmentMemberValue(Message):
    active_tasks: list[StreamsGroupRecordTaskIds]
    standby_tasks: list[StreamsGroupRecordTaskIds]
    warmup_tasks: list[StreamsGroupRecordTaskIds]


@data(name="StreamsGroupCurrentMemberAssignmentKey", versions="0", flexible="none")
class StreamsGroupCurrentMemberAssignmentKey(Message):
    group_id: str
    member_id: str


@struct
class CurrentTaskIds(Struct):
    subtopology_id: str
    partitions: list[int32]
    assignment_epochs: list[int32] | None = field(default_factory=list, tag=0)


@data(name="StreamsGroupCurrentMemberAssignmentValue", versions="0", flexible="0+")
class StreamsGroupCurrentMemberAssignmentValue(Message):
    member_epoch: int32
    previous_member_epoch: int32
    state: int8
    active_tasks: list[CurrentTaskIds]
    standby_tasks: list[CurrentTaskIds]
    warmup_tasks: list[CurrentTaskIds]
    active_tasks_pending_revocation: list[CurrentTaskIds]
    standby_tasks_pending_revocation: list[CurrentTaskIds]
    warmup_tasks_pending_revocation: list[CurrentTaskIds]
