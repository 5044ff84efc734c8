"""StreamsGroupHeartbeat: heartbeat of a member of a Kafka Streams group (KIP-1071). Key 88."""

from aiokafkawire.wire.primitives import int8, int16, int32, int64, uint16
from aiokafkawire.wire.schema import Request, Response, Struct, request, response, struct

__all__ = (
    "CopartitionGroup",
    "Endpoint",
    "EndpointToPartitions",
    "KeyValue",
    "Status",
    "StreamsGroupHeartbeatRequest",
    "StreamsGroupHeartbeatResponse",
    "Subtopology",
    "TaskIds",
    "TaskOffset",
    "TopicInfo",
    "TopicPartition",
    "Topology",
)


@struct
class KeyValue(Struct):
    key: str
    value: str


@struct
class TopicInfo(Struct):
    name: str
    partitions: int32
    replication_factor: int16
    topic_configs: list[KeyValue]


@struct
class CopartitionGroup(Struct):
    source_topics: list[int16]
    source_topic_regex: list[int16]
    repartition_source_topics: list[int16]


@struct
class Subtopology(Struct):
    subtopology_id: str
    source_topics: list[str]
    source_topic_regex: list[str]
    state_changelog_topics: list[TopicInfo]
    repartition_sink_topics: list[str]
    repartition_source_topics: list[TopicInfo]
    copartition_groups: list[CopartitionGroup]


@struct
class Topology(Struct):
    epoch: int32
    subtopologies: list[Subtopology]


@struct
class TaskIds(Struct):
    subtopology_id: str
    partitions: list[int32]


@struct
class Endpoint(Struct):
    host: str
    port: uint16


@struct
class TaskOffset(Struct):
    subtopology_id: str
    partition: int32
    offset: int64


@request(key=88, versions="0", flexible="0+")
class StreamsGroupHeartbeatRequest(Request["StreamsGroupHeartbeatResponse"]):
    """Null fields have not changed since the last request."""

    group_id: str
    member_id: str
    member_epoch: int32
    endpoint_information_epoch: int32
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int32 = -1
    topology: Topology | None = None
    active_tasks: list[TaskIds] | None = None
    standby_tasks: list[TaskIds] | None = None
    warmup_tasks: list[TaskIds] | None = None
    process_id: str | None = None
    user_endpoint: Endpoint | None = None
    client_tags: list[KeyValue] | None = None
    task_offsets: list[TaskOffset] | None = None
    task_end_offsets: list[TaskOffset] | None = None
    shutdown_application: bool = False


@struct
class Status(Struct):
    status_code: int8
    status_detail: str


@struct
class TopicPartition(Struct):
    topic: str
    partitions: list[int32]


@struct
class EndpointToPartitions(Struct):
    user_endpoint: Endpoint
    active_partitions: list[TopicPartition]
    standby_partitions: list[TopicPartition]


@response(key=88, versions="0", flexible="0+")
class StreamsGroupHeartbeatResponse(Response):
    throttle_time_ms: int32
    error_code: int16
    error_message: str | None = None
    member_id: str
    member_epoch: int32
    heartbeat_interval_ms: int32
    acceptable_recovery_lag: int32
    task_offset_interval_ms: int32
    status: list[Status] | None
    active_tasks: list[TaskIds] | None = None
    standby_tasks: list[TaskIds] | None = None
    warmup_tasks: list[TaskIds] | None = None
    endpoint_information_epoch: int32
    partitions_by_user_endpoint: list[EndpointToPartitions] | None = None
