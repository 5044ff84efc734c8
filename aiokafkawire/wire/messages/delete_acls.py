"""DeleteAcls: delete ACL bindings. Key 31."""

from aiokafkawire.wire.primitives import int8, int16, int32
from aiokafkawire.wire.schema import Request, Response, Struct, field, request, response, struct

__all__ = (
    "DeleteAclsFilter",
    "DeleteAclsFilterResult",
    "DeleteAclsMatchingAcl",
    "DeleteAclsRequest",
    "DeleteAclsResponse",
)


@struct
class DeleteAclsFilter(Struct):
    resource_type_filter: int8
    resource_name_filter: str | None
    pattern_type_filter: int8 = field(versions="1+", default=3)
    principal_filter: str | None
    host_filter: str | None
    operation: int8
    permission_type: int8


@request(key=31, versions="0-3", flexible="2+")
class DeleteAclsRequest(Request["DeleteAclsResponse"]):
    filters: list[DeleteAclsFilter]


@struct
class DeleteAclsMatchingAcl(Struct):
    error_code: int16
    error_message: str | None
    resource_type: int8
    resource_name: str
    pattern_type: int8 = field(versions="1+", default=3)
    principal: str
    host: str
    operation: int8
    permission_type: int8


@struct
class DeleteAclsFilterResult(Struct):
    error_code: int16
    error_message: str | None
    matching_acls: list[DeleteAclsMatchingAcl]


@response(key=31, versions="0-3", flexible="2+")
class DeleteAclsResponse(Response):
    throttle_time_ms: int32
    filter_results: list[DeleteAclsFilterResult]
