"""DescribeQuorum: describe the state of the controller quorum (KIP-595). Key 55."""

from uuid import UUID

from aiokafkawire.wire.primitives import ZERO_UUID, int16, int32, int64, uint16
from aiokafkawire.wire.schema import Request, Response, Struct, field, request, response, struct

__all__ = (
    "DescribeQuorumListener",
    "DescribeQuorumPartitionData",
    "DescribeQuorumPartitionResult",
    "DescribeQuorumRequest",
    "DescribeQuorumResponse",
    "DescribeQuorumTopicData",
    "DescribeQuorumTopicResult",
    "QuorumNode",
    "QuorumReplicaState",
)


@struct
class DescribeQuorumPartitionData(Struct):
    partition_index: int32


@struct
class DescribeQuorumTopicData(Struct):
    topic_name: str
    partitions: list[DescribeQuorumPartitionData]


@request(key=55, versions="0-2", flexible="0+")
class DescribeQuorumRequest(Request["DescribeQuorumResponse"]):
    topics: list[DescribeQuorumTopicData]


@struct
class QuorumReplicaState(Struct):
    replica_id: int32
    replica_directory_id: UUID = field(versions="2+", default=ZERO_UUID)
    log_end_offset: int64
    last_fetch_timestamp: int64 = field(versions="1+", default=-1, ignorable=True)
    last_caught_up_timestamp: int64 = field(versions="1+", default=-1, ignorable=True)


@struct
class DescribeQuorumPartitionResult(Struct):
    partition_index: int32
    error_code: int16
    error_message: str | None = field(versions="2+", default="", ignorable=True)
    leader_id: int32
    leader_epoch: int32
    high_watermark: int64
    current_voters: list[QuorumReplicaState]
    observers: list[QuorumReplicaState]


@struct
class DescribeQuorumTopicResult(Struct):
    topic_name: str
    partitions: list[DescribeQuorumPartitionResult]


@struct
class DescribeQuorumListener(Struct):
    name: str
    host: str
    port: uint16


@struct
class QuorumNode(Struct):
    node_id: int32
    listeners: list[DescribeQuorumListener]


@response(key=55, versions="0-2", flexible="0+")
class DescribeQuorumResponse(Response):
    error_code: int16
    error_message: str | None = field(versions="2+", default="", ignorable=True)
    topics: list[DescribeQuorumTopicResult]
    nodes: list[QuorumNode] = field(versions="2+", default_factory=list)
