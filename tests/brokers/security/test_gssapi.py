"""Listeners with GSSAPI, and a KDC of their own. The client does not have this mechanism yet."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.brokers.security.kdc import CLIENT, SERVICE
from tests.brokers.security.servers import SecureKafka, SecureServers, kerberos_login

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
