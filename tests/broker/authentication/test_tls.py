"""TLS on a listener: certificates of both sides, and clients that do not speak TLS."""

from __future__ import annotations

import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from aiokafkawire.broker import Acl, Broker, BrokerTls, CertificateAuthority, ErrorCode
from aiokafkawire.broker.authentication import certificate_principal
from aiokafkawire.broker.client_log import MAX_LINES_PER_KEY
from aiokafkawire.runtime import Address, RealRuntime, Transport
from aiokafkawire.runtime.tls_transport import TlsTransport, connect_tls
from aiokafkawire.wire.messages.metadata import MetadataRequest
from aiokafkawire.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from aiokafkawire.wire.messages.sasl_handshake import SaslHandshakeRequest

from ..raw_client import RawClient, build_update_metadata_request

LIMIT_S = 20
HOST = "127.0.0.1"
METADATA = MetadataRequest(topics=[])
TLS = BrokerTls(authority=CertificateAuthority())
VERSIONS = (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)


def client_context(authority: CertificateAuthority | None) -> ssl.SSLContext:
    assert authority is not None
    return ssl.create_default_context(cadata=authority.pem)


def with_certificate(
    authority: CertificateAuthority, folder: Path, issuer: CertificateAuthority, **subject: Any
) -> ssl.SSLContext:
    """Return a client's context with a certificate of the issuer."""
    context = client_context(authority)
    context.load_cert_chain(*issuer.issue("alice", **subject).write(folder))
    return context


async def connect(broker: Broker) -> Transport:
    return await RealRuntime().connect(broker.nodes[1])


@asynccontextmanager
async def secured(broker: Broker, context: ssl.SSLContext) -> AsyncIterator[RawClient]:
    with anyio.fail_after(LIMIT_S):
        transport: TlsTransport = await connect_tls(await connect(broker), context, HOST)
        try:
            yield RawClient(transport)
        finally:
            with anyio.CancelScope(shield=True):
                await transport.aclose()


@pytest.mark.parametrize("version", VERSIONS, ids=lambda version: version.name)
async def test_clients_that_trust_the_authority_connect(version: ssl.TLSVersion) -> None:
    async with Broker(tls=True) as broker:
        assert list(broker.listeners) == ["SSL"]
        context = client_context(broker.authority)
        context.maximum_version = version
        async with secured(broker, context) as client:
            for _ in range(3):
                assert (await client.call(METADATA, 1)).brokers[0].port == broker.nodes[1].port


async def test_sasl_works_over_tls() -> None:
    async with Broker(tls=True, sasl={"alice": "secret"}) as broker:
        async with secured(broker, client_context(broker.authority)) as client:
            await client.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)
            await client.call(SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret"), 2)
            assert (await client.call(METADATA, 1)).brokers
        async with secured(broker, client_context(broker.authority)) as client:
            await client.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)
            failed = await client.call(SaslAuthenticateRequest(auth_bytes=b"\0alice\0x"), 2)
            assert failed.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert await client.closed()
        async with secured(broker, client_context(broker.authority)) as client:
            await client.send(METADATA, 1)
            assert await client.closed()


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (BrokerTls(expired=True), "certificate has expired"),
        (BrokerTls(host_names=["other.example"]), "mismatch|not valid for"),
        (BrokerTls(), "self-signed|unable to get local issuer"),
    ],
    ids=["expired", "host name", "authority"],
)
async def test_certificates_that_clients_refuse(
    settings: BrokerTls, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with Broker(tls=settings) as broker:
        trusted = broker.authority if settings != BrokerTls() else CertificateAuthority()
        with anyio.fail_after(LIMIT_S), pytest.raises(ssl.SSLCertVerificationError, match=reason):
            await connect_tls(await connect(broker), client_context(trusted), HOST)
        async with secured_anyhow(broker):
            pass


@asynccontextmanager
async def secured_anyhow(broker: Broker) -> AsyncIterator[RawClient]:
    """Connect without verification."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    async with secured(broker, context) as client:
        assert (await client.call(METADATA, 1)).brokers
        yield client


async def test_the_broker_logs_a_client_that_refuses_its_certificate(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, "aiokafkawire.broker"):
        async with Broker(tls=True) as broker:
            context = client_context(CertificateAuthority())
            with anyio.fail_after(LIMIT_S), pytest.raises(ssl.SSLError):
                await connect_tls(await connect(broker), context, HOST)
            for _ in range(200):
                if "the TLS handshake failed: TLSV1_ALERT_UNKNOWN_CA" in caplog.text:
                    return
                await anyio.sleep(0.05)
    pytest.fail(f"no such line in {caplog.text}")


@pytest.mark.parametrize(
    "sent",
    [b"\0\0\0\x10\0\x12\0\0\0\0\0\x01\0\x06seclab", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"],
    ids=["Kafka", "HTTP"],
)
async def test_a_client_without_tls_gets_the_alert_of_real_brokers(sent: bytes) -> None:
    async with Broker(tls=True) as broker:
        transport = await connect(broker)
        await transport.send([sent])
        buffer, received = memoryview(bytearray(100)), b""
        with anyio.fail_after(LIMIT_S):
            while count := await transport.receive_into(buffer):
                received += bytes(buffer[:count])
        assert received == bytes.fromhex("15030300020250")
        await transport.aclose()


async def test_a_client_with_tls_on_a_plaintext_listener_is_logged_with_the_remedy(
    caplog: pytest.LogCaptureFixture,
) -> None:
    # So large a limit takes the first bytes of TLS for the length of a frame.
    async with Broker(max_request_bytes=2**31 - 1) as broker:
        for _ in range(MAX_LINES_PER_KEY + 2):
            with anyio.fail_after(LIMIT_S), pytest.raises(OSError):
                await connect_tls(
                    await connect(broker), client_context(CertificateAuthority()), HOST
                )
    assert_logged_with_limit(
        caplog,
        "closed: the client speaks TLS, but listener PLAINTEXT does not:"
        " set the client's security.protocol to that of the listener",
    )


async def test_a_client_without_tls_is_logged_with_the_remedy(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with Broker(tls=True) as broker:
        for _ in range(MAX_LINES_PER_KEY + 2):
            client = RawClient(await connect(broker))
            await client.send(METADATA, 1)
            assert await client.transport.receive_into(memoryview(bytearray(100)))
            await client.transport.aclose()
    assert_logged_with_limit(
        caplog,
        "closed: the client does not speak TLS, but listener SSL does:"
        " set the client's security.protocol to that of the listener",
    )


def assert_logged_with_limit(caplog: pytest.LogCaptureFixture, line: str) -> None:
    *logged, announcement = [
        each.getMessage() for each in caplog.records if each.levelno == logging.WARNING
    ]
    assert len(logged) == MAX_LINES_PER_KEY
    assert all(each.endswith(line) for each in logged), logged
    assert "logged at DEBUG" in announcement


async def test_a_client_that_never_begins_is_closed_as_idle() -> None:
    async with Broker(tls=True, connections_max_idle_ms=50) as broker:
        transport = await connect(broker)
        with anyio.fail_after(LIMIT_S):
            with suppress(OSError):
                assert await transport.receive_into(memoryview(bytearray(10))) == 0
        await transport.aclose()


async def test_a_paused_node_does_not_answer_the_handshake() -> None:
    async with Broker(tls=True) as broker:
        broker.pause(1)
        with anyio.move_on_after(0.1) as scope:
            async with secured(broker, client_context(broker.authority)):
                pass
        assert scope.cancelled_caught
        broker.resume(1)
        async with secured(broker, client_context(broker.authority)) as client:
            assert (await client.call(METADATA, 1)).brokers


@settings(max_examples=30, deadline=None)
@given(sent=st.lists(st.binary(min_size=1, max_size=80), min_size=1, max_size=4))
@example(sent=[b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00"])
@example(sent=[b"\x16\x03\x01\xff\xff"])
@pytest.mark.slow
def test_any_bytes_leave_a_tls_listener_alive(sent: list[bytes]) -> None:
    async def run() -> None:
        async with Broker(tls=TLS, connection_failed_authentication_delay_ms=0) as broker:
            transport = await connect(broker)
            with suppress(OSError):
                await transport.send(sent)
            await transport.aclose()
            async with secured(broker, client_context(broker.authority)) as client:
                assert (await client.call(METADATA, 1)).brokers

    logging.getLogger("aiokafkawire.broker").setLevel(logging.CRITICAL)
    try:
        anyio.run(run)
    finally:
        logging.getLogger("aiokafkawire.broker").setLevel(logging.NOTSET)


async def test_a_killed_node_ends_handshakes_that_hang() -> None:
    async with Broker(tls=True) as broker:
        transport = await connect(broker)
        await transport.send([b"\x16\x03\x01"])
        with anyio.fail_after(LIMIT_S):
            await broker.kill(1)
        await transport.aclose()


# --- client certificates ---


async def read_once(broker: Broker, context: ssl.SSLContext) -> None:
    """Connect and read. With TLS 1.3 the client learns from the read that it is refused."""
    async with secured(broker, context) as client:
        await client.transport.receive_into(memoryview(bytearray(100)))


@pytest.mark.parametrize("version", VERSIONS, ids=lambda version: version.name)
@pytest.mark.parametrize(
    ("case", "reason"),
    [
        ("none", "CERTIFICATE_REQUIRED|HANDSHAKE_FAILURE|BAD_CERTIFICATE"),
        ("other authority", "UNKNOWN_CA"),
        ("expired", "CERTIFICATE_EXPIRED"),
    ],
)
async def test_client_certificates_that_the_broker_refuses(
    version: ssl.TLSVersion, case: str, reason: str, tmp_path: Path
) -> None:
    authority = CertificateAuthority()
    async with Broker(tls=BrokerTls(authority=authority, client_auth="required")) as broker:
        if case == "none":
            context = client_context(authority)
        else:
            issuer = CertificateAuthority() if case == "other authority" else authority
            context = with_certificate(authority, tmp_path, issuer, expired=case == "expired")
        context.maximum_version = version
        with pytest.raises(ssl.SSLError, match=reason):
            await read_once(broker, context)


@pytest.mark.parametrize(
    ("subject", "is_allowed"),
    [
        ({"organization": "Lab", "organizational_unit": "Dev"}, True),
        ({"organization": "Lab", "organizational_unit": "Ops"}, False),
        (None, False),
    ],
)
async def test_the_subject_of_a_certificate_is_the_principal(
    subject: dict[str, Any] | None, is_allowed: bool, tmp_path: Path
) -> None:
    authority = CertificateAuthority()
    settings = BrokerTls(authority=authority, client_auth="requested")
    acls = [Acl("User:CN=alice,OU=Dev,O=Lab", "Describe", topic="orders")]
    context = (
        client_context(authority)
        if subject is None
        else with_certificate(authority, tmp_path, authority, **subject)
    )
    async with Broker(tls=settings, acls=acls) as broker, secured(broker, context) as client:
        await broker.create_topic("orders")
        response = await client.call(build_update_metadata_request("orders"), 4)
    expected = ErrorCode.NONE if is_allowed else ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert response.topics[0].error_code == expected


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        ([("commonName", "alice")], "User:CN=alice"),
        (
            [("countryName", "AT"), ("organizationName", "a, b+c"), ("commonName", ' "x" ')],
            'User:CN=\\ \\"x\\"\\ ,O=a\\, b\\+c,C=AT',
        ),
        ([("userId", "#1"), ("domainComponent", "lab")], "User:DC=lab,UID=\\#1"),
        ([], "User:"),
    ],
)
def test_principals_have_the_form_of_rfc_2253(
    subject: list[tuple[str, str]], expected: str
) -> None:
    assert certificate_principal({"subject": [[part] for part in subject]}) == expected


# --- the caller's own certificates ---


async def test_a_context_of_the_caller_is_used() -> None:
    authority = CertificateAuthority()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.configure_server(context, [HOST])
    async with Broker(tls=context) as broker:
        assert broker.authority is None
        assert "ssl_cadata" not in broker.client_options()
        async with secured(broker, client_context(authority)) as client:
            assert (await client.call(METADATA, 1)).brokers


async def test_certificates_may_come_from_files(tmp_path: Path) -> None:
    authority = CertificateAuthority()
    authority.write(tmp_path / "ca.crt")
    certfile, keyfile = authority.issue("broker", hosts=[HOST]).write(tmp_path, "server")
    settings = BrokerTls(
        certfile=certfile,
        keyfile=keyfile,
        client_auth="required",
        client_cafile=tmp_path / "ca.crt",
    )
    context = with_certificate(authority, tmp_path, authority)
    async with Broker(tls=settings) as broker, secured(broker, context) as client:
        assert (await client.call(METADATA, 1)).brokers


def test_keys_do_not_show() -> None:
    certificate = CertificateAuthority().issue("alice")
    assert "PRIVATE" not in repr(certificate)
    assert certificate.key_pem.startswith("-----BEGIN PRIVATE KEY-----"), "PKCS#8"
    assert "hunter2" not in repr(BrokerTls(password="hunter2"))


async def test_every_listener_of_a_node_ends_with_it() -> None:
    async with Broker(2, tls=True, listeners=["PLAINTEXT", "SSL"]) as broker:
        servers = {name: text.split(",")[0] for name, text in broker.listeners.items()}
        await broker.kill(1)
        for text in servers.values():
            host, _, port = text.rpartition(":")
            with pytest.raises(ConnectionRefusedError):
                await RealRuntime().connect(Address(host, int(port)))
        await broker.restart(1)
        assert {name: text.split(",")[0] for name, text in broker.listeners.items()} == servers
        for text in servers.values():
            host, _, port = text.rpartition(":")
            await (await RealRuntime().connect(Address(host, int(port)))).aclose()
