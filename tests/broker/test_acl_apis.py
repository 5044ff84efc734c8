"""DescribeAcls, CreateAcls, DeleteAcls, and the APIs of SCRAM credentials."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from aiokafkawire import AuthenticationFailed, AuthorizationFailed, Consumer, Producer
from aiokafkawire.broker import Acl, Broker
from aiokafkawire.broker.acls import AclBinding, AclBindingFilter
from aiokafkawire.broker.apis import create_acls as create_acls_api
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from aiokafkawire.wire.messages.create_acls import AclCreation, CreateAclsRequest
from aiokafkawire.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from aiokafkawire.wire.messages.describe_acls import DescribeAclsRequest
from aiokafkawire.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)

from .raw_client import RawClient, connected

E = ErrorCode
ALICE, BOB, ME = "User:alice", "User:bob", "User:ANONYMOUS"
SHA_256, SHA_512 = 1, 2

READ = Acl(ALICE, "Read", topic="orders")
READ_GROUP = Acl(ALICE, "Read", group="bil", prefixed=True)
DENY = Acl(BOB, "All", topic="orders", deny=True, host="10.0.0.7")
USER = Acl(BOB, "CreateTokens", user=ALICE)


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker(acls=[], super_users=[ME]) as broker:
        yield broker


@pytest.fixture
async def client(broker: Broker) -> AsyncIterator[RawClient]:
    async with connected(broker) as client:
        yield client


def creation(acl: AclBinding) -> AclCreation:
    return AclCreation(
        resource_type=acl.resource_type,
        resource_name=acl.name,
        resource_pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission_type,
    )


def fields_of(acl_filter: AclBindingFilter) -> dict[str, Any]:
    return {
        "resource_type_filter": acl_filter.resource_type,
        "resource_name_filter": acl_filter.name,
        "pattern_type_filter": acl_filter.pattern_type,
        "principal_filter": acl_filter.principal,
        "host_filter": acl_filter.host,
        "operation": acl_filter.operation,
        "permission_type": acl_filter.permission_type,
    }


async def create(client: RawClient, *acls: AclBinding, version: int = 3) -> list[Any]:
    request = CreateAclsRequest(creations=[creation(acl) for acl in acls])
    answer = await client.call(request, version)
    return [(result.error_code, result.error_message) for result in answer.results]


async def describe(client: RawClient, acl_filter: AclBindingFilter, version: int = 3) -> list[Any]:
    answer = await client.call(DescribeAclsRequest(**fields_of(acl_filter)), version)
    assert (answer.error_code, answer.error_message) == (E.NONE, "")
    return [
        (
            (resource.resource_type, resource.resource_name, resource.pattern_type),
            [(a.principal, a.host, a.operation, a.permission_type) for a in resource.acls],
        )
        for resource in answer.resources
    ]


async def delete(client: RawClient, *filters: AclBindingFilter, version: int = 3) -> list[Any]:
    requested = [DeleteAclsFilter(**fields_of(each)) for each in filters]
    answer = await client.call(DeleteAclsRequest(filters=requested), version)
    return [
        (result.error_code, [acl.resource_name for acl in result.matching_acls])
        for result in answer.filter_results
    ]


@pytest.mark.parametrize("version", [1, 2, 3])
async def test_acls_are_created_described_and_deleted(
    broker: Broker, client: RawClient, version: int
) -> None:
    acls = [each.binding for each in (READ, READ_GROUP, DENY, USER)]
    assert await create(client, *acls, version=version) == [(E.NONE, "")] * 4
    assert await create(client, *acls[:1], version=version) == [(E.NONE, "")]
    assert set(broker.acls) == {READ, READ_GROUP, DENY, USER}
    assert await describe(client, AclBindingFilter(), version) == [
        ((2, "orders", 3), [(ALICE, "*", 3, 3), (BOB, "10.0.0.7", 2, 2)]),
        ((3, "bil", 4), [(ALICE, "*", 3, 3)]),
        ((7, ALICE, 3), [(BOB, "*", 13, 3)]),
    ]
    of_alice, of_topic = AclBindingFilter(principal=ALICE), AclBindingFilter(name="orders")
    assert await describe(client, of_alice._replace(host="10.0.0.7"), version) == []
    # Both filters select the same ACL.
    assert await delete(client, of_alice, of_topic, version=version) == [
        (E.NONE, ["orders", "bil"]),
        (E.NONE, ["orders", "orders"]),
    ]
    assert broker.acls == (USER,)
    assert await delete(client, of_alice, version=version) == [(E.NONE, [])]


async def test_version_0_has_literal_patterns_only(broker: Broker, client: RawClient) -> None:
    broker.add_acls(READ, READ_GROUP)
    ask: dict[str, Any] = fields_of(AclBindingFilter())
    del ask["pattern_type_filter"]
    answer = await client.call(DescribeAclsRequest(**ask), 0)
    assert [resource.resource_name for resource in answer.resources] == ["orders"]
    answer = await client.call(DeleteAclsRequest(filters=[DeleteAclsFilter(**ask)]), 0)
    assert [acl.resource_name for acl in answer.filter_results[0].matching_acls] == ["orders"]
    assert await create(client, DENY.binding, version=0) == [(E.NONE, "")]
    assert set(broker.acls) == {READ_GROUP, DENY}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"resource_name": ""}, "Invalid empty resource name"),
        ({"resource_type": 4}, "The only valid name for the CLUSTER resource is kafka-cluster"),
        ({"resource_type": 99}, "Invalid resourceType UNKNOWN"),
        ({"resource_pattern_type": 99}, "Invalid patternType UNKNOWN"),
        ({"operation": 99}, "Invalid operation UNKNOWN"),
        ({"permission_type": 99}, "Invalid permissionType UNKNOWN"),
        (
            {"principal": "alice"},
            "Could not parse principal from `alice` (no colon is present separating the principal"
            " type from the principal name)",
        ),
    ],
)
async def test_invalid_acls_are_refused_one_by_one(
    broker: Broker, client: RawClient, change: dict[str, Any], message: str
) -> None:
    wrong, right = creation(READ.binding), creation(DENY.binding)
    for name, value in change.items():
        setattr(wrong, name, value)
    answer = await client.call(CreateAclsRequest(creations=[wrong, right]), 3)
    assert [(result.error_code, result.error_message) for result in answer.results] == [
        (E.INVALID_REQUEST, message),
        (E.NONE, ""),
    ]
    assert broker.acls == (DENY,)


@pytest.mark.parametrize(
    "field", ["resource_type", "resource_pattern_type", "operation", "permission_type"]
)
async def test_unknown_values_close_the_connection(
    broker: Broker, client: RawClient, field: str
) -> None:
    of_filter = {
        "resource_type": "resource_type_filter",
        "resource_pattern_type": "pattern_type_filter",
    }.get(field, field)
    async with connected(broker) as other:
        wrong = creation(READ.binding)
        setattr(wrong, field, 0)
        await other.send(CreateAclsRequest(creations=[creation(DENY.binding), wrong]), 3)
        assert await other.closed()
    for value in (0, 99):
        ask = fields_of(AclBindingFilter()) | {of_filter: value}
        async with connected(broker) as other:
            await other.send(DescribeAclsRequest(**ask), 3)
            assert await other.closed() == (value == 0)
    assert broker.acls == ()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("resource_type", 1),
        ("resource_pattern_type", 1),
        ("resource_pattern_type", 2),
        ("operation", 1),
        ("permission_type", 1),
    ],
)
async def test_values_of_filters_fail_the_whole_creation(
    broker: Broker, client: RawClient, field: str, value: int
) -> None:
    wrong = creation(READ.binding)
    setattr(wrong, field, value)
    answer = await client.call(CreateAclsRequest(creations=[creation(DENY.binding), wrong]), 3)
    assert [(result.error_code, result.error_message) for result in answer.results] == [
        (E.UNKNOWN_SERVER_ERROR, None)
    ] * 2
    assert broker.acls == ()


async def test_the_number_of_acls_is_limited(
    broker: Broker, client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(create_acls_api, "MAX_ACLS", 2)
    answers = await create(client, *(each.binding for each in (READ, READ_GROUP, DENY)))
    assert [code for code, _ in answers] == [E.NONE, E.NONE, E.POLICY_VIOLATION]
    assert set(broker.acls) == {READ, READ_GROUP}


async def test_acl_apis_need_permissions_on_the_cluster() -> None:
    async with Broker(acls=[]) as broker, connected(broker) as client:
        ask = DescribeAclsRequest(**fields_of(AclBindingFilter()))
        answer = await client.call(ask, 3)
        assert answer.error_code == E.CLUSTER_AUTHORIZATION_FAILED
        users = await client.call(DescribeUserScramCredentialsRequest(users=None), 0)
        assert users.error_code == E.CLUSTER_AUTHORIZATION_FAILED
        broker.add_acls(Acl(ME, "Describe", cluster=True))
        assert (await client.call(ask, 3)).error_code == E.NONE
        users = await client.call(DescribeUserScramCredentialsRequest(users=None), 0)
        assert users.error_code == E.NONE
        assert [code for code, _ in await create(client, READ.binding)] == [
            E.CLUSTER_AUTHORIZATION_FAILED
        ]
        assert await delete(client, AclBindingFilter()) == [(E.CLUSTER_AUTHORIZATION_FAILED, [])]
        assert await alter(client, upsert("carol")) == {"carol": E.CLUSTER_AUTHORIZATION_FAILED}
        broker.add_acls(Acl(ME, "Alter", cluster=True))
        assert await create(client, READ.binding) == [(E.NONE, "")]
        assert await alter(client, upsert("carol")) == {"carol": E.NONE}


async def test_without_an_authorizer_acls_are_disabled() -> None:
    async with Broker() as broker, connected(broker) as client:
        answer = await client.call(DescribeAclsRequest(**fields_of(AclBindingFilter())), 3)
        message = "No Authorizer is configured."
        assert (answer.error_code, answer.error_message) == (E.SECURITY_DISABLED, message)
        assert await create(client, READ.binding) == [(E.SECURITY_DISABLED, message)]
        assert await delete(client, AclBindingFilter()) == [(E.SECURITY_DISABLED, [])]


# --- SCRAM credentials ---------------------------------------------------------------------------


def upsert(
    name: str, password: str = "secret", *, mechanism: int = SHA_256, iterations: int = 4_096
) -> ScramCredentialUpsertion:
    salt = b"some salt"
    algorithm = "sha512" if mechanism == SHA_512 else "sha256"
    salted = hashlib.pbkdf2_hmac(algorithm, password.encode(), salt, max(iterations, 1))
    return ScramCredentialUpsertion(
        name=name,
        mechanism=mechanism,
        iterations=iterations,
        salt=salt,
        salted_password=salted,
    )


async def alter(
    client: RawClient, *changes: ScramCredentialUpsertion | ScramCredentialDeletion
) -> dict[str, int]:
    request = AlterUserScramCredentialsRequest(
        deletions=[each for each in changes if isinstance(each, ScramCredentialDeletion)],
        upsertions=[each for each in changes if isinstance(each, ScramCredentialUpsertion)],
    )
    answer = await client.call(request, 0)
    return {result.user: result.error_code for result in answer.results}


async def described(client: RawClient, *names: str) -> dict[str, Any]:
    users = [UserName(name=name) for name in names] or None
    answer = await client.call(DescribeUserScramCredentialsRequest(users=users), 0)
    assert answer.error_code == E.NONE
    return {
        result.user: result.error_code
        or [(info.mechanism, info.iterations) for info in result.credential_infos]
        for result in answer.results
    }


async def test_scram_credentials_are_described_and_altered(client: RawClient) -> None:
    assert await described(client) == {}
    assert await alter(client, upsert("alice"), upsert("bob")) == {"alice": E.NONE, "bob": E.NONE}
    other = upsert("alice", mechanism=SHA_512, iterations=8_192)
    assert await alter(client, other) == {"alice": E.NONE}
    assert await described(client) == {"alice": [(1, 4_096), (2, 8_192)], "bob": [(1, 4_096)]}
    assert await described(client, "bob", "carol") == {
        "bob": [(1, 4_096)],
        "carol": E.RESOURCE_NOT_FOUND,
    }
    assert await described(client, "bob", "bob") == {"bob": E.DUPLICATE_RESOURCE}
    gone = ScramCredentialDeletion(name="alice", mechanism=SHA_256)
    assert await alter(client, gone) == {"alice": E.NONE}
    assert await alter(client, gone) == {"alice": E.RESOURCE_NOT_FOUND}
    assert await described(client, "alice") == {"alice": [(2, 8_192)]}


async def test_wrong_changes_of_scram_credentials_change_nothing_of_the_user(
    client: RawClient,
) -> None:
    wrong: dict[str, tuple[list[ScramCredentialUpsertion], ErrorCode]] = {
        "": ([upsert("")], E.UNACCEPTABLE_CREDENTIAL),
        "few": ([upsert("few", iterations=4_095)], E.UNACCEPTABLE_CREDENTIAL),
        "many": ([upsert("many", iterations=16_385)], E.UNACCEPTABLE_CREDENTIAL),
        "unknown": ([upsert("unknown", mechanism=3)], E.UNSUPPORTED_SASL_MECHANISM),
        "twice": ([upsert("twice"), upsert("twice")], E.DUPLICATE_RESOURCE),
        "mixed": (
            [upsert("mixed", mechanism=SHA_512), upsert("mixed", iterations=1)],
            E.DUPLICATE_RESOURCE,
        ),
        "first": (
            [upsert("first", iterations=1), upsert("first")],
            E.UNACCEPTABLE_CREDENTIAL,
        ),
    }
    changes = [change for own, _ in wrong.values() for change in own]
    expected = {name: code for name, (_, code) in wrong.items()}
    assert await alter(client, upsert("good"), *changes) == {"good": E.NONE, **expected}
    assert await described(client) == {"good": [(1, 4_096)]}


# --- real users ----------------------------------------------------------------------------------

PASSWORDS = {"alice": "alice-pw", "bob": "bob-pw", "root": "root-pw"}


@pytest.fixture
async def secured() -> AsyncIterator[Broker]:
    acls = [
        Acl(ALICE, "Write", topic="orders"),
        Acl(BOB, "Read", topic="orders"),
        Acl(BOB, "Read", group="billing"),
    ]
    async with Broker(sasl=PASSWORDS, acls=acls, super_users=["User:root"]) as broker:
        await broker.create_topic("orders")
        yield broker


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_each_user_has_its_permissions(secured: Broker, mechanism: str) -> None:
    alice, bob, root = (
        secured.client_options(username=user, mechanism=mechanism)
        for user in ("alice", "bob", "root")
    )
    async with Producer(**alice) as producer:
        await producer.send_and_wait("orders", b"book")
        with pytest.raises(AuthorizationFailed, match=r"lacks Describe on the topic .* other"):
            await producer.send_and_wait("other", b"book")
    async with Producer(**bob, enable_idempotence=False) as producer:
        with pytest.raises(AuthorizationFailed, match=r"lacks Write on the topic .* orders"):
            await producer.send_and_wait("orders", b"book")
    for options, group, expected in (
        (bob, "billing", None),
        (root, "billing-2", None),
        (bob, "other", "lacks Describe on the group .* other"),
        (alice, "billing", "lacks Describe on the group .* billing"),
    ):
        async with Consumer(
            "orders", **options, group_id=group, auto_offset_reset="earliest"
        ) as consumer:
            if expected is None:
                assert (await consumer.getone()).value == b"book"
                await consumer.commit()
            else:
                with pytest.raises(AuthorizationFailed, match=expected):
                    await consumer.getone()
    async with Consumer(**alice) as consumer:
        consumer.assign(("orders", 0))
        with pytest.raises(AuthorizationFailed, match="lacks Read on the topic"):
            await consumer.getone()


async def test_a_user_that_is_created_at_run_time_can_log_in(secured: Broker) -> None:
    options = secured.client_options(username="root", mechanism="SCRAM-SHA-256")
    carol = {**options, "sasl_username": "carol", "sasl_password": "carol-pw"}
    async with Broker(sasl=PASSWORDS, listeners=["PLAINTEXT", "SASL_PLAINTEXT"]) as broker:
        servers = broker.client_options("SASL_PLAINTEXT")["bootstrap_servers"]
        carol["bootstrap_servers"] = servers
        with pytest.raises(AuthenticationFailed):
            async with Producer(**carol):
                pass
        async with connected(broker) as client:
            assert await alter(client, upsert("carol", "carol-pw")) == {"carol": E.NONE}
        async with Producer(**carol) as producer:
            await producer.send_and_wait("t", b"v")
