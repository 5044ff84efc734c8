"""Clients at work while a real cluster is upgraded, node by node."""

from __future__ import annotations

import logging

import anyio
import pytest
from anyio import to_thread

from aiokafkawire.producer import Producer
from tests.brokers.fixtures import what_real_kafka_needs
from tests.brokers.kafka import Kafka
from tests.upgrades.load import PARTITIONS, TOPIC, Load, at_work

WITHIN_S = 240.0

UPGRADES = {
    # While nodes differ they speak the older one's language, and keep its record format.
    ("0.9.0.1", "0.10.2.2", "2.8.2"): {
        "inter.broker.protocol.version": "0.9.0",
        "log.message.format.version": "0.9.0",
        # True before 0.11: a node that has not caught up would lead, and records would be lost.
        "unclean.leader.election.enable": "false",
    },
    ("1.1.1", "2.8.2"): {"inter.broker.protocol.version": "1.1"},
    ("3.9.1", "4.3.0"): {},
}


async def run(kafka: Kafka, releases: tuple[str, ...]) -> tuple[Load, list[bytes]]:
    with anyio.fail_after(WITHIN_S):
        async with at_work(kafka.bootstrap_servers, {}) as load:
            await load.more()
            for release in releases:
                for node in kafka.nodes:
                    await to_thread.run_sync(kafka.upgrade, node, release)
                    await load.more()
            return load, await load.finish()


@pytest.mark.slow
@pytest.mark.timeout(300)  # up to four starts of three nodes, beside other suites
@pytest.mark.parametrize("releases", UPGRADES, ids="-".join)
def test_nothing_is_lost_and_idempotent_producers_write_nothing_twice(
    releases: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    first, *later = releases
    properties = {"min.insync.replicas": "1"} | UPGRADES[releases]
    with what_real_kafka_needs(), Kafka(first, nodes=2, properties=properties) as kafka:
        kafka.create_topic(TOPIC, partitions=PARTITIONS, replication_factor=2)
        with caplog.at_level(logging.WARNING, "aiokafkawire.producer"):
            load, stored = anyio.run(run, kafka, tuple(later))
    warnings = [line for line in caplog.messages if "idempotence is disabled" in line]
    if first.startswith("0."):
        assert set(stored) == set(load.delivered)
        assert len(warnings) == 1
    else:
        assert sorted(stored) == load.delivered
        assert warnings == []


@pytest.mark.slow
def test_a_topic_in_an_older_format_is_written_to_without_idempotence(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def write(bootstrap_servers: str) -> list[int]:
        async with Producer(bootstrap_servers=bootstrap_servers) as producer:
            return [(await producer.send_and_wait(TOPIC, b"value")).offset for _ in range(3)]

    old_format = {
        "inter.broker.protocol.version": "0.10.2",
        "log.message.format.version": "0.10.2",
    }
    with what_real_kafka_needs(), Kafka("2.8.2", properties=old_format) as kafka:
        kafka.create_topic(TOPIC)
        with caplog.at_level(logging.WARNING, "aiokafkawire.producer"):
            assert anyio.run(write, kafka.bootstrap_servers) == [0, 1, 2]
    (line,) = caplog.messages
    assert "UNSUPPORTED_FOR_MESSAGE_FORMAT" in line
    assert "idempotence is disabled" in line
