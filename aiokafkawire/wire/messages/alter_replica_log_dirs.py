"""AlterReplicaLogDirs: move replicas to other log directories (KIP-113). Key 34."""

from aiokafkawire.wire.primitives import int16, int32
from aiokafkawire.wire.schema import Request, Response, Struct, request, response, struct

__all__ = (
    "AlterReplicaLogDir",
    "AlterReplicaLogDirPartitionResult",
    "AlterReplicaLogDirTopic",
    "AlterReplicaLogDirTopicResult",
    "AlterReplicaLogDirsRequest",
    "AlterReplicaLogDirsResponse",
)


@struct
class AlterReplicaLogDirTopic(Struct):
    name: str
    partitions: list[int32]


@struct
class AlterReplicaLogDir(Struct):
    path: str
    topics: list[AlterReplicaLogDirTopic]


@request(key=34, versions="0-2", flexible="2+")
class AlterReplicaLogDirsRequest(Request["AlterReplicaLogDirsResponse"]):
    dirs: list[AlterReplicaLogDir]


@struct
class AlterReplicaLogDirPartitionResult(Struct):
    partition_index: int32
    error_code: int16


@struct
class AlterReplicaLogDirTopicResult(Struct):
    topic_name: str
    partitions: list[AlterReplicaLogDirPartitionResult]


@response(key=34, versions="0-2", flexible="2+")
class AlterReplicaLogDirsResponse(Response):
    throttle_time_ms: int32
    results: list[AlterReplicaLogDirTopicResult]
