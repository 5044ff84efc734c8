"""CreateAcls: add ACLs."""

from __future__ import annotations

from collections.abc import Sequence

from aiokafkawire.broker.acl_changes import AclChanges
from aiokafkawire.broker.acls import (
    CLUSTER_NAME,
    AclBinding,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourceType,
)
from aiokafkawire.broker.api_error import ApiError, StorageError
from aiokafkawire.broker.apis.acl_requests import parse_code, require_authorizer
from aiokafkawire.broker.authorizer import Authorizer
from aiokafkawire.broker.request_context import RequestContext
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)

__all__ = ("MAX_ACLS", "error_response", "handle")

MAX_ACLS = 10_000
"""Limit of ACLs that clients can create."""


async def handle(context: RequestContext, request: CreateAclsRequest) -> CreateAclsResponse:
    bindings = [_parse(creation) for creation in request.creations]
    try:
        authorizer = require_authorizer(context, AclOperation.ALTER)
    except ApiError as error:
        return _response([error] * len(bindings))
    if any(_is_for_filters_only(binding) for binding in bindings):
        return error_response(request, context.version, ErrorCode.UNKNOWN_SERVER_ERROR)
    before = set(authorizer)
    acls = context.cluster.metadata.acls
    errors = [_create(acls, authorizer, binding) for binding in bindings]
    try:
        context.cluster.save()
    except StorageError as error:
        for binding in sorted(set(authorizer) - before):
            acls.delete(authorizer, binding)
        return _response([error] * len(bindings))
    return _response(errors)


def error_response(request: CreateAclsRequest, version: int, code: int) -> CreateAclsResponse:
    return CreateAclsResponse(
        throttle_time_ms=0,
        results=[AclCreationResult(error_code=code, error_message=None) for _ in request.creations],
    )


def _response(errors: Sequence[ApiError | None]) -> CreateAclsResponse:
    return CreateAclsResponse(
        throttle_time_ms=0,
        results=[
            AclCreationResult(error_code=ErrorCode.NONE, error_message="")
            if error is None
            else AclCreationResult(error_code=error.code, error_message=error.message)
            for error in errors
        ],
    )


def _parse(creation: AclCreation) -> AclBinding:
    return AclBinding(
        parse_code(ResourceType, creation.resource_type),
        creation.resource_name,
        parse_code(PatternType, creation.resource_pattern_type),
        creation.principal,
        creation.host,
        parse_code(AclOperation, creation.operation),
        parse_code(AclPermissionType, creation.permission_type),
    )


def _create(acls: AclChanges, authorizer: Authorizer, binding: AclBinding) -> ApiError | None:
    """Add an ACL; return the error if it is not valid."""
    reason = _find_fault(binding)
    if reason:
        return ApiError(ErrorCode.INVALID_REQUEST, reason)
    if len(authorizer) >= MAX_ACLS:
        return ApiError(ErrorCode.POLICY_VIOLATION, f"the broker keeps at most {MAX_ACLS} ACLs")
    acls.create(authorizer, binding)
    return None


def _is_for_filters_only(binding: AclBinding) -> bool:
    return (
        binding.resource_type is ResourceType.ANY
        or binding.pattern_type in {PatternType.ANY, PatternType.MATCH}
        or binding.operation is AclOperation.ANY
        or binding.permission_type is AclPermissionType.ANY
    )


def _find_fault(binding: AclBinding) -> str | None:
    """Return the reason why a broker refuses an ACL, None if it does not."""
    if binding.resource_type is ResourceType.CLUSTER and binding.name != CLUSTER_NAME:
        return f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    if not binding.name:
        return "Invalid empty resource name"
    if binding.resource_type is ResourceType.UNKNOWN:
        return "Invalid resourceType UNKNOWN"
    if binding.pattern_type is PatternType.UNKNOWN:
        return "Invalid patternType UNKNOWN"
    if binding.operation is AclOperation.UNKNOWN:
        return "Invalid operation UNKNOWN"
    if binding.permission_type is AclPermissionType.UNKNOWN:
        return "Invalid permissionType UNKNOWN"
    if ":" not in binding.principal:
        return (
            f"Could not parse principal from `{binding.principal}` (no colon is present separating"
            " the principal type from the principal name)"
        )
    return None
