"""StopReplica: the controller stops or deletes replicas of a broker. Key 5."""

from aiokafkawire.wire.primitives import int16, int32, int64
from aiokafkawire.wire.schema import Request, Response, Struct, field, request, response, struct

__all__ = (
    "StopReplicaPartitionError",
    "StopReplicaPartitionState",
    "StopReplicaPartitionV0",
    "StopReplicaRequest",
    "StopReplicaResponse",
    "StopReplicaTopicState",
    "StopReplicaTopicV1",
)


@struct
class StopReplicaPartitionV0(Struct):
    topic_name: str
    partition_index: int32


@struct
class StopReplicaTopicV1(Struct):
    name: str
    partition_indexes: list[int32]


@struct
class StopReplicaPartitionState(Struct):
    partition_index: int32
    leader_epoch: int32 = -1
    delete_partition: bool


@struct
class StopReplicaTopicState(Struct):
    topic_name: str
    partition_states: list[StopReplicaPartitionState]


@request(key=5, versions="0-4", flexible="2+")
class StopReplicaRequest(Request["StopReplicaResponse"]):
    """One list of partitions in version 0, lists by topic in 1 and 2, with states in v3+."""

    controller_id: int32
    is_kraft_controller: bool = field(versions="4+", default=False, name="isKRaftController")
    controller_epoch: int32
    broker_epoch: int64 = field(versions="1+", default=-1, ignorable=True)
    delete_partitions: bool = field(versions="0-2", default=False)
    ungrouped_partitions: list[StopReplicaPartitionV0] = field(versions="0", default_factory=list)
    topics: list[StopReplicaTopicV1] = field(versions="1-2", default_factory=list)
    topic_states: list[StopReplicaTopicState] = field(versions="3+", default_factory=list)


@struct
class StopReplicaPartitionError(Struct):
    topic_name: str
    partition_index: int32
    error_code: int16


@response(key=5, versions="0-4", flexible="2+")
class StopReplicaResponse(Response):
    error_code: int16
    partition_errors: list[StopReplicaPartitionError]
