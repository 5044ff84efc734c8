"""InitializeShareGroupState: between brokers, create share group state (KIP-932). Key 83."""

from uuid import UUID

from aiokafkawire.wire.primitives import int16, int32, int64
from aiokafkawire.wire.schema import Request, Response, Struct, request, response, struct

__all__ = (
    "InitializeShareGroupStatePartitionData",
    "InitializeShareGroupStatePartitionResult",
    "InitializeShareGroupStateRequest",
    "InitializeShareGroupStateResponse",
    "InitializeStateData",
    "InitializeStateResult",
)


@struct
class InitializeShareGroupStatePartitionData(Struct):
    partition: int32
    state_epoch: int32
    start_offset: int64


@struct
class InitializeStateData(Struct):
    topic_id: UUID
    partitions: list[InitializeShareGroupStatePartitionData]


@request(key=83, versions="0", flexible="0+")
class InitializeShareGroupStateRequest(Request["InitializeShareGroupStateResponse"]):
    group_id: str
    topics: list[InitializeStateData]


@struct
class InitializeShareGroupStatePartitionResult(Struct):
    partition: int32
    error_code: int16
    error_message: str | None = None


@struct
class InitializeStateResult(Struct):
    topic_id: UUID
    partitions: list[InitializeShareGroupStatePartitionResult]


@response(key=83, versions="0", flexible="0+")
class InitializeShareGroupStateResponse(Response):
    results: list[InitializeStateResult]
