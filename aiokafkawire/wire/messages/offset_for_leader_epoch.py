"""OffsetForLeaderEpoch: get the end offset of a leader epoch. Key 23."""

from aiokafkawire.wire.primitives import int16, int32, int64
from aiokafkawire.wire.schema import Request, Response, Struct, field, request, response, struct

__all__ = (
    "EpochEndOffset",
    "OffsetForLeaderEpochRequest",
    "OffsetForLeaderEpochResponse",
    "OffsetForLeaderPartition",
    "OffsetForLeaderTopic",
    "OffsetForLeaderTopicResult",
)


@struct
class OffsetForLeaderPartition(Struct):
    """`current_leader_epoch`: the client's leader epoch; `leader_epoch`: the requested one."""

    partition: int32
    current_leader_epoch: int32 = field(versions="2+", default=-1, ignorable=True)
    leader_epoch: int32


@struct
class OffsetForLeaderTopic(Struct):
    topic: str
    partitions: list[OffsetForLeaderPartition]


@request(key=23, versions="0-4", flexible="4+")
class OffsetForLeaderEpochRequest(Request["OffsetForLeaderEpochResponse"]):
    """Replica id -1 is a consumer; -2, the default, may see beyond the high watermark."""

    replica_id: int32 = field(versions="3+", default=-2, ignorable=True)
    topics: list[OffsetForLeaderTopic]


@struct
class EpochEndOffset(Struct):
    """The largest epoch not above the requested one, and its end offset.

    Both are -1 if the log has no such epoch.
    """

    error_code: int16
    partition: int32
    leader_epoch: int32 = field(versions="1+", default=-1, ignorable=True)
    end_offset: int64 = -1


@struct
class OffsetForLeaderTopicResult(Struct):
    topic: str
    partitions: list[EpochEndOffset]


@response(key=23, versions="0-4", flexible="4+")
class OffsetForLeaderEpochResponse(Response):
    throttle_time_ms: int32 = field(versions="2+", default=0, ignorable=True)
    topics: list[OffsetForLeaderTopicResult]
