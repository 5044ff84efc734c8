"""DescribeQuorum: describe the state of the controller quorum (KIP-595). Key 55."""

from uuid import UUID

from aiokafkawire.wire.primitives import ZERO_UUID, int16, int32, int64, uint16
from aiokafkawire.wire.schema import Request, Response, Struct, field, request, response, struct

__all__ = (
    "DescribeQuorumRequest",
    "DescribeQuorumResponse",
    "Listener",
    "Node",
    "PartitionData",
    "PartitionResult",
    "ReplicaState",
    "TopicData",
    "TopicResult",
)


@struct
class PartitionData(Struct):
    partition_index: int32


@struct
class TopicData(Struct):
    topic_name: str
    partitions: list[PartitionData]


@request(key=55, versions="0-2", flexible="0+")
class DescribeQuorumRequest(Request["DescribeQuorumResponse"]):
    topics: list[TopicData]


@struct
class ReplicaState(Struct):
    replica_id: int32
    replica_directory_id: UUID = field(versions="2+", default=ZERO_UUID)
    log_end_offset: int64
    last_fetch_timestamp: int64 = field(versions="1+", default=-1, ignorable=True)
    last_caught_up_timestamp: int64 = field(versions="1+", default=-1, ignorable=True)


@struct
class PartitionResult(Struct):
    partition_index: int32
    error_code: int16
    error_message: str | None = field(versions="2+", default="", ignorable=True)
    leader_id: int32
    leader_epoch: int32
    high_watermark: int64
    current_voters: list[ReplicaState]
    observers: list[ReplicaState]


@struct
class TopicResult(Struct):
    topic_name: str
    partitions: list[PartitionResult]


@struct
class Listener(Struct):
    name: str
    host: str
    port: uint16


@struct
class Node(Struct):
    node_id: int32
    listeners: list[Listener]


@response(key=55, versions="0-2", flexible="0+")
class DescribeQuorumResponse(Response):
    error_code: int16
    error_message: str | None = field(versions="2+", default="", ignorable=True)
    topics: list[TopicResult]
    nodes: list[Node] = field(versions="2+", default_factory=list)
