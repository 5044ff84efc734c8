"""StreamsGroupHeartbeat: heartbeat of a member of a Kafka Streams group (KIP-1071). Key 88."""

from aiokafkawire.wire.primitives import int8, int16, int32, int64, uint16
from aiokafkawire.wire.schema import Request, Response, Struct, field, request, response, struct

__all__ = (
    "EndpointToPartitions",
    "Status",
    "StreamsGroupHeartbeatCopartitionGroup",
    "StreamsGroupHeartbeatEndpoint",
    "StreamsGroupHeartbeatKeyValue",
    "StreamsGroupHeartbeatRequest",
    "StreamsGroupHeartbeatResponse",
    "StreamsGroupHeartbeatSubtopology",
    "StreamsGroupHeartbeatTaskIds",
    "StreamsGroupHeartbeatTaskOffset",
    "StreamsGroupHeartbeatTopicInfo",
    "StreamsGroupHeartbeatTopicPartition",
    "StreamsGroupHeartbeatTopology",
)


@struct
class StreamsGroupHeartbeatKeyValue(Struct):
    key: str
    value: str


@struct
class StreamsGroupHeartbeatTopicInfo(Struct):
    name: str
    partitions: int32
    replication_factor: int16
    topic_configs: list[StreamsGroupHeartbeatKeyValue]


@struct
class StreamsGroupHeartbeatCopartitionGroup(Struct):
    source_topics: list[int16]
    source_topic_regex: list[int16]
    repartition_source_topics: list[int16]


@struct
class StreamsGroupHeartbeatSubtopology(Struct):
    subtopology_id: str
    source_topics: list[str]
    source_topic_regex: list[str]
    state_changelog_topics: list[StreamsGroupHeartbeatTopicInfo]
    repartition_sink_topics: list[str]
    repartition_source_topics: list[StreamsGroupHeartbeatTopicInfo]
    copartition_groups: list[StreamsGroupHeartbeatCopartitionGroup]


@struct
class StreamsGroupHeartbeatTopology(Struct):
    epoch: int32
    subtopologies: list[StreamsGroupHeartbeatSubtopology]


@struct
class StreamsGroupHeartbeatTaskIds(Struct):
    subtopology_id: str
    partitions: list[int32]


@struct
class StreamsGroupHeartbeatEndpoint(Struct):
    host: str
    port: uint16


@struct
class StreamsGroupHeartbeatTaskOffset(Struct):
    subtopology_id: str
    partition: int32
    offset: int64


@request(key=88, versions="0-1", flexible="0+")
class StreamsGroupHeartbeatRequest(Request["StreamsGroupHeartbeatResponse"]):
    """Null fields have not changed since the last request."""

    group_id: str
    member_id: str
    member_epoch: int32
    endpoint_information_epoch: int32
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int32 = -1
    topology: StreamsGroupHeartbeatTopology | None = None
    active_tasks: list[StreamsGroupHeartbeatTaskIds] | None = None
    standby_tasks: list[StreamsGroupHeartbeatTaskIds] | None = None
    warmup_tasks: list[StreamsGroupHeartbeatTaskIds] | None = None
    process_id: str | None = None
    user_endpoint: StreamsGroupHeartbeatEndpoint | None = None
    client_tags: list[StreamsGroupHeartbeatKeyValue] | None = None
    task_offsets: list[StreamsGroupHeartbeatTaskOffset] | None = None
    task_end_offsets: list[StreamsGroupHeartbeatTaskOffset] | None = None
    shutdown_application: bool = False


@struct
class Status(Struct):
    status_code: int8
    status_detail: str


@struct
class StreamsGroupHeartbeatTopicPartition(Struct):
    topic: str
    partitions: list[int32]


@struct
class EndpointToPartitions(Struct):
    user_endpoint: StreamsGroupHeartbeatEndpoint
    active_partitions: list[StreamsGroupHeartbeatTopicPartition]
    standby_partitions: list[StreamsGroupHeartbeatTopicPartition]


@response(key=88, versions="0-1", flexible="0+")
class StreamsGroupHeartbeatResponse(Response):
    throttle_time_ms: int32
    error_code: int16
    error_message: str | None = None
    member_id: str
    member_epoch: int32
    heartbeat_interval_ms: int32
    acceptable_recovery_lag_legacy: int32 = field(versions="0", default=0)
    task_offset_interval_ms: int32
    acceptable_recovery_lag: int64 = field(versions="1+", default=-1, ignorable=True)
    status: list[Status] | None
    active_tasks: list[StreamsGroupHeartbeatTaskIds] | None = None
    standby_tasks: list[StreamsGroupHeartbeatTaskIds] | None = None
    warmup_tasks: list[StreamsGroupHeartbeatTaskIds] | None = None
    topology_description_required: bool = field(versions="1+", default=False)
    endpoint_information_epoch: int32
    partitions_by_user_endpoint: list[EndpointToPartitions] | None = None
