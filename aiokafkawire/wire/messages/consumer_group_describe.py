"""ConsumerGroupDescribe: describe groups of the consumer protocol (KIP-848). Key 69."""

from uuid import UUID

from aiokafkawire.wire.messages.metadata import AUTHORIZED_OPERATIONS_OMITTED
from aiokafkawire.wire.primitives import int8, int16, int32
from aiokafkawire.wire.schema import Request, Response, Struct, field, request, response, struct

__all__ = (
    "ConsumerGroupDescribeAssignment",
    "ConsumerGroupDescribeMember",
    "ConsumerGroupDescribeRequest",
    "ConsumerGroupDescribeResponse",
    "ConsumerGroupDescribeTopicPartitions",
    "DescribedConsumerGroup",
)


@request(key=69, versions="0-1", flexible="0+")
class ConsumerGroupDescribeRequest(Request["ConsumerGroupDescribeResponse"]):
    group_ids: list[str]
    include_authorized_operations: bool


@struct
class ConsumerGroupDescribeTopicPartitions(Struct):
    topic_id: UUID
    topic_name: str
    partitions: list[int32]


@struct
class ConsumerGroupDescribeAssignment(Struct):
    topic_partitions: list[ConsumerGroupDescribeTopicPartitions]


@struct
class ConsumerGroupDescribeMember(Struct):
    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    member_epoch: int32
    client_id: str
    client_host: str
    subscribed_topic_names: list[str]
    subscribed_topic_regex: str | None = None
    assignment: ConsumerGroupDescribeAssignment
    target_assignment: ConsumerGroupDescribeAssignment
    member_type: int8 = field(versions="1+", default=-1, ignorable=True)


@struct
class DescribedConsumerGroup(Struct):
    error_code: int16
    error_message: str | None = None
    group_id: str
    group_state: str
    group_epoch: int32
    assignment_epoch: int32
    assignor_name: str
    members: list[ConsumerGroupDescribeMember]
    authorized_operations: int32 = AUTHORIZED_OPERATIONS_OMITTED


@response(key=69, versions="0-1", flexible="0+")
class ConsumerGroupDescribeResponse(Response):
    throttle_time_ms: int32
    groups: list[DescribedConsumerGroup]
