"""The listener that a run chooses is the one that clients use."""

from __future__ import annotations

import pytest

from aiokafkawire.consumer import Consumer
from aiokafkawire.errors import KafkaError
from aiokafkawire.producer import Producer
from tests.behaviour.security import requested
from tests.behaviour.support import MEMBER


async def test_clients_use_the_security_of_the_run(
    bootstrap_servers: str, topic: str, group_id: str, pytestconfig: pytest.Config
) -> None:
    protocol, mechanism = requested(pytestconfig)
    async with (
        Producer(bootstrap_servers=bootstrap_servers) as producer,
        Consumer(
            topic, bootstrap_servers=bootstrap_servers, group_id=group_id, **MEMBER
        ) as consumer,
    ):
        for client in (producer, consumer):
            assert client.config.security_protocol == protocol
            assert client.config.sasl_mechanism == mechanism
        await producer.send_and_wait(topic, b"x", partition=0)
    options = {"bootstrap_servers": bootstrap_servers, "security_protocol": "PLAINTEXT"}
    options |= {"sasl_mechanism": None, "sasl_username": None, "sasl_password": None}
    options |= {"ssl_cafile": None, "ssl_cadata": None}
    plain = Producer(**options)
    if protocol == "PLAINTEXT":
        async with plain:
            return
    with pytest.raises(KafkaError):
        async with plain:
            pass
