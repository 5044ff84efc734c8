"""OffsetDelete: delete committed offsets of a group (KIP-496). Key 47."""

from aiokafkawire.wire.primitives import int16, int32
from aiokafkawire.wire.schema import Request, Response, Struct, field, request, response, struct

__all__ = (
    "OffsetDeleteRequest",
    "OffsetDeleteRequestPartition",
    "OffsetDeleteRequestTopic",
    "OffsetDeleteResponse",
    "OffsetDeleteResponsePartition",
    "OffsetDeleteResponseTopic",
)


@struct
class OffsetDeleteRequestPartition(Struct):
    partition_index: int32


@struct
class OffsetDeleteRequestTopic(Struct):
    name: str
    partitions: list[OffsetDeleteRequestPartition]


@request(key=47, versions="0", flexible="none")
class OffsetDeleteRequest(Request["OffsetDeleteResponse"]):
    group_id: str
    topics: list[OffsetDeleteRequestTopic]


@struct
class OffsetDeleteResponsePartition(Struct):
    partition_index: int32
    error_code: int16


@struct
class OffsetDeleteResponseTopic(Struct):
    name: str
    partitions: list[OffsetDeleteResponsePartition]


@response(key=47, versions="0", flexible="none")
class OffsetDeleteResponse(Response):
    error_code: int16
    throttle_time_ms: int32 = field(default=0, ignorable=True)
    topics: list[OffsetDeleteResponseTopic]
