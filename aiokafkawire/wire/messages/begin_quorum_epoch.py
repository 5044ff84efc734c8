"""BeginQuorumEpoch: a new leader of the quorum announces itself (KIP-595). Key 53."""

from uuid import UUID

from aiokafkawire.wire.primitives import ZERO_UUID, int16, int32, uint16
from aiokafkawire.wire.schema import Request, Response, Struct, field, request, response, struct

__all__ = (
    "BeginQuorumEpochLeaderEndpoint",
    "BeginQuorumEpochNodeEndpoint",
    "BeginQuorumEpochPartitionData",
    "BeginQuorumEpochPartitionResult",
    "BeginQuorumEpochRequest",
    "BeginQuorumEpochResponse",
    "BeginQuorumEpochTopicData",
    "BeginQuorumEpochTopicResult",
)


@struct
class BeginQuorumEpochPartitionData(Struct):
    partition_index: int32
    voter_directory_id: UUID = field(versions="1+", default=ZERO_UUID, ignorable=True)
    leader_id: int32
    leader_epoch: int32


@struct
class BeginQuorumEpochTopicData(Struct):
    topic_name: str
    partitions: list[BeginQuorumEpochPartitionData]


@struct
class BeginQuorumEpochLeaderEndpoint(Struct):
    name: str
    host: str
    port: uint16


@request(key=53, versions="0-1", flexible="1+")
class BeginQuorumEpochRequest(Request["BeginQuorumEpochResponse"]):
    cluster_id: str | None = None
    voter_id: int32 = field(versions="1+", default=-1, ignorable=True)
    topics: list[BeginQuorumEpochTopicData]
    leader_endpoints: list[BeginQuorumEpochLeaderEndpoint] = field(
        versions="1+", default_factory=list, ignorable=True
    )


@struct
class BeginQuorumEpochPartitionResult(Struct):
    partition_index: int32
    error_code: int16
    leader_id: int32
    leader_epoch: int32


@struct
class BeginQuorumEpochTopicResult(Struct):
    topic_name: str
    partitions: list[BeginQuorumEpochPartitionResult]


@struct
class BeginQuorumEpochNodeEndpoint(Struct):
    node_id: int32
    host: str
    port: uint16


@response(key=53, versions="0-1", flexible="1+")
class BeginQuorumEpochResponse(Response):
    error_code: int16
    topics: list[BeginQuorumEpochTopicResult]
    node_endpoints: list[BeginQuorumEpochNodeEndpoint] = field(
        versions="1+", default_factory=list, tag=0
    )
