"""TxnOffsetCommit: commit offsets as part of a transaction. Key 28."""

from uuid import UUID

from aiokafkawire.wire.primitives import ZERO_UUID, int16, int32, int64
from aiokafkawire.wire.schema import Request, Response, Struct, field, request, response, struct

__all__ = (
    "TxnOffsetCommitRequest",
    "TxnOffsetCommitRequestPartition",
    "TxnOffsetCommitRequestTopic",
    "TxnOffsetCommitResponse",
    "TxnOffsetCommitResponsePartition",
    "TxnOffsetCommitResponseTopic",
)


@struct
class TxnOffsetCommitRequestPartition(Struct):
    partition_index: int32
    committed_offset: int64
    committed_leader_epoch: int32 = field(versions="2+", default=-1, ignorable=True)
    committed_metadata: str | None


@struct
class TxnOffsetCommitRequestTopic(Struct):
    name: str = field(versions="0-5", default="", ignorable=True)
    topic_id: UUID = field(versions="6+", default=ZERO_UUID, ignorable=True)
    partitions: list[TxnOffsetCommitRequestPartition]


@request(key=28, versions="0-6", flexible="3+")
class TxnOffsetCommitRequest(Request["TxnOffsetCommitResponse"]):
    transactional_id: str
    group_id: str
    producer_id: int64
    producer_epoch: int16
    generation_id_or_member_epoch: int32 = field(versions="3+", default=-1)
    member_id: str = field(versions="3+", default="")
    group_instance_id: str | None = field(versions="3+", default=None)
    topics: list[TxnOffsetCommitRequestTopic]


@struct
class TxnOffsetCommitResponsePartition(Struct):
    partition_index: int32
    error_code: int16


@struct
class TxnOffsetCommitResponseTopic(Struct):
    name: str = field(versions="0-5", default="", ignorable=True)
    topic_id: UUID = field(versions="6+", default=ZERO_UUID, ignorable=True)
    partitions: list[TxnOffsetCommitResponsePartition]


@response(key=28, versions="0-6", flexible="3+")
class TxnOffsetCommitResponse(Response):
    throttle_time_ms: int32
    topics: list[TxnOffsetCommitResponseTopic]
