"""ShareGroupDescribe: describe share groups (KIP-932). Key 77."""

from uuid import UUID

from aiokafkawire.wire.messages.metadata import AUTHORIZED_OPERATIONS_OMITTED
from aiokafkawire.wire.primitives import int16, int32
from aiokafkawire.wire.schema import Request, Response, Struct, request, response, struct

__all__ = (
    "DescribedShareGroup",
    "ShareGroupDescribeAssignment",
    "ShareGroupDescribeMember",
    "ShareGroupDescribeRequest",
    "ShareGroupDescribeResponse",
    "ShareGroupDescribeTopicPartitions",
)


@request(key=77, versions="0-1", flexible="0+")
class ShareGroupDescribeRequest(Request["ShareGroupDescribeResponse"]):
    group_ids: list[str]
    include_authorized_operations: bool


@struct
class ShareGroupDescribeTopicPartitions(Struct):
    topic_id: UUID
    topic_name: str
    partitions: list[int32]


@struct
class ShareGroupDescribeAssignment(Struct):
    topic_partitions: list[ShareGroupDescribeTopicPartitions]


@struct
class ShareGroupDescribeMember(Struct):
    member_id: str
    rack_id: str | None = None
    member_epoch: int32
    client_id: str
    client_host: str
    subscribed_topic_names: list[str]
    assignment: ShareGroupDescribeAssignment


@struct
class DescribedShareGroup(Struct):
    error_code: int16
    error_message: str | None = None
    group_id: str
    group_state: str
    group_epoch: int32
    assignment_epoch: int32
    assignor_name: str
    members: list[ShareGroupDescribeMember]
    authorized_operations: int32 = AUTHORIZED_OPERATIONS_OMITTED


@response(key=77, versions="0-1", flexible="0+")
class ShareGroupDescribeResponse(Response):
    throttle_time_ms: int32
    groups: list[DescribedShareGroup]
