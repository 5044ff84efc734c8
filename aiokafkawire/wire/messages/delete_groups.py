"""DeleteGroups: delete empty groups and their offsets. Key 42."""

from aiokafkawire.wire.primitives import int16, int32
from aiokafkawire.wire.schema import Request, Response, Struct, field, request, response, struct

__all__ = ("DeletableGroupResult", "DeleteGroupsRequest", "DeleteGroupsResponse")


@request(key=42, versions="0-3", flexible="2+")
class DeleteGroupsRequest(Request["DeleteGroupsResponse"]):
    groups_names: list[str]


@struct
class DeletableGroupResult(Struct):
    group_id: str
    error_code: int16
    error_message: str | None = field(versions="3+", default=None, ignorable=True)


@response(key=42, versions="0-3", flexible="2+")
class DeleteGroupsResponse(Response):
    throttle_time_ms: int32
    results: list[DeletableGroupResult]
