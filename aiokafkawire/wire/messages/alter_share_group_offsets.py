"""AlterShareGroupOffsets: change the start offsets of a share group (KIP-932). Key 91."""

from uuid import UUID

from aiokafkawire.wire.primitives import int16, int32, int64
from aiokafkawire.wire.schema import Request, Response, Struct, request, response, struct

__all__ = (
    "AlterShareGroupOffsetsRequest",
    "AlterShareGroupOffsetsRequestPartition",
    "AlterShareGroupOffsetsRequestTopic",
    "AlterShareGroupOffsetsResponse",
    "AlterShareGroupOffsetsResponsePartition",
    "AlterShareGroupOffsetsResponseTopic",
)


@struct
class AlterShareGroupOffsetsRequestPartition(Struct):
    partition_index: int32
    start_offset: int64


@struct
class AlterShareGroupOffsetsRequestTopic(Struct):
    topic_name: str
    partitions: list[AlterShareGroupOffsetsRequestPartition]


@request(key=91, versions="0", flexible="0+")
class AlterShareGroupOffsetsRequest(Request["AlterShareGroupOffsetsResponse"]):
    group_id: str
    topics: list[AlterShareGroupOffsetsRequestTopic]


@struct
class AlterShareGroupOffsetsResponsePartition(Struct):
    partition_index: int32
    error_code: int16
    error_message: str | None = None


@struct
class AlterShareGroupOffsetsResponseTopic(Struct):
    topic_name: str
    topic_id: UUID
    partitions: list[AlterShareGroupOffsetsResponsePartition]


@response(key=91, versions="0", flexible="0+")
class AlterShareGroupOffsetsResponse(Response):
    throttle_time_ms: int32
    error_code: int16
    error_message: str | None = None
    responses: list[AlterShareGroupOffsetsResponseTopic]
