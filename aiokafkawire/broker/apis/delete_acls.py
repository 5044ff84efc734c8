"""DeleteAcls: delete the ACLs that filters select."""

from __future__ import annotations

from aiokafkawire.broker.acls import AclBinding, AclOperation
from aiokafkawire.broker.api_error import ApiError, StorageError
from aiokafkawire.broker.apis.acl_requests import parse_filter, require_authorizer
from aiokafkawire.broker.request_context import RequestContext
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)

__all__ = ("error_response", "handle")


async def handle(context: RequestContext, request: DeleteAclsRequest) -> DeleteAclsResponse:
    filters = [parse_filter(each) for each in request.filters]
    try:
        authorizer = require_authorizer(context, AclOperation.ALTER)
    except ApiError as error:
        return _error_response(request, error.code, error.message)
    # Each filter selects from the ACLs before the request, so several can return the same one.
    selected = [authorizer.matching(each) for each in filters]
    changes = context.cluster.metadata.acls
    deleted = dict.fromkeys(acl for acls in selected for acl in acls)
    for acl in deleted:
        changes.delete(authorizer, acl)
    try:
        context.cluster.save()
    except StorageError as error:
        for acl in deleted:
            changes.create(authorizer, acl)
        return _error_response(request, error.code, error.message)
    return DeleteAclsResponse(
        throttle_time_ms=0,
        filter_results=[
            DeleteAclsFilterResult(
                error_code=ErrorCode.NONE,
                error_message=None,
                matching_acls=[_deleted(acl) for acl in acls],
            )
            for acls in selected
        ],
    )


def error_response(request: DeleteAclsRequest, version: int, code: int) -> DeleteAclsResponse:
    return _error_response(request, code, None)


def _error_response(
    request: DeleteAclsRequest, code: int, message: str | None
) -> DeleteAclsResponse:
    return DeleteAclsResponse(
        throttle_time_ms=0,
        filter_results=[
            DeleteAclsFilterResult(error_code=code, error_message=message, matching_acls=[])
            for _ in request.filters
        ],
    )


def _deleted(acl: AclBinding) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        error_code=ErrorCode.NONE,
        error_message=None,
        resource_type=acl.resource_type,
        resource_name=acl.name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission_type,
    )
