"""TLS and SASL on new connections, and re-authentication on open ones."""

from __future__ import annotations

import asyncio
import datetime
import hashlib
import logging
import ssl
import threading
import traceback
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
import trio
import trustme

from aiokafkawire.connection import (
    PLAINTEXT_HANDSHAKE,
    BrokerClient,
    ConnectionKind,
    ConnectionMetrics,
    connector,
    make_handshake,
    secure_handshake,
)
from aiokafkawire.errors import (
    AuthenticationFailed,
    ConnectionFailed,
    ConnectionLost,
    InvalidOption,
    KafkaError,
    TlsError,
)
from aiokafkawire.runtime import Address, Future
from aiokafkawire.security import OAuthBearerToken, Secret, client_mechanisms
from aiokafkawire.wire import ApiKey
from aiokafkawire.wire.messages.heartbeat import HeartbeatRequest
from aiokafkawire.wire.messages.sasl_handshake import SaslHandshakeResponse

from .sasl_broker import PASSWORD, TOKEN, USER, SaslBroker
from .scripted import (
    Hangup,
    ScriptedBroker,
    ServerConnection,
    gather,
    hosted,
    make_config,
    outcome_of,
    serve,
)

HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
LIMIT_S = 20
QUICK = {
    "reconnect_backoff_ms": 1,
    "reconnect_backoff_max_ms": 5,
    "socket_connection_setup_timeout_ms": 500,
    "socket_connection_setup_timeout_max_ms": 500,
}
CA = trustme.CA(key_type=trustme.KeyType.ECDSA)
OTHER_CA = trustme.CA(key_type=trustme.KeyType.ECDSA)
CA_PEM = CA.cert_pem.bytes().decode()
LONG_AGO = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)


async def give_token(value: str = TOKEN) -> OAuthBearerToken:
    await anyio.lowlevel.checkpoint()
    return OAuthBearerToken(Secret(value))


def sasl(mechanism: str, **options: Any) -> dict[str, Any]:
    given: dict[str, Any] = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": mechanism}
    if mechanism == "OAUTHBEARER":
        given["sasl_oauth_token_provider"] = give_token
    else:
        given |= {"sasl_username": USER, "sasl_password": PASSWORD}
    return {**QUICK, **given, **options}


@asynccontextmanager
async def client_of(address: Address, **options: Any) -> AsyncIterator[BrokerClient]:
    async with hosted() as (runtime, supervisor):
        config = make_config(**options)
        handshake = make_handshake(config, runtime, supervisor)
        await handshake.prepare()
        metrics = ConnectionMetrics()
        client = BrokerClient(
            address, config, runtime, supervisor, handshake=handshake, metrics=metrics
        )
        client.metrics = metrics  # type: ignore[attr-defined]
        try:
            with anyio.fail_after(LIMIT_S):
                yield client
        finally:
            with anyio.CancelScope(shield=True):
                await client.aclose()


def soon() -> float:
    return anyio.current_time() + LIMIT_S


async def refusal(address: Address, **options: Any) -> KafkaError:
    """Return the error of a first request."""
    async with client_of(address, **options) as client:
        outcome = await outcome_of(client.request(HEARTBEAT, deadline=soon()))
    assert isinstance(outcome, KafkaError), outcome
    return outcome


# --- SASL -----------------------------------------------------------------------------------


MECHANISMS = {"PLAIN": 1, "SCRAM-SHA-256": 2, "SCRAM-SHA-512": 2, "OAUTHBEARER": 1}
"""Number of tokens that the client sends."""


@pytest.mark.parametrize(("mechanism", "tokens"), MECHANISMS.items())
async def test_a_client_authenticates_between_api_versions_and_the_first_request(
    mechanism: str, tokens: int
):
    broker = SaslBroker()
    async with serve(broker) as server, client_of(server.address, **sasl(mechanism)) as client:
        assert (await client.request(HEARTBEAT, deadline=soon())).error_code == 0
    assert broker.steps == [
        "ApiVersions v5",
        "SaslHandshake v1",
        *["SaslAuthenticate v2"] * tokens,
        "Heartbeat v4",
    ]


@pytest.mark.parametrize(("mechanism", "tokens"), MECHANISMS.items())
async def test_kafka_before_1_0_gets_tokens_without_requests(mechanism: str, tokens: int):
    broker = SaslBroker(
        ranges={
            ApiKey.API_VERSIONS: (0, 0),
            ApiKey.SASL_HANDSHAKE: (0, 0),
            ApiKey.HEARTBEAT: (0, 0),
        }
    )
    async with serve(broker) as server, client_of(server.address, **sasl(mechanism)) as client:
        assert (await client.request(HEARTBEAT, deadline=soon())).error_code == 0
    assert broker.steps[1:] == ["SaslHandshake v0", *["token"] * tokens, "Heartbeat v0"]


@pytest.mark.parametrize(
    ("mechanism", "options", "expected"),
    [
        (
            "PLAIN",
            {"sasl_password": "wrong"},
            "PLAIN: the broker refused the credentials: Authentication failed: Invalid username or"
            " password",
        ),
        (
            "SCRAM-SHA-256",
            {"sasl_password": "wrong"},
            "SCRAM-SHA-256: the broker refused the credentials: Authentication failed during"
            " authentication due to invalid credentials with SASL mechanism SCRAM-SHA-256",
        ),
        (
            "OAUTHBEARER",
            {"sasl_oauth_token_provider": lambda: give_token("of.another")},
            'OAUTHBEARER: the broker refused the credentials: {"status":"invalid_token"}',
        ),
    ],
)
async def test_refused_credentials_are_final(
    mechanism: str, options: dict[str, Any], expected: str
):
    async with serve(SaslBroker()) as server:
        error = await refusal(server.address, **sasl(mechanism, **options))
        assert server.accepted == 1
    assert isinstance(error, AuthenticationFailed)
    assert error.reason == expected
    assert error.broker == str(server.address)
    assert not error.retriable


async def test_kafka_before_1_0_refuses_without_a_reason():
    broker = SaslBroker(ranges={ApiKey.API_VERSIONS: (0, 0), ApiKey.SASL_HANDSHAKE: (0, 0)})
    async with serve(broker) as server:
        error = await refusal(server.address, **sasl("PLAIN", sasl_password="wrong"))
    assert isinstance(error, AuthenticationFailed)
    assert "user name or password is probably wrong" in error.reason


async def test_a_mechanism_that_is_not_enabled_is_named_with_those_that_are():
    broker = SaslBroker()
    del broker.mechanisms["PLAIN"], broker.mechanisms["OAUTHBEARER"]
    async with serve(broker) as server:
        error = await refusal(server.address, **sasl("PLAIN"))
    assert isinstance(error, AuthenticationFailed)
    assert error.reason == (
        "the broker does not enable sasl_mechanism 'PLAIN'; it enables 'SCRAM-SHA-256',"
        " 'SCRAM-SHA-512'"
    )


async def test_a_broker_without_sasl_is_named():
    async with serve(SaslBroker(ranges={ApiKey.API_VERSIONS: (0, 4)})) as server:
        error = await refusal(server.address, **sasl("PLAIN"))
    assert isinstance(error, AuthenticationFailed)
    assert error.reason == (
        "the broker cannot authenticate with PLAIN: the broker does not support SaslHandshake"
    )


async def test_a_listener_without_sasl_is_named():
    async def refuse(_: Any, __: Any) -> SaslHandshakeResponse:
        return SaslHandshakeResponse(error_code=34, mechanisms=[])

    async with serve(ScriptedBroker({ApiKey.SASL_HANDSHAKE: refuse})) as server:
        error = await refusal(server.address, **sasl("PLAIN"))
    assert isinstance(error, AuthenticationFailed)
    assert error.reason == (
        "the listener does not use SASL: set security_protocol to 'PLAINTEXT', or connect to the"
        " listener that does"
    )


STEPS = ["ApiVersions v5", "SaslHandshake v1", "SaslAuthenticate v2"]


@pytest.mark.parametrize("step", STEPS)
async def test_a_connection_lost_in_a_step_is_retriable(step: str):
    def on_step(name: str) -> None:
        if name == step and broker.steps.count(step) == 1:
            raise Hangup

    broker = SaslBroker(on_step=on_step)
    async with (
        serve(broker) as server,
        client_of(server.address, **sasl("SCRAM-SHA-256")) as client,
    ):
        error = await outcome_of(client.request(HEARTBEAT, deadline=soon()))
        assert isinstance(error, ConnectionFailed)
        assert error.retriable
        assert (await client.request(HEARTBEAT, deadline=soon())).error_code == 0


@pytest.mark.parametrize("step", STEPS)
async def test_a_broker_that_hangs_in_a_step_is_given_up_after_the_setup_timeout(step: str):
    broker = SaslBroker(on_step=lambda name: anyio.sleep(60) if name == step else None)
    async with serve(broker) as server:
        error = await refusal(server.address, **sasl("SCRAM-SHA-256"))
    assert isinstance(error, ConnectionFailed)
    assert error.retriable


async def test_a_password_function_is_asked_for_each_connection():
    passwords = iter(["outdated", PASSWORD])

    async def password() -> str:
        await anyio.lowlevel.checkpoint()
        return next(passwords)

    async with (
        serve(SaslBroker()) as server,
        client_of(server.address, **sasl("PLAIN", sasl_password=password)) as client,
    ):
        first = await outcome_of(client.request(HEARTBEAT, deadline=soon()))
        assert isinstance(first, AuthenticationFailed)
        assert (await client.request(HEARTBEAT, deadline=soon())).error_code == 0


@pytest.mark.parametrize(
    ("result", "kind", "text"),
    [
        (OSError("vault is sealed"), ConnectionFailed, "sasl_password failed: OSError"),
        (None, AuthenticationFailed, "sasl_password returned no password: a secret must be str"),
        ("", AuthenticationFailed, "PLAIN needs a user name and a password"),
        (ValueError("not JSON"), ConnectionFailed, "sasl_password failed: ValueError"),
    ],
)
async def test_a_password_function_that_fails_is_named(
    result: Any, kind: type[KafkaError], text: str
):
    async def password() -> str:
        if isinstance(result, Exception):
            raise result
        return result  # type: ignore[no-any-return]

    async with serve(SaslBroker()) as server:
        error = await refusal(server.address, **sasl("PLAIN", sasl_password=password))
    assert type(error) is kind
    assert text in error.reason


async def test_a_refused_token_is_replaced():
    tokens = iter(["refused", TOKEN])

    async def provide() -> OAuthBearerToken:
        return await give_token(next(tokens))

    options = sasl("OAUTHBEARER", sasl_oauth_token_provider=provide)
    async with serve(SaslBroker()) as server, client_of(server.address, **options) as client:
        first = await outcome_of(client.request(HEARTBEAT, deadline=soon()))
        assert isinstance(first, AuthenticationFailed)
        assert (await client.request(HEARTBEAT, deadline=soon())).error_code == 0


async def test_the_connections_of_a_client_hash_a_password_once(monkeypatch: pytest.MonkeyPatch):
    hashed: list[int] = []
    pbkdf2 = hashlib.pbkdf2_hmac

    def counted(name: str, password: bytes, salt: bytes, iterations: int) -> bytes:
        hashed.append(iterations)
        return pbkdf2(name, password, salt, iterations)

    broker = SaslBroker(iterations=100_000)
    monkeypatch.setattr(hashlib, "pbkdf2_hmac", counted)
    async with (
        serve(broker) as server,
        client_of(server.address, **sasl("SCRAM-SHA-256")) as client,
    ):
        kinds = (ConnectionKind.GENERAL, ConnectionKind.FETCH, ConnectionKind.JOIN)
        await gather(
            *(client.request(HEARTBEAT, deadline=soon(), connection_kind=kind) for kind in kinds)
        )
        assert (broker.authenticated, hashed) == (3, [100_000])


@pytest.mark.parametrize(
    "anyio_backend", [pytest.param(("asyncio", {"use_uvloop": False}), id="asyncio")]
)
async def test_a_password_function_that_awaits_a_cancelled_task_does_not_end_the_client():
    calls = 0

    async def password() -> str:
        nonlocal calls
        calls += 1
        if calls == 1:
            task = asyncio.ensure_future(asyncio.sleep(60))
            await asyncio.sleep(0)
            task.cancel()
            await task
        return PASSWORD

    options = sasl("PLAIN", sasl_password=password)
    async with serve(SaslBroker()) as server, client_of(server.address, **options) as client:
        error = await outcome_of(client.request(HEARTBEAT, deadline=soon()))
        assert isinstance(error, ConnectionFailed)
        assert error.reason == "sasl_password failed: it awaited a task that was cancelled"
        assert (await client.request(HEARTBEAT, deadline=soon())).error_code == 0


class Panic(BaseException):
    """An error that does not derive from `Exception`, such as a panic of a Rust library."""


async def test_a_password_function_that_panics_does_not_end_the_client():
    calls = 0

    async def password() -> str:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise Panic(PASSWORD)
        if calls == 2:
            raise BaseExceptionGroup("of a task group", [Panic(PASSWORD), OSError()])
        return PASSWORD

    options = sasl("PLAIN", sasl_password=password)
    async with serve(SaslBroker()) as server, client_of(server.address, **options) as client:
        for name in ("Panic", "BaseExceptionGroup"):
            error = await outcome_of(client.request(HEARTBEAT, deadline=soon()))
            assert isinstance(error, ConnectionFailed)
            assert error.reason == f"sasl_password failed: {name}"
            assert PASSWORD not in "".join(traceback.format_exception(error))
        assert (await client.request(HEARTBEAT, deadline=soon())).error_code == 0


@pytest.mark.parametrize("anyio_backend", [pytest.param(("trio", {}), id="trio")])
async def test_a_password_function_that_fails_as_it_times_out_does_not_end_the_client(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(client_mechanisms, "PASSWORD_TIMEOUT_S", 0.01)
    calls = 0

    async def fail_when_cancelled() -> None:
        try:
            await anyio.sleep(LIMIT_S)
        finally:
            raise OSError("vault is sealed")

    async def password() -> str:
        nonlocal calls
        calls += 1
        if calls == 1:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(anyio.sleep, LIMIT_S)
                nursery.start_soon(fail_when_cancelled)
        return PASSWORD

    options = sasl("PLAIN", sasl_password=password)
    async with serve(SaslBroker()) as server, client_of(server.address, **options) as client:
        error = await outcome_of(client.request(HEARTBEAT, deadline=soon()))
        assert isinstance(error, ConnectionFailed)
        assert error.reason == "sasl_password failed: BaseExceptionGroup"
        assert (await client.request(HEARTBEAT, deadline=soon())).error_code == 0


async def test_a_password_function_that_is_not_async_is_named():
    async with serve(SaslBroker()) as server:
        error = await refusal(server.address, **sasl("PLAIN", sasl_password=lambda: PASSWORD))
    assert isinstance(error, AuthenticationFailed)
    assert error.reason == (
        "sasl_password must be a string or an async function; this function returned str without"
        " being awaited"
    )


async def test_a_password_function_that_hangs_is_named():
    async with serve(SaslBroker()) as server:
        options = sasl("PLAIN", sasl_password=anyio.sleep_forever)
        async with client_of(server.address, **options) as client:
            error = await outcome_of(client.request(HEARTBEAT, deadline=anyio.current_time() + 0.1))
        assert server.accepted == 0
    assert isinstance(error, ConnectionFailed)
    assert error.reason == "no connection before the deadline: sasl_password has not returned yet"


async def test_a_password_function_that_hangs_after_a_failure_is_named_with_the_failure():
    calls = 0

    async def password() -> str:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise OSError("vault is sealed")
        await anyio.sleep_forever()
        raise AssertionError

    options = sasl("PLAIN", sasl_password=password)
    async with serve(SaslBroker()) as server, client_of(server.address, **options) as client:
        await outcome_of(client.request(HEARTBEAT, deadline=soon()))
        error = await outcome_of(client.request(HEARTBEAT, deadline=anyio.current_time() + 0.5))
    assert isinstance(error, ConnectionFailed)
    assert error.reason == (
        "no connection before the deadline: sasl_password has not returned yet; the last attempt:"
        " sasl_password failed: OSError"
    )


async def test_the_setup_timeout_does_not_count_the_time_for_credentials():
    async def password() -> str:
        await anyio.sleep(QUICK["socket_connection_setup_timeout_ms"] / 1_000 + 0.1)
        return PASSWORD

    options = sasl("PLAIN", sasl_password=password)
    async with serve(SaslBroker()) as server, client_of(server.address, **options) as client:
        assert (await client.request(HEARTBEAT, deadline=soon())).error_code == 0


async def test_a_kdc_that_hangs_keeps_neither_the_timeout_nor_the_client(
    monkeypatch: pytest.MonkeyPatch,
):
    release = threading.Event()

    def hang(*_: str) -> Any:
        release.wait(LIMIT_S)
        raise OSError("no KDC")

    monkeypatch.setattr("aiokafkawire.security.client_mechanisms.require_gssapi", lambda: None)
    monkeypatch.setattr("aiokafkawire.security.client_mechanisms.kerberos_context", hang)
    broker = SaslBroker()
    broker.mechanisms["GSSAPI"] = broker.mechanisms["PLAIN"]
    options = {**QUICK, "security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "GSSAPI"}
    try:
        async with serve(broker) as server:
            error = await refusal(server.address, **options)
            assert isinstance(error, ConnectionFailed)
            assert error.reason.startswith("no connection within 0.5 s")
            assert not release.is_set()
    finally:
        release.set()


@pytest.mark.parametrize("mechanism", ["PLAIN", "OAUTHBEARER"])
@pytest.mark.parametrize("version", [0, 1])
async def test_no_local_of_a_traceback_holds_the_credentials(mechanism: str, version: int):
    def cut(name: str) -> None:
        if name == "token" or name.startswith("SaslAuthenticate"):
            raise Hangup

    old = dict.fromkeys((ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.HEARTBEAT), (0, 0))
    broker = SaslBroker(on_step=cut, ranges=None if version else old)
    async with serve(broker) as server:
        error: BaseException | None = await refusal(server.address, **sasl(mechanism))
    places = []
    while error is not None:
        for frame, _ in traceback.walk_tb(error.__traceback__):
            if "/tests/" not in frame.f_code.co_filename:
                shown = repr(frame.f_locals)
                if PASSWORD in shown or TOKEN in shown:
                    places.append(frame.f_code.co_qualname)
        error = error.__cause__
    assert places == []


async def test_a_broker_that_has_requests_for_tokens_but_no_handshake_for_them_is_refused():
    ranges = {
        ApiKey.API_VERSIONS: (0, 4),
        ApiKey.SASL_HANDSHAKE: (0, 0),
        ApiKey.SASL_AUTHENTICATE: (0, 2),
    }
    async with serve(SaslBroker(ranges=ranges)) as server:
        error = await refusal(server.address, **sasl("PLAIN"))
    assert isinstance(error, AuthenticationFailed)
    assert "supports SaslHandshake 0" in error.reason


async def test_the_list_of_mechanisms_is_bounded():
    broker = SaslBroker()
    broker.mechanisms = {
        f"M{number}" + "x" * 1_000: broker.mechanisms["PLAIN"] for number in range(9)
    }
    async with serve(broker) as server:
        error = await refusal(server.address, **sasl("PLAIN"))
    assert len(error.reason) < 1_000


# --- re-authentication ----------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_requests_go_on_while_a_session_is_renewed(mechanism: str):
    broker = SaslBroker(lifetime_ms=100)
    async with serve(broker) as server, client_of(server.address, **sasl(mechanism)) as client:
        while client.metrics.reauthentications < 3:  # type: ignore[attr-defined]
            outcomes = await gather(*(client.request(HEARTBEAT, deadline=soon()) for _ in range(5)))
            assert [outcome.error_code for outcome in outcomes] == [0] * 5
        assert server.accepted == 1
        assert client.metrics.connections_lost == 0  # type: ignore[attr-defined]
    between = "".join("H" if step.startswith("Heart") else "s" for step in broker.steps)
    tokens = MECHANISMS[mechanism]
    rounds = [part for part in between.split("H") if part]
    assert {len(part) for part in rounds[1:]} <= {1 + tokens, 1}, "a request came in between"


async def test_requests_go_on_between_renewals_without_a_pause(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(secure_handshake, "REAUTHENTICATE_AFTER", (0.0, 0.0))
    broker = SaslBroker(lifetime_ms=10_000)
    async with serve(broker) as server, client_of(server.address, **sasl("PLAIN")) as client:
        for _ in range(50):
            assert (await client.request(HEARTBEAT, deadline=soon())).error_code == 0
    between = "".join("H" if step.startswith("Heart") else "s" for step in broker.steps)
    _, *waits, _ = between.split("H")
    # One renewal may end and another begin before a request is submitted.
    assert max(map(len, waits)) <= 4, between


async def test_requests_in_flight_are_answered_before_the_session_is_renewed():
    release = anyio.Event()

    async def wait() -> None:
        await release.wait()

    broker = SaslBroker(lifetime_ms=100)
    broker.on_step = lambda name: (
        wait() if name == "Heartbeat v4" and broker.steps.count(name) == 1 else None
    )
    async with serve(broker) as server, client_of(server.address, **sasl("PLAIN")) as client:
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: client.request(HEARTBEAT, deadline=soon()))
            await anyio.sleep(0.2)
            assert broker.authenticated == 1
            release.set()
        while broker.authenticated < 2:
            await anyio.lowlevel.checkpoint()
        assert (await client.request(HEARTBEAT, deadline=soon())).error_code == 0
        assert server.accepted == 1


async def test_a_session_that_cannot_be_renewed_ends_the_connection_alone(
    caplog: pytest.LogCaptureFixture,
):
    caplog.set_level(logging.INFO, "aiokafkawire.connection")
    broker = SaslBroker(lifetime_ms=100)
    passwords = iter([PASSWORD, "wrong"])

    async def password() -> str:
        return next(passwords, PASSWORD)

    async with (
        serve(broker) as server,
        client_of(server.address, **sasl("PLAIN", sasl_password=password)) as client,
    ):
        while server.accepted < 2:
            outcome = await outcome_of(client.request(HEARTBEAT, deadline=soon()))
            if isinstance(outcome, KafkaError):
                assert outcome.retriable
        assert (await client.request(HEARTBEAT, deadline=soon())).error_code == 0
    assert (
        f"test: re-authentication with broker {server.address} failed: PLAIN: the broker refused"
        " the credentials: Authentication failed: Invalid username or password; closing the"
        " connection" in caplog.messages
    )


async def test_credentials_that_cannot_be_had_are_asked_for_again_before_the_session_ends(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(secure_handshake, "REAUTHENTICATE_AFTER", (0.05, 0.06))
    monkeypatch.setattr(connector, "MIN_RENEWAL_DELAY_S", 0.01)
    broker = SaslBroker(lifetime_ms=2_000)
    calls = 0

    async def password() -> str:
        nonlocal calls
        calls += 1
        if calls in {2, 3}:
            raise OSError("vault is sealed")
        return PASSWORD

    options = sasl("PLAIN", sasl_password=password)
    async with serve(broker) as server, client_of(server.address, **options) as client:
        assert (await client.request(HEARTBEAT, deadline=soon())).error_code == 0
        while broker.authenticated < 2:
            await client.request(HEARTBEAT, deadline=soon())
        assert (await client.request(HEARTBEAT, deadline=soon())).error_code == 0
        assert (calls, server.accepted) == (4, 1)


async def test_credentials_are_fetched_before_requests_are_held(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(secure_handshake, "REAUTHENTICATE_AFTER", (0.02, 0.03))
    broker = SaslBroker(lifetime_ms=10_000)
    asked: list[Future[str]] = []

    async def password() -> str:
        if not asked:
            asked.append(Future())
            return PASSWORD
        asked.append(Future())
        return await asked[-1].wait()

    async with (
        serve(broker) as server,
        client_of(server.address, **sasl("PLAIN", sasl_password=password)) as client,
    ):
        while len(asked) < 2:
            assert (await client.request(HEARTBEAT, deadline=soon())).error_code == 0
        assert (await client.request(HEARTBEAT, deadline=soon())).error_code == 0
        asked[-1].set_result(PASSWORD)
        while broker.authenticated < 2:
            await anyio.lowlevel.checkpoint()
        assert server.accepted == 1


# --- TLS ------------------------------------------------------------------------------------


def server_context(
    *names: str,
    ca: trustme.CA = CA,
    expired: bool = False,
    version: ssl.TLSVersion | None = None,
    wants_certificate: bool = False,
) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.num_tickets = 0
    ca.issue_cert(
        *(names or ("127.0.0.1",)),
        not_before=LONG_AGO if expired else None,
        not_after=LONG_AGO + datetime.timedelta(days=1) if expired else None,
    ).configure_cert(context)
    if version is not None:
        context.minimum_version = context.maximum_version = version
    if wants_certificate:
        context.verify_mode = ssl.CERT_REQUIRED
        CA.configure_trust(context)
    return context


def tls(**options: Any) -> dict[str, Any]:
    given = {"security_protocol": "SASL_SSL", "ssl_cadata": CA_PEM}
    return sasl("PLAIN", **{**given, **options})


def write_certificate(folder: Path, ca: trustme.CA = CA) -> dict[str, str]:
    certificate = ca.issue_cert("alice@example.com")
    chain, key = folder / "alice.pem", folder / "alice.key"
    chain.write_bytes(b"".join(each.bytes() for each in certificate.cert_chain_pems))
    key.write_bytes(certificate.private_key_pem.bytes())
    return {"ssl_certfile": str(chain), "ssl_keyfile": str(key)}


async def test_requests_over_tls(tmp_path: Path):
    (tmp_path / "ca.pem").write_text(CA_PEM)
    broker = SaslBroker(tls=server_context(wants_certificate=True))
    options = tls(
        ssl_cadata=None, ssl_cafile=str(tmp_path / "ca.pem"), **write_certificate(tmp_path)
    )
    async with serve(broker) as server, client_of(server.address, **options) as client:
        assert (await client.request(HEARTBEAT, deadline=soon())).error_code == 0


async def test_a_context_of_the_application_is_used():
    context = ssl.create_default_context(cadata=CA_PEM)
    async with (
        serve(SaslBroker(tls=server_context())) as server,
        client_of(server.address, **tls(ssl_cadata=None, ssl_context=context)) as client,
    ):
        assert (await client.request(HEARTBEAT, deadline=soon())).error_code == 0


async def test_the_host_name_need_not_be_checked():
    async with (
        serve(SaslBroker(tls=server_context("elsewhere.example"))) as server,
        client_of(server.address, **tls(ssl_check_hostname=False)) as client,
    ):
        assert (await client.request(HEARTBEAT, deadline=soon())).error_code == 0


NO_CERTIFICATE = "the broker refused the client's certificate, or requires one"


@pytest.mark.parametrize(
    ("context", "text"),
    [
        (
            lambda: server_context(ca=OTHER_CA),
            "the broker's certificate is not signed by a trusted authority",
        ),
        (lambda: server_context(expired=True), "the broker's certificate has expired"),
        (
            lambda: server_context("elsewhere.example"),
            "the broker's certificate is not for '127.0.0.1'",
        ),
        (lambda: server_context(wants_certificate=True), NO_CERTIFICATE),
        (
            lambda: server_context(wants_certificate=True, version=ssl.TLSVersion.TLSv1_2),
            "the broker ended the TLS handshake (SSLV3_ALERT_HANDSHAKE_FAILURE): it requires a"
            " client certificate (ssl_certfile)",
        ),
    ],
    ids=["authority", "expired", "host", "client-certificate-1.3", "client-certificate-1.2"],
)
async def test_the_cause_of_a_failed_tls_handshake_is_named(
    context: Callable[[], ssl.SSLContext], text: str
):
    async with serve(SaslBroker(tls=context())) as server:
        error = await refusal(server.address, **tls())
    assert isinstance(error, TlsError), repr(error)
    assert error.reason.startswith(text)
    assert error.broker == str(server.address)
    assert not error.retriable


async def test_a_client_certificate_of_another_authority_is_refused(tmp_path: Path):
    certificate = write_certificate(tmp_path, OTHER_CA)
    async with serve(SaslBroker(tls=server_context(wants_certificate=True))) as server:
        error = await refusal(server.address, **tls(**certificate))
    assert isinstance(error, TlsError)
    assert error.reason.startswith(NO_CERTIFICATE)


async def test_versions_of_tls_without_a_common_one():
    context = ssl.create_default_context(cadata=CA_PEM)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    async with serve(SaslBroker(tls=server_context(version=ssl.TLSVersion.TLSv1_2))) as server:
        error = await refusal(server.address, **tls(ssl_cadata=None, ssl_context=context))
    assert isinstance(error, TlsError)
    assert error.reason.startswith("client and broker have no version of TLS in common")


async def test_a_plaintext_client_learns_that_the_listener_speaks_tls():
    async def alert(connection: ServerConnection) -> None:
        # What Kafka on a JVM answers.
        await connection.transport.send([bytes.fromhex("15030300020250")])
        await connection.transport.receive_into(memoryview(bytearray(1000)))

    async with serve(alert) as server:
        error = await refusal(server.address, **QUICK)
    assert isinstance(error, TlsError)
    assert error.reason == "the listener speaks TLS: set security_protocol to 'SSL' or 'SASL_SSL'"
    assert not error.retriable


async def test_a_tls_client_learns_that_the_listener_does_not():
    async def close(connection: ServerConnection) -> None:
        # To Kafka, the begin of a TLS handshake is a frame that is too long.
        await connection.transport.receive_into(memoryview(bytearray(1000)))

    async with serve(close) as server:
        error = await refusal(server.address, **tls())
    assert isinstance(error, ConnectionFailed)
    assert "the listener does not speak TLS (check security_protocol 'SASL_SSL'" in error.reason


async def test_a_tls_client_learns_that_the_server_is_another():
    async def http(connection: ServerConnection) -> None:
        await connection.transport.send([b"HTTP/1.1 400 Bad Request\r\n\r\n"])
        await connection.transport.receive_into(memoryview(bytearray(1000)))

    async with serve(http) as server:
        error = await refusal(server.address, **tls())
    assert isinstance(error, TlsError)
    assert "the listener does not speak TLS" in error.reason


async def test_changed_files_are_read_again(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.WARNING, "aiokafkawire.security")
    authority = tmp_path / "ca.pem"
    authority.write_bytes(OTHER_CA.cert_pem.bytes())
    options = tls(ssl_cadata=None, ssl_cafile=str(authority))
    async with (
        serve(SaslBroker(tls=server_context())) as server,
        client_of(server.address, **options) as client,
    ):
        assert isinstance(await outcome_of(client.request(HEARTBEAT, deadline=soon())), TlsError)
        authority.write_text("half a fi")
        assert isinstance(await outcome_of(client.request(HEARTBEAT, deadline=soon())), TlsError)
        assert [record.getMessage() for record in caplog.records] == [
            f"TLS files have changed, but cannot be used: ssl_cafile {str(authority)!r} cannot be"
            " used: no PEM file with certificates (NO_CERTIFICATE_OR_CRL_FOUND); keeping those read"
            " before"
        ]
        authority.write_text(CA_PEM)
        assert (await client.request(HEARTBEAT, deadline=soon())).error_code == 0


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"ssl_cafile": "{folder}/none.pem"},
            "ssl_cafile '{folder}/none.pem' cannot be used: No such file or directory",
        ),
        (
            {"ssl_certfile": "{folder}/alice.pem", "ssl_keyfile": "{folder}/none.key"},
            "ssl_keyfile '{folder}/none.key' cannot be used: No such file or directory",
        ),
        (
            {"ssl_certfile": "{folder}/alice.pem", "ssl_keyfile": "{folder}/bob.key"},
            "ssl_keyfile '{folder}/bob.key' cannot be used: the key belongs to another certificate",
        ),
    ],
)
async def test_a_file_that_cannot_be_used_is_named(
    tmp_path: Path, options: dict[str, str], text: str
):
    write_certificate(tmp_path)
    (tmp_path / "bob.key").write_bytes(CA.issue_cert("bob@example.com").private_key_pem.bytes())
    given = {name: value.format(folder=tmp_path) for name, value in options.items()}
    config = make_config(security_protocol="SSL", **given)
    async with hosted() as (runtime, supervisor):
        with pytest.raises(InvalidOption) as caught:
            await make_handshake(config, runtime, supervisor).prepare()
    assert caught.value.reason == text.format(folder=tmp_path)


async def test_plaintext_does_nothing():
    async with hosted() as (runtime, supervisor):
        handshake = make_handshake(make_config(), runtime, supervisor)
    assert handshake is PLAINTEXT_HANDSHAKE
    assert await handshake.new_mechanism(Address("h", 1)) is None


async def test_a_listener_that_may_require_sasl_is_named():
    async with serve(SaslBroker()) as server:
        error = await refusal(server.address, **QUICK)
    assert isinstance(error, ConnectionLost)
    assert error.reason == (
        "the broker closed the connection without an answer to the first request: the listener may"
        " require SASL (security_protocol)"
    )
