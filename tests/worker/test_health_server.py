"""The HTTP server of the probes: pages, hostile requests, bounds."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anyio
import pytest

from aiokafkawire.runtime import Address, RealRuntime, Supervisor
from aiokafkawire.worker import health_server
from aiokafkawire.worker.health import WorkerHealth, health_page
from aiokafkawire.worker.health_server import HealthServer, Page, format_metrics

PAGES = {"/livez": lambda: Page(200, "ok\n"), "/readyz": lambda: Page(503, "no partitions\n")}


@pytest.fixture
async def address() -> AsyncIterator[Address]:
    supervisor = Supervisor("test")
    await supervisor.start()
    server = HealthServer(RealRuntime(), supervisor, PAGES)
    try:
        yield await server.start("127.0.0.1", 0)
    finally:
        await server.aclose()
        await supervisor.stop()


async def request(address: Address, data: bytes) -> bytes:
    async with await anyio.connect_tcp(*address) as stream:
        await stream.send(data)
        received = b""
        with anyio.fail_after(10):
            try:
                while True:
                    received += await stream.receive()
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                return received


async def test_the_address_is_logged(caplog: pytest.LogCaptureFixture):
    caplog.set_level("INFO", "aiokafkawire.worker")
    supervisor = Supervisor("test")
    await supervisor.start()
    server = HealthServer(RealRuntime(), supervisor, PAGES)
    address = await server.start("127.0.0.1", 0)
    await server.aclose()
    await supervisor.stop()
    url = f"http://127.0.0.1:{address.port}"
    assert caplog.messages == [f"Health server: listening at {url} with /livez, /readyz"]


@pytest.mark.parametrize(
    ("data", "status", "body"),
    [
        (b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n", b"200 OK", b"ok\n"),
        (b"GET /livez?verbose=1 HTTP/1.0\r\n\r\n", b"200 OK", b"ok\n"),
        (b"GET /readyz HTTP/1.1\r\n\r\n", b"503 Service Unavailable", b"no partitions\n"),
        (b"HEAD /livez HTTP/1.1\r\n\r\n", b"200 OK", b""),
        (b"GET / HTTP/1.1\r\n\r\n", b"404 Not Found", b"paths: /livez, /readyz\n"),
        (b"POST /livez HTTP/1.1\r\n\r\n", b"405 Method Not Allowed", b"use GET\n"),
        (b"\x16\x03\x01\x02\r\n\r\n", b"400 Bad Request", b"not an HTTP request\n"),
        (b"G" * 8_192, b"400 Bad Request", b"not an HTTP request\n"),
        (b"GET /livez HTTP/2\r\n\r\n", b"400 Bad Request", b"not an HTTP request\n"),
    ],
)
async def test_a_request_is_answered(address: Address, data: bytes, status: bytes, body: bytes):
    head, _, received = (await request(address, data)).partition(b"\r\n\r\n")
    assert head.split(b"\r\n")[0] == b"HTTP/1.1 " + status
    assert b"Connection: close" in head
    assert received == body


async def test_silent_connections_end_and_others_are_served(
    address: Address, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(health_server, "REQUEST_TIMEOUT_S", 0.3)
    silent = [await anyio.connect_tcp(*address) for _ in range(health_server.MAX_CONNECTIONS)]
    assert b"200 OK" in await request(address, b"GET /livez HTTP/1.1\r\n\r\n")
    for stream in silent:
        await stream.aclose()


def test_reasons_are_the_text_of_a_failed_probe():
    health = WorkerHealth(
        is_alive=False,
        is_ready=False,
        reasons=("bill has been processing orders-0 offset 7 for 90 s",),
        running=1,
        delayed=0,
        oldest_attempt_s=90.0,
    )
    assert health_page(health, "is_alive") == Page(503, f"{health.reasons[0]}\n")


def test_metrics_have_the_format_of_prometheus():
    page = format_metrics(
        {"kafka_consumer_": {"polls_total": 2, 'lag{topic="a"}': 1, 'lag{topic="b"}': 0.5}}
    )
    assert page.text.splitlines() == [
        "# TYPE kafka_consumer_polls_total counter",
        "kafka_consumer_polls_total 2",
        "# TYPE kafka_consumer_lag gauge",
        'kafka_consumer_lag{topic="a"} 1',
        'kafka_consumer_lag{topic="b"} 0.5',
    ]
