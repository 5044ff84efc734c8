"""Arguments and results of the operations on access control lists."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from aiokafkawire.admin.types.acl_operation import AclOperation

__all__ = ("AclBinding", "AclBindingFilter", "AclPermissionType", "PatternType", "ResourceType")


class ResourceType(IntEnum):
    """Type of a resource, with Kafka's number. ANY is for filters only."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """Comparison of the name of a resource pattern. ANY and MATCH are for filters only."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclPermissionType(IntEnum):
    """Permission of an access control entry. ANY is for filters only."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


@dataclass(frozen=True, slots=True, order=True)
class AclBinding:
    """An access control entry, and the resource pattern that it applies to.

    Attributes:
        resource_type: Type of the resource.
        name: Name or prefix of the resource; "kafka-cluster" for the cluster, `"*"` for all.
        principal: Who it is about, as "User:alice"; `"User:*"` is everyone.
        operation: What the principal may do, or may not.
        permission_type: Whether the entry allows or denies it.
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
