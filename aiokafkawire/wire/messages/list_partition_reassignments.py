"""ListPartitionReassignments: list pending reassignments of replicas (KIP-455). Key 46."""

from aiokafkawire.wire.primitives import int16, int32
from aiokafkawire.wire.schema import Request, Response, Struct, request, response, struct

__all__ = (
    "ListPartitionReassignmentsRequest",
    "ListPartitionReassignmentsResponse",
    "ListPartitionReassignmentsTopics",
    "OngoingPartitionReassignment",
    "OngoingTopicReassignment",
)


@struct
class ListPartitionReassignmentsTopics(Struct):
    name: str
    partition_indexes: list[int32]


@request(key=46, versions="0", flexible="0+")
class ListPartitionReassignmentsRequest(Request["ListPartitionReassignmentsResponse"]):
    timeout_ms: int32 = 60_000
    topics: list[ListPartitionReassignmentsTopics] | None = None


@struct
class OngoingPartitionReassignment(Struct):
    partition_index: int32
    replicas: list[int32]
    adding_replicas: list[int32]
    removing_replicas: list[int32]


@struct
class OngoingTopicReassignment(Struct):
    name: str
    partitions: list[OngoingPartitionReassignment]


@response(key=46, versions="0", flexible="0+")
class ListPartitionReassignmentsResponse(Response):
    throttle_time_ms: int32
    error_code: int16
    error_message: str | None
    topics: list[OngoingTopicReassignment]
