"""DeleteShareGroupState: between brokers, delete the state of a share group (KIP-932). Key 86."""

from uuid import UUID

from aiokafkawire.wire.primitives import int16, int32
from aiokafkawire.wire.schema import Request, Response, Struct, request, response, struct

__all__ = (
    "DeleteShareGroupStateRequest",
    "DeleteShareGroupStateResponse",
    "DeleteStateData",
    "DeleteStateResult",
    "PartitionData",
    "PartitionResult",
)


@struct
class PartitionData(Struct):
    partition: int32


@struct
class DeleteStateData(Struct):
    topic_id: UUID
    partitions: list[PartitionData]


@request(key=86, versions="0", flexible="0+")
class DeleteShareGroupStateRequest(Request["DeleteShareGroupStateResponse"]):
    group_id: str
    topics: list[DeleteStateData]


@struct
class PartitionResult(Struct):
    partition: int32
    error_code: int16
    error_message: str | None = None


@struct
class DeleteStateResult(Struct):
    topic_id: UUID
    partitions: list[PartitionResult]


@response(key=86, versions="0", flexible="0+")
class DeleteShareGroupStateResponse(Response):
    results: list[DeleteStateResult]
