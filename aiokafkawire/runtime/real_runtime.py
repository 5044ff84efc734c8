"""The runtime with real network and clock, on asyncio or trio."""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Callable, Sequence
from typing import TypeVar, cast

import anyio
import anyio.abc
import anyio.to_thread

from aiokafkawire.runtime.daemon_threads import DaemonThreads
from aiokafkawire.runtime.interfaces import (
    Address,
    Buffer,
    Clock,
    Listener,
    Threads,
    Transport,
    receive_until_eof,
)
from aiokafkawire.runtime.resolver import Resolver
from aiokafkawire.runtime.sockets import (
    COALESCED_WRITE_BYTES,
    DuplicateSocket,
    coalesce,
    too_many_open_files,
)
from aiokafkawire.runtime.supervisor import get_loop_clock, running_on_trio
from aiokafkawire.runtime.sync import checkpoint

__all__ = ("COALESCED_WRITE_BYTES", "MAX_OFFLOADED", "RealRuntime", "StreamTransport")

MAX_OFFLOADED = 2
"""Functions that run in worker threads concurrently."""

NONCE_BYTES = 24

ACCEPT_TIMEOUT_S = 1.0
"""How long `accept` may take once a connection is waiting, which may have gone meanwhile."""

T = TypeVar("T")


class RealClock:
    """Clock of the running event loop."""

    def __init__(self) -> None:
        # Plain functions, as each sent record reads both times.
        self.now = get_loop_clock()
        self.wall_ms = _wall_ms
        self.wall_ns = time.time_ns

    async def sleep_until(self, deadline: float) -> None:
        await anyio.sleep_until(deadline)


class RealRuntime:
    """A `Runtime` of the running event loop, in which it must be created and used.

    Args:
        rng: Source of randomness. Defaults to a new one with a random seed.
    """

    def __init__(self, *, rng: random.Random | None = None) -> None:
        self.clock: Clock = RealClock()
        self.rng = rng if rng is not None else random.Random()
        self._resolver = Resolver()
        self._one_by_one = anyio.Lock()
        self._limiter = anyio.CapacityLimiter(MAX_OFFLOADED)

    def nonce(self) -> str:
        return secrets.token_urlsafe(NONCE_BYTES)

    async def checkpoint_one_by_one(self) -> None:
        async with self._one_by_one:
            await checkpoint()

    async def resolve(self, host: str, port: int) -> list[Address]:
        return await self._resolver.resolve(host, port)

    async def connect(self, address: Address) -> Transport:
        if not running_on_trio():
            from aiokafkawire.runtime import asyncio_transport  # noqa: PLC0415

            return await asyncio_transport.connect(address)
        try:
            stream = await anyio.connect_tcp(address.host, address.port)
        except OSError as error:
            # anyio replaces the reason by "all connection attempts failed".
            cause = error.__cause__
            raise cause if isinstance(cause, OSError) else error from None
        transport = await _make_transport(stream, address)
        if transport is None:
            raise ConnectionResetError("the peer closed the connection immediately")
        return transport

    async def listen(self, address: Address) -> Listener:
        group = await anyio.create_tcp_listener(local_host=address.host, local_port=address.port)
        # `localhost` may have two addresses, whose assigned ports would differ: use only one.
        first, *others = group.listeners
        for other in others:
            await other.aclose()
        return TcpListener(first)

    def threads(self, name: str, limit: int) -> Threads:
        return DaemonThreads(name, limit)

    async def offload(self, function: Callable[[], T]) -> T:
        return await anyio.to_thread.run_sync(function, limiter=self._limiter)


class StreamTransport:
    """A `Transport` on a byte stream of anyio."""

    def __init__(self, stream: anyio.abc.ByteStream, peer: str) -> None:
        self.peer = peer
        self._stream = stream
        raw = stream.extra(anyio.abc.SocketAttribute.raw_socket, None)
        self._duplicate = (
            None if raw is None else DuplicateSocket(raw.fileno(), raw.family, raw.type)
        )
        # Trio's stream has no write buffer, so writing directly to its socket keeps the order.
        self._socket = raw if running_on_trio() else None

    async def receive_into(self, buffer: memoryview) -> int:
        try:
            data = await self._stream.receive(len(buffer))
        except anyio.EndOfStream:
            return 0
        except (anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            raise _connection_error(error) from error
        buffer[: len(data)] = data
        return len(data)

    async def receive_until_eof(
        self, get_buffer: Callable[[], memoryview], on_received: Callable[[int], None]
    ) -> None:
        await receive_until_eof(self, get_buffer, on_received)

    def send_nowait(self, buffers: Sequence[Buffer]) -> Sequence[Buffer]:
        if self._socket is None:
            return buffers
        pieces = coalesce(buffers)
        for number, piece in enumerate(pieces):
            try:
                count = self._socket.send(piece)
            except BlockingIOError:
                count = 0
            if count < len(piece):
                return [memoryview(piece)[count:], *pieces[number + 1 :]]
        return ()

    async def send(self, buffers: Sequence[Buffer]) -> None:
        try:
            for piece in coalesce(buffers):
                await self._stream.send(bytes(piece))
        except (anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            raise _connection_error(error) from error

    def abort(self) -> None:
        if self._duplicate is not None:
            self._duplicate.abort()

    async def aclose(self) -> None:
        if self._duplicate is not None:
            self._duplicate.close()
        await anyio.aclose_forcefully(self._stream)


class TcpListener:
    """A `Listener` on one listening socket of anyio."""

    def __init__(self, listener: anyio.abc.Listener[anyio.abc.SocketStream]) -> None:
        self._listener = cast("anyio.abc.SocketListener", listener)
        self._socket = listener.extra(anyio.abc.SocketAttribute.raw_socket)
        self._closed = False
        local = cast("tuple[str, int]", listener.extra(anyio.abc.SocketAttribute.local_address))
        self.address = Address(local[0], local[1])

    async def accept(self) -> Transport:
        while True:
            if self._closed:
                raise ConnectionResetError("the listener is closed")
            try:
                await anyio.wait_readable(self._socket)
                # Cancelling `accept` on asyncio may lose a connection, so only the wait for a
                # connection can be cancelled.
                with anyio.move_on_after(ACCEPT_TIMEOUT_S, shield=True):
                    transport = await _make_transport(await self._listener.accept())
                    if transport is not None:
                        return transport
            except (anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
                raise _connection_error(error) from error

    async def aclose(self) -> None:
        if not self._closed:
            self._closed = True
            anyio.notify_closing(self._socket)
        await self._listener.aclose()


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


async def _make_transport(
    stream: anyio.abc.ByteStream, peer: Address | None = None
) -> StreamTransport | None:
    """Return a transport on a new stream, or None if the peer has already closed it."""
    try:
        if peer is None:
            remote = stream.extra(anyio.abc.SocketAttribute.remote_address)
            peer = Address(*cast("tuple[str, int]", remote)[:2])
        return StreamTransport(stream, str(peer))
    except (AttributeError, OSError, anyio.TypedAttributeLookupError) as error:
        await anyio.aclose_forcefully(stream)
        if too_many_open_files(error):
            raise
        # A closed socket has no peer name; uvloop then has no socket at all.
        return None


def _connection_error(error: Exception) -> OSError:
    cause = error.__cause__
    if isinstance(cause, OSError):
        return ConnectionResetError(cause.errno, cause.strerror)
    return ConnectionResetError("the connection is closed")
