"""Authorizer with the rules of Kafka's StandardAuthorizer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from aiokafkawire.broker.acls import (
    WILDCARD,
    WILDCARD_PRINCIPAL,
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourceType,
)

__all__ = ("Authorizer",)

IMPLIED_BY = {
    AclOperation.DESCRIBE: frozenset(
        {
            *(AclOperation.DESCRIBE, AclOperation.READ, AclOperation.WRITE),
            *(AclOperation.DELETE, AclOperation.ALTER),
        }
    ),
    AclOperation.DESCRIBE_CONFIGS: frozenset(
        {AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS}
    ),
}
"""Operations that include another one, in ACLs that allow. A denied one denies itself only."""

_Patterns = dict[str, dict[AclBinding, None]]


class Authorizer:
    """Decides from ACLs whether a principal may perform an operation on a resource.

    An ACL that denies takes precedence over all that allow. Super users may do everything. A
    resource that no ACL matches is forbidden, unless `allow_everyone_if_no_acl_found`.
    """

    def __init__(
        self,
        acls: Iterable[AclBinding] = (),
        super_users: Iterable[str] = (),
        *,
        allow_everyone_if_no_acl_found: bool = False,
    ) -> None:
        self._super_users = frozenset(super_users)
        self._default = allow_everyone_if_no_acl_found
        self._literal: dict[ResourceType, _Patterns] = {}
        self._prefixed: dict[ResourceType, _Patterns] = {}
        for binding in acls:
            self.add(binding)

    def add(self, binding: AclBinding) -> None:
        """Add an ACL; a second equal one changes nothing."""
        patterns = self._patterns(binding).setdefault(binding.resource_type, {})
        patterns.setdefault(binding.name, {})[binding] = None

    def remove(self, binding: AclBinding) -> None:
        """Remove an ACL, if it exists."""
        patterns = self._patterns(binding).get(binding.resource_type, {})
        entries = patterns.get(binding.name, {})
        entries.pop(binding, None)
        if not entries:
            patterns.pop(binding.name, None)

    def matching(self, acl_filter: AclBindingFilter) -> list[AclBinding]:
        """Return the ACLs that a filter selects, sorted."""
        return sorted(binding for binding in self if acl_filter.matches(binding))

    def __contains__(self, binding: AclBinding) -> bool:
        patterns = self._patterns(binding).get(binding.resource_type, {})
        return binding in patterns.get(binding.name, ())

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __iter__(self) -> Iterator[AclBinding]:
        for by_type in (self._literal, self._prefixed):
            for patterns in by_type.values():
                for entries in patterns.values():
                    yield from entries

    def authorize(
        self,
        principal: str,
        host: str,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
    ) -> bool:
        """Return True if the principal may perform the operation on the resource."""
        if principal in self._super_users:
            return True
        found = allowed = False
        for binding in self._entries_of(resource_type, name):
            found = True
            if _applies(binding, principal, host, operation):
                if binding.permission_type is AclPermissionType.DENY:
                    return False
                allowed = True
        return allowed if found else self._default

    def authorize_by_resource_type(
        self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        """Return True if the principal may perform the operation on any resource of the type.

        Operations that include `operation` do not count here (KIP-679).
        """
        if self.authorize(principal, host, operation, resource_type, "hardcode"):
            # Kafka asks for this name first, which covers super users, wildcards and the default.
            return True
        allowed: list[AclBinding] = []
        denied: set[tuple[PatternType, str]] = set()
        for binding in self:
            if (
                binding.resource_type is resource_type
                and binding.host in {host, WILDCARD}
                and binding.principal in {principal, WILDCARD_PRINCIPAL}
                and binding.operation in {operation, AclOperation.ALL}
            ):
                if binding.permission_type is AclPermissionType.ALLOW:
                    allowed.append(binding)
                else:
                    denied.add((binding.pattern_type, binding.name))
        if (PatternType.LITERAL, WILDCARD) in denied:
            return False
        return any(not _is_dominated(binding, denied) for binding in allowed)

    def _patterns(self, binding: AclBinding) -> dict[ResourceType, _Patterns]:
        return self._literal if binding.pattern_type is PatternType.LITERAL else self._prefixed

    def _entries_of(self, resource_type: ResourceType, name: str) -> Iterator[AclBinding]:
        """Return the ACLs whose pattern matches a resource."""
        literal = self._literal.get(resource_type, {})
        yield from literal.get(name, ())
        if name != WILDCARD:
            yield from literal.get(WILDCARD, ())
        for prefix, entries in self._prefixed.get(resource_type, {}).items():
            if name.startswith(prefix):
                yield from entries


def _applies(binding: AclBinding, principal: str, host: str, operation: AclOperation) -> bool:
    """Return True if an ACL of the resource is about the principal, host and operation."""
    if binding.principal not in {principal, WILDCARD_PRINCIPAL}:
        return False
    if binding.host not in {host, WILDCARD}:
        return False
    if binding.operation in {operation, AclOperation.ALL}:
        return True
    return (
        binding.permission_type is AclPermissionType.ALLOW
        and binding.operation in IMPLIED_BY.get(operation, ())
    )


def _is_dominated(binding: AclBinding, denied: set[tuple[PatternType, str]]) -> bool:
    """Return True if a denied pattern covers all names of an allowed one."""
    name = binding.name
    if binding.pattern_type is PatternType.LITERAL:
        if name == WILDCARD:
            return False
        if (PatternType.LITERAL, name) in denied:
            return True
    return any(
        (PatternType.PREFIXED, name[:length]) in denied for length in range(1, len(name) + 1)
    )
