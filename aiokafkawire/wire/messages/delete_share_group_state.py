"""DeleteShareGroupState: between brokers, delete the state of a share group (KIP-932). Key 86."""

from uuid import UUID

from aiokafkawire.wire.primitives import int16, int32
from aiokafkawire.wire.schema import Request, Response, Struct, request, response, struct

__all__ = (
    "DeleteShareGroupStatePartitionData",
    "DeleteShareGroupStatePartitionResult",
    "DeleteShareGroupStateRequest",
    "DeleteShareGroupStateResponse",
    "DeleteStateData",
    "DeleteStateResult",
)


@struct
class DeleteShareGroupStatePartitionData(Struct):
    partition: int32


@struct
class DeleteStateData(Struct):
    topic_id: UUID
    partitions: list[DeleteShareGroupStatePartitionData]


@request(key=86, versions="0", flexible="0+")
class DeleteShareGroupStateRequest(Request["DeleteShareGroupStateResponse"]):
    group_id: str
    topics: list[DeleteStateData]


@struct
class DeleteShareGroupStatePartitionResult(Struct):
    partition: int32
    error_code: int16
    error_message: str | None = None


@struct
class DeleteStateResult(Struct):
    topic_id: UUID
    partitions: list[DeleteShareGroupStatePartitionResult]


@response(key=86, versions="0", flexible="0+")
class DeleteShareGroupStateResponse(Response):
    results: list[DeleteStateResult]
