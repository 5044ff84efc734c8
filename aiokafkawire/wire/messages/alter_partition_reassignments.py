"""AlterPartitionReassignments: move replicas to other brokers (KIP-455). Key 45."""

from aiokafkawire.wire.primitives import int16, int32
from aiokafkawire.wire.schema import Request, Response, Struct, field, request, response, struct

__all__ = (
    "AlterPartitionReassignmentsRequest",
    "AlterPartitionReassignmentsResponse",
    "ReassignablePartition",
    "ReassignablePartitionResponse",
    "ReassignableTopic",
    "ReassignableTopicResponse",
)


@struct
class ReassignablePartition(Struct):
    """Null replicas cancel a pending reassignment."""

    partition_index: int32
    replicas: list[int32] | None = None


@struct
class ReassignableTopic(Struct):
    name: str
    partitions: list[ReassignablePartition]


@request(key=45, versions="0-1", flexible="0+")
class AlterPartitionReassignmentsRequest(Request["AlterPartitionReassignmentsResponse"]):
    timeout_ms: int32 = 60_000
    allow_replication_factor_change: bool = field(versions="1+", default=True)
    topics: list[ReassignableTopic]


@struct
class ReassignablePartitionResponse(Struct):
    partition_index: int32
    error_code: int16
    error_message: str | None


@struct
class ReassignableTopicResponse(Struct):
    name: str
    partitions: list[ReassignablePartitionResponse]


@response(key=45, versions="0-1", flexible="0+")
class AlterPartitionReassignmentsResponse(Response):
    throttle_time_ms: int32
    allow_replication_factor_change: bool = field(versions="1+", default=True, ignorable=True)
    error_code: int16
    error_message: str | None
    responses: list[ReassignableTopicResponse]
