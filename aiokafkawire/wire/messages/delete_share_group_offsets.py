"""DeleteShareGroupOffsets: delete the offsets of a share group (KIP-932). Key 92."""

from uuid import UUID

from aiokafkawire.wire.primitives import int16, int32
from aiokafkawire.wire.schema import Request, Response, Struct, request, response, struct

__all__ = (
    "DeleteShareGroupOffsetsRequest",
    "DeleteShareGroupOffsetsRequestTopic",
    "DeleteShareGroupOffsetsResponse",
    "DeleteShareGroupOffsetsResponseTopic",
)


@struct
class DeleteShareGroupOffsetsRequestTopic(Struct):
    topic_name: str


@request(key=92, versions="0", flexible="0+")
class DeleteShareGroupOffsetsRequest(Request["DeleteShareGroupOffsetsResponse"]):
    group_id: str
    topics: list[DeleteShareGroupOffsetsRequestTopic]


@struct
class DeleteShareGroupOffsetsResponseTopic(Struct):
    topic_name: str
    topic_id: UUID
    error_code: int16
    error_message: str | None = None


@response(key=92, versions="0", flexible="0+")
class DeleteShareGroupOffsetsResponse(Response):
    throttle_time_ms: int32
    error_code: int16
    error_message: str | None = None
    responses: list[DeleteShareGroupOffsetsResponseTopic]
