"""Tests on the embedded broker."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anyio
import pytest
from aiohttp.test_utils import TestClient, TestServer
from app import make_app

from aiokafkawire import Consumer
from aiokafkawire.testing import KafkaBroker

pytestmark = pytest.mark.anyio

WITHIN_S = 30


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def client(
    kafka_broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[TestClient]:
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", kafka_broker.bootstrap_servers)
    async with TestClient(TestServer(make_app())) as client:
        yield client


async def test_measurements_are_in_kafka(client: TestClient, kafka_broker: KafkaBroker) -> None:
    with anyio.fail_after(WITHIN_S):
        while (await client.get("/health/ready")).status != 200:
            await anyio.sleep(0.02)
    measurements = [{"celsius": 20.5}, {"celsius": 21.0}]
    answer = await client.post("/sensors/roof", json=measurements)
    assert answer.status == 201
    assert await answer.json() == {"offsets": [0, 1]}
    async with Consumer(
        "measurements",
        bootstrap_servers=kafka_broker.bootstrap_servers,
        auto_offset_reset="earliest",
        key_deserializer=str,
        value_deserializer=dict,
    ) as consumer:
        with anyio.fail_after(WITHIN_S):
            records = [await consumer.getone() for _ in measurements]
    assert [(record.key, record.value) for record in records] == [
        ("roof", measurement) for measurement in measurements
    ]


async def test_without_kafka_the_service_answers(
    client: TestClient, kafka_broker: KafkaBroker
) -> None:
    for node in kafka_broker.live_nodes:
        kafka_broker.kill(node)
    answer = await client.post("/sensors/roof", json=[{"celsius": 20.5}])
    assert answer.status == 503
    assert (await client.get("/health/ready")).status == 503
