"""ListGroups: list the groups of a coordinator. Key 16."""

from aiokafkawire.wire.primitives import int16, int32
from aiokafkawire.wire.schema import Request, Response, Struct, field, request, response, struct

__all__ = ("ListGroupsRequest", "ListGroupsResponse", "ListedGroup")


@request(key=16, versions="0-5", flexible="3+")
class ListGroupsRequest(Request["ListGroupsResponse"]):
    """Empty filters match all groups."""

    states_filter: list[str] = field(versions="4+", default_factory=list)
    types_filter: list[str] = field(versions="5+", default_factory=list)


@struct
class ListedGroup(Struct):
    group_id: str
    protocol_type: str
    group_state: str = field(versions="4+", default="", ignorable=True)
    group_type: str = field(versions="5+", default="", ignorable=True)


@response(key=16, versions="0-5", flexible="3+")
class ListGroupsResponse(Response):
    throttle_time_ms: int32 = field(versions="1+", default=0, ignorable=True)
    error_code: int16
    groups: list[ListedGroup]
