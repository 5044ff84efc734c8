"""confluent-kafka, aiokafka and kafka-python authenticate against the embedded broker."""

from __future__ import annotations

import logging
import ssl
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiokafka
import anyio
import pytest
from aiokafka.abc import AbstractTokenProvider

from aiokafkawire.broker import (
    ApiKey,
    BrokerSasl,
    BrokerTls,
    CertificateAuthority,
    make_unsecured_token,
)
from aiokafkawire.testing import KafkaBroker

from ...conftest import BACKENDS

confluent_kafka = pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.net.sasl.oauth import AbstractTokenProvider as KafkaPythonTokenProvider

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
    pytest.mark.usefixtures("kafka_python_leftovers"),
]

DEADLINE_S = 30
SESSION_MS = 1_500
TOPIC = "orders"

COMBINATIONS = [
    ("SSL", None),
    *(
        (protocol, mechanism)
        for protocol in ("SASL_PLAINTEXT", "SASL_SSL")
        for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
    ),
]
USER, PASSWORD = "alice,=é", "pässwörd"
"""PLAIN takes any name. SCRAM's is ASCII, and kafka-python does not escape it."""

SCRAM_USER = "bob"


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    sasl = BrokerSasl(
        users={USER: PASSWORD, SCRAM_USER: PASSWORD},
        mechanisms=["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"],
    )
    with KafkaBroker(
        3, tls=True, sasl=sasl, listeners=["SSL", "SASL_PLAINTEXT", "SASL_SSL"]
    ) as broker:
        broker.create_topic(TOPIC)
        yield broker


def user_of(mechanism: str | None) -> str:
    return SCRAM_USER if str(mechanism).startswith("SCRAM") else USER


def pem(broker: KafkaBroker) -> str:
    assert broker.authority is not None
    return broker.authority.pem


# --- confluent-kafka ---


def librdkafka_options(broker: KafkaBroker, protocol: str, mechanism: str | None) -> dict[str, Any]:
    options: dict[str, Any] = {
        "bootstrap.servers": broker.listeners[protocol],  # type: ignore[index]
        "security.protocol": protocol,
    }
    if protocol.endswith("SSL"):
        options["ssl.ca.pem"] = pem(broker)
    if mechanism == "OAUTHBEARER":
        options["oauth_cb"] = lambda _: (make_unsecured_token("dora"), time.time() + 3600)
    elif mechanism is not None:
        options |= {"sasl.username": user_of(mechanism), "sasl.password": PASSWORD}
    return options if mechanism is None else {**options, "sasl.mechanism": mechanism}


def librdkafka_produce(options: dict[str, Any], value: str) -> tuple[int, int]:
    producer = confluent_kafka.Producer(options, logger=logging.getLogger("librdkafka"))
    sent: list[Any] = []
    producer.produce(TOPIC, value, on_delivery=lambda error, message: sent.append((error, message)))
    assert producer.flush(DEADLINE_S) == 0
    [(error, message)] = sent
    assert error is None
    return message.partition(), message.offset()


@pytest.mark.parametrize(("protocol", "mechanism"), COMBINATIONS)
def test_confluent_kafka_produces_and_consumes(
    broker: KafkaBroker, protocol: str, mechanism: str | None
) -> None:
    options = librdkafka_options(broker, protocol, mechanism)
    value = f"{protocol} {mechanism}"
    partition, offset = librdkafka_produce(options, value)
    consumer = confluent_kafka.Consumer(
        {**options, "group.id": "g"}, logger=logging.getLogger("librdkafka")
    )
    try:
        consumer.assign([confluent_kafka.TopicPartition(TOPIC, partition, offset)])
        message = consumer.poll(DEADLINE_S)
        assert message is not None
        assert message.value() == value.encode()
    finally:
        consumer.close()


def test_confluent_kafka_learns_why_it_was_refused(broker: KafkaBroker) -> None:
    errors: list[Any] = []
    options = librdkafka_options(broker, "SASL_SSL", "PLAIN") | {
        "sasl.password": "wrong",
        "error_cb": errors.append,
    }
    producer = confluent_kafka.Producer(options, logger=logging.getLogger("librdkafka"))
    deadline = time.monotonic() + DEADLINE_S
    while not errors and time.monotonic() < deadline:
        producer.poll(0.1)
    assert errors[0].code() == confluent_kafka.KafkaError._AUTHENTICATION
    assert "Authentication failed: Invalid username or password" in errors[0].str()


def test_confluent_kafka_authenticates_again() -> None:
    with KafkaBroker(sasl={SCRAM_USER: PASSWORD}, connections_max_reauth_ms=SESSION_MS) as broker:
        broker.create_topic(TOPIC)
        options = {
            "bootstrap.servers": broker.bootstrap_servers,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": SCRAM_USER,
            "sasl.password": PASSWORD,
        }
        producer = confluent_kafka.Producer(options, logger=logging.getLogger("librdkafka"))
        end, delivered = time.monotonic() + 3 * SESSION_MS / 1000, 0
        while time.monotonic() < end:
            producer.produce(TOPIC, b"x")
            assert producer.flush(DEADLINE_S) == 0
            delivered += 1
            time.sleep(0.05)
        handshakes = broker.requests.of(ApiKey.SASL_HANDSHAKE)
        connections = {seen.connection for seen in broker.requests.of(ApiKey.PRODUCE)}
        assert len(connections) == 1
        assert len([seen for seen in handshakes if seen.connection in connections]) >= 2
        assert broker.end_offset(TOPIC, 0) == delivered


def test_confluent_kafka_shows_its_certificate(tmp_path: Path) -> None:
    authority = CertificateAuthority()
    certificate = authority.issue("alice", organization="Lab", organizational_unit="Dev")
    with KafkaBroker(tls=BrokerTls(authority=authority, client_auth="required")) as broker:
        broker.create_topic(TOPIC)
        options = {
            **librdkafka_options(broker, "SSL", None),
            "ssl.certificate.pem": certificate.certificate_pem,
            "ssl.key.pem": certificate.key_pem,
        }
        assert librdkafka_produce(options, "x") == (0, 0)


# --- aiokafka ---


class AiokafkaTokens(AbstractTokenProvider):  # type: ignore[misc]
    async def token(self) -> str:
        return make_unsecured_token("dora")


def python_options(broker: KafkaBroker, protocol: str, mechanism: str | None) -> dict[str, Any]:
    options: dict[str, Any] = {
        "bootstrap_servers": broker.listeners[protocol],  # type: ignore[index]
        "security_protocol": protocol,
    }
    if protocol.endswith("SSL"):
        options["ssl_context"] = ssl.create_default_context(cadata=pem(broker))
    if mechanism is not None:
        options["sasl_mechanism"] = mechanism
        if mechanism != "OAUTHBEARER":
            options["sasl_plain_username"] = user_of(mechanism)
            options["sasl_plain_password"] = PASSWORD
    return options


@pytest.mark.parametrize(("protocol", "mechanism"), COMBINATIONS)
@pytest.mark.parametrize("anyio_backend", [BACKENDS["asyncio"]], ids=["asyncio"])
async def test_aiokafka_produces_and_consumes(
    broker: KafkaBroker, protocol: str, mechanism: str | None
) -> None:
    options = python_options(broker, protocol, mechanism)
    if mechanism == "OAUTHBEARER":
        options["sasl_oauth_token_provider"] = AiokafkaTokens()
    value = f"aiokafka {protocol} {mechanism}".encode()
    with anyio.fail_after(DEADLINE_S):
        async with aiokafka.AIOKafkaProducer(**options) as producer:
            sent = await producer.send_and_wait(TOPIC, value)
        async with aiokafka.AIOKafkaConsumer(**options) as consumer:
            partition = aiokafka.TopicPartition(TOPIC, sent.partition)
            consumer.assign([partition])
            consumer.seek(partition, sent.offset)
            record = await consumer.getone()
    assert record.value == value


# --- kafka-python ---


class KafkaPythonTokens(KafkaPythonTokenProvider):  # type: ignore[misc]
    def token(self) -> str:
        return make_unsecured_token("dora")


@pytest.mark.parametrize(("protocol", "mechanism"), COMBINATIONS)
def test_kafka_python_produces_and_consumes(
    broker: KafkaBroker, protocol: str, mechanism: str | None
) -> None:
    options = python_options(broker, protocol, mechanism)
    if mechanism == "OAUTHBEARER":
        options["sasl_oauth_token_provider"] = KafkaPythonTokens()
    value = f"kafka-python {protocol} {mechanism}".encode()
    producer = KafkaProducer(**options)
    try:
        sent = producer.send(TOPIC, value).get(DEADLINE_S)
    finally:
        producer.close()
    consumer = KafkaConsumer(**options, consumer_timeout_ms=DEADLINE_S * 1000)
    try:
        partition = TopicPartition(TOPIC, sent.partition)
        consumer.assign([partition])
        consumer.seek(partition, sent.offset)
        assert next(consumer).value == value
    finally:
        consumer.close()
