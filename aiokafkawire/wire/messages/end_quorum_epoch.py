"""EndQuorumEpoch: the leader of the quorum resigns (KIP-595). Key 54."""

from uuid import UUID

from aiokafkawire.wire.primitives import int16, int32, uint16
from aiokafkawire.wire.schema import Request, Response, Struct, field, request, response, struct

__all__ = (
    "EndQuorumEpochLeaderEndpoint",
    "EndQuorumEpochNodeEndpoint",
    "EndQuorumEpochPartitionData",
    "EndQuorumEpochPartitionResult",
    "EndQuorumEpochRequest",
    "EndQuorumEpochResponse",
    "EndQuorumEpochTopicData",
    "EndQuorumEpochTopicResult",
    "ReplicaInfo",
)


@struct
class ReplicaInfo(Struct):
    candidate_id: int32
    candidate_directory_id: UUID


@struct
class EndQuorumEpochPartitionData(Struct):
    partition_index: int32
    leader_id: int32
    leader_epoch: int32
    preferred_successors: list[int32] = field(versions="0", default_factory=list, ignorable=True)
    preferred_candidates: list[ReplicaInfo] = field(
        versions="1+", default_factory=list, ignorable=True
    )


@struct
class EndQuorumEpochTopicData(Struct):
    topic_name: str
    partitions: list[EndQuorumEpochPartitionData]


@struct
class EndQuorumEpochLeaderEndpoint(Struct):
    name: str
    host: str
    port: uint16


@request(key=54, versions="0-1", flexible="1+")
class EndQuorumEpochRequest(Request["EndQuorumEpochResponse"]):
    cluster_id: str | None = None
    topics: list[EndQuorumEpochTopicData]
    leader_endpoints: list[EndQuorumEpochLeaderEndpoint] = field(
        versions="1+", default_factory=list, ignorable=True
    )


@struct
class EndQuorumEpochPartitionResult(Struct):
    partition_index: int32
    error_code: int16
    leader_id: int32
    leader_epoch: int32


@struct
class EndQuorumEpochTopicResult(Struct):
    topic_name: str
    partitions: list[EndQuorumEpochPartitionResult]


@struct
class EndQuorumEpochNodeEndpoint(Struct):
    node_id: int32
    host: str
    port: uint16


@response(key=54, versions="0-1", flexible="1+")
class EndQuorumEpochResponse(Response):
    error_code: int16
    topics: list[EndQuorumEpochTopicResult]
    node_endpoints: list[EndQuorumEpochNodeEndpoint] = field(
        versions="1+", default_factory=list, tag=0
    )
