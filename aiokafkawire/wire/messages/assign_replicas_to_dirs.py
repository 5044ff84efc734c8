"""AssignReplicasToDirs: a broker reports the directories of its replicas (KIP-858). Key 73."""

from uuid import UUID

from aiokafkawire.wire.primitives import int16, int32, int64
from aiokafkawire.wire.schema import Request, Response, Struct, request, response, struct

__all__ = (
    "AssignReplicasToDirsRequest",
    "AssignReplicasToDirsResponse",
    "DirectoryData",
    "DirectoryResult",
    "PartitionData",
    "PartitionResult",
    "TopicData",
    "TopicResult",
)


@struct
class PartitionData(Struct):
    partition_index: int32


@struct
class TopicData(Struct):
    topic_id: UUID
    partitions: list[PartitionData]


@struct
class DirectoryData(Struct):
    id: UUID
    topics: list[TopicData]


@request(key=73, versions="0", flexible="0+")
class AssignReplicasToDirsRequest(Request["AssignReplicasToDirsResponse"]):
    broker_id: int32
    broker_epoch: int64 = -1
    directories: list[DirectoryData]


@struct
class PartitionResult(Struct):
    partition_index: int32
    error_code: int16


@struct
class TopicResult(Struct):
    topic_id: UUID
    partitions: list[PartitionResult]


@struct
class DirectoryResult(Struct):
    id: UUID
    topics: list[TopicResult]


@response(key=73, versions="0", flexible="0+")
class AssignReplicasToDirsResponse(Response):
    throttle_time_ms: int32
    error_code: int16
    directories: list[DirectoryResult]
