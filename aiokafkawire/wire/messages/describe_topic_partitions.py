"""DescribeTopicPartitions: describe topics and partitions, with paging (KIP-966). Key 75."""

from uuid import UUID

from aiokafkawire.wire.messages.metadata import AUTHORIZED_OPERATIONS_OMITTED
from aiokafkawire.wire.primitives import int16, int32
from aiokafkawire.wire.schema import (
    LazyStruct,
    Request,
    Response,
    Struct,
    request,
    response,
    struct,
)

__all__ = (
    "Cursor",
    "DescribeTopicPartitionsRequest",
    "DescribeTopicPartitionsResponse",
    "DescribeTopicPartitionsResponsePartition",
    "DescribeTopicPartitionsResponseTopic",
    "DescribeTopicPartitionsTopicRequest",
)


@struct
class DescribeTopicPartitionsTopicRequest(Struct):
    name: str


@struct
class Cursor(Struct):
    topic_name: str
    partition_index: int32


@request(key=75, versions="0", flexible="0+")
class DescribeTopicPartitionsRequest(Request["DescribeTopicPartitionsResponse"]):
    """The `next_cursor` of a response is the `cursor` of the next request."""

    topics: list[DescribeTopicPartitionsTopicRequest]
    response_partition_limit: int32 = 2000
    cursor: Cursor | None = None


@struct
class DescribeTopicPartitionsResponsePartition(Struct):
    error_code: int16
    partition_index: int32
    leader_id: int32
    leader_epoch: int32 = -1
    replica_nodes: list[int32]
    isr_nodes: list[int32]
    eligible_leader_replicas: list[int32] | None = None
    last_known_elr: list[int32] | None = None
    offline_replicas: list[int32]


@struct
class DescribeTopicPartitionsResponseTopic(LazyStruct):
    error_code: int16
    name: str | None
    topic_id: UUID
    is_internal: bool = False
    partitions: list[DescribeTopicPartitionsResponsePartition]
    topic_authorized_operations: int32 = AUTHORIZED_OPERATIONS_OMITTED


@response(key=75, versions="0", flexible="0+")
class DescribeTopicPartitionsResponse(Response):
    throttle_time_ms: int32
    topics: list[DescribeTopicPartitionsResponseTopic]
    next_cursor: Cursor | None = None
