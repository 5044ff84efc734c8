"""DeleteTopics: delete topics by name, or by id from version 6 on. Key 20."""

from uuid import UUID

from aiokafkawire.wire.primitives import ZERO_UUID, int16, int32
from aiokafkawire.wire.schema import Request, Response, Struct, field, request, response, struct

__all__ = (
    "DeletableTopicResult",
    "DeleteTopicState",
    "DeleteTopicsRequest",
    "DeleteTopicsResponse",
)


@struct
class DeleteTopicState(Struct):
    """A topic by `name`, or by `topic_id` with the name null."""

    name: str | None = None
    topic_id: UUID


@request(key=20, versions="0-6", flexible="4+")
class DeleteTopicsRequest(Request["DeleteTopicsResponse"]):
    topics: list[DeleteTopicState] = field(versions="6+", default_factory=list)
    topic_names: list[str] = field(versions="0-5", default_factory=list, ignorable=True)
    timeout_ms: int32


@struct
class DeletableTopicResult(Struct):
    name: str | None = field(nullable="6+")
    topic_id: UUID = field(versions="6+", default=ZERO_UUID, ignorable=True)
    error_code: int16
    error_message: str | None = field(versions="5+", default=None, ignorable=True)


@response(key=20, versions="0-6", flexible="4+")
class DeleteTopicsResponse(Response):
    throttle_time_ms: int32 = field(versions="1+", default=0, ignorable=True)
    responses: list[DeletableTopicResult]
