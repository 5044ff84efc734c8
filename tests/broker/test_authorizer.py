"""The authorizer: a table of Kafka's rules, and random ACLs against a plain reference."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafkawire.broker import Acl
from aiokafkawire.broker.acls import (
    SUPPORTED_OPERATIONS,
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourceType,
)
from aiokafkawire.broker.authorizer import Authorizer
from aiokafkawire.errors import InvalidOption

O, R = AclOperation, ResourceType  # noqa: E741
ALICE, BOB = "User:alice", "User:bob"
HERE, THERE = "127.0.0.1", "10.0.0.7"


def authorizer(*acls: Acl, **options: Any) -> Authorizer:
    return Authorizer([acl.binding for acl in acls], **options)


@pytest.mark.parametrize(
    ("acls", "operation", "expected"),
    [
        ([], "READ", False),
        ([Acl(ALICE, "Read", topic="orders")], "READ", True),
        ([Acl(ALICE, "Read", topic="orders")], "WRITE", False),
        ([Acl(ALICE, "All", topic="orders")], "ALTER_CONFIGS", True),
        ([Acl(BOB, "Read", topic="orders")], "READ", False),
        ([Acl("User:*", "Read", topic="orders")], "READ", True),
        ([Acl("Group:alice", "Read", topic="orders")], "READ", False),
        ([Acl(ALICE, "Read", topic="*")], "READ", True),
        ([Acl(ALICE, "Read", topic="ord", prefixed=True)], "READ", True),
        ([Acl(ALICE, "Read", topic="orders", prefixed=True)], "READ", True),
        ([Acl(ALICE, "Read", topic="orders-", prefixed=True)], "READ", False),
        ([Acl(ALICE, "Read", topic="*", prefixed=True)], "READ", False),
        ([Acl(ALICE, "Read", topic="ord")], "READ", False),
        ([Acl(ALICE, "Read", group="orders")], "READ", False),
        ([Acl(ALICE, "Read", topic="orders", host=HERE)], "READ", True),
        ([Acl(ALICE, "Read", topic="orders", host=THERE)], "READ", False),
        # Operations that include another one.
        *(
            ([Acl(ALICE, operation, topic="orders")], "DESCRIBE", True)
            for operation in ("Read", "Write", "Delete", "Alter", "Describe", "All")
        ),
        *(
            ([Acl(ALICE, operation, topic="orders")], "DESCRIBE", False)
            for operation in ("Create", "DescribeConfigs", "AlterConfigs")
        ),
        ([Acl(ALICE, "AlterConfigs", topic="orders")], "DESCRIBE_CONFIGS", True),
        ([Acl(ALICE, "Alter", topic="orders")], "DESCRIBE_CONFIGS", False),
        ([Acl(ALICE, "Describe", topic="orders")], "READ", False),
        # An ACL that denies wins, in any order and with any pattern.
        (
            [Acl(ALICE, "Read", topic="orders"), Acl(ALICE, "Read", topic="*", deny=True)],
            "READ",
            False,
        ),
        (
            [
                Acl("User:*", "All", topic="o", prefixed=True, deny=True),
                Acl(ALICE, "All", topic="*"),
            ],
            "READ",
            False,
        ),
        (
            [
                Acl(ALICE, "All", topic="*"),
                Acl(ALICE, "Read", topic="orders", deny=True, host=THERE),
            ],
            "READ",
            True,
        ),
        # A denied operation denies itself only, not those that it would include.
        (
            [Acl(ALICE, "Describe", topic="*"), Acl(ALICE, "Read", topic="orders", deny=True)],
            "DESCRIBE",
            True,
        ),
        (
            [Acl(ALICE, "Read", topic="*"), Acl(ALICE, "Describe", topic="orders", deny=True)],
            "READ",
            True,
        ),
    ],
)
def test_table(acls: list[Acl], operation: str, expected: bool) -> None:
    for ordered in (acls, acls[::-1]):
        found = authorizer(*ordered).authorize(ALICE, HERE, O[operation], R.TOPIC, "orders")
        assert found is expected


def test_super_users_may_do_everything() -> None:
    found = authorizer(Acl("User:*", "All", topic="*", deny=True), super_users=[ALICE])
    assert found.authorize(ALICE, HERE, O.WRITE, R.TOPIC, "orders")
    assert found.authorize_by_resource_type(ALICE, HERE, O.WRITE, R.TOPIC)
    assert not found.authorize(BOB, HERE, O.WRITE, R.TOPIC, "orders")
    assert not found.authorize_by_resource_type(BOB, HERE, O.WRITE, R.TOPIC)


def test_a_resource_without_acls_can_be_open_to_everyone() -> None:
    found = authorizer(
        Acl(BOB, "Read", topic="orders"),
        Acl(BOB, "Read", topic="audit-", prefixed=True),
        allow_everyone_if_no_acl_found=True,
    )
    assert found.authorize(ALICE, HERE, O.WRITE, R.TOPIC, "free")
    assert found.authorize(ALICE, HERE, O.READ, R.GROUP, "orders")
    assert not found.authorize(ALICE, HERE, O.READ, R.TOPIC, "orders")
    assert not found.authorize(ALICE, HERE, O.READ, R.TOPIC, "audit-1")
    assert not found.authorize(BOB, HERE, O.WRITE, R.TOPIC, "orders")


@pytest.mark.parametrize(
    ("acls", "expected"),
    [
        ([], False),
        ([Acl(ALICE, "Write", topic="orders")], True),
        ([Acl(ALICE, "All", topic="orders")], True),
        ([Acl(ALICE, "Read", topic="orders")], False),
        ([Acl(ALICE, "Write", transactional_id="orders")], False),
        ([Acl(ALICE, "Write", topic="orders", host=THERE)], False),
        ([Acl(ALICE, "Write", topic="o"), Acl(ALICE, "Write", topic="*", deny=True)], False),
        ([Acl(ALICE, "Write", topic="o"), Acl(ALICE, "Write", topic="o", deny=True)], False),
        (
            [
                Acl(ALICE, "Write", topic="orders"),
                Acl(ALICE, "Write", topic="ord", prefixed=True, deny=True),
            ],
            False,
        ),
        (
            [
                Acl(ALICE, "Write", topic="ord", prefixed=True),
                Acl(ALICE, "Write", topic="orders", prefixed=True, deny=True),
            ],
            True,
        ),
        ([Acl(ALICE, "Write", topic="*"), Acl(ALICE, "Write", topic="o", deny=True)], True),
    ],
)
def test_by_resource_type(acls: list[Acl], expected: bool) -> None:
    found = authorizer(*acls)
    assert found.authorize_by_resource_type(ALICE, HERE, O.WRITE, R.TOPIC) is expected


NAMES = st.sampled_from(["a", "ab", "abc", "b", "*"])
BINDINGS = st.builds(
    AclBinding,
    st.sampled_from([R.TOPIC, R.GROUP]),
    NAMES,
    st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
    st.sampled_from([ALICE, BOB, "User:*"]),
    st.sampled_from([HERE, THERE, "*"]),
    st.sampled_from([O.ALL, O.READ, O.WRITE, O.DESCRIBE, O.ALTER_CONFIGS, O.DESCRIBE_CONFIGS]),
    st.sampled_from([AclPermissionType.ALLOW, AclPermissionType.DENY]),
)
IMPLIED = {
    (O.READ, O.DESCRIBE),
    (O.WRITE, O.DESCRIBE),
    (O.ALTER_CONFIGS, O.DESCRIBE_CONFIGS),
}


def reference(
    acls: list[AclBinding], default: bool, operation: AclOperation, type_: ResourceType, name: str
) -> bool:
    """Decide for Alice on this host, from the list as it is."""
    matching = [
        acl
        for acl in acls
        if acl.resource_type == type_
        and (
            name.startswith(acl.name)
            if acl.pattern_type == PatternType.PREFIXED
            else acl.name in {name, "*"}
        )
    ]
    if not matching:
        return default
    mine = [acl for acl in matching if acl.principal != BOB and acl.host != THERE]
    for acl in mine:
        denies = acl.permission_type == AclPermissionType.DENY
        if denies and acl.operation in {operation, O.ALL}:
            return False
    return any(
        acl.permission_type == AclPermissionType.ALLOW
        and (acl.operation in {operation, O.ALL} or (acl.operation, operation) in IMPLIED)
        for acl in mine
    )


@given(
    st.lists(BINDINGS, max_size=8),
    st.booleans(),
    st.sampled_from([O.READ, O.WRITE, O.DESCRIBE, O.DESCRIBE_CONFIGS]),
    st.sampled_from([R.TOPIC, R.GROUP]),
    st.sampled_from(["a", "ab", "abc", "abcd", "b", "c", "hardcode"]),
)
def test_random_acls_against_the_reference(
    acls: list[AclBinding],
    default: bool,
    operation: AclOperation,
    type_: ResourceType,
    name: str,
) -> None:
    found = Authorizer(acls, allow_everyone_if_no_acl_found=default)
    expected = reference(acls, default, operation, type_, name)
    assert found.authorize(ALICE, HERE, operation, type_, name) is expected


@given(st.lists(BINDINGS, max_size=8), st.booleans())
def test_by_resource_type_means_that_some_name_is_allowed(
    acls: list[AclBinding], default: bool
) -> None:
    names = {acl.name for acl in acls}
    names |= {f"{name}~new" for name in names} | {"hardcode", "~new"}
    expected = any(reference(acls, default, O.WRITE, R.TOPIC, name) for name in names)
    found = Authorizer(acls, allow_everyone_if_no_acl_found=default)
    assert found.authorize_by_resource_type(ALICE, HERE, O.WRITE, R.TOPIC) is expected


@given(st.lists(BINDINGS, max_size=8), st.lists(BINDINGS, max_size=8))
def test_removed_acls_leave_no_trace(kept: list[AclBinding], removed: list[AclBinding]) -> None:
    found = Authorizer([*kept, *removed])
    for acl in removed:
        found.remove(acl)
        found.remove(acl)
    rest = set(kept) - set(removed)
    assert set(found) == rest
    assert found.matching(AclBindingFilter()) == sorted(rest)
    for name in ("a", "abc", "c"):
        for default in (True, False):
            found._default = default
            expected = reference(list(rest), default, O.READ, R.TOPIC, name)
            assert found.authorize(ALICE, HERE, O.READ, R.TOPIC, name) is expected


READ_A = Acl(ALICE, "Read", topic="a").binding
READ_ALL = Acl(ALICE, "Read", topic="*").binding
WRITE_PREFIX = Acl(BOB, "Write", topic="a", prefixed=True, deny=True, host=HERE).binding


@pytest.mark.parametrize(
    ("acl_filter", "expected"),
    [
        (AclBindingFilter(), [READ_A, READ_ALL, WRITE_PREFIX]),
        (AclBindingFilter(R.GROUP), []),
        (AclBindingFilter(R.TOPIC, "a"), [READ_A, WRITE_PREFIX]),
        (AclBindingFilter(R.TOPIC, "a", PatternType.LITERAL), [READ_A]),
        (AclBindingFilter(R.TOPIC, "a", PatternType.PREFIXED), [WRITE_PREFIX]),
        (AclBindingFilter(R.TOPIC, "ab", PatternType.MATCH), [READ_ALL, WRITE_PREFIX]),
        (AclBindingFilter(R.TOPIC, "a", PatternType.MATCH), [READ_A, READ_ALL, WRITE_PREFIX]),
        (AclBindingFilter(R.TOPIC, None, PatternType.PREFIXED), [WRITE_PREFIX]),
        (AclBindingFilter(principal=ALICE), [READ_A, READ_ALL]),
        (AclBindingFilter(host=HERE), [WRITE_PREFIX]),
        (AclBindingFilter(operation=O.READ), [READ_A, READ_ALL]),
        (AclBindingFilter(permission_type=AclPermissionType.DENY), [WRITE_PREFIX]),
    ],
)
def test_filters(acl_filter: AclBindingFilter, expected: list[AclBinding]) -> None:
    found = Authorizer([READ_A, READ_ALL, WRITE_PREFIX])
    assert found.matching(acl_filter) == sorted(expected)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"principal": "alice"}, "principal needs a type, such as 'User:alice', not 'alice'"),
        ({"principal": 7}, "principal must be a string, not 7"),
        ({"topic": None}, "an Acl needs exactly one resource .* not none"),
        ({"group": "g"}, "an Acl needs exactly one resource .* not topic, group"),
        ({"topic": ""}, "topic must not be empty"),
        (
            {"operation": "Reads"},
            "operation is one of All, Read, .* not 'Reads'; did you mean 'Read'",
        ),
        ({"operation": "Any"}, "operation is one of"),
        ({"operation": 3}, "operation is one of All, .* not 3"),
        (
            {"topic": None, "group": "g", "operation": "Write"},
            "a group has no operation Write: use",
        ),
        ({"topic": None, "cluster": True, "prefixed": True}, "prefixed does not apply"),
        ({"host": ""}, "host must not be empty"),
    ],
)
def test_an_acl_that_means_nothing_is_refused(arguments: dict[str, Any], text: str) -> None:
    valid = {"principal": ALICE, "operation": "Describe", "topic": "t"}
    Acl(**valid)
    with pytest.raises(InvalidOption, match=text):
        Acl(**{**valid, **arguments})


@pytest.mark.parametrize("name", ["DescribeConfigs", "DESCRIBE_CONFIGS", "describe_configs"])
def test_operations_have_the_name_that_kafka_prints(name: str) -> None:
    acl = Acl(ALICE, name, cluster=True)
    assert acl.operation == "DescribeConfigs"
    assert acl == Acl(ALICE, "DescribeConfigs", cluster=True)


def test_acls_and_bindings_are_the_same_thing() -> None:
    resources = {
        R.TOPIC: {"topic": "a"},
        R.GROUP: {"group": "a", "prefixed": True},
        R.TRANSACTIONAL_ID: {"transactional_id": "*"},
        R.DELEGATION_TOKEN: {"delegation_token": "a", "deny": True},
        R.USER: {"user": ALICE, "host": HERE},
        R.CLUSTER: {"cluster": True},
    }
    assert set(resources) == set(SUPPORTED_OPERATIONS)
    for type_, arguments in resources.items():
        for operation in SUPPORTED_OPERATIONS[type_]:
            acl = Acl(ALICE, operation.name, **arguments)  # type: ignore[arg-type]
            assert Acl.from_binding(acl.binding) == acl
            assert acl.binding.resource_type is type_
            assert eval(repr(acl), {"Acl": Acl}) == acl


def test_an_acl_shows_what_is_given() -> None:
    acl = Acl(ALICE, "READ", group="billing-", prefixed=True)
    assert repr(acl) == "Acl('User:alice', 'Read', group='billing-', prefixed=True)"
