"""AssignReplicasToDirs: a broker reports the directories of its replicas (KIP-858). Key 73."""

from uuid import UUID

from aiokafkawire.wire.primitives import int16, int32, int64
from aiokafkawire.wire.schema import Request, Response, Struct, request, response, struct

__all__ = (
    "AssignReplicasToDirsPartitionData",
    "AssignReplicasToDirsPartitionResult",
    "AssignReplicasToDirsRequest",
    "AssignReplicasToDirsResponse",
    "AssignReplicasToDirsTopicData",
    "AssignReplicasToDirsTopicResult",
    "DirectoryData",
    "DirectoryResult",
)


@struct
class AssignReplicasToDirsPartitionData(Struct):
    partition_index: int32


@struct
class AssignReplicasToDirsTopicData(Struct):
    topic_id: UUID
    partitions: list[AssignReplicasToDirsPartitionData]


@struct
class DirectoryData(Struct):
    id: UUID
    topics: list[AssignReplicasToDirsTopicData]


@request(key=73, versions="0", flexible="0+")
class AssignReplicasToDirsRequest(Request["AssignReplicasToDirsResponse"]):
    broker_id: int32
    broker_epoch: int64 = -1
    directories: list[DirectoryData]


@struct
class AssignReplicasToDirsPartitionResult(Struct):
    partition_index: int32
    error_code: int16


@struct
class AssignReplicasToDirsTopicResult(Struct):
    topic_id: UUID
    partitions: list[AssignReplicasToDirsPartitionResult]


@struct
class DirectoryResult(Struct):
    id: UUID
    topics: list[AssignReplicasToDirsTopicResult]


@response(key=73, versions="0", flexible="0+")
class AssignReplicasToDirsResponse(Response):
    throttle_time_ms: int32
    error_code: int16
    directories: list[DirectoryResult]
