"""ReadShareGroupState: between brokers, read the state of a share group (KIP-932). Key 84."""

from uuid import UUID

from aiokafkawire.wire.primitives import int8, int16, int32, int64
from aiokafkawire.wire.schema import Request, Response, Struct, request, response, struct

__all__ = (
    "ReadShareGroupStateBatch",
    "ReadShareGroupStatePartitionData",
    "ReadShareGroupStatePartitionResult",
    "ReadShareGroupStateRequest",
    "ReadShareGroupStateResponse",
    "ReadStateData",
    "ReadStateResult",
)


@struct
class ReadShareGroupStatePartitionData(Struct):
    partition: int32
    leader_epoch: int32


@struct
class ReadStateData(Struct):
    topic_id: UUID
    partitions: list[ReadShareGroupStatePartitionData]


@request(key=84, versions="0", flexible="0+")
class ReadShareGroupStateRequest(Request["ReadShareGroupStateResponse"]):
    group_id: str
    topics: list[ReadStateData]


@struct
class ReadShareGroupStateBatch(Struct):
    first_offset: int64
    last_offset: int64
    delivery_state: int8
    delivery_count: int16


@struct
class ReadShareGroupStatePartitionResult(Struct):
    partition: int32
    error_code: int16
    error_message: str | None = None
    state_epoch: int32
    start_offset: int64
    state_batches: list[ReadShareGroupStateBatch]


@struct
class ReadStateResult(Struct):
    topic_id: UUID
    partitions: list[ReadShareGroupStatePartitionResult]


@response(key=84, versions="0", flexible="0+")
class ReadShareGroupStateResponse(Response):
    results: list[ReadStateResult]
