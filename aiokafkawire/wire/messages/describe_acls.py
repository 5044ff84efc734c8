"""DescribeAcls: list ACL bindings. Key 29."""

from aiokafkawire.wire.primitives import int8, int16, int32
from aiokafkawire.wire.schema import Request, Response, Struct, field, request, response, struct

__all__ = ("AclDescription", "DescribeAclsRequest", "DescribeAclsResource", "DescribeAclsResponse")


@request(key=29, versions="0-3", flexible="2+")
class DescribeAclsRequest(Request["DescribeAclsResponse"]):
    resource_type_filter: int8
    resource_name_filter: str | None
    pattern_type_filter: int8 = field(versions="1+", default=3)
    principal_filter: str | None
    host_filter: str | None
    operation: int8
    permission_type: int8


@struct
class AclDescription(Struct):
    principal: str
    host: str
    operation: int8
    permission_type: int8


@struct
class DescribeAclsResource(Struct):
    resource_type: int8
    resource_name: str
    pattern_type: int8 = field(versions="1+", default=3)
    acls: list[AclDescription]


@response(key=29, versions="0-3", flexible="2+")
class DescribeAclsResponse(Response):
    throttle_time_ms: int32
    error_code: int16
    error_message: str | None
    resources: list[DescribeAclsResource]
