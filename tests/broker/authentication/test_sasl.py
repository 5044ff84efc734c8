"""SASL on a listener: what the recordings do not show."""

from __future__ import annotations

import logging
import struct
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aiokafkawire import Producer
from aiokafkawire.broker import (
    Acl,
    Answer,
    ApiKey,
    Broker,
    BrokerSasl,
    Close,
    Drop,
    ErrorCode,
    TokenRefused,
    ValidatedToken,
    make_unsecured_token,
)
from aiokafkawire.broker.authentication.tokens import validate_unsecured_token
from aiokafkawire.errors import AuthenticationFailed
from aiokafkawire.runtime import Address, RealRuntime
from aiokafkawire.security import Secret
from aiokafkawire.wire.messages.api_versions import ApiVersionsRequest
from aiokafkawire.wire.messages.metadata import MetadataRequest
from aiokafkawire.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from aiokafkawire.wire.messages.sasl_handshake import SaslHandshakeRequest

from ..raw_client import RawClient, batch, build_update_metadata_request, connected, produce_request
from .shifted_clock import ShiftedRuntime

USERS = {"alice": "alice-pw", "dave": "dave-pw"}
ALICE = b"\0alice\0alice-pw"
METADATA = MetadataRequest(topics=[])
NO_DELAY: dict[str, Any] = {"connection_failed_authentication_delay_ms": 0}


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker(sasl=USERS, **NO_DELAY) as broker:
        yield broker


@pytest.fixture
async def client(broker: Broker) -> AsyncIterator[RawClient]:
    async with connected(broker) as client:
        yield client


async def handshake(client: RawClient, mechanism: str = "PLAIN") -> Any:
    return await client.call(SaslHandshakeRequest(mechanism=mechanism), 1)


async def authenticate(client: RawClient, token: bytes = ALICE, mechanism: str = "PLAIN") -> Any:
    response = await handshake(client, mechanism)
    assert response.error_code == ErrorCode.NONE
    return await client.call(SaslAuthenticateRequest(auth_bytes=token), 2)


def bearer(token: str) -> bytes:
    return f"n,,\x01auth=Bearer {token}\x01\x01".encode()


# --- order ---


async def test_authentication_opens_the_connection(broker: Broker, client: RawClient) -> None:
    assert (await client.call(ApiVersionsRequest(), 0)).error_code == ErrorCode.NONE
    assert (await authenticate(client)).error_code == ErrorCode.NONE
    # ApiVersions is a request like any other now.
    for _ in range(3):
        assert (await client.call(ApiVersionsRequest(), 0)).error_code == ErrorCode.NONE
    assert (await client.call(METADATA, 1)).brokers[0].port == broker.nodes[1].port


async def test_an_invalid_api_versions_does_not_count_as_the_first(client: RawClient) -> None:
    assert (await client.call(ApiVersionsRequest(), 3)).error_code == ErrorCode.INVALID_REQUEST
    assert (await client.call(ApiVersionsRequest(), 0)).error_code == ErrorCode.NONE
    await client.send(ApiVersionsRequest(), 0)
    assert await client.closed()


async def test_requests_that_were_sent_ahead_are_answered_in_order(client: RawClient) -> None:
    await client.send(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    await client.send(SaslAuthenticateRequest(auth_bytes=ALICE), 2)
    await client.send(METADATA, 1)
    await client.receive(ApiKey.SASL_HANDSHAKE, 1)
    await client.receive(ApiKey.SASL_AUTHENTICATE, 2)
    assert (await client.receive(ApiKey.METADATA, 1))[1].brokers


async def test_a_request_of_an_unknown_version_ends_the_exchange(client: RawClient) -> None:
    await handshake(client)
    await client.transport.send([b"\0\0\0\x0a\0\x12\0\x63\0\0\0\x09\xff\xff"])
    assert await client.closed()


async def test_requests_after_a_failure_are_not_answered(client: RawClient) -> None:
    await client.send(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    await client.send(SaslAuthenticateRequest(auth_bytes=b"\0alice\0wrong"), 2)
    await client.send(SaslAuthenticateRequest(auth_bytes=ALICE), 2)
    await client.send(METADATA, 1)
    await client.receive(ApiKey.SASL_HANDSHAKE, 1)
    _, response = await client.receive(ApiKey.SASL_AUTHENTICATE, 2)
    assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert await client.closed()


async def test_a_large_request_needs_an_authentication(broker: Broker, client: RawClient) -> None:
    large = produce_request("orders", 0, batch(bytes(600_000)))
    await client.send(large, 9)
    assert await client.closed()
    await broker.create_topic("orders")
    async with connected(broker) as other:
        await authenticate(other)
        response = await other.call(large, 9)
    assert response.responses[0].partition_responses[0].error_code == ErrorCode.NONE


async def test_a_failure_is_answered_after_a_delay() -> None:
    delay_s = 0.2
    async with (
        Broker(sasl=USERS, connection_failed_authentication_delay_ms=200) as broker,
        connected(broker) as client,
    ):
        started = anyio.current_time()
        response = await authenticate(client, b"\0alice\0wrong")
        assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert anyio.current_time() - started >= delay_s * 0.9


async def test_a_refused_client_leaves_a_log_line_without_its_token(
    client: RawClient, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, "aiokafkawire.broker"):
        await authenticate(client, b"\0alice\0hunter2")
        assert await client.closed()
    assert "closed: Authentication failed: Invalid username or password" in caplog.text
    assert "hunter2" not in caplog.text


async def test_logged_requests_do_not_show_tokens(broker: Broker, client: RawClient) -> None:
    await authenticate(client)
    [seen] = broker.requests.of(ApiKey.SASL_AUTHENTICATE)
    assert "alice-pw" not in repr(seen)
    assert seen.message.auth_bytes == ALICE  # type: ignore[attr-defined]


# --- faults ---


async def test_faults_apply_to_the_authentication(broker: Broker, client: RawClient) -> None:
    with_close = broker.on(ApiKey.SASL_AUTHENTICATE, Close(), times=1)
    await handshake(client)
    await client.send(SaslAuthenticateRequest(auth_bytes=ALICE), 2)
    assert await client.closed()
    assert with_close.hits == 1
    broker.on(ApiKey.SASL_HANDSHAKE, Answer(ErrorCode.ILLEGAL_SASL_STATE), times=1)
    async with connected(broker) as other:
        assert (await handshake(other)).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert (await authenticate(other)).error_code == ErrorCode.NONE
    broker.on(ApiKey.SASL_AUTHENTICATE, Drop(), times=1)
    async with connected(broker) as other:
        await handshake(other)
        await other.send(SaslAuthenticateRequest(auth_bytes=ALICE), 2)
        with anyio.move_on_after(0.1) as scope:
            await other.frame()
        assert scope.cancelled_caught


# --- sessions ---


@asynccontextmanager
async def short_sessions() -> AsyncIterator[tuple[ShiftedRuntime, RawClient]]:
    runtime = ShiftedRuntime()
    async with (
        Broker(sasl=USERS, runtime=runtime, connections_max_reauth_ms=4_000, **NO_DELAY) as broker,
        connected(broker) as client,
    ):
        yield runtime, client


async def test_a_session_may_be_renewed_for_ever() -> None:
    async with short_sessions() as (runtime, client):
        for _ in range(5):
            assert (await authenticate(client)).session_lifetime_ms == 4_000
            runtime.ahead.advance(3.9)
            assert (await client.call(METADATA, 1)).brokers


async def test_a_second_renewal_within_a_second_is_refused() -> None:
    async with short_sessions() as (runtime, client):
        await authenticate(client)
        await authenticate(client)
        runtime.ahead.advance(0.5)
        assert (await handshake(client)).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert (await client.call(METADATA, 1)).brokers, "the session goes on"
        runtime.ahead.advance(0.6)
        assert (await authenticate(client)).error_code == ErrorCode.NONE


async def test_releases_before_2_2_do_not_end_sessions() -> None:
    runtime = ShiftedRuntime()
    async with (
        Broker(sasl=USERS, as_of="2.1", runtime=runtime, connections_max_reauth_ms=4_000) as broker,
        connected(broker) as client,
    ):
        await handshake(client)
        answer = await client.call(SaslAuthenticateRequest(auth_bytes=ALICE), 0)
        assert answer.error_code == ErrorCode.NONE
        runtime.ahead.advance(10)
        assert (await client.call(METADATA, 1)).brokers


@pytest.mark.parametrize(
    ("release", "mechanisms"),
    [
        ("0.10.0", ["PLAIN"]),
        ("0.10.2", ["PLAIN", "SCRAM-SHA-512", "SCRAM-SHA-256"]),
        ("1.1", ["PLAIN", "SCRAM-SHA-512", "SCRAM-SHA-256"]),
        ("2.0", ["PLAIN", "SCRAM-SHA-512", "SCRAM-SHA-256", "OAUTHBEARER"]),
    ],
)
async def test_releases_have_the_mechanisms_of_their_time(
    release: str, mechanisms: list[str]
) -> None:
    sasl = BrokerSasl(
        users=USERS, mechanisms=["PLAIN", "SCRAM-SHA-512", "SCRAM-SHA-256", "OAUTHBEARER"]
    )
    async with Broker(sasl=sasl, as_of=release) as broker, connected(broker) as client:
        response = await client.call(SaslHandshakeRequest(mechanism="GSSAPI"), 0)
        assert response.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert response.mechanisms == mechanisms
        assert await client.closed()


# --- principals ---


@pytest.mark.parametrize(("token", "is_allowed"), [(ALICE, True), (b"\0dave\0dave-pw", False)])
async def test_acls_apply_to_the_authenticated_user(token: bytes, is_allowed: bool) -> None:
    acls = [Acl("User:alice", "Describe", topic="orders")]
    async with Broker(sasl=USERS, acls=acls) as broker, connected(broker) as client:
        await broker.create_topic("orders")
        await authenticate(client, token)
        response = await client.call(build_update_metadata_request("orders"), 4)
    expected = ErrorCode.NONE if is_allowed else ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert response.topics[0].error_code == expected


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
async def test_passwords_change_while_connections_stay(mechanism: str) -> None:
    async with Broker(sasl=USERS, **NO_DELAY) as broker:

        async def connects(password: str) -> bool:
            options = broker.client_options(mechanism=mechanism) | {"sasl_password": password}
            try:
                async with Producer(**options):
                    return True
            except AuthenticationFailed:
                return False

        async with connected(broker) as client:
            await authenticate(client)
            broker.set_password("alice", "rotated")
            assert not await connects("alice-pw")
            assert await connects("rotated")
            broker.delete_user("alice")
            broker.delete_user("nobody")
            assert not await connects("rotated")
            assert (await client.call(METADATA, 1)).brokers


# --- OAUTHBEARER ---


async def test_a_validator_decides_on_tokens() -> None:
    runtime = ShiftedRuntime()
    given: list[tuple[str, Mapping[str, str]]] = []

    def validate(token: Secret, extensions: Mapping[str, str]) -> ValidatedToken:
        given.append((token.reveal(), extensions))
        if token.reveal() == "bad":
            raise TokenRefused
        return ValidatedToken("dora", runtime.ahead.wall_ms() + 5_000)

    sasl = BrokerSasl(token_validator=validate)
    async with Broker(sasl=sasl, runtime=runtime, **NO_DELAY) as broker:
        async with connected(broker) as client:
            first = b"n,,\x01auth=Bearer good\x01trace=7\x01\x01"
            accepted = await authenticate(client, first, "OAUTHBEARER")
            assert (accepted.error_code, accepted.auth_bytes) == (ErrorCode.NONE, b"")
            assert 4_000 < accepted.session_lifetime_ms <= 5_000
            runtime.ahead.advance(6)
            await client.send(METADATA, 1)
            assert await client.closed()
        async with connected(broker) as client:
            refused = await authenticate(client, bearer("bad"), "OAUTHBEARER")
            assert refused.auth_bytes == b'{"status":"invalid_token"}'
            await client.send(SaslAuthenticateRequest(auth_bytes=b"\x01"), 2)
            _, failure = await client.receive(ApiKey.SASL_AUTHENTICATE, 2)
            assert failure.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert await client.closed()
    assert given == [("good", {"trace": "7"}), ("bad", {})]


@pytest.mark.parametrize("lifetime_s", [60, -1])
async def test_unsecured_tokens_are_accepted_until_they_expire(lifetime_s: int) -> None:
    sasl = BrokerSasl(mechanisms=["OAUTHBEARER"])
    async with Broker(sasl=sasl, **NO_DELAY) as broker, connected(broker) as client:
        token = bearer(make_unsecured_token("dora", lifetime_s))
        response = await authenticate(client, token, "OAUTHBEARER")
        assert bool(response.auth_bytes) == (lifetime_s < 0)
        assert (response.session_lifetime_ms > 55_000) == (lifetime_s > 0)


@pytest.mark.parametrize(
    "token",
    [
        "",
        "a.b",
        "..",
        "e30.e30.",
        "eyJhbGciOiJub25lIn0.e30.",
        "eyJhbGciOiJub25lIn0.W10.",
        "eyJhbGciOiJub25lIn0.eyJzdWIiOiJ1IiwiZXhwIjoiOSJ9.",
        "eyJhbGciOiJub25lIn0.eyJzdWIiOiJ1IiwiZXhwIjp0cnVlfQ.",
        "eyJhbGciOiJub25lIn0.eyJzdWIiOiIgIiwiZXhwIjo5OTk5OTk5OTk5fQ.",
        "eyJhbGciOiJub25lIn0.eyJzdWIiOiJ1IiwiZXhwIjpJbmZpbml0eX0.",
        "eyJhbGciOiJub25lIn0.eyJzdWIiOiJ1IiwiZXhwIjo5OTk5OTk5OTk5fQ.c2ln",
        "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ1IiwiZXhwIjo5OTk5OTk5OTk5fQ.",
    ],
)
def test_what_is_no_unsecured_token_is_refused(token: str) -> None:
    with pytest.raises(TokenRefused):
        validate_unsecured_token(token, 1_000)


# --- hostile clients ---


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    version=st.integers(0, 1),
    mechanism=st.sampled_from(["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"]),
    sent=st.lists(st.binary(max_size=60), min_size=1, max_size=4),
)
@pytest.mark.slow
def test_any_bytes_leave_the_broker_alive(version: int, mechanism: str, sent: list[bytes]) -> None:
    async def run() -> None:
        sasl = BrokerSasl(users=USERS, mechanisms=["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"])
        async with Broker(sasl=sasl, **NO_DELAY) as broker:
            async with connected(broker) as client:
                await client.call(SaslHandshakeRequest(mechanism=mechanism), version)
                await client.transport.send(
                    [struct.pack(">i", len(body)) + body for body in sent] + [b"\xff\xff\xff\xff"]
                )
                while await client.frame() is not None:
                    pass
            async with connected(broker) as client:
                assert (await authenticate(client)).error_code == ErrorCode.NONE

    logging.getLogger("aiokafkawire.broker").setLevel(logging.CRITICAL)
    try:
        anyio.run(run)
    finally:
        logging.getLogger("aiokafkawire.broker").setLevel(logging.NOTSET)


async def test_a_listener_without_sasl_is_open_and_says_so() -> None:
    async with Broker(sasl=USERS, listeners=["PLAINTEXT", "SASL_PLAINTEXT"]) as broker:
        host, _, port = broker.listeners["PLAINTEXT"].rpartition(":")
        transport = await RealRuntime().connect(Address(host, int(port)))
        client = RawClient(transport)
        assert (await handshake(client)).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert (await client.call(METADATA, 1)).brokers
        await transport.aclose()
