"""JoinGroup: join a group and wait for all members to join. Key 11."""

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
    """An assignor that the member supports, and its metadata for the leader (a Subscription)."""

    name: str
    metadata: bytes


@request(key=11, versions="0-9", flexible="6+")
class JoinGroupRequest(Request["JoinGroupResponse"]):
    """In version 0 the session timeout is also the rebalance timeout."""

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
    """Only the leader gets `members`; it assigns partitions unless `skip_assignment` is set."""

    throttle_time_ms: int32 = field(versions="2+", default=0, ignorable=True)
    error_code: int16
    generation_id: int32 = -1
    protocol_type: str | None = field(versions="7+", default=None, ignorable=True)
    protocol_name: str | None = field(nullable="7+")
    leader: str
    skip_assignment: bool = field(versions="9+", default=False)
    member_id: str
    members: list[JoinGroupResponseMember]
