"""JoinGroup: become a member, and wait until all members have joined. Key 11."""

from aiokafkawire.wire.primitives import int16, int32
from aiokafkawire.wire.schema import Request, Response, Struct, field, request, response, struct

__all__ = (
    "JoinGroupRequest",
    "JoinGroupRequestProtocol",
    "JoinGroupResponse",
    "JoinGroupResponseMember",
)


@struct
class JoinGroupRequestProtocol(Struct):
    """An assignor that the member can follow, and what it tells the leader (a subscription)."""

    name: str
    metadata: bytes


@request(key=11, versions="0-9", flexible="6+")
class JoinGroupRequest(Request["JoinGroupResponse"]):
    """In version 0 the session timeout is the rebalance timeout as well."""

    group_id: str
    session_timeout_ms: int32
    rebalance_timeout_ms: int32 = field(versions="1+", default=-1, ignorable=True)
    member_id: str
    group_instance_id: str | None = field(versions="5+", default=None)
    protocol_type: str
    protocols: list[JoinGroupRequestProtocol]
    reason: str | None = field(versions="8+", default=None, ignorable=True)


@struct
class JoinGroupResponseMember(Struct):
    member_id: str
    group_instance_id: str | None = field(versions="5+", default=None, ignorable=True)
    metadata: bytes


@response(key=11, versions="0-9", flexible="6+")
class JoinGroupResponse(Response):
    """`members` is filled for the leader only, which assigns unless `skip_assignment`."""

    throttle_time_ms: int32 = field(versions="2+", default=0, ignorable=True)
    error_code: int16
    generation_id: int32 = -1
    protocol_type: str | None = field(versions="7+", default=None, ignorable=True)
    protocol_name: str | None = field(nullable="7+")
    leader: str
    skip_assignment: bool = field(versions="9+", default=False)
    member_id: str
    members: list[JoinGroupResponseMember]
