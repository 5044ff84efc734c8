"""ReadShareGroupStateSummary: between brokers, read a state summary (KIP-932). Key 87."""

from uuid import UUID

from aiokafkawire.wire.primitives import int16, int32, int64
from aiokafkawire.wire.schema import Request, Response, Struct, field, request, response, struct

__all__ = (
    "ReadShareGroupStateSummaryPartitionData",
    "ReadShareGroupStateSummaryPartitionResult",
    "ReadShareGroupStateSummaryRequest",
    "ReadShareGroupStateSummaryResponse",
    "ReadStateSummaryData",
    "ReadStateSummaryResult",
)


@struct
class ReadShareGroupStateSummaryPartitionData(Struct):
    partition: int32
    leader_epoch: int32


@struct
class ReadStateSummaryData(Struct):
    topic_id: UUID
    partitions: list[ReadShareGroupStateSummaryPartitionData]


@request(key=87, versions="0-1", flexible="0+")
class ReadShareGroupStateSummaryRequest(Request["ReadShareGroupStateSummaryResponse"]):
    group_id: str
    topics: list[ReadStateSummaryData]


@struct
class ReadShareGroupStateSummaryPartitionResult(Struct):
    partition: int32
    error_code: int16
    error_message: str | None = None
    state_epoch: int32
    leader_epoch: int32
    start_offset: int64
    delivery_complete_count: int32 = field(versions="1+", default=-1, ignorable=True)


@struct
class ReadStateSummaryResult(Struct):
    topic_id: UUID
    partitions: list[ReadShareGroupStateSummaryPartitionResult]


@response(key=87, versions="0-1", flexible="0+")
class ReadShareGroupStateSummaryResponse(Response):
    results: list[ReadStateSummaryResult]
