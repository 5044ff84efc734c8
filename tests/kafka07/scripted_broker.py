"""A scripted Kafka 0.7 broker."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import anyio

from aiokafkawire.broker import Broker
from aiokafkawire.kafka07 import Client
from aiokafkawire.runtime import Address, RealRuntime, Transport
from aiokafkawire.wire.frame import FrameReader

FAST_OPTIONS: dict[str, Any] = {
    "request_timeout_ms": 5_000,
    "close_timeout_ms": 5_000,
    "retry_backoff_ms": 1,
    "retry_backoff_max_ms": 2,
    "fetch_backoff_ms": 1,
}


MESSAGE_A = "00000007 01 00 e8b7be43 61"
"""A message: length, magic, attributes, CRC-32 of the payload, payload "a"."""

FETCH_RESPONSE = "0000000d 0000" + MESSAGE_A
"""A FETCH response with one message."""


class ScriptedConnection:
    """The broker's end of one connection."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._reader = FrameReader(2**31 - 1, 2)
        self._frames: list[memoryview] = []

    async def receive(self) -> bytes:
        """Return the next request frame with its length, or b"" at the end of the stream."""
        while not self._frames:
            try:
                count = await self._transport.receive_into(self._reader.get_buffer())
            except OSError:
                return b""
            if not count:
                return b""
            self._frames = self._reader.buffer_updated(count)
        frame = self._frames.pop(0)
        return len(frame).to_bytes(4) + frame

    async def send(self, data: bytes) -> None:
        await self._transport.send([data])


Script = Callable[[ScriptedConnection], Awaitable[None]]


@contextlib.asynccontextmanager
async def serve_scripts(*scripts: Script) -> AsyncIterator[str]:
    """Serve scripts, one per connection, repeating the last one; yield the broker's address.

    A connection is closed when its script ends.
    """
    listener = await RealRuntime().listen(Address("127.0.0.1", 0))
    remaining_scripts = list(scripts)

    async def play(transport: Transport) -> None:
        script = remaining_scripts.pop(0) if len(remaining_scripts) > 1 else remaining_scripts[0]
        try:
            with contextlib.suppress(OSError):
                await script(ScriptedConnection(transport))
        finally:
            with anyio.CancelScope(shield=True):
                await transport.aclose()

    async def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                group.start_soon(play, await listener.accept())

    async with anyio.create_task_group() as group:
        group.start_soon(accept)
        try:
            yield str(listener.address)
        finally:
            group.cancel_scope.cancel()
            with anyio.CancelScope(shield=True):
                await listener.aclose()


def respond_with(*answers: str | bytes) -> Script:
    """Return a script that sends one response frame (hex or bytes) per request, then closes."""

    async def script(peer: ScriptedConnection) -> None:
        for answer in answers:
            if not await peer.receive():
                return
            await peer.send(bytes.fromhex(answer) if isinstance(answer, str) else answer)
        await peer.receive()

    return script


async def silent(peer: ScriptedConnection) -> None:
    """Read requests without responding."""
    while await peer.receive():
        pass


async def disconnect_on_request(peer: ScriptedConnection) -> None:
    """Close the connection at the first request."""
    await peer.receive()


@contextlib.asynccontextmanager
async def connected_client(*scripts: Script, **options: Any) -> AsyncIterator[Client]:
    async with (
        serve_scripts(*scripts) as server,
        Client(server, **{**FAST_OPTIONS, **options}) as client,
    ):
        yield client


@contextlib.asynccontextmanager
async def embedded_broker_client(**options: Any) -> AsyncIterator[Client]:
    """Yield a client of an embedded broker whose topics have two partitions."""
    broker = Broker(kafka07_port=0, default_partitions=2, segment_bytes=200)
    async with broker, Client(broker.kafka07_server, **{**FAST_OPTIONS, **options}) as client:
        yield client
