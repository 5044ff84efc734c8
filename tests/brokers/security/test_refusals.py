"""Refused connections end at once, with an error that says what to change."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import anyio
import pytest

from aiokafkawire.consumer import Consumer
from aiokafkawire.errors import AuthenticationFailed, KafkaError, NoBrokerAvailable, TlsError
from aiokafkawire.producer import Producer
from tests.brokers.fixtures import what_real_kafka_needs
from tests.brokers.security.access import Access
from tests.brokers.security.cases import (
    PRINCIPAL,
    Combination,
    password_access,
    token_access,
)
from tests.brokers.security.identity_provider import unsecured_token
from tests.brokers.security.servers import FIRST_WITH_REASONS, SCRAM, SecureKafka, SecureServers
from tests.brokers.security.support import OLDER, ON_ASYNCIO

Client = Producer | Consumer
Make = Callable[[SecureServers], Combination]

AT_ONCE_S = 10.0
"""Far below the 60 s of `default_api_timeout_ms`; brokers delay a refusal by 0.3 s."""

WRONG_PASSWORD = "a-wrong-password"

SPEAKS_TLS = "the listener speaks TLS: set security_protocol to 'SSL' or 'SASL_SSL'"
NOT_TRUSTED = (
    "the broker's certificate is not signed by a trusted authority (self-signed certificate in"
    " certificate chain): set ssl_cafile to that of the cluster"
)
NO_CERTIFICATE = (
    "the broker refused the client's certificate, or requires one (SSLV3_ALERT_BAD_CERTIFICATE):"
    " set ssl_certfile to one that the broker trusts"
)
BAD_CERTIFICATE = NO_CERTIFICATE.replace("BAD_CERTIFICATE", "CERTIFICATE_UNKNOWN")
INVALID_TOKEN = 'OAUTHBEARER: the broker refused the credentials: {"status":"invalid_token"}'
NO_SASL = (
    "the listener does not use SASL: set security_protocol to '{}', or connect to the listener"
    " that does"
)


def invalid_credentials(mechanism: str) -> str:
    """Return the reason with the text of Kafka 1.0 and later."""
    text = (
        "Authentication failed: Invalid username or password"
        if mechanism == "PLAIN"
        else "Authentication failed during authentication due to invalid credentials with SASL"
        f" mechanism {mechanism}"
    )
    return f"{mechanism}: the broker refused the credentials: {text}"


def by_password(listener: str, mechanism: str, **changes: Any) -> Make:
    def make(servers: SecureServers) -> Combination:
        return listener, replace(password_access(servers, listener, mechanism)[1], **changes)

    return make


def by_token(listener: str, **wanted: Any) -> Make:
    def make(servers: SecureServers) -> Combination:
        issue = partial(servers.provider.issue, PRINCIPAL, **wanted)
        return listener, replace(token_access(servers, listener)[1], token=issue)

    return make


def by_tls(listener: str, certificate: str | None = None, authority: str = "authority") -> Make:
    """Return a combination whose client has these attributes of the `Pki`."""

    def make(servers: SecureServers) -> Combination:
        pki = servers.pki
        return listener, Access(
            protocol="SSL",
            authority=getattr(pki, authority),
            certificate=None if certificate is None else getattr(pki, certificate),
        )

    return make


def at(listener: str, like: Make) -> Make:
    """Return a combination that goes to another listener than it is for."""
    return lambda servers: (listener, like(servers)[1])


def unsigned_token(servers: SecureServers) -> Combination:
    listener, access = token_access(servers, "OIDC")
    return listener, replace(access, token=partial(unsecured_token, PRINCIPAL))


def plaintext(_: SecureServers) -> Combination:
    return "PLAINTEXT", Access()


SASL_PLAINTEXT = by_password("SASL", "PLAIN")
SASL_SSL = by_password("SASL_TLS", "PLAIN")
SSL = by_tls("SSL")

CASES: dict[str, tuple[Make, type[KafkaError], str]] = {
    **{
        f"{what}, {mechanism}, {listener}": (
            by_password(listener, mechanism, **change),
            AuthenticationFailed,
            invalid_credentials(mechanism),
        )
        for mechanism in ("PLAIN", *SCRAM)
        for listener in ("SASL", "SASL_TLS")
        for what, change in (
            ("wrong password", {"password": WRONG_PASSWORD}),
            ("unknown user", {"username": "nobody"}),
        )
    },
    "token for others": (
        by_token("OIDC", audience="others"),
        AuthenticationFailed,
        INVALID_TOKEN,
    ),
    "token for others, TLS": (
        by_token("OIDC_TLS", audience="others"),
        AuthenticationFailed,
        INVALID_TOKEN,
    ),
    "unsigned token": (unsigned_token, AuthenticationFailed, INVALID_TOKEN),
    "token without algorithm": (
        by_token("OIDC", algorithm="none"),
        AuthenticationFailed,
        INVALID_TOKEN,
    ),
    "mechanism not enabled": (
        at("SASL", lambda servers: token_access(servers, "OAUTH")),
        AuthenticationFailed,
        "the broker does not enable sasl_mechanism 'OAUTHBEARER'; it enables 'PLAIN',"
        " 'SCRAM-SHA-512', 'SCRAM-SHA-256'",
    ),
    "mechanism not enabled, TLS": (
        at("OIDC_TLS", SASL_SSL),
        AuthenticationFailed,
        "the broker does not enable sasl_mechanism 'PLAIN'; it enables 'OAUTHBEARER'",
    ),
    "untrusted server": (by_tls("SSL", authority="other_authority"), TlsError, NOT_TRUSTED),
    "wrong host name": (
        by_tls("WRONG_HOST"),
        TlsError,
        "the broker's certificate is not for 'localhost': connect by a name in the certificate"
        " (bootstrap_servers, the broker's advertised.listeners)",
    ),
    "expired server": (
        by_tls("EXPIRED"),
        TlsError,
        "the broker's certificate has expired: renew it, or check this machine's clock",
    ),
    "no client certificate, TLS 1.3": (by_tls("MTLS"), TlsError, NO_CERTIFICATE),
    "no client certificate, TLS 1.2": (by_tls("TLS12"), TlsError, NO_CERTIFICATE),
    "no client certificate, SASL": (
        by_password("SASL_MTLS", "PLAIN", certificate=None),
        TlsError,
        NO_CERTIFICATE,
    ),
    "untrusted client, TLS 1.3": (by_tls("MTLS", "mallory"), TlsError, BAD_CERTIFICATE),
    "untrusted client, TLS 1.2": (by_tls("TLS12", "mallory"), TlsError, BAD_CERTIFICATE),
    "expired client, TLS 1.3": (by_tls("MTLS", "expired_alice"), TlsError, BAD_CERTIFICATE),
    "expired client, TLS 1.2": (by_tls("TLS12", "expired_alice"), TlsError, BAD_CERTIFICATE),
    "SASL to plaintext": (
        at("PLAINTEXT", SASL_PLAINTEXT),
        AuthenticationFailed,
        NO_SASL.format("PLAINTEXT"),
    ),
    "SASL to TLS": (at("SSL", SASL_SSL), AuthenticationFailed, NO_SASL.format("SSL")),
    **{
        f"{what} to {listener}": (at(listener, like), TlsError, SPEAKS_TLS)
        for what, like in (("plaintext", plaintext), ("SASL_PLAINTEXT", SASL_PLAINTEXT))
        for listener in ("SSL", "MTLS", "TLS12", "SASL_TLS")
    },
}

NO_TLS = "the listener does not speak TLS"
NEEDS_SASL = (
    "without an answer to the first request: the listener may require SASL (security_protocol)"
)

AMBIGUOUS = [
    pytest.param(at("PLAINTEXT", SSL), NO_TLS, id="TLS to plaintext"),
    pytest.param(at("SASL", SSL), NO_TLS, id="TLS to SASL_PLAINTEXT"),
    pytest.param(at("PLAINTEXT", SASL_SSL), NO_TLS, id="SASL_SSL to plaintext"),
    pytest.param(at("SASL", SASL_SSL), NO_TLS, id="SASL_SSL to SASL_PLAINTEXT"),
    pytest.param(at("SASL", plaintext), NEEDS_SASL, id="plaintext to SASL_PLAINTEXT"),
    pytest.param(at("SASL_TLS", SSL), NEEDS_SASL, id="TLS to SASL_SSL"),
]
"""Combinations where the broker only closes the connection, as one does that shuts down.

The client retries until its timeout, and the text names the probable cause.
"""


async def refusal(client: Client) -> KafkaError:
    """Return the error that a client raises within `AT_ONCE_S`."""
    with anyio.fail_after(AT_ONCE_S), pytest.raises(KafkaError) as caught:
        async with client:
            pass
    return caught.value


def assert_no_secrets(text: str, access: Access) -> None:
    assert access.password is None or access.password not in text
    assert "eyJ" not in text, "the beginning of a JSON Web Token"


@pytest.mark.parametrize("case", CASES)
async def test_refused_at_once(
    servers: SecureServers, kafka: SecureKafka, caplog: pytest.LogCaptureFixture, case: str
):
    make, kind, reason = CASES[case]
    listener, access = make(servers)
    address = kafka.address(listener)
    caplog.set_level("DEBUG", "aiokafkawire")
    error = await refusal(Producer(bootstrap_servers=address, **access.options()))
    assert type(error) is kind
    assert error.reason == reason
    assert error.broker == address
    assert not error.retriable
    assert_no_secrets(f"{error!r} {error} {caplog.text}", access)


@pytest.mark.parametrize(
    "case", ["wrong password, SCRAM-SHA-256, SASL", "no client certificate, TLS 1.3"]
)
async def test_refused_for_consumers_alike(servers: SecureServers, kafka: SecureKafka, case: str):
    make, kind, reason = CASES[case]
    listener, access = make(servers)
    options = {"bootstrap_servers": kafka.address(listener), **access.options()}
    error = await refusal(Consumer("topic", group_id="group", **options))
    assert (type(error), error.reason) == (kind, reason)


async def test_records_fail_at_once_if_the_client_connects_in_background(
    servers: SecureServers, kafka: SecureKafka
):
    listener, access = by_password("SASL", "PLAIN", password=WRONG_PASSWORD)(servers)
    options = {"bootstrap_servers": kafka.address(listener), **access.options()}

    async def send() -> None:
        async with Producer(connect_on_start=False, **options) as producer:
            await producer.send_and_wait("topic", b"value")

    with (
        anyio.fail_after(AT_ONCE_S),
        pytest.raises(AuthenticationFailed, match="Invalid username or password"),
    ):
        await send()


@pytest.mark.slow
@pytest.mark.parametrize(("make", "text"), AMBIGUOUS)
async def test_a_listener_of_another_kind_is_named(
    servers: SecureServers, kafka: SecureKafka, make: Make, text: str
):
    listener, access = make(servers)
    options = {"bootstrap_servers": kafka.address(listener), **access.options()}
    error = await refusal(Producer(default_api_timeout_ms=3_000, **options))
    assert isinstance(error, NoBrokerAvailable)
    assert text in error.reason


@OLDER
@ON_ASYNCIO
async def test_older_releases_refuse_too(servers: SecureServers, version: str):
    with what_real_kafka_needs():
        kafka = servers.get(version)
    gives_reason = kafka.release.number >= FIRST_WITH_REASONS
    for mechanism in ("PLAIN", *SCRAM):
        if mechanism not in kafka.mechanisms:
            continue
        for listener in ("SASL_PLAINTEXT", "SASL_SSL"):
            _, access = by_password(listener, mechanism, password=WRONG_PASSWORD)(servers)
            options = {"bootstrap_servers": kafka.address(listener), **access.options()}
            error = await refusal(Producer(**options))
            assert type(error) is AuthenticationFailed
            if gives_reason:
                assert re.search(r"(?i)invalid (username|credentials)", error.reason)
            else:
                assert "user name or password is probably wrong" in error.reason
