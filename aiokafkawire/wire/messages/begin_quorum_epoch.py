"""BeginQuorumEpoch: a new leader of the quorum announces itself (KIP-595). Key 53."""

from uuid import UUID

from aiokafkawire.wire.primitives import ZERO_UUID, int16, int32, uint16
from aiokafkawire.wire.schema import Request, Response, Struct, field, request, response, struct

__all__ = (
    "BeginQuorumEpochRequest",
    "BeginQuorumEpochResponse",
    "LeaderEndpoint",
    "NodeEndpoint",
    "PartitionData",
    "PartitionResult",
    "TopicData",
    "TopicResult",
)


@struct
class PartitionData(Struct):
    partition_index: int32
    voter_directory_id: UUID = field(versions="1+", default=ZERO_UUID, ignorable=True)
    leader_id: int32
    leader_epoch: int32


@struct
class TopicData(Struct):
    topic_name: str
    partitions: list[PartitionData]


@struct
class LeaderEndpoint(Struct):
    name: str
    host: str
    port: uint16


@request(key=53, versions="0-1", flexible="1+")
class BeginQuorumEpochRequest(Request["BeginQuorumEpochResponse"]):
    cluster_id: str | None = None
    voter_id: int32 = field(versions="1+", default=-1, ignorable=True)
    topics: list[TopicData]
    leader_endpoints: list[LeaderEndpoint] = field(
        versions="1+", default_factory=list, ignorable=True
    )


@struct
class PartitionResult(Struct):
    partition_index: int32
    error_code: int16
    leader_id: int32
    leader_epoch: int32


@struct
class TopicResult(Struct):
    topic_name: str
    partitions: list[PartitionResult]


@struct
class NodeEndpoint(Struct):
    node_id: int32
    host: str
    port: uint16


@response(key=53, versions="0-1", flexible="1+")
class BeginQuorumEpochResponse(Response):
    error_code: int16
    topics: list[TopicResult]
    node_endpoints: list[NodeEndpoint] = field(versions="1+", default_factory=list, tag=0)
