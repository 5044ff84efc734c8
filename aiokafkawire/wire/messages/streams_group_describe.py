"""StreamsGroupDescribe: describe groups of Kafka Streams (KIP-1071). Key 89."""

from aiokafkawire.wire.messages.metadata import AUTHORIZED_OPERATIONS_OMITTED
from aiokafkawire.wire.messages.streams_group_topology_description_update import TopologyDescription
from aiokafkawire.wire.primitives import int8, int16, int32, int64, uint16
from aiokafkawire.wire.schema import Request, Response, Struct, field, request, response, struct

__all__ = (
    "DescribedStreamsGroup",
    "StreamsGroupDescribeAssignment",
    "StreamsGroupDescribeEndpoint",
    "StreamsGroupDescribeKeyValue",
    "StreamsGroupDescribeMember",
    "StreamsGroupDescribeRequest",
    "StreamsGroupDescribeResponse",
    "StreamsGroupDescribeSubtopology",
    "StreamsGroupDescribeTaskIds",
    "StreamsGroupDescribeTaskOffset",
    "StreamsGroupDescribeTopicInfo",
    "StreamsGroupDescribeTopology",
)


@request(key=89, versions="0-1", flexible="0+")
class StreamsGroupDescribeRequest(Request["StreamsGroupDescribeResponse"]):
    group_ids: list[str]
    include_authorized_operations: bool
    include_topology_description: bool = field(versions="1+", default=False)


@struct
class StreamsGroupDescribeKeyValue(Struct):
    key: str
    value: str


@struct
class StreamsGroupDescribeTopicInfo(Struct):
    name: str
    partitions: int32
    replication_factor: int16
    topic_configs: list[StreamsGroupDescribeKeyValue]


@struct
class StreamsGroupDescribeSubtopology(Struct):
    subtopology_id: str
    source_topics: list[str]
    repartition_sink_topics: list[str]
    state_changelog_topics: list[StreamsGroupDescribeTopicInfo]
    repartition_source_topics: list[StreamsGroupDescribeTopicInfo]


@struct
class StreamsGroupDescribeTopology(Struct):
    epoch: int32
    subtopologies: list[StreamsGroupDescribeSubtopology] | None = None


@struct
class StreamsGroupDescribeEndpoint(Struct):
    host: str
    port: uint16


@struct
class StreamsGroupDescribeTaskOffset(Struct):
    subtopology_id: str
    partition: int32
    offset: int64


@struct
class StreamsGroupDescribeTaskIds(Struct):
    subtopology_id: str
    partitions: list[int32]


@struct
class StreamsGroupDescribeAssignment(Struct):
    active_tasks: list[StreamsGroupDescribeTaskIds]
    standby_tasks: list[StreamsGroupDescribeTaskIds]
    warmup_tasks: list[StreamsGroupDescribeTaskIds]


@struct
class StreamsGroupDescribeMember(Struct):
    member_id: str
    member_epoch: int32
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str
    client_host: str
    topology_epoch: int32
    process_id: str
    user_endpoint: StreamsGroupDescribeEndpoint | None = None
    client_tags: list[StreamsGroupDescribeKeyValue]
    task_offsets: list[StreamsGroupDescribeTaskOffset]
    task_end_offsets: list[StreamsGroupDescribeTaskOffset]
    assignment: StreamsGroupDescribeAssignment
    target_assignment: StreamsGroupDescribeAssignment
    is_classic: bool


@struct
class DescribedStreamsGroup(Struct):
    error_code: int16
    error_message: str | None = None
    group_id: str
    group_state: str
    group_epoch: int32
    assignment_epoch: int32
    topology: StreamsGroupDescribeTopology | None = None
    members: list[StreamsGroupDescribeMember]
    authorized_operations: int32 = AUTHORIZED_OPERATIONS_OMITTED
    topology_description: TopologyDescription | None = field(versions="1+", default=None)
    topology_description_status: int8 = field(versions="1+", default=0)
    assignor_name: str | None = field(versions="1+", default=None, ignorable=True)


@response(key=89, versions="0-1", flexible="0+")
class StreamsGroupDescribeResponse(Response):
    throttle_time_ms: int32
    groups: list[DescribedStreamsGroup]
