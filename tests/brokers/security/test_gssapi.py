"""Listeners with GSSAPI, and a KDC of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from aiokafkawire.consumer import Consumer
from aiokafkawire.errors import AuthenticationFailed
from aiokafkawire.producer import Producer
from tests.brokers.security.kdc import CLIENT, SERVICE
from tests.brokers.security.servers import SecureKafka, SecureServers, kerberos_login
from tests.brokers.security.support import MEMBER, WITHIN_S

# `make test-security SHORT=1` runs where there need not be a KDC.
pytestmark = pytest.mark.slow


@pytest.fixture
def kafka_with_kerberos(servers: SecureServers, kafka: SecureKafka) -> SecureKafka:
    if servers.kdc is None:
        pytest.skip(servers.no_kdc)
    return kafka


@pytest.mark.parametrize("listener", ["KERBEROS", "KERBEROS_TLS"])
def test_java_gets_in(
    servers: SecureServers,
    kafka_with_kerberos: SecureKafka,
    topic: str,
    listener: str,
    tmp_path: Path,
):
    assert servers.kdc is not None
    settings = {
        "security.protocol": kafka_with_kerberos.listeners[listener].protocol,
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.service.name": SERVICE.split("/", maxsplit=1)[0],
        "sasl.jaas.config": kerberos_login(servers.kdc, CLIENT),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(servers.pki.authority),
    }
    client = tmp_path / "client.properties"
    lines = (f"{key}={value}\n" for key, value in settings.items())
    client.write_text("".join(lines), encoding="ascii")
    listed = kafka_with_kerberos.run_tool(
        "org.apache.kafka.tools.TopicCommand",
        *("--bootstrap-server", kafka_with_kerberos.address(listener)),
        *("--command-config", str(client), "--list"),
    )
    assert topic in listed.splitlines()


@pytest.fixture
def tickets(
    servers: SecureServers, kafka_with_kerberos: SecureKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Let the Kerberos library of this process get tickets with a keytab."""
    del kafka_with_kerberos
    pytest.importorskip("gssapi", reason="the package gssapi is not installed")
    assert servers.kdc is not None
    monkeypatch.setenv("KRB5_CONFIG", str(servers.kdc.config))
    monkeypatch.setenv("KRB5_CLIENT_KTNAME", str(servers.kdc.keytab(CLIENT)))
    monkeypatch.setenv("KRB5CCNAME", "MEMORY:aiokafkawire")


def options(servers: SecureServers, kafka: SecureKafka, listener: str) -> dict[str, Any]:
    protocol = kafka.listeners[listener].protocol
    found = {"security_protocol": protocol, "sasl_mechanism": "GSSAPI"}
    if protocol == "SASL_SSL":
        found["ssl_cafile"] = str(servers.pki.authority)
    return found | {"bootstrap_servers": kafka.address(listener)}


@pytest.mark.parametrize("listener", ["KERBEROS", "KERBEROS_TLS"])
async def test_the_client_gets_in(
    servers: SecureServers,
    kafka_with_kerberos: SecureKafka,
    topic: str,
    listener: str,
    tickets: None,
):
    given = options(servers, kafka_with_kerberos, listener)
    async with Producer(**given) as producer:
        await producer.send_and_wait(topic, b"value")
    async with Consumer(topic, **MEMBER, **given) as consumer:
        with anyio.fail_after(WITHIN_S):
            assert (await consumer.getone()).value == b"value"


async def test_a_service_without_a_principal_is_named(
    servers: SecureServers, kafka_with_kerberos: SecureKafka, tickets: None
):
    given = options(servers, kafka_with_kerberos, "KERBEROS")
    with pytest.raises(AuthenticationFailed) as caught, anyio.fail_after(WITHIN_S):
        async with Producer(sasl_kerberos_service_name="nobody", **given):
            pass
    assert caught.value.reason.startswith("GSSAPI: ")
    assert "(server nobody/localhost; check kinit or the keytab" in caught.value.reason
