"""DescribeGroups: describe the state and the members of groups. Key 15."""

from aiokafkawire.wire.messages.metadata import AUTHORIZED_OPERATIONS_OMITTED
from aiokafkawire.wire.primitives import int16, int32
from aiokafkawire.wire.schema import Request, Response, Struct, field, request, response, struct

__all__ = (
    "DescribeGroupsRequest",
    "DescribeGroupsResponse",
    "DescribedGroup",
    "DescribedGroupMember",
)


@request(key=15, versions="0-6", flexible="5+")
class DescribeGroupsRequest(Request["DescribeGroupsResponse"]):
    groups: list[str]
    include_authorized_operations: bool = field(versions="3+", default=False)


@struct
class DescribedGroupMember(Struct):
    member_id: str
    group_instance_id: str | None = field(versions="4+", default=None, ignorable=True)
    client_id: str
    client_host: str
    member_metadata: bytes
    member_assignment: bytes


@struct
class DescribedGroup(Struct):
    error_code: int16
    error_message: str | None = field(versions="6+", default=None)
    group_id: str
    group_state: str
    protocol_type: str
    protocol_data: str
    members: list[DescribedGroupMember]
    authorized_operations: int32 = field(versions="3+", default=AUTHORIZED_OPERATIONS_OMITTED)


@response(key=15, versions="0-6", flexible="5+")
class DescribeGroupsResponse(Response):
    throttle_time_ms: int32 = field(versions="1+", default=0, ignorable=True)
    groups: list[DescribedGroup]
