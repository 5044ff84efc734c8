"""Delegation tokens: created by a user, and accepted by SCRAM."""

from __future__ import annotations

import base64
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from aiokafkawire import Producer
from aiokafkawire.broker import Acl, Broker
from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.authentication.delegation_tokens import MAX_TOKENS, DelegationTokens
from aiokafkawire.errors import AuthenticationFailed
from aiokafkawire.security import Secret
from aiokafkawire.security.scram import SaltedPasswords, ScramClient
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
)
from aiokafkawire.wire.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from aiokafkawire.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest
from aiokafkawire.wire.messages.renew_delegation_token import RenewDelegationTokenRequest
from aiokafkawire.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from aiokafkawire.wire.messages.sasl_handshake import SaslHandshakeRequest

from ..raw_client import RawClient, connected

E = ErrorCode
USERS = {"alice": "alice-pw", "bob": "bob-pw"}
HOUR_MS = 3_600_000
OPTIONS: dict[str, Any] = {"sasl": USERS, "delegation_token_secret_key": "key"}


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker(**OPTIONS) as broker:
        yield broker


@asynccontextmanager
async def user(broker: Broker, name: str = "alice") -> AsyncIterator[RawClient]:
    """A connection that is authenticated with PLAIN."""
    async with connected(broker) as client:
        await client.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        token = f"\0{name}\0{USERS[name]}".encode()
        answer = await client.call(SaslAuthenticateRequest(auth_bytes=token), 2)
        assert answer.error_code == E.NONE
        yield client


async def create(
    client: RawClient, *renewers: str, owner: str = "", lifetime_ms: int = -1, version: int = 3
) -> Any:
    request = CreateDelegationTokenRequest(
        renewers=[
            CreatableRenewers(principal_type="User", principal_name=name) for name in renewers
        ],
        max_lifetime_ms=lifetime_ms,
    )
    if owner:
        request.owner_principal_type, request.owner_principal_name = "User", owner
    return await client.call(request, version)


async def describe(client: RawClient, *owners: str) -> Any:
    """Return the ids of the described tokens, or the error code."""
    requested = [
        DescribeDelegationTokenOwner(principal_type="User", principal_name=name) for name in owners
    ]
    request = DescribeDelegationTokenRequest(owners=requested or None)
    response = await client.call(request, 3)
    return response.error_code or [each.token_id for each in response.tokens]


async def renew(client: RawClient, hmac: bytes, period_ms: int = -1) -> tuple[int, int]:
    request = RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms)
    response = await client.call(request, 2)
    return response.error_code, response.expiry_timestamp_ms


async def expire(client: RawClient, hmac: bytes, period_ms: int = -1) -> tuple[int, int]:
    request = ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms)
    response = await client.call(request, 2)
    return response.error_code, response.expiry_timestamp_ms


def login(broker: Broker, token: Any, mechanism: str = "SCRAM-SHA-256") -> dict[str, Any]:
    """Return the options of a client that authenticates with a token."""
    return {
        **broker.client_options(mechanism=mechanism),
        "sasl_username": token.token_id,
        "sasl_password": base64.b64encode(token.hmac).decode(),
        "sasl_token_auth": True,
    }


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_scram_accepts_a_token(broker: Broker, mechanism: str) -> None:
    async with user(broker) as client:
        token = await create(client)
    assert (token.error_code, token.principal_type, token.principal_name) == (0, "User", "alice")
    assert token.token_requester_principal_name == "alice"
    assert token.expiry_timestamp_ms - token.issue_timestamp_ms == 24 * HOUR_MS
    assert token.max_timestamp_ms - token.issue_timestamp_ms == 7 * 24 * HOUR_MS
    options = login(broker, token, mechanism)
    async with Producer(**options) as producer:
        await producer.send_and_wait("t", b"v")
    for wrong in ({"sasl_token_auth": False}, {"sasl_password": "x"}, {"sasl_username": "x"}):
        with pytest.raises(AuthenticationFailed):
            async with Producer(**options | wrong):
                pass


async def test_the_owner_is_the_principal() -> None:
    acls = [Acl("User:alice", "All", topic="t")]
    async with Broker(**OPTIONS, acls=acls) as broker:
        await broker.create_topic("t")
        async with user(broker) as client:
            token = await create(client)
        async with Producer(**login(broker, token)) as producer:
            await producer.send_and_wait("t", b"v")


async def test_a_token_cannot_create_tokens(broker: Broker) -> None:
    async with user(broker) as client:
        token = await create(client)
    scram = ScramClient(
        "SCRAM-SHA-256",
        token.token_id,
        Secret(base64.b64encode(token.hmac).decode()),
        "nonce",
        SaltedPasswords(),
        token_auth=True,
    )
    async with connected(broker) as client:
        await client.call(SaslHandshakeRequest(mechanism=scram.name), 1)
        answer = b""
        while (message := scram.first() if not answer else scram.next(answer)) is not None:
            request = SaslAuthenticateRequest(auth_bytes=message)
            answer = (await client.call(request, 2)).auth_bytes
        refused = await create(client)
        assert refused.error_code == E.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


async def test_tokens_are_renewed_and_expired(broker: Broker) -> None:
    async with user(broker) as alice, user(broker, "bob") as bob:
        mine = await create(alice, lifetime_ms=2 * HOUR_MS)
        shared = await create(alice, "bob")
        assert mine.max_timestamp_ms - mine.issue_timestamp_ms == 2 * HOUR_MS
        assert await renew(bob, mine.hmac) == (E.DELEGATION_TOKEN_OWNER_MISMATCH, 0)
        assert await renew(alice, mine.hmac) == (E.NONE, mine.max_timestamp_ms)
        code, expiry_ms = await renew(bob, shared.hmac, HOUR_MS)
        assert (code, expiry_ms < shared.expiry_timestamp_ms) == (E.NONE, True)
        assert await renew(alice, b"x") == (E.DELEGATION_TOKEN_NOT_FOUND, 0)
        assert await expire(bob, mine.hmac) == (E.DELEGATION_TOKEN_OWNER_MISMATCH, 0)
        code, expiry_ms = await expire(alice, mine.hmac)
        assert (code, mine.issue_timestamp_ms <= expiry_ms < mine.expiry_timestamp_ms) == (0, True)
        assert await expire(alice, mine.hmac) == (E.DELEGATION_TOKEN_NOT_FOUND, 0)
        code, expiry_ms = await expire(bob, shared.hmac, 0)
        assert code == E.NONE
        with pytest.raises(AuthenticationFailed):
            async with Producer(**login(broker, mine)):
                pass


async def test_users_see_their_tokens() -> None:
    acls = [Acl("User:x", "All", topic="t")]
    async with (
        Broker(**OPTIONS, acls=acls) as broker,
        user(broker) as alice,
        user(broker, "bob") as bob,
    ):
        mine = (await create(alice)).token_id
        shared = (await create(alice, "bob")).token_id
        assert await describe(alice) == [mine, shared]
        assert await describe(bob) == [shared]
        assert await describe(alice, "bob") == [shared]
        assert await describe(alice, "carol") == []
        broker.add_acls(Acl("User:bob", "DescribeTokens", user="User:alice"))
        assert await describe(bob) == [mine, shared]


async def test_a_token_for_another_user_needs_a_permission() -> None:
    async with Broker(**OPTIONS, acls=[]) as broker, user(broker) as alice:
        refused = await create(alice, owner="bob")
        assert refused.error_code == E.DELEGATION_TOKEN_AUTHORIZATION_FAILED
        assert (refused.principal_name, refused.token_requester_principal_name) == ("bob", "alice")
        broker.add_acls(Acl("User:alice", "CreateTokens", user="User:bob"))
        token = await create(alice, owner="bob")
        assert (token.error_code, token.principal_name) == (E.NONE, "bob")


async def test_renewers_are_users(broker: Broker) -> None:
    async with user(broker) as client:
        request = CreateDelegationTokenRequest(
            renewers=[CreatableRenewers(principal_type="Group", principal_name="g")],
            max_lifetime_ms=-1,
        )
        assert (await client.call(request, 3)).error_code == E.INVALID_PRINCIPAL_TYPE


async def test_without_a_key_there_are_no_tokens() -> None:
    async with Broker(sasl=USERS) as broker, user(broker) as client:
        assert (await create(client)).error_code == E.DELEGATION_TOKEN_AUTH_DISABLED
        assert await describe(client) == E.DELEGATION_TOKEN_AUTH_DISABLED
        assert await renew(client, b"x") == (E.DELEGATION_TOKEN_AUTH_DISABLED, 0)
        assert await expire(client, b"x") == (E.DELEGATION_TOKEN_AUTH_DISABLED, 0)


async def test_a_client_without_authentication_gets_none() -> None:
    async with Broker(delegation_token_secret_key="key") as broker, connected(broker) as client:
        refused = await create(client)
        assert (refused.error_code, refused.principal_name, refused.expiry_timestamp_ms) == (
            E.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
            "ANONYMOUS",
            -1,
        )
        assert await describe(client) == E.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        assert await renew(client, b"x") == (E.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, -1)
        assert await expire(client, b"x") == (E.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, -1)


async def test_tokens_survive_a_restart(tmp_path: Path) -> None:
    async with Broker(**OPTIONS, data_dir=tmp_path) as broker, user(broker) as client:
        token = await create(client, "bob", version=2)
    async with Broker(**OPTIONS, data_dir=tmp_path) as broker:
        options = login(broker, token)
        async with Producer(**options) as producer:
            await producer.send_and_wait("t", b"v")
    async with Broker(sasl=USERS, data_dir=tmp_path) as broker, user(broker) as client:
        assert await describe(client) == E.DELEGATION_TOKEN_AUTH_DISABLED


async def test_the_session_ends_with_the_token(broker: Broker) -> None:
    tokens = broker._running.cluster.metadata.tokens
    now_ms = broker._running.clock.wall_ms()
    token = tokens.create(
        "User:alice", "User:alice", [], 60_000, now_ms=now_ms, rng=random.Random(1)
    )
    async with Producer(**login(broker, token)) as producer:
        await producer.send_and_wait("t", b"v")
    answers = [seen.response for seen in broker.requests if seen.api_key == 36]
    lifetimes = [answer.session_lifetime_ms for answer in answers]  # type: ignore[union-attr]
    assert 50_000 < max(lifetimes) <= 60_000


def test_expired_tokens_are_no_credentials() -> None:
    tokens = DelegationTokens(Secret("key"), 1_000, 500)
    rng = random.Random(1)
    token = tokens.create("User:a", "User:a", [], -1, now_ms=0, rng=rng)
    assert (token.expires_ms, token.max_ms) == (500, 1_000)
    assert tokens.credential(token.token_id, "SCRAM-SHA-256", 500, rng) is not None
    assert tokens.credential(token.token_id, "SCRAM-SHA-256", 501, rng) is None
    with pytest.raises(ApiError, match="DELEGATION_TOKEN_EXPIRED"):
        tokens.renew(token.hmac, "User:a", -1, 501)
    tokens.create("User:a", "User:a", [], -1, now_ms=501, rng=rng)
    assert len(list(tokens)) == 1


def test_the_number_of_tokens_is_limited() -> None:
    tokens = DelegationTokens(Secret("key"), 1_000, 500)
    rng = random.Random(1)
    for _ in range(MAX_TOKENS):
        tokens.create("User:a", "User:a", [], -1, now_ms=0, rng=rng)
    with pytest.raises(ApiError, match="POLICY_VIOLATION"):
        tokens.create("User:a", "User:a", [], -1, now_ms=0, rng=rng)


def test_secrets_are_not_shown() -> None:
    tokens = DelegationTokens(Secret("key"), 1_000, 500)
    token = tokens.create("User:a", "User:a", [], -1, now_ms=0, rng=random.Random(1))
    assert "hmac" not in repr(token)
    assert "secret-key" not in repr(Broker(delegation_token_secret_key="secret-key").options)
