"""Connections at the 0.7 port: how they end, and that others go on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from aiokafkawire.broker import Broker
from aiokafkawire.broker.kafka07 import Logs
from aiokafkawire.errors import InvalidOption, KafkaError
from aiokafkawire.runtime import Address, RealRuntime, Transport
from aiokafkawire.wire import kafka07

NOTHING = kafka07.encode_request(kafka07.Kafka07MultiFetchRequest(requests=()))
ANSWER = bytes.fromhex("00000002 0000")
WAIT_S = 30


@asynccontextmanager
async def connected(broker: Broker) -> AsyncIterator[Transport]:
    host, _, port = broker.kafka07_server.rpartition(":")
    transport = await RealRuntime().connect(Address(host, int(port)))
    try:
        yield transport
    finally:
        with anyio.CancelScope(shield=True):
            await transport.aclose()


async def read_bytes(transport: Transport, size: int = 6) -> bytes:
    """Read until `size` bytes or the end."""
    data = bytearray()
    buffer = memoryview(bytearray(size))
    with anyio.fail_after(WAIT_S):
        while len(data) < size:
            try:
                count = await transport.receive_into(buffer)
            except OSError:
                break
            if not count:
                break
            data += buffer[:count]
    return bytes(data)


async def test_a_request_may_come_byte_by_byte() -> None:
    async with Broker(kafka07_port=0) as broker, connected(broker) as transport:
        for number in range(len(NOTHING)):
            await transport.send([NOTHING[number : number + 1]])
        assert await read_bytes(transport) == ANSWER


async def test_many_requests_at_once_are_answered_in_order() -> None:
    async with Broker(kafka07_port=0) as broker, connected(broker) as transport:
        await transport.send([NOTHING * 1_000])
        assert await read_bytes(transport, 6_000) == ANSWER * 1_000


async def test_an_idle_connection_is_closed() -> None:
    async with (
        Broker(kafka07_port=0, connections_max_idle_ms=20) as broker,
        connected(broker) as transport,
    ):
        assert await read_bytes(transport) == b""


async def test_a_bad_client_does_not_affect_others(caplog: pytest.LogCaptureFixture) -> None:
    async with (
        Broker(kafka07_port=0) as broker,
        connected(broker) as good,
        connected(broker) as bad,
    ):
        await bad.send([b"GET / HTTP/1.1\r\n\r\n"])
        assert await read_bytes(bad) == b""
        await good.send([NOTHING])
        assert await read_bytes(good) == ANSWER
    assert "0.7 port: connection 2" in caplog.text


async def test_an_internal_error_closes_one_connection_only(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any) -> None:
        raise KeyError("a defect")

    async with Broker(kafka07_port=0) as broker:
        async with connected(broker) as transport:
            with monkeypatch.context() as patch:
                patch.setattr(Logs, "handle", fail)
                await transport.send([NOTHING])
                assert await read_bytes(transport) == b""
        async with connected(broker) as transport:
            await transport.send([NOTHING])
            assert await read_bytes(transport) == ANSWER
    assert "a request handler failed" in caplog.text


async def test_connections_are_bounded() -> None:
    async with (
        Broker(kafka07_port=0, max_connections=1) as broker,
        connected(broker) as first,
        connected(broker) as second,
    ):
        assert await read_bytes(second) == b""
        await first.send([NOTHING])
        assert await read_bytes(first) == ANSWER


async def test_the_kafka_0_7_port_is_opened_on_request() -> None:
    async with Broker() as broker:
        with pytest.raises(KafkaError, match="kafka07_port=0"):
            _ = broker.kafka07_server
    async with Broker(kafka07_port=0, advertised_host="there") as broker:
        assert broker.kafka07_server.startswith("there:")
        assert broker.kafka07_server not in broker.bootstrap_servers
        taken = int(broker.kafka07_server.rpartition(":")[2])
        with pytest.raises(KafkaError, match=f"cannot listen on port {taken} of"):
            await Broker(kafka07_port=taken).start()
    for wrong in (-1, 65_536):
        with pytest.raises(InvalidOption, match="kafka07_port"):
            Broker(kafka07_port=wrong)
