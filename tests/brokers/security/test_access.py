"""Clients get in through each listener, and do there what they do everywhere."""

from __future__ import annotations

import ssl

import pytest

from tests.brokers.fixtures import what_real_kafka_needs
from tests.brokers.security.cases import (
    COMBINATIONS,
    combinations_of,
)
from tests.brokers.security.conftest import NewTopic
from tests.brokers.security.pki import KEY_PASSWORD
from tests.brokers.security.servers import SecureKafka, SecureServers
from tests.brokers.security.support import OLDER, ON_ASYNCIO, use_all


@pytest.mark.parametrize("combination", COMBINATIONS)
async def test_produce_consume_and_commit(
    servers: SecureServers, kafka: SecureKafka, topic: str, combination: str
):
    listener, access = COMBINATIONS[combination](servers)
    await use_all(kafka.address(listener), topic, access.options())


async def test_a_private_key_may_be_encrypted(
    servers: SecureServers, kafka: SecureKafka, topic: str
):
    listener, access = COMBINATIONS["TLS, client certificate"](servers)
    options = access.options()
    options["ssl_keyfile"] = str(servers.pki.alice.encrypted_key)
    options["ssl_password"] = KEY_PASSWORD
    await use_all(kafka.address(listener), topic, options)


async def test_the_authority_may_be_text(servers: SecureServers, kafka: SecureKafka, topic: str):
    text = servers.pki.authority.read_text(encoding="ascii")
    options = {"security_protocol": "SSL", "ssl_cadata": text}
    await use_all(kafka.address("SSL"), topic, options)


async def test_a_context_may_have_all_settings(
    servers: SecureServers, kafka: SecureKafka, topic: str
):
    _, access = COMBINATIONS["TLS, client certificate"](servers)
    options = {"security_protocol": "SSL", "ssl_context": access.ssl_context()}
    await use_all(kafka.address("MTLS"), topic, options)


async def test_the_host_name_need_not_be_verified(
    servers: SecureServers, kafka: SecureKafka, topic: str
):
    options = {
        "security_protocol": "SSL",
        "ssl_cafile": str(servers.pki.authority),
        "ssl_check_hostname": False,
    }
    await use_all(kafka.address("WRONG_HOST"), topic, options)


async def test_only_tls_1_3(servers: SecureServers, kafka: SecureKafka, topic: str):
    context = ssl.create_default_context(cafile=servers.pki.authority)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    options = {"security_protocol": "SSL", "ssl_context": context}
    await use_all(kafka.address("SSL"), topic, options)


async def test_a_password_is_asked_for_by_each_connection(
    servers: SecureServers, kafka: SecureKafka, topic: str
):
    listener, access = COMBINATIONS["SCRAM-SHA-256"](servers)
    asked = 0

    async def password() -> str:
        nonlocal asked
        asked += 1
        assert access.password is not None
        return access.password

    options = access.options() | {"sasl_password": password}
    await use_all(kafka.address(listener), topic, options)
    assert asked >= 3


@ON_ASYNCIO
@OLDER
async def test_older_releases(servers: SecureServers, new_topic: NewTopic, version: str):
    with what_real_kafka_needs():
        kafka = servers.get(version)
    for listener, access in combinations_of(servers, kafka).values():
        await use_all(kafka.address(listener), new_topic(kafka), access.options())
