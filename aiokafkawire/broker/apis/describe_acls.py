"""DescribeAcls: the ACLs that a filter selects."""

from __future__ import annotations

from itertools import groupby

from aiokafkawire.broker.acls import AclBinding, AclOperation
from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.apis.acl_requests import parse_filter, require_authorizer
from aiokafkawire.broker.request_context import RequestContext
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)

__all__ = ("error_response", "handle")


async def handle(context: RequestContext, request: DescribeAclsRequest) -> DescribeAclsResponse:
    acl_filter = parse_filter(request)
    try:
        found = require_authorizer(context, AclOperation.DESCRIBE).matching(acl_filter)
    except ApiError as error:
        response = error_response(request, context.version, error.code)
        response.error_message = error.message
        return response
    return DescribeAclsResponse(
        throttle_time_ms=0,
        error_code=ErrorCode.NONE,
        error_message="",
        resources=[
            DescribeAclsResource(
                resource_type=resource_type,
                resource_name=name,
                pattern_type=pattern_type,
                acls=[
                    AclDescription(
                        principal=acl.principal,
                        host=acl.host,
                        operation=acl.operation,
                        permission_type=acl.permission_type,
                    )
                    for acl in acls
                ],
            )
            for (resource_type, name, pattern_type), acls in groupby(found, _resource_of)
        ],
    )


def error_response(request: DescribeAclsRequest, version: int, code: int) -> DescribeAclsResponse:
    return DescribeAclsResponse(
        throttle_time_ms=0, error_code=code, error_message=None, resources=[]
    )


def _resource_of(acl: AclBinding) -> tuple[int, str, int]:
    return acl.resource_type, acl.name, acl.pattern_type
