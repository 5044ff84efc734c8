"""OffsetCommit: commit the offsets of a group. Key 8."""

from uuid import UUID

from aiokafkawire.wire.primitives import ZERO_UUID, int16, int32, int64
from aiokafkawire.wire.schema import Request, Response, Struct, field, request, response, struct

__all__ = (
    "OffsetCommitRequest",
    "OffsetCommitRequestPartition",
    "OffsetCommitRequestTopic",
    "OffsetCommitResponse",
    "OffsetCommitResponsePartition",
    "OffsetCommitResponseTopic",
)


@struct
class OffsetCommitRequestPartition(Struct):
    partition_index: int32
    committed_offset: int64
    committed_leader_epoch: int32 = field(versions="6+", default=-1, ignorable=True)
    commit_timestamp: int64 = field(versions="1", default=-1)
    committed_metadata: str | None


@struct
class OffsetCommitRequestTopic(Struct):
    name: str = field(versions="0-9", default="", ignorable=True)
    topic_id: UUID = field(versions="10+", default=ZERO_UUID, ignorable=True)
    partitions: list[OffsetCommitRequestPartition]


@request(key=8, versions="0-10", flexible="8+")
class OffsetCommitRequest(Request["OffsetCommitResponse"]):
    """Version 0 commits to ZooKeeper. Without a membership: generation -1 and member ""."""

    group_id: str
    generation_id_or_member_epoch: int32 = field(versions="1+", default=-1, ignorable=True)
    member_id: str = field(versions="1+", default="", ignorable=True)
    group_instance_id: str | None = field(versions="7+", default=None)
    retention_time_ms: int64 = field(versions="2-4", default=-1, ignorable=True)
    topics: list[OffsetCommitRequestTopic]


@struct
class OffsetCommitResponsePartition(Struct):
    partition_index: int32
    error_code: int16


@struct
class OffsetCommitResponseTopic(Struct):
    name: str = field(versions="0-9", default="", ignorable=True)
    topic_id: UUID = field(versions="10+", default=ZERO_UUID, ignorable=True)
    partitions: list[OffsetCommitResponsePartition]


@response(key=8, versions="0-10", flexible="8+")
class OffsetCommitResponse(Response):
    throttle_time_ms: int32 = field(versions="3+", default=0, ignorable=True)
    topics: list[OffsetCommitResponseTopic]
