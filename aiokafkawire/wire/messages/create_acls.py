"""CreateAcls: create ACL bindings. Key 30."""

from aiokafkawire.wire.primitives import int8, int16, int32
from aiokafkawire.wire.schema import Request, Response, Struct, field, request, response, struct

__all__ = ("AclCreation", "AclCreationResult", "CreateAclsRequest", "CreateAclsResponse")


@struct
class AclCreation(Struct):
    resource_type: int8
    resource_name: str
    resource_pattern_type: int8 = field(versions="1+", default=3)
    principal: str
    host: str
    operation: int8
    permission_type: int8


@request(key=30, versions="0-3", flexible="2+")
class CreateAclsRequest(Request["CreateAclsResponse"]):
    creations: list[AclCreation]


@struct
class AclCreationResult(Struct):
    error_code: int16
    error_message: str | None


@response(key=30, versions="0-3", flexible="2+")
class CreateAclsResponse(Response):
    throttle_time_ms: int32
    results: list[AclCreationResult]
