"""Requests about access control lists: versions, positional results, odd answers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from aiokafkawire.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourceType,
)
from aiokafkawire.cluster import ToAnyNode, ToController
from aiokafkawire.errors import BrokerError, PartialFailure, ProtocolError, UnsupportedVersion
from aiokafkawire.wire import ApiKey, ErrorCode
from aiokafkawire.wire.messages.create_acls import AclCreationResult, CreateAclsResponse
from aiokafkawire.wire.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsResponse,
)
from aiokafkawire.wire.messages.describe_acls import (
    AclDescription,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from tests.admin.scripted import ScriptedAdmin, ScriptedCluster

E = ErrorCode
READ = AclBinding(ResourceType.TOPIC, "t", "User:a", AclOperation.READ)
PREFIXED = AclBinding(
    ResourceType.TOPIC, "t-", "User:a", AclOperation.READ, pattern_type=PatternType.PREFIXED
)
ALL = AclBindingFilter()


@pytest.fixture
async def cluster(anyio_backend: object) -> ScriptedCluster:
    return ScriptedCluster()


@pytest.fixture
async def admin(cluster: ScriptedCluster) -> ScriptedAdmin:
    return ScriptedAdmin(cluster)


def created(*codes: int) -> Any:
    return lambda request: CreateAclsResponse(
        throttle_time_ms=0,
        results=[AclCreationResult(error_code=code, error_message="why") for code in codes],
    )


def matching(code: int = 0, name: str = "t") -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        error_code=code,
        error_message=None,
        resource_type=2,
        resource_name=name,
        principal="User:a",
        host="*",
        operation=3,
        permission_type=3,
    )


def deleted(*matches: DeleteAclsMatchingAcl, code: int = 0) -> Any:
    return lambda request: DeleteAclsResponse(
        throttle_time_ms=0,
        filter_results=[
            DeleteAclsFilterResult(error_code=code, error_message=None, matching_acls=[*matches])
        ],
    )


async def test_results_belong_to_bindings_by_position(
    cluster: ScriptedCluster, admin: ScriptedAdmin
):
    cluster.answer(ApiKey.CREATE_ACLS, created(0, E.INVALID_REQUEST))
    with pytest.raises(PartialFailure, match="why") as caught:
        await admin.create_acls([READ, PREFIXED, READ])
    assert caught.value.succeeded == {READ: None}
    assert list(caught.value.failed) == [PREFIXED]
    (sent,) = cluster.requests(ApiKey.CREATE_ACLS)
    assert sent.to == ToController()
    assert [each.resource_pattern_type for each in sent.message.creations] == [3, 4]


@pytest.mark.parametrize("codes", [(), (0, 0)])
async def test_a_wrong_number_of_results(
    cluster: ScriptedCluster, admin: ScriptedAdmin, codes: tuple[int, ...]
):
    cluster.answer(ApiKey.CREATE_ACLS, created(*codes))
    with pytest.raises(ProtocolError, match="1 items"):
        await admin.create_acls([READ])


async def test_brokers_without_an_authorizer(cluster: ScriptedCluster, admin: ScriptedAdmin):
    cluster.answer(ApiKey.CREATE_ACLS, created(E.SECURITY_DISABLED))
    cluster.answer(ApiKey.DELETE_ACLS, deleted(code=E.SECURITY_DISABLED))
    with pytest.raises(BrokerError, match="SECURITY_DISABLED"):
        await admin.create_acls([READ])
    with pytest.raises(BrokerError, match="SECURITY_DISABLED"):
        await admin.delete_acls([ALL])


async def test_brokers_without_pattern_types(cluster: ScriptedCluster, admin: ScriptedAdmin):
    cluster.versions = dict.fromkeys((ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS), 0)
    cluster.versions[ApiKey.DESCRIBE_ACLS] = 0
    cluster.answer(ApiKey.CREATE_ACLS, created(0))
    cluster.answer(ApiKey.DELETE_ACLS, deleted())
    cluster.answer(
        ApiKey.DESCRIBE_ACLS,
        lambda request: DescribeAclsResponse(
            throttle_time_ms=0, error_code=0, error_message=None, resources=[]
        ),
    )
    assert await admin.create_acls([READ]) == {READ: None}
    with pytest.raises(UnsupportedVersion, match=r"2\.0"):
        await admin.create_acls([PREFIXED])
    assert await admin.describe_acls() == []
    assert cluster.sent[-1].message.pattern_type_filter == PatternType.LITERAL
    for unsupported in (PatternType.MATCH, PatternType.PREFIXED):
        wanted = AclBindingFilter(pattern_type=unsupported)
        with pytest.raises(UnsupportedVersion, match=r"2\.0"):
            await admin.describe_acls(wanted)
        with pytest.raises(UnsupportedVersion, match=r"2\.0"):
            await admin.delete_acls([wanted])
    assert await admin.delete_acls([ALL]) == {ALL: []}


async def test_acls_are_described(cluster: ScriptedCluster, admin: ScriptedAdmin):
    entries = [
        AclDescription(principal="User:a", host="*", operation=3, permission_type=3),
        AclDescription(principal="User:b", host="::1", operation=99, permission_type=2),
    ]
    resource = DescribeAclsResource(resource_type=2, resource_name="t", acls=entries)
    cluster.answer(
        ApiKey.DESCRIBE_ACLS,
        lambda request: DescribeAclsResponse(
            throttle_time_ms=0, error_code=0, error_message=None, resources=[resource]
        ),
    )
    assert await admin.describe_acls(AclBindingFilter(principal="User:a")) == [
        READ,
        AclBinding(
            ResourceType.TOPIC,
            "t",
            "User:b",
            AclOperation.UNKNOWN,
            AclPermissionType.DENY,
            host="::1",
        ),
    ]
    assert cluster.sent[-1].to == ToAnyNode()
    assert cluster.sent[-1].message.principal_filter == "User:a"


async def test_an_entry_that_was_not_deleted_is_not_overlooked(
    cluster: ScriptedCluster, admin: ScriptedAdmin
):
    cluster.answer(
        ApiKey.DELETE_ACLS, deleted(matching(), matching(E.UNKNOWN_SERVER_ERROR, "other"))
    )
    with pytest.raises(PartialFailure) as caught:
        await admin.delete_acls([ALL])
    inner = caught.value.failed[ALL]
    assert isinstance(inner, PartialFailure)
    assert list(inner.succeeded) == [READ]
    assert [acl.name for acl in inner.failed] == ["other"]


async def test_deleted_entries(cluster: ScriptedCluster, admin: ScriptedAdmin):
    cluster.answer(ApiKey.DELETE_ACLS, deleted(matching()))
    assert await admin.delete_acls([ALL]) == {ALL: [READ]}


@pytest.mark.parametrize(
    ("field", "value", "advice"),
    [
        ("resource_type", ResourceType.ANY, "one such as TOPIC"),
        ("resource_type", ResourceType.UNKNOWN, "one such as TOPIC"),
        ("pattern_type", PatternType.ANY, "LITERAL or PREFIXED"),
        ("pattern_type", PatternType.MATCH, "LITERAL or PREFIXED"),
        ("operation", AclOperation.ANY, "ALL for every operation"),
        ("permission_type", AclPermissionType.ANY, "ALLOW or DENY"),
        ("name", None, "name is missing"),
        ("principal", "", "principal is missing"),
        ("host", None, "host is missing"),
    ],
)
async def test_an_entry_that_is_a_filter_is_refused_before_it_is_sent(
    cluster: ScriptedCluster, admin: ScriptedAdmin, field: str, value: Any, advice: str
):
    with pytest.raises(ValueError, match=advice):
        await admin.create_acls([READ, replace(READ, **{field: value})])
    assert cluster.sent == []
