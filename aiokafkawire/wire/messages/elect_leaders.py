"""ElectLeaders: elect the preferred leaders, or any (KIP-183, KIP-460). Key 43."""

from aiokafkawire.wire.primitives import int8, int16, int32
from aiokafkawire.wire.schema import Request, Response, Struct, field, request, response, struct

__all__ = (
    "ElectLeadersPartitionResult",
    "ElectLeadersRequest",
    "ElectLeadersResponse",
    "ElectLeadersTopicPartitions",
    "ReplicaElectionResult",
)


@struct
class ElectLeadersTopicPartitions(Struct):
    topic: str
    partitions: list[int32]


@request(key=43, versions="0-2", flexible="2+")
class ElectLeadersRequest(Request["ElectLeadersResponse"]):
    election_type: int8 = field(versions="1+", default=0)
    topic_partitions: list[ElectLeadersTopicPartitions] | None
    timeout_ms: int32 = 60_000


@struct
class ElectLeadersPartitionResult(Struct):
    partition_id: int32
    error_code: int16
    error_message: str | None


@struct
class ReplicaElectionResult(Struct):
    topic: str
    partition_result: list[ElectLeadersPartitionResult]


@response(key=43, versions="0-2", flexible="2+")
class ElectLeadersResponse(Response):
    throttle_time_ms: int32
    error_code: int16 = field(versions="1+", default=0)
    replica_election_results: list[ReplicaElectionResult]
