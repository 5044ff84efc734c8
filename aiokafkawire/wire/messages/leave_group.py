"""LeaveGroup: leave a group, or remove members. Key 13."""

from aiokafkawire.wire.primitives import int16, int32
from aiokafkawire.wire.schema import Request, Response, Struct, field, request, response, struct

__all__ = ("LeaveGroupRequest", "LeaveGroupResponse", "MemberIdentity", "MemberResponse")


@struct
class MemberIdentity(Struct):
    member_id: str
    group_instance_id: str | None = None
    reason: str | None = field(versions="5+", default=None, ignorable=True)


@request(key=13, versions="0-5", flexible="4+")
class LeaveGroupRequest(Request["LeaveGroupResponse"]):
    """One `member_id` in versions 0 to 2, several `members` later."""

    group_id: str
    member_id: str = field(versions="0-2", default="")
    members: list[MemberIdentity] = field(versions="3+", default_factory=list)


@struct
class MemberResponse(Struct):
    member_id: str
    group_instance_id: str | None
    error_code: int16


@response(key=13, versions="0-5", flexible="4+")
class LeaveGroupResponse(Response):
    throttle_time_ms: int32 = field(versions="1+", default=0, ignorable=True)
    error_code: int16
    members: list[MemberResponse] = field(versions="3+", default_factory=list)
