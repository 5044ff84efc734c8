"""Common parts of the ACL APIs."""

from __future__ import annotations

from enum import IntEnum
from typing import Protocol, TypeVar

from aiokafkawire.broker.acls import (
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourceType,
)
from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.authorizer import Authorizer
from aiokafkawire.broker.request_context import Disconnect, RequestContext
from aiokafkawire.wire import ErrorCode

__all__ = ("AclFilter", "parse_code", "parse_filter", "require_authorizer")

_Code = TypeVar("_Code", bound=IntEnum)


class AclFilter(Protocol):
    """A filter in a request."""

    @property
    def resource_type_filter(self) -> int: ...
    @property
    def resource_name_filter(self) -> str | None: ...
    @property
    def pattern_type_filter(self) -> int: ...
    @property
    def principal_filter(self) -> str | None: ...
    @property
    def host_filter(self) -> str | None: ...
    @property
    def operation(self) -> int: ...
    @property
    def permission_type(self) -> int: ...


def require_authorizer(context: RequestContext, operation: AclOperation) -> Authorizer:
    """Return the authorizer, if the principal may perform the operation on the cluster.

    Raises:
        ApiError: The principal lacks the permission, or the broker has no authorizer.
    """
    if not context.is_authorized(operation, ResourceType.CLUSTER):
        raise ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed.")
    if context.state.authorizer is None:
        raise ApiError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
    return context.state.authorizer


def parse_code(kind: type[_Code], code: int) -> _Code:
    """Return an enumerated field; UNKNOWN, which is 0, for a value that is not known.

    Raises:
        Disconnect: The value is 0, which brokers do not accept.
    """
    if code == 0:
        raise Disconnect(f"the {kind.__name__} is UNKNOWN")
    try:
        return kind(code)
    except ValueError:
        return kind(0)


def parse_filter(requested: AclFilter) -> AclBindingFilter:
    """Return the filter of a request. Raises `Disconnect` if it has UNKNOWN."""
    return AclBindingFilter(
        resource_type=parse_code(ResourceType, requested.resource_type_filter),
        name=requested.resource_name_filter,
        pattern_type=parse_code(PatternType, requested.pattern_type_filter),
        principal=requested.principal_filter,
        host=requested.host_filter,
        operation=parse_code(AclOperation, requested.operation),
        permission_type=parse_code(AclPermissionType, requested.permission_type),
    )
