"""DescribeShareGroupOffsets: describe the start offsets of share groups (KIP-932). Key 90."""

from uuid import UUID

from aiokafkawire.wire.primitives import int16, int32, int64
from aiokafkawire.wire.schema import Request, Response, Struct, field, request, response, struct

__all__ = (
    "DescribeShareGroupOffsetsRequest",
    "DescribeShareGroupOffsetsRequestGroup",
    "DescribeShareGroupOffsetsRequestTopic",
    "DescribeShareGroupOffsetsResponse",
    "DescribeShareGroupOffsetsResponseGroup",
    "DescribeShareGroupOffsetsResponsePartition",
    "DescribeShareGroupOffsetsResponseTopic",
)


@struct
class DescribeShareGroupOffsetsRequestTopic(Struct):
    topic_name: str
    partitions: list[int32]


@struct
class DescribeShareGroupOffsetsRequestGroup(Struct):
    group_id: str
    topics: list[DescribeShareGroupOffsetsRequestTopic] | None


@request(key=90, versions="0-1", flexible="0+")
class DescribeShareGroupOffsetsRequest(Request["DescribeShareGroupOffsetsResponse"]):
    groups: list[DescribeShareGroupOffsetsRequestGroup]


@struct
class DescribeShareGroupOffsetsResponsePartition(Struct):
    partition_index: int32
    start_offset: int64
    leader_epoch: int32
    lag: int64 = field(versions="1+", default=-1, ignorable=True)
    error_code: int16
    error_message: str | None = None


@struct
class DescribeShareGroupOffsetsResponseTopic(Struct):
    topic_name: str
    topic_id: UUID
    partitions: list[DescribeShareGroupOffsetsResponsePartition]


@struct
class DescribeShareGroupOffsetsResponseGroup(Struct):
    group_id: str
    topics: list[DescribeShareGroupOffsetsResponseTopic]
    error_code: int16
    error_message: str | None = None


@response(key=90, versions="0-1", flexible="0+")
class DescribeShareGroupOffsetsResponse(Response):
    throttle_time_ms: int32
    groups: list[DescribeShareGroupOffsetsResponseGroup]
