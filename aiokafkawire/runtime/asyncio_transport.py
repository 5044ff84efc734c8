"""A `Transport` on asyncio's protocol API, without asyncio's or anyio's streams.

Bytes are received directly into the buffer of the receiver, which is called in the event loop's
callback: no task wakes, and the socket stays registered with the selector. Bytes to send are
written to the socket immediately unless earlier ones are waiting.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Callable, Sequence
from typing import cast

from aiokafkawire.runtime.interfaces import Address, Buffer
from aiokafkawire.runtime.sockets import DuplicateSocket, coalesce, too_many_open_files
from aiokafkawire.runtime.sync import AutoResetEvent, checkpoint

__all__ = ("EARLY_READ_BYTES", "AsyncioTransport", "connect")

EARLY_READ_BYTES = 4_096
"""Bytes that are read before a task receives; after that the socket is not read."""


class AsyncioTransport(asyncio.BufferedProtocol):
    """A `Transport` on a transport of asyncio or uvloop."""

    def __init__(self) -> None:
        self.peer = ""
        self._transport: asyncio.Transport | None = None
        self._duplicate: DuplicateSocket | None = None
        # The receiver: its buffers, its callback, and the future for which its task waits.
        self._get_buffer: Callable[[], memoryview] | None = None
        self._on_received: Callable[[int], None] | None = None
        self._receiver: asyncio.Future[None] | None = None
        self._early_data: deque[memoryview] = deque()
        self._early_buffer: memoryview | None = None
        self._eof = False
        self._connection_lost = False
        self._cause: Exception | None = None
        self._write_paused = False
        self._writable = AutoResetEvent()

    def attach(self, peer: str, duplicate: DuplicateSocket) -> None:
        """Complete the set-up, after the connection was made."""
        self.peer = peer
        self._duplicate = duplicate

    # --- callbacks of asyncio -----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        # Pause writing as soon as the socket is full, so that unsent bytes stay with the sender.
        self._transport.set_write_buffer_limits(0)

    def get_buffer(self, _: int) -> memoryview:
        if self._get_buffer is not None:
            self._early_buffer = None
            return self._get_buffer()
        self._early_buffer = memoryview(bytearray(EARLY_READ_BYTES))
        return self._early_buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self._early_buffer is not None:
            self._early_data.append(self._early_buffer[:nbytes])
            self._early_buffer = None
            self._pause()
        elif self._on_received is not None:
            try:
                self._on_received(nbytes)
            except Exception as error:
                self._finish_receiving(error)

    def eof_received(self) -> bool:
        self._eof = True
        self._finish_receiving(None)
        return True  # keep the other direction open

    def connection_lost(self, exc: Exception | None) -> None:
        self._eof = self._connection_lost = True
        self._cause = exc
        self._finish_receiving(None if exc is None else self._connection_error())
        self._write_paused = False
        self._writable.set()

    def pause_writing(self) -> None:
        self._write_paused = True

    def resume_writing(self) -> None:
        self._write_paused = False
        self._writable.set()

    # --- receiving ----------------------------------------------------------------------------

    async def receive_until_eof(
        self, get_buffer: Callable[[], memoryview], on_received: Callable[[int], None]
    ) -> None:
        await checkpoint()
        while self._early_data:
            on_received(self._take_early_data(get_buffer()))
        await self._receive(get_buffer, on_received)

    async def receive_into(self, buffer: memoryview) -> int:
        await checkpoint()
        if self._early_data:
            return self._take_early_data(buffer)
        counts: list[int] = []

        def received(count: int) -> None:
            counts.append(count)
            self._finish_receiving(None)

        try:
            await self._receive(lambda: buffer, received)
        except BaseException:
            if counts:  # cancelled after bytes were received
                self._early_data.appendleft(memoryview(bytes(buffer[: counts[0]])))
            raise
        return counts[0] if counts else 0

    async def _receive(
        self, get_buffer: Callable[[], memoryview], on_received: Callable[[int], None]
    ) -> None:
        """Pass received bytes to `on_received` until `_finish_receiving` is called."""
        assert self._transport is not None
        if self._connection_lost or self._transport.is_closing():
            raise self._connection_error()
        if self._eof:
            return
        self._get_buffer, self._on_received = get_buffer, on_received
        self._receiver = asyncio.get_running_loop().create_future()
        self._transport.resume_reading()
        try:
            await self._receiver
        finally:
            self._receiver = self._get_buffer = self._on_received = None
            self._pause()

    def _take_early_data(self, buffer: memoryview) -> int:
        """Copy bytes that were read before a task received."""
        piece = self._early_data.popleft()
        count = min(len(piece), len(buffer))
        buffer[:count] = piece[:count]
        if count < len(piece):
            self._early_data.appendleft(piece[count:])
        return count

    def _finish_receiving(self, error: Exception | None) -> None:
        """Stop passing bytes to the receiver; wake its task, with an exception if given."""
        self._get_buffer = self._on_received = None
        self._pause()
        if self._receiver is not None and not self._receiver.done():
            if error is None:
                self._receiver.set_result(None)
            else:
                self._receiver.set_exception(error)

    def _pause(self) -> None:
        assert self._transport is not None
        if not self._eof and not self._transport.is_closing():
            self._transport.pause_reading()

    # --- sending ------------------------------------------------------------------------------

    def send_nowait(self, buffers: Sequence[Buffer]) -> Sequence[Buffer]:
        assert self._transport is not None
        if self._connection_lost or self._transport.is_closing():
            raise self._connection_error()
        if len(buffers) == 1 and not self._write_paused:
            self._transport.write(buffers[0])
            return ()
        pieces = coalesce(buffers)
        for number, piece in enumerate(pieces):
            if self._write_paused:
                return pieces[number:]
            if number and self._transport.is_closing():
                raise self._connection_error()  # asyncio logs writes after the end
            self._transport.write(piece)
        return ()

    async def send(self, buffers: Sequence[Buffer]) -> None:
        while buffers := self.send_nowait(buffers):
            await self._writable.wait()
        while self._write_paused:
            await self._writable.wait()
        if self._connection_lost:
            raise self._connection_error()

    def _connection_error(self) -> OSError:
        if isinstance(self._cause, OSError):
            return ConnectionResetError(self._cause.errno, self._cause.strerror)
        return ConnectionResetError("the connection is closed")

    # --- the end ------------------------------------------------------------------------------

    def abort(self) -> None:
        assert self._duplicate is not None
        self._duplicate.abort()

    async def aclose(self) -> None:
        assert self._transport is not None
        assert self._duplicate is not None
        self._duplicate.close()
        self._transport.abort()
        await checkpoint()


async def connect(address: Address) -> AsyncioTransport:
    """Connect to a resolved address. Raises `OSError`."""
    _set_sniffio_library()
    transport, connected = await asyncio.get_running_loop().create_connection(
        AsyncioTransport, address.host, address.port
    )
    try:
        raw = transport.get_extra_info("socket")
        duplicate = DuplicateSocket(raw.fileno(), raw.family, raw.type)
    except (AttributeError, OSError) as error:
        transport.abort()
        await checkpoint()
        if too_many_open_files(error):
            raise
        # The connection is already closed; uvloop then has no socket.
        raise ConnectionResetError("the peer closed the connection immediately") from error
    connected.attach(str(address), duplicate)
    try:
        await checkpoint()
    except BaseException:
        duplicate.close()
        transport.abort()
        raise
    return connected


def _set_sniffio_library() -> None:
    """Make sniffio detect asyncio in callbacks of the connection, which run outside of any task.

    They run in the context in which the connection was made.
    """
    if "sniffio" in sys.modules:
        import sniffio  # noqa: PLC0415

        sniffio.current_async_library_cvar.set("asyncio")
