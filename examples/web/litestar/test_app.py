"""Tests on the embedded broker."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anyio
import pytest
from app import app
from litestar.testing import AsyncTestClient

from aiokafkawire import Consumer, Producer
from aiokafkawire.testing import KafkaBroker

pytestmark = pytest.mark.anyio

WITHIN_S = 30


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def client(
    kafka_broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[AsyncTestClient]:
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", kafka_broker.bootstrap_servers)
    async with AsyncTestClient(app) as client:
        yield client


async def total_of(client: AsyncTestClient, customer: str) -> int:
    total: int = (await client.get(f"/customers/{customer}")).json()["total"]
    return total


async def test_orders_are_billed(client: AsyncTestClient) -> None:
    for number in (1, 2, 2):
        order = {"id": f"{number}", "customer": "ada", "total": number}
        assert (await client.post("/orders", json=order)).status_code == 201
    with anyio.fail_after(WITHIN_S):
        while await total_of(client, "ada") < 3:
            await anyio.sleep(0.02)
    assert (await client.post("/orders", json={"id": "3"})).status_code == 400


async def test_what_is_no_order_becomes_a_dead_letter(
    client: AsyncTestClient, kafka_broker: KafkaBroker
) -> None:
    servers = kafka_broker.bootstrap_servers
    async with (
        Producer(bootstrap_servers=servers) as producer,
        Consumer("billing.dead", bootstrap_servers=servers, auto_offset_reset="earliest") as dead,
    ):
        await producer.send_and_wait("orders", b"{}", key=b"ada")
        with anyio.fail_after(WITHIN_S):
            letter = await dead.getone()
    assert letter.value == b"{}"
    assert await total_of(client, "ada") == 0
