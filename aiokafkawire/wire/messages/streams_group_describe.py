"""StreamsGroupDescribe: describe groups of Kafka Streams (KIP-1071). Key 89."""

from aiokafkawire.wire.messages.metadata import AUTHORIZED_OPERATIONS_OMITTED
from aiokafkawire.wire.primitives import int16, int32, int64, uint16
from aiokafkawire.wire.schema import Request, Response, Struct, request, response, struct

__all__ = (
    "Assignment",
    "DescribedGroup",
    "Endpoint",
    "KeyValue",
    "Member",
    "StreamsGroupDescribeRequest",
    "StreamsGroupDescribeResponse",
    "Subtopology",
    "TaskIds",
    "TaskOffset",
    "TopicInfo",
    "Topology",
)


@request(key=89, versions="0", flexible="0+")
class StreamsGroupDescribeRequest(Request["StreamsGroupDescribeResponse"]):
    group_ids: list[str]
    include_authorized_operations: bool


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
class Subtopology(Struct):
    subtopology_id: str
    source_topics: list[str]
    repartition_sink_topics: list[str]
    state_changelog_topics: list[TopicInfo]
    repartition_source_topics: list[TopicInfo]


@struct
class Topology(Struct):
    epoch: int32
    subtopologies: list[Subtopology] | None = None


@struct
class Endpoint(Struct):
    host: str
    port: uint16


@struct
class TaskOffset(Struct):
    subtopology_id: str
    partition: int32
    offset: int64


@struct
class TaskIds(Struct):
    subtopology_id: str
    partitions: list[int32]


@struct
class Assignment(Struct):
    active_tasks: list[TaskIds]
    standby_tasks: list[TaskIds]
    warmup_tasks: list[TaskIds]


@struct
class Member(Struct):
    member_id: str
    member_epoch: int32
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str
    client_host: str
    topology_epoch: int32
    process_id: str
    user_endpoint: Endpoint | None = None
    client_tags: list[KeyValue]
    task_offsets: list[TaskOffset]
    task_end_offsets: list[TaskOffset]
    assignment: Assignment
    target_assignment: Assignment
    is_classic: bool


@struct
class DescribedGroup(Struct):
    error_code: int16
    error_message: str | None = None
    group_id: str
    group_state: str
    group_epoch: int32
    assignment_epoch: int32
    topology: Topology | None = None
    members: list[Member]
    authorized_operations: int32 = AUTHORIZED_OPERATIONS_OMITTED


@response(key=89, versions="0", flexible="0+")
class StreamsGroupDescribeResponse(Response):
    throttle_time_ms: int32
    groups: list[DescribedGroup]
