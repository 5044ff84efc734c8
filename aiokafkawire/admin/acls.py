"""Operations on access control lists."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeVar, overload

from aiokafkawire.admin.items import finish_items, partial_failure, response_error
from aiokafkawire.admin.operations import Operations
from aiokafkawire.admin.response_values import known_member
from aiokafkawire.admin.types.acl_operation import AclOperation
from aiokafkawire.admin.types.acls import (
    AclBinding,
    AclBindingFilter,
    AclPermissionType,
    PatternType,
    ResourceType,
)
from aiokafkawire.connection import VersionedRequest
from aiokafkawire.errors import KafkaError, ProtocolError, UnsupportedVersion
from aiokafkawire.wire import ApiKey, ErrorCode
from aiokafkawire.wire.messages.create_acls import AclCreation, CreateAclsRequest
from aiokafkawire.wire.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from aiokafkawire.wire.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)

__all__ = ("AclOperations",)

FIRST_WITH_PATTERN_TYPES = 1
"""Version of the three APIs."""

FILTER_NAMES = frozenset({"UNKNOWN", "ANY", "MATCH"})
"""Members of enumerations that an entry cannot have."""

EXAMPLES = {
    "resource_type": "one such as TOPIC",
    "pattern_type": "LITERAL or PREFIXED",
    "operation": "one such as READ, or ALL for every operation",
    "permission_type": "ALLOW or DENY",
}
"""Fields that are members of enumerations, and advice."""

T = TypeVar("T")


class AclOperations(Operations):
    """Operations on access control lists. Brokers need an authorizer."""

    async def create_acls(
        self,
        acls: Iterable[AclBinding],
        *,
        timeout_ms: int | None = None,
        return_errors: bool = False,
    ) -> dict[AclBinding, KafkaError | None]:
        """Create access control entries; those that exist already stay as they are.

        Args:
            acls: The entries. Prefixed resource patterns need Kafka 2.0 or later.
            timeout_ms: Timeout in milliseconds; defaults to `default_api_timeout_ms`.
            return_errors: Return errors as results, instead of raising `PartialFailure`.

        Returns:
            None for each created entry.

        Raises:
            ValueError: An entry has a value that only filters may have, such as ANY.
            PartialFailure: Some entries are invalid (INVALID_REQUEST).
            BrokerError: The brokers have no authorizer (SECURITY_DISABLED).
            UnsupportedVersion: Brokers before 0.11 have no API for it.
            KafkaError: The controller could not be reached.
        """
        wanted = list(dict.fromkeys(acls))
        for acl in wanted:
            _check_creatable(acl)
        literal = all(acl.pattern_type is PatternType.LITERAL for acl in wanted)
        response = await self._requester(timeout_ms).request(
            CreateAclsRequest(creations=[_creation(acl) for acl in wanted]),
            min_version=0 if literal else FIRST_WITH_PATTERN_TYPES,
        )
        results: dict[AclBinding, KafkaError | None] = {
            acl: response_error(result.error_code, result.error_message, api="CreateAcls")
            for acl, result in _matched(wanted, response.results, "CreateAcls")
        }
        return finish_items(_unless_disabled(results), "ACLs", return_errors=return_errors)

    async def describe_acls(
        self, filter: AclBindingFilter | None = None, *, timeout_ms: int | None = None
    ) -> list[AclBinding]:
        """Return access control entries.

        Args:
            filter: Selects the entries; by default all.
            timeout_ms: Timeout in milliseconds; defaults to `default_api_timeout_ms`.

        Returns:
            The entries in the broker's order.

        Raises:
            BrokerError: The brokers have no authorizer (SECURITY_DISABLED).
            UnsupportedVersion: Brokers before 0.11 have no API for it, brokers before 2.0 no other
                pattern types than LITERAL.
            KafkaError: No broker could be reached.
        """
        wanted = AclBindingFilter() if filter is None else filter
        request: VersionedRequest[DescribeAclsResponse] = VersionedRequest(
            ApiKey.DESCRIBE_ACLS,
            lambda version: DescribeAclsRequest(**_filter_fields(wanted, version)),
        )
        response = await self._requester(timeout_ms).request(request)
        return [acl for resource in response.resources for acl in _bindings(resource)]

    @overload
    async def delete_acls(
        self,
        filters: Iterable[AclBindingFilter],
        *,
        timeout_ms: int | None = None,
        return_errors: Literal[False] = False,
    ) -> dict[AclBindingFilter, list[AclBinding]]: ...

    @overload
    async def delete_acls(
        self,
        filters: Iterable[AclBindingFilter],
        *,
        timeout_ms: int | None = None,
        return_errors: bool,
    ) -> dict[AclBindingFilter, list[AclBinding] | KafkaError]: ...

    async def delete_acls(
        self,
        filters: Iterable[AclBindingFilter],
        *,
        timeout_ms: int | None = None,
        return_errors: bool = False,
    ) -> Mapping[AclBindingFilter, list[AclBinding] | KafkaError]:
        """Delete the access control entries that filters select.

        Args:
            filters: Select the entries. `describe_acls` shows what a filter selects.
            timeout_ms: Timeout in milliseconds; defaults to `default_api_timeout_ms`.
            return_errors: Return errors as results, instead of raising `PartialFailure`.

        Returns:
            The deleted entries by filter.

        Raises:
            PartialFailure: Some filters failed. If only some of a filter's entries did, its error
                is a `PartialFailure` too.
            BrokerError: The brokers have no authorizer (SECURITY_DISABLED).
            UnsupportedVersion: As with `describe_acls`.
            KafkaError: The controller could not be reached.
        """
        wanted = list(dict.fromkeys(filters))
        request: VersionedRequest[DeleteAclsResponse] = VersionedRequest(
            ApiKey.DELETE_ACLS,
            lambda version: DeleteAclsRequest(
                filters=[DeleteAclsFilter(**_filter_fields(each, version)) for each in wanted]
            ),
        )
        response = await self._requester(timeout_ms).request(request)
        results: dict[AclBindingFilter, list[AclBinding] | KafkaError] = {
            each: _deleted(result)
            for each, result in _matched(wanted, response.filter_results, "DeleteAcls")
        }
        return finish_items(_unless_disabled(results), "filters", return_errors=return_errors)


def _check_creatable(acl: AclBinding) -> None:
    """Raise a `ValueError` for a binding that is a filter, or that only newer brokers know."""
    for field, examples in EXAMPLES.items():
        value = getattr(acl, field)
        if value is None or value.name in FILTER_NAMES:
            shown = value if value is None else value.name
            raise ValueError(
                f"{field} is {shown}, which only a filter can have: give {examples} to create {acl}"
            )
    for field in ("name", "principal", "host"):
        if not getattr(acl, field):
            raise ValueError(f"{field} is missing, which only a filter can leave out: {acl}")


def _matched(items: Sequence[T], results: Sequence[Any], api: str) -> Iterator[tuple[T, Any]]:
    """Yield the items with their results, which are in the same order."""
    if len(results) != len(items):
        raise ProtocolError(
            f"the {api} response has {len(results)} results for {len(items)} items", api=api
        )
    return zip(items, results, strict=True)


def _unless_disabled(results: dict[T, Any]) -> dict[T, Any]:
    """Raise the error of brokers without an authorizer, which is not about an item."""
    for error in results.values():
        if getattr(error, "code", None) == ErrorCode.SECURITY_DISABLED:
            raise error
    return results


def _creation(acl: AclBinding) -> AclCreation:
    return AclCreation(
        resource_type=acl.resource_type,
        resource_name=acl.name,
        resource_pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission_type,
    )


def _filter_fields(filter: AclBindingFilter, version: int) -> dict[str, Any]:
    """Return the fields of a filter in both requests.

    Raises:
        UnsupportedVersion: The version has no pattern types, and the filter needs them.
    """
    pattern_type = filter.pattern_type
    if version < FIRST_WITH_PATTERN_TYPES:
        if pattern_type not in {PatternType.ANY, PatternType.LITERAL}:
            raise UnsupportedVersion(
                f"the pattern type {pattern_type.name} needs Kafka 2.0 or later"
            )
        pattern_type = PatternType.LITERAL
    return {
        "resource_type_filter": filter.resource_type,
        "resource_name_filter": filter.name,
        "pattern_type_filter": pattern_type,
        "principal_filter": filter.principal,
        "host_filter": filter.host,
        "operation": filter.operation,
        "permission_type": filter.permission_type,
    }


def _bindings(resource: DescribeAclsResource) -> Iterator[AclBinding]:
    for acl in resource.acls:
        yield _binding(resource, acl)


def _deleted(result: DeleteAclsFilterResult) -> list[AclBinding] | KafkaError:
    error = response_error(result.error_code, result.error_message, api="DeleteAcls")
    if error is not None:
        return error
    deleted: list[AclBinding] = []
    failed: dict[AclBinding, KafkaError] = {}
    for acl in result.matching_acls:
        binding = _binding(acl, acl)
        refused = response_error(acl.error_code, acl.error_message, api="DeleteAcls")
        if refused is None:
            deleted.append(binding)
        else:
            failed[binding] = refused
    if failed:
        return partial_failure(dict.fromkeys(deleted), failed, "ACLs")
    return deleted


def _binding(
    resource: DescribeAclsResource | DeleteAclsMatchingAcl,
    acl: AclDescription | DeleteAclsMatchingAcl,
) -> AclBinding:
    return AclBinding(
        resource_type=known_member(ResourceType, resource.resource_type, ResourceType.UNKNOWN),
        name=resource.resource_name,
        pattern_type=known_member(PatternType, resource.pattern_type, PatternType.UNKNOWN),
        principal=acl.principal,
        host=acl.host,
        operation=known_member(AclOperation, acl.operation, AclOperation.UNKNOWN),
        permission_type=known_member(
            AclPermissionType, acl.permission_type, AclPermissionType.UNKNOWN
        ),
    )
