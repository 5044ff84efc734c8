"""Tests on the embedded broker, with a server in the process of the test."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anyio
import httpx
import pytest
import uvicorn
from app import app

from aiokafkawire.testing import KafkaBroker

pytestmark = pytest.mark.anyio

WITHIN_S = 30


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def client(
    kafka_broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[httpx.AsyncClient]:
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", kafka_broker.bootstrap_servers)
    kafka_broker.create_topic("feed")
    server = uvicorn.Server(uvicorn.Config(app, port=0, timeout_graceful_shutdown=1))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(server.serve)
        with anyio.fail_after(WITHIN_S):
            while not server.started:
                await anyio.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
            yield client
        server.should_exit = True


async def test_two_browsers_see_a_message(client: httpx.AsyncClient) -> None:
    async with client.stream("GET", "/feed") as first, client.stream("GET", "/feed") as second:
        with anyio.fail_after(WITHIN_S):
            streams = [first.aiter_lines(), second.aiter_lines()]
            for lines in streams:
                assert await anext(lines) == ": connected"
            assert (await client.post("/feed", content=b"hello\nworld")).status_code == 201
            for lines in streams:
                seen = [await anext(lines) for _ in range(5)]
                assert seen == ["", "id: 0-0", "data: hello", "data: world", ""]
