"""ListOffsets: get offsets by timestamp, or of the log's start and end. Key 2."""

from aiokafkawire.wire.primitives import int8, int16, int32, int64
from aiokafkawire.wire.schema import Request, Response, Struct, field, request, response, struct

__all__ = (
    "ListOffsetsPartition",
    "ListOffsetsPartitionResponse",
    "ListOffsetsRequest",
    "ListOffsetsResponse",
    "ListOffsetsTopic",
    "ListOffsetsTopicResponse",
)


@struct
class ListOffsetsPartition(Struct):
    partition_index: int32
    current_leader_epoch: int32 = field(versions="4+", default=-1, ignorable=True)
    timestamp: int64
    max_num_offsets: int32 = field(versions="0", default=1)


@struct
class ListOffsetsTopic(Struct):
    name: str
    partitions: list[ListOffsetsPartition]


@request(key=2, versions="0-11", flexible="6+")
class ListOffsetsRequest(Request["ListOffsetsResponse"]):
    """Timestamp -1 is the end of the log, -2 its start; versions 7 to 11 added -3 to -6."""

    replica_id: int32
    isolation_level: int8 = field(versions="2+", default=0)
    topics: list[ListOffsetsTopic]
    timeout_ms: int32 = field(versions="10+", default=0, ignorable=True)


@struct
class ListOffsetsPartitionResponse(Struct):
    partition_index: int32
    error_code: int16
    old_style_offsets: list[int64] = field(versions="0", default_factory=list)
    timestamp: int64 = field(versions="1+", default=-1)
    offset: int64 = field(versions="1+", default=-1)
    leader_epoch: int32 = field(versions="4+", default=-1)


@struct
class ListOffsetsTopicResponse(Struct):
    name: str
    partitions: list[ListOffsetsPartitionResponse]


@response(key=2, versions="0-11", flexible="6+")
class ListOffsetsResponse(Response):
    """Version 0 has a list of segment start offsets, newest first; later ones have one offset."""

    throttle_time_ms: int32 = field(versions="2+", default=0, ignorable=True)
    topics: list[ListOffsetsTopicResponse]
