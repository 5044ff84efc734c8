"""Access control lists of the embedded broker."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import NamedTuple

from aiokafkawire.config import check_text, did_you_mean
from aiokafkawire.errors import InvalidOption
from aiokafkawire.wire.resources import AclOperation, AclPermissionType, PatternType, ResourceType

__all__ = (
    "CLUSTER_NAME",
    "SUPPORTED_OPERATIONS",
    "WILDCARD",
    "WILDCARD_PRINCIPAL",
    "Acl",
    "AclBinding",
    "AclBindingFilter",
    "AclOperation",
    "AclPermissionType",
    "PatternType",
    "ResourceType",
    "check_principal",
)

WILDCARD = "*"
"""Name of a literal pattern that matches every resource, and the host that matches every host."""

WILDCARD_PRINCIPAL = "User:*"
CLUSTER_NAME = "kafka-cluster"
"""The only name of a cluster resource."""


_O = AclOperation

SUPPORTED_OPERATIONS = {
    ResourceType.TOPIC: frozenset(
        {
            *(_O.READ, _O.WRITE, _O.CREATE, _O.DESCRIBE, _O.DELETE, _O.ALTER),
            *(_O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS),
        }
    ),
    ResourceType.GROUP: frozenset(
        {_O.READ, _O.DESCRIBE, _O.DELETE, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS}
    ),
    ResourceType.CLUSTER: frozenset(
        {
            *(_O.CREATE, _O.CLUSTER_ACTION, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS),
            *(_O.IDEMPOTENT_WRITE, _O.ALTER, _O.DESCRIBE),
        }
    ),
    ResourceType.TRANSACTIONAL_ID: frozenset({_O.DESCRIBE, _O.WRITE, _O.TWO_PHASE_COMMIT}),
    ResourceType.DELEGATION_TOKEN: frozenset({_O.DESCRIBE}),
    ResourceType.USER: frozenset({_O.CREATE_TOKENS, _O.DESCRIBE_TOKENS}),
}
"""Operations that exist for each resource type."""


class AclBinding(NamedTuple):
    """An access control entry and the resource pattern that it applies to."""

    resource_type: ResourceType
    name: str
    pattern_type: PatternType
    principal: str
    host: str
    operation: AclOperation
    permission_type: AclPermissionType


class AclBindingFilter(NamedTuple):
    """Filter of DescribeAcls and DeleteAcls; None and ANY match everything."""

    resource_type: ResourceType = ResourceType.ANY
    name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission_type: AclPermissionType = AclPermissionType.ANY

    def matches(self, binding: AclBinding) -> bool:
        """Return True if the filter selects the binding."""
        return (
            self.resource_type in {ResourceType.ANY, binding.resource_type}
            and self._matches_pattern(binding)
            and self.principal in {None, binding.principal}
            and self.host in {None, binding.host}
            and self.operation in {AclOperation.ANY, binding.operation}
            and self.permission_type in {AclPermissionType.ANY, binding.permission_type}
        )

    def _matches_pattern(self, binding: AclBinding) -> bool:
        if self.pattern_type not in {PatternType.ANY, PatternType.MATCH, binding.pattern_type}:
            return False
        if self.name is None:
            return True
        if self.pattern_type is not PatternType.MATCH:
            return self.name == binding.name
        if binding.pattern_type is PatternType.PREFIXED:
            return self.name.startswith(binding.name)
        return binding.name in {self.name, WILDCARD}


@dataclass(frozen=True, slots=True, repr=False)
class Acl:
    """A rule for `Broker(acls=…)`: a principal may perform an operation on a resource.

    ::

        Acl("User:alice", "Read", topic="orders")
        Acl("User:alice", "Read", group="billing-", prefixed=True)
        Acl("User:bob", "All", topic="*", deny=True)
        Acl("User:*", "Describe", cluster=True)

    Attributes:
        principal: Principal such as `User:alice`. `User:*` is everyone.
        operation: Kafka's name of the operation, such as "Read", "DescribeConfigs" or "All".
        topic: Name of a topic, `*` for every topic. Exactly one resource is given.
        group: Name of a consumer group, `*` for every group.
        transactional_id: Transactional id, `*` for every id.
        delegation_token: Id of a delegation token, `*` for every token.
        user: Principal whose delegation tokens are meant, `*` for everyone's.
        cluster: The resource is the cluster.
        prefixed: The name is a prefix of names.
        deny: Forbid the operation instead of allowing it. Takes precedence over every other ACL.
        host: IP address of the client. Defaults to every host.
    """

    principal: str
    operation: str
    topic: str | None = None
    group: str | None = None
    transactional_id: str | None = None
    delegation_token: str | None = None
    user: str | None = None
    cluster: bool = False
    prefixed: bool = False
    deny: bool = False
    host: str = WILDCARD

    def __post_init__(self) -> None:
        check_principal("principal", self.principal)
        check_text("host", self.host)
        resources = self._resources()
        if len(resources) != 1:
            given = ", ".join(type_.name.lower() for type_ in resources) or "none"
            raise InvalidOption(
                "an Acl needs exactly one resource (topic, group, transactional_id,"
                f" delegation_token, user or cluster=True), not {given}"
            )
        ((resource_type, name),) = resources.items()
        check_text(resource_type.name.lower(), name)
        if self.prefixed and resource_type is ResourceType.CLUSTER:
            raise InvalidOption("prefixed does not apply to the cluster")
        operation = _parse_operation(self.operation)
        supported = SUPPORTED_OPERATIONS[resource_type] | {AclOperation.ALL}
        if operation not in supported:
            names = ", ".join(sorted(_name_of(each) for each in supported))
            raise InvalidOption(
                f"a {resource_type.name.lower()} has no operation {_name_of(operation)}: use one"
                f" of {names}"
            )
        object.__setattr__(self, "operation", _name_of(operation))

    def __repr__(self) -> str:
        given = [f"{self.principal!r}, {self.operation!r}"]
        given += [
            f"{field.name}={value!r}"
            for field in dataclasses.fields(self)
            if field.default is not dataclasses.MISSING
            and (value := getattr(self, field.name)) != field.default
        ]
        return f"Acl({', '.join(given)})"

    def _resources(self) -> dict[ResourceType, str]:
        """Return the resources that are given."""
        names = {
            ResourceType.TOPIC: self.topic,
            ResourceType.GROUP: self.group,
            ResourceType.TRANSACTIONAL_ID: self.transactional_id,
            ResourceType.DELEGATION_TOKEN: self.delegation_token,
            ResourceType.USER: self.user,
            ResourceType.CLUSTER: CLUSTER_NAME if self.cluster else None,
        }
        return {type_: name for type_, name in names.items() if name is not None}

    @property
    def binding(self) -> AclBinding:
        """The ACL as the protocol has it."""
        ((resource_type, name),) = self._resources().items()
        return AclBinding(
            resource_type,
            name,
            PatternType.PREFIXED if self.prefixed else PatternType.LITERAL,
            self.principal,
            self.host,
            _parse_operation(self.operation),
            AclPermissionType.DENY if self.deny else AclPermissionType.ALLOW,
        )

    @classmethod
    def from_binding(cls, binding: AclBinding) -> Acl:
        """Return an ACL of the protocol, unchecked as in Kafka."""
        acl = object.__new__(cls)
        values: dict[str, object] = {
            "principal": binding.principal,
            "operation": _name_of(binding.operation),
            "cluster": binding.resource_type is ResourceType.CLUSTER,
            "prefixed": binding.pattern_type is PatternType.PREFIXED,
            "deny": binding.permission_type is AclPermissionType.DENY,
            "host": binding.host,
        }
        if binding.resource_type is not ResourceType.CLUSTER:
            values[binding.resource_type.name.lower()] = binding.name
        for field in dataclasses.fields(cls):
            object.__setattr__(acl, field.name, values.get(field.name, field.default))
        return acl


def check_principal(name: str, value: object) -> None:
    """Raise `InvalidOption` unless `value` is a principal such as "User:alice"."""
    check_text(name, value)
    if ":" not in str(value):
        raise InvalidOption(f"{name} needs a type, such as 'User:{value:.80}', not {value!r:.80}")


def _name_of(operation: AclOperation) -> str:
    """Return Kafka's name of an operation, such as DescribeConfigs."""
    return "".join(part.capitalize() for part in operation.name.split("_"))


_BY_NAME = {
    _name_of(each).lower(): each
    for each in AclOperation
    if each not in {AclOperation.UNKNOWN, AclOperation.ANY}
}


def _parse_operation(name: object) -> AclOperation:
    known = _BY_NAME.get(name.replace("_", "").lower()) if isinstance(name, str) else None
    if known is None:
        names = [_name_of(each) for each in _BY_NAME.values()]
        hint = did_you_mean(name, names) if isinstance(name, str) else ""
        raise InvalidOption(f"operation is one of {', '.join(names)}, not {name!r:.80}{hint}")
    return known
