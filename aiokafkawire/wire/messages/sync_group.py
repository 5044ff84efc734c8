"""SyncGroup: send the leader's assignments; get the member's own. Key 14."""

from typing import Self

from aiokafkawire.wire.primitives import int16, int32
from aiokafkawire.wire.schema import Request, Response, Struct, field, request, response, struct

__all__ = ("SyncGroupRequest", "SyncGroupRequestAssignment", "SyncGroupResponse")

NULL_BYTES = b"\xff" * 4


@struct
class SyncGroupRequestAssignment(Struct):
    member_id: str
    assignment: bytes


@request(key=14, versions="0-5", flexible="4+")
class SyncGroupRequest(Request["SyncGroupResponse"]):
    """`assignments` is empty unless the member is the leader."""

    group_id: str
    generation_id: int32
    member_id: str
    group_instance_id: str | None = field(versions="3+", default=None)
    protocol_type: str | None = field(versions="5+", default=None, ignorable=True)
    protocol_name: str | None = field(versions="5+", default=None, ignorable=True)
    assignments: list[SyncGroupRequestAssignment]


@response(key=14, versions="0-5", flexible="4+")
class SyncGroupResponse(Response):
    @classmethod
    def decode_fallback(cls, version: int, body: memoryview) -> Self | None:
        # librdkafka's mock cluster puts null for the assignment beside an error.
        at = 4 if version >= 1 else 0
        error_code = int.from_bytes(body[at : at + 2], signed=True)
        null = b"\0" if cls.is_flexible(version) else NULL_BYTES
        if error_code == 0 or not body[at + 2 :].tobytes().startswith(null):
            return None
        return cls(error_code=error_code, assignment=b"")

    throttle_time_ms: int32 = field(versions="1+", default=0, ignorable=True)
    error_code: int16
    protocol_type: str | None = field(versions="5+", default=None, ignorable=True)
    protocol_name: str | None = field(versions="5+", default=None, ignorable=True)
    assignment: bytes
