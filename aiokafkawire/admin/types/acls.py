"""Arguments and results of the operations on access control lists."""

from __future__ import annotations

from dataclasses import dataclass

from aiokafkawire.wire.resources import AclOperation, AclPermissionType, PatternType, ResourceType

__all__ = ("AclBinding", "AclBindingFilter", "AclPermissionType", "PatternType", "ResourceType")


@dataclass(frozen=True, slots=True, order=True)
class AclBinding:
    """An access control entry, and the resource pattern that it applies to.

    Attributes:
        resource_type: Type of the resource.
        name: Name or prefix of the resource; "kafka-cluster" for the cluster, `"*"` for all.
        principal: Principal of the entry, as "User:alice"; `"User:*"` is everyone.
        operation: Operation that is allowed or denied.
        permission_type: ALLOW or DENY.
        pattern_type: LITERAL, or PREFIXED (Kafka 2.0 and later).
        host: Address from which the principal connects; `"*"` is any.
    """

    resource_type: ResourceType
    name: str
    principal: str
    operation: AclOperation
    permission_type: AclPermissionType = AclPermissionType.ALLOW
    pattern_type: PatternType = PatternType.LITERAL
    host: str = "*"


@dataclass(frozen=True, slots=True)
class AclBindingFilter:
    """Selects bindings in `describe_acls` and `delete_acls`; None and ANY select everything.

    Attributes:
        resource_type: Type of the resource.
        name: Name of the resource.
        pattern_type: With MATCH, `name` is the name of a resource, and every pattern that applies
            to it is selected (Kafka 2.0 and later).
        principal: Principal, as "User:alice".
        host: Address of the entry.
        operation: Operation of the entry.
        permission_type: Permission of the entry.
    """

    resource_type: ResourceType = ResourceType.ANY
    name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission_type: AclPermissionType = AclPermissionType.ANY
