"""Vote: a candidate requests votes (KIP-595). Key 52."""

from uuid import UUID

from aiokafkawire.wire.primitives import ZERO_UUID, int16, int32, int64, uint16
from aiokafkawire.wire.schema import Request, Response, Struct, field, request, response, struct

__all__ = (
    "VoteNodeEndpoint",
    "VotePartitionData",
    "VotePartitionResult",
    "VoteRequest",
    "VoteResponse",
    "VoteTopicData",
    "VoteTopicResult",
)


@struct
class VotePartitionData(Struct):
    partition_index: int32
    replica_epoch: int32
    replica_id: int32
    replica_directory_id: UUID = field(versions="1+", default=ZERO_UUID, ignorable=True)
    voter_directory_id: UUID = field(versions="1+", default=ZERO_UUID, ignorable=True)
    last_offset_epoch: int32
    last_offset: int64
    pre_vote: bool = field(versions="2+", default=False)


@struct
class VoteTopicData(Struct):
    topic_name: str
    partitions: list[VotePartitionData]


@request(key=52, versions="0-2", flexible="0+")
class VoteRequest(Request["VoteResponse"]):
    cluster_id: str | None = None
    voter_id: int32 = field(versions="1+", default=-1, ignorable=True)
    topics: list[VoteTopicData]


@struct
class VotePartitionResult(Struct):
    partition_index: int32
    error_code: int16
    leader_id: int32
    leader_epoch: int32
    vote_granted: bool


@struct
class VoteTopicResult(Struct):
    topic_name: str
    partitions: list[VotePartitionResult]


@struct
class VoteNodeEndpoint(Struct):
    node_id: int32
    host: str
    port: uint16


@response(key=52, versions="0-2", flexible="0+")
class VoteResponse(Response):
    error_code: int16
    topics: list[VoteTopicResult]
    node_endpoints: list[VoteNodeEndpoint] = field(versions="1+", default_factory=list, tag=0)
