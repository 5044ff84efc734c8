"""WriteShareGroupState: between brokers, write the state of a share group (KIP-932). Key 85."""

from uuid import UUID

from aiokafkawire.wire.primitives import int8, int16, int32, int64
from aiokafkawire.wire.schema import Request, Response, Struct, field, request, response, struct

__all__ = (
    "WriteShareGroupStateBatch",
    "WriteShareGroupStatePartitionData",
    "WriteShareGroupStatePartitionResult",
    "WriteShareGroupStateRequest",
    "WriteShareGroupStateResponse",
    "WriteStateData",
    "WriteStateResult",
)


@struct
class WriteShareGroupStateBatch(Struct):
    first_offset: int64
    last_offset: int64
    delivery_state: int8
    delivery_count: int16


@struct
class WriteShareGroupStatePartitionData(Struct):
    partition: int32
    state_epoch: int32
    leader_epoch: int32
    start_offset: int64
    delivery_complete_count: int32 = field(versions="1+", default=-1, ignorable=True)
    state_batches: list[WriteShareGroupStateBatch]


@struct
class WriteStateData(Struct):
    topic_id: UUID
    partitions: list[WriteShareGroupStatePartitionData]


@request(key=85, versions="0-1", flexible="0+")
class WriteShareGroupStateRequest(Request["WriteShareGroupStateResponse"]):
    group_id: str
    topics: list[WriteStateData]


@struct
class WriteShareGroupStatePartitionResult(Struct):
    partition: int32
    error_code: int16
    error_message: str | None = None


@struct
class WriteStateResult(Struct):
    topic_id: UUID
    partitions: list[WriteShareGroupStatePartitionResult]


@response(key=85, versions="0-1", flexible="0+")
class WriteShareGroupStateResponse(Response):
    results: list[WriteStateResult]
