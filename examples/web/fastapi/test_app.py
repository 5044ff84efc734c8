"""Tests on the embedded broker, with the application in its own processes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import anyio
import httpx
import pytest

from aiokafkawire import Consumer
from aiokafkawire.testing import KafkaBroker

pytestmark = pytest.mark.anyio

WITHIN_S = 30


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@contextmanager
def server(bootstrap_servers: str, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run uvicorn on a free port; yield its process and address."""
    process = subprocess.Popen(
        [sys.executable, "-m", "uvicorn", "app:app", "--port", "0", *arguments],
        cwd=Path(__file__).parent,
        env=os.environ | {"KAFKA_BOOTSTRAP_SERVERS": bootstrap_servers},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    try:
        started = 0
        address = ""
        for line in process.stderr:
            address = next(iter(re.findall(r"running on (http://\S+)", line)), address)
            started += "Application startup complete" in line
            if address and started == (2 if "--workers" in arguments else 1):
                break
        yield process, address
    finally:
        process.kill()
        process.communicate()


@asynccontextmanager
async def watching(client: httpx.AsyncClient) -> AsyncIterator[AsyncIterator[dict[str, object]]]:
    async with client.stream("GET", "/invoices") as response:
        lines = response.aiter_lines()
        assert await anext(lines) == ": connected"

        async def invoices() -> AsyncIterator[dict[str, object]]:
            async for line in lines:
                if line.startswith("data: "):
                    yield json.loads(line.removeprefix("data: "))

        yield invoices()


async def orders_in_kafka(broker: KafkaBroker, count: int) -> list[str]:
    found: list[str] = []
    async with Consumer(
        "orders",
        bootstrap_servers=broker.bootstrap_servers,
        auto_offset_reset="earliest",
        value_deserializer=dict,
    ) as consumer:
        with anyio.fail_after(WITHIN_S):
            while len(found) < count:
                for records in (await consumer.getmany(timeout_ms=1_000)).values():
                    found += [record.value["id"] for record in records if record.value]
    return found


async def test_an_order_becomes_an_invoice_in_the_browser(kafka_broker: KafkaBroker) -> None:
    with server(kafka_broker.bootstrap_servers) as (_, address), anyio.fail_after(WITHIN_S):
        async with (
            httpx.AsyncClient(base_url=address, timeout=WITHIN_S) as client,
            watching(client) as invoices,
        ):
            assert (await client.get("/health/ready")).status_code == 200
            for number in range(3):
                order = {"id": f"{number}", "customer": "ada", "total": number}
                assert (await client.post("/orders", json=order)).status_code == 201
            seen = [await anext(invoices) for _ in range(3)]
    assert seen == [{"order": f"{number}", "total": number} for number in range(3)]


async def test_what_is_no_order_is_refused(kafka_broker: KafkaBroker) -> None:
    with server(kafka_broker.bootstrap_servers) as (_, address):
        async with httpx.AsyncClient(base_url=address) as client:
            assert (await client.post("/orders", json={"id": "1"})).status_code == 422


async def test_two_workers_stop_under_load_without_loss(kafka_broker: KafkaBroker) -> None:
    kafka_broker.create_topic("orders", partitions=3)
    accepted: list[str] = []
    servers = kafka_broker.bootstrap_servers
    with server(servers, "--workers", "2") as (process, address), anyio.fail_after(WITHIN_S):

        async def order(client: httpx.AsyncClient, name: int) -> None:
            for number in range(10_000):
                order_id = f"{name}-{number}"
                try:
                    answer = await client.post(
                        "/orders", json={"id": order_id, "customer": f"{name}", "total": 1}
                    )
                except httpx.TransportError:
                    return
                if answer.status_code == 201:
                    accepted.append(order_id)

        async with (
            httpx.AsyncClient(base_url=address) as client,
            anyio.create_task_group() as tasks,
        ):
            for name in range(4):
                tasks.start_soon(order, client, name)
            while len(accepted) < 200:
                await anyio.sleep(0.01)
            process.send_signal(signal.SIGTERM)
        await anyio.to_thread.run_sync(process.wait)
    assert process.returncode == 0
    found = await orders_in_kafka(kafka_broker, len(accepted))
    assert set(accepted) <= set(found)


async def test_a_stop_ends_the_streams_of_browsers(kafka_broker: KafkaBroker) -> None:
    with server(kafka_broker.bootstrap_servers) as (process, address), anyio.fail_after(WITHIN_S):
        async with (
            httpx.AsyncClient(base_url=address, timeout=WITHIN_S) as client,
            watching(client) as invoices,
        ):
            process.send_signal(signal.SIGTERM)
            assert [invoice async for invoice in invoices] == []
        assert process.stderr is not None
        log = await anyio.to_thread.run_sync(process.stderr.read)
    assert "Application shutdown complete" in log
    assert "Traceback" not in log


def test_without_a_broker_the_start_fails_with_the_reason() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "uvicorn", "app:app", "--port", "0"],
        cwd=Path(__file__).parent,
        env=os.environ | {"KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 3
    assert "127.0.0.1:1: connection refused; nothing listens there" in done.stderr
