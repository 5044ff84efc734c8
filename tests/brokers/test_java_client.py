"""Kafka's own client, of Java, authenticates against the embedded broker."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aiokafkawire.broker import ApiKey, BrokerSasl, BrokerTls, CertificateAuthority
from aiokafkawire.testing import KafkaBroker
from tests.brokers.releases import RELEASES, fetch, java_for

RELEASE = RELEASES["4.3.0"]
LIMIT_S = 120
TOPIC, USER, PASSWORD = "orders", "alice,=", "alice-secret"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
SESSION_MS = 2_000

MODULES = "org.apache.kafka.common.security"
BY_PASSWORD = f'required username="{USER}" password="{PASSWORD}";'
LOGIN = {
    "PLAIN": f"{MODULES}.plain.PlainLoginModule {BY_PASSWORD}",
    "SCRAM-SHA-256": f"{MODULES}.scram.ScramLoginModule {BY_PASSWORD}",
    "SCRAM-SHA-512": f"{MODULES}.scram.ScramLoginModule {BY_PASSWORD}",
    "OAUTHBEARER": f"{MODULES}.oauthbearer.OAuthBearerLoginModule required"
    ' unsecuredLoginStringClaim_sub="dora";',
}
COMBINATIONS = [
    ("SSL", None),
    *((protocol, each) for protocol in ("SASL_PLAINTEXT", "SASL_SSL") for each in MECHANISMS),
]


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    sasl = BrokerSasl(users={USER: PASSWORD}, mechanisms=MECHANISMS)
    listeners: Any = ["SSL", "SASL_PLAINTEXT", "SASL_SSL"]
    with KafkaBroker(2, tls=True, sasl=sasl, listeners=listeners) as broker:
        broker.create_topic(TOPIC)
        yield broker


def command(
    tool: str, broker: KafkaBroker, protocol: Any, folder: Path, **config: str
) -> list[str]:
    """Return the command of a console tool, whose config is written to a file."""
    lines = {"security.protocol": protocol, **config}
    if protocol.endswith("SSL"):
        assert broker.authority is not None
        broker.authority.write(folder / "ca.pem")
        lines |= {
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(folder / "ca.pem"),
        }
    written = folder / "client.properties"
    written.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
    return [
        *(str(java_for(RELEASE)), "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
        *("-cp", f"{fetch(RELEASE)}/*", f"org.apache.kafka.tools.{tool}"),
        *("--bootstrap-server", broker.listeners[protocol], "--topic", TOPIC),
        *("--command-config", str(written)),
    ]


def produce(arguments: list[str], values: bytes) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        arguments, input=values, capture_output=True, timeout=LIMIT_S, check=False
    )


@pytest.mark.parametrize(("protocol", "mechanism"), COMBINATIONS)
def test_the_console_tools_produce_and_consume(
    broker: KafkaBroker, protocol: str, mechanism: str | None, tmp_path: Path
) -> None:
    config = {}
    if mechanism is not None:
        config = {"sasl.mechanism": mechanism, "sasl.jaas.config": LOGIN[mechanism]}
    offset, value = broker.end_offset(TOPIC, 0), f"{protocol} {mechanism}".encode()
    produced = produce(command("ConsoleProducer", broker, protocol, tmp_path, **config), value)
    assert produced.returncode == 0, produced.stderr.decode()
    consumer = command("consumer.ConsoleConsumer", broker, protocol, tmp_path, **config)
    position = ("--partition", "0", "--offset", str(offset), "--max-messages", "1")
    consumed = produce([*consumer, *position], b"")
    assert consumed.stdout == value + b"\n", consumed.stderr.decode()


def test_it_authenticates_again_on_the_same_connection(tmp_path: Path) -> None:
    with KafkaBroker(sasl={USER: PASSWORD}, connections_max_reauth_ms=SESSION_MS) as broker:
        broker.create_topic(TOPIC)
        config = {"sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": LOGIN["SCRAM-SHA-512"]}
        arguments = command("ConsoleProducer", broker, "SASL_PLAINTEXT", tmp_path, **config)
        process = subprocess.Popen(
            arguments, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        assert process.stdin is not None
        count = 0
        try:
            broker.create_topic("unused")
            process.stdin.write(b"first\n")
            process.stdin.flush()
            broker.wait_for_request(ApiKey.PRODUCE, timeout_s=LIMIT_S)
            end = time.monotonic() + 4 * SESSION_MS / 1000
            while time.monotonic() < end:
                process.stdin.write(b"x\n")
                process.stdin.flush()
                count += 1
                time.sleep(0.1)
        finally:
            process.communicate(timeout=LIMIT_S)
        assert process.returncode == 0
        connections = {seen.connection for seen in broker.requests.of(ApiKey.PRODUCE)}
        assert len(connections) == 1
        handshakes = broker.requests.of(ApiKey.SASL_HANDSHAKE)
        assert sum(seen.connection in connections for seen in handshakes) >= 3
        assert broker.end_offset(TOPIC, 0) == count + 1


def test_it_shows_its_certificate(tmp_path: Path) -> None:
    authority = CertificateAuthority()
    certificate = authority.issue("alice", organization="Lab")
    store = tmp_path / "client.pem"
    store.write_text(certificate.key_pem + certificate.certificate_pem)
    with KafkaBroker(tls=BrokerTls(authority=authority, client_auth="required")) as broker:
        broker.create_topic(TOPIC)
        refused = command("ConsoleProducer", broker, "SSL", tmp_path, **{"max.block.ms": "30000"})
        assert b"SslAuthenticationException" in produce(refused, b"x\n").stderr
        config = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(store)}
        accepted = command("ConsoleProducer", broker, "SSL", tmp_path, **config)
        produced = produce(accepted, b"x\n")
        assert produced.returncode == 0, produced.stderr.decode()
        assert broker.end_offset(TOPIC, 0) == 1


def test_a_wrong_password_is_an_authentication_error(broker: KafkaBroker, tmp_path: Path) -> None:
    login = LOGIN["PLAIN"].replace(PASSWORD, "wrong")
    config = {"sasl.mechanism": "PLAIN", "sasl.jaas.config": login, "max.block.ms": "30000"}
    arguments = command("ConsoleProducer", broker, "SASL_SSL", tmp_path, **config)
    shown = produce(arguments, b"x\n").stderr
    assert b"SaslAuthenticationException" in shown
    assert b"Authentication failed: Invalid username or password" in shown
