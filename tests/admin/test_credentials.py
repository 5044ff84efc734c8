"""Requests about SCRAM credentials and delegation tokens."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from aiokafkawire.admin import (
    DelegationToken,
    ScramCredentialInfo,
    ScramMechanism,
    TokenInformation,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from aiokafkawire.config import Secret
from aiokafkawire.errors import BrokerError, PartialFailure, ProtocolError, UnsupportedVersion
from aiokafkawire.wire import ApiKey, ErrorCode
from aiokafkawire.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from aiokafkawire.wire.messages.create_delegation_token import CreateDelegationTokenResponse
from aiokafkawire.wire.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenResponse,
)
from aiokafkawire.wire.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from aiokafkawire.wire.messages.expire_delegation_token import ExpireDelegationTokenResponse
from aiokafkawire.wire.messages.renew_delegation_token import RenewDelegationTokenResponse
from tests.admin.scripted import ScriptedAdmin, ScriptedCluster

E = ErrorCode
SHA_256 = ScramMechanism.SCRAM_SHA_256
INFO = TokenInformation("id", "User:a", None, ("User:b",), 1, 2, 3)


@pytest.fixture
async def cluster(anyio_backend: object) -> ScriptedCluster:
    return ScriptedCluster()


@pytest.fixture
async def admin(cluster: ScriptedCluster) -> ScriptedAdmin:
    return ScriptedAdmin(cluster)


def altered(**codes: int) -> Any:
    return lambda request: AlterUserScramCredentialsResponse(
        throttle_time_ms=0,
        results=[
            AlterUserScramCredentialsResult(user=user, error_code=code, error_message="why")
            for user, code in codes.items()
        ],
    )


@pytest.mark.parametrize("password", ["pässword", "pässword".encode(), Secret("pässword")])
async def test_a_password_is_hashed_before_it_is_sent(
    cluster: ScriptedCluster, admin: ScriptedAdmin, password: Any
):
    cluster.answer(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, altered(a=0))
    upsertion = UserScramCredentialUpsertion("a", SHA_256, password, 5_000, b"salt")
    assert "pässword" not in repr(upsertion)
    assert await admin.alter_user_scram_credentials([upsertion]) == {"a": None}
    (sent,) = cluster.sent[-1].message.upsertions
    assert (sent.iterations, sent.salt) == (5_000, b"salt")
    salted = hashlib.pbkdf2_hmac("sha256", "pässword".encode(), b"salt", 5_000)
    assert sent.salted_password == salted


async def test_salts_are_random(cluster: ScriptedCluster, admin: ScriptedAdmin):
    cluster.answer(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, altered(a=0, b=0))
    await admin.alter_user_scram_credentials(
        [UserScramCredentialUpsertion(user, SHA_256, "x") for user in ("a", "b")]
    )
    first, second = cluster.sent[-1].message.upsertions
    assert first.salt != second.salt
    assert len(first.salt) == 32


async def test_each_user_has_a_result(cluster: ScriptedCluster, admin: ScriptedAdmin):
    cluster.answer(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, altered(a=0, b=E.RESOURCE_NOT_FOUND))
    deletions = [UserScramCredentialDeletion(user, SHA_256) for user in ("a", "b", "c")]
    with pytest.raises(PartialFailure, match="why") as caught:
        await admin.alter_user_scram_credentials(deletions)
    assert caught.value.succeeded == {"a": None}
    assert isinstance(caught.value.failed["b"], BrokerError)
    assert isinstance(caught.value.failed["c"], ProtocolError)


async def test_a_mechanism_must_be_known(admin: ScriptedAdmin):
    with pytest.raises(ValueError, match="mechanism"):
        await admin.alter_user_scram_credentials(
            [UserScramCredentialUpsertion("a", ScramMechanism.UNKNOWN, "x")]
        )


async def test_credentials_are_described(cluster: ScriptedCluster, admin: ScriptedAdmin):
    results = [
        DescribeUserScramCredentialsResult(
            user="a",
            error_code=0,
            error_message=None,
            credential_infos=[
                CredentialInfo(mechanism=1, iterations=4_096),
                CredentialInfo(mechanism=9, iterations=1),
            ],
        ),
        DescribeUserScramCredentialsResult(
            user="b", error_code=E.RESOURCE_NOT_FOUND, error_message=None, credential_infos=[]
        ),
    ]
    cluster.answer(
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        lambda request: DescribeUserScramCredentialsResponse(
            throttle_time_ms=0, error_code=0, error_message=None, results=results
        ),
    )
    found = await admin.describe_user_scram_credentials(["a", "b"], return_errors=True)
    assert found["a"] == [
        ScramCredentialInfo(SHA_256, 4_096),
        ScramCredentialInfo(ScramMechanism.UNKNOWN, 1),
    ]
    assert isinstance(found["b"], BrokerError)
    with pytest.raises(PartialFailure):
        await admin.describe_user_scram_credentials()
    assert cluster.sent[-1].message.users is None
    cluster.versions[ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS] = -1
    with pytest.raises(UnsupportedVersion, match=r"2\.7"):
        await admin.describe_user_scram_credentials()


def token_created(code: int = 0, requester: str = "") -> Any:
    return lambda request: CreateDelegationTokenResponse(
        error_code=code,
        principal_type="User",
        principal_name="a",
        token_requester_principal_type="User" if requester else "",
        token_requester_principal_name=requester,
        issue_timestamp_ms=1,
        expiry_timestamp_ms=2,
        max_timestamp_ms=3,
        token_id="id",
        hmac=b"\0\1",
        throttle_time_ms=0,
    )


async def test_a_token_is_created(cluster: ScriptedCluster, admin: ScriptedAdmin):
    cluster.answer(ApiKey.CREATE_DELEGATION_TOKEN, token_created())
    token = await admin.create_delegation_token(renewers=["User:b"])
    assert token == DelegationToken(INFO, b"\0\1")
    assert token.hmac_as_base64_string == "AAE="
    assert "x00" not in repr(token)
    assert cluster.sent[-1].message.max_lifetime_ms == -1


async def test_a_token_of_another_owner(cluster: ScriptedCluster, admin: ScriptedAdmin):
    cluster.answer(ApiKey.CREATE_DELEGATION_TOKEN, token_created(requester="root"))
    token = await admin.create_delegation_token(owner="User:a", max_lifetime_ms=5)
    assert token.token_info.token_requester == "User:root"
    request = cluster.sent[-1].message
    assert (request.owner_principal_type, request.owner_principal_name) == ("User", "a")
    with pytest.raises(ValueError, match="User:alice"):
        await admin.create_delegation_token(owner="alice")
    cluster.versions[ApiKey.CREATE_DELEGATION_TOKEN] = 2
    with pytest.raises(UnsupportedVersion, match=r"3\.3"):
        await admin.create_delegation_token(owner="User:a")


async def test_brokers_without_tokens(cluster: ScriptedCluster, admin: ScriptedAdmin):
    cluster.answer(ApiKey.CREATE_DELEGATION_TOKEN, token_created(E.DELEGATION_TOKEN_AUTH_DISABLED))
    with pytest.raises(BrokerError, match="DELEGATION_TOKEN_AUTH_DISABLED"):
        await admin.create_delegation_token()
    cluster.versions[ApiKey.DESCRIBE_DELEGATION_TOKEN] = -1
    with pytest.raises(UnsupportedVersion, match=r"1\.1"):
        await admin.describe_delegation_token()


async def test_expiry_is_changed(cluster: ScriptedCluster, admin: ScriptedAdmin):
    cluster.answer(
        ApiKey.RENEW_DELEGATION_TOKEN,
        lambda request: RenewDelegationTokenResponse(
            error_code=0, expiry_timestamp_ms=7, throttle_time_ms=0
        ),
    )
    cluster.answer(
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        lambda request: ExpireDelegationTokenResponse(
            error_code=0, expiry_timestamp_ms=8, throttle_time_ms=0
        ),
    )
    assert await admin.renew_delegation_token(b"h", renew_period_ms=9) == 7
    assert cluster.sent[-1].message.renew_period_ms == 9
    assert await admin.expire_delegation_token(DelegationToken(INFO, b"h")) == 8
    request = cluster.sent[-1].message
    assert (request.hmac, request.expiry_time_period_ms) == (b"h", -1)


async def test_tokens_are_described(cluster: ScriptedCluster, admin: ScriptedAdmin):
    token = DescribedDelegationToken(
        principal_type="User",
        principal_name="a",
        issue_timestamp=1,
        expiry_timestamp=2,
        max_timestamp=3,
        token_id="id",
        hmac=b"h",
        renewers=[DescribedDelegationTokenRenewer(principal_type="User", principal_name="b")],
    )
    cluster.answer(
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
        lambda request: DescribeDelegationTokenResponse(
            error_code=0, tokens=[token], throttle_time_ms=0
        ),
    )
    assert await admin.describe_delegation_token(["User:a"]) == [DelegationToken(INFO, b"h")]
    (owner,) = cluster.sent[-1].message.owners
    assert (owner.principal_type, owner.principal_name) == ("User", "a")
    await admin.describe_delegation_token()
    assert cluster.sent[-1].message.owners is None
