"""A connection on asyncio, without a stream in between.

What comes in is received straight into its receiver's buffer and told to it there and then, in the
event loop's own callback: no task is woken for it, and the socket stays registered between two
pieces. What goes out goes to the system at once where nothing waits before it.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Callable, Sequence
from typing import cast

from aiokafkawire.runtime.base import Address, Buffer
from aiokafkawire.runtime.sockets import Twin, joined, out_of_descriptors
from aiokafkawire.runtime.waiting import Signal, checkpoint

__all__ = ("UNASKED_BYTES", "AsyncioTransport", "connect")

UNASKED_BYTES = 4_096
"""What may come in before somebody receives; the socket is not read then any more."""


class AsyncioTransport(asyncio.BufferedProtocol):
    """A `Transport` on asyncio's own transport, uvloop's included."""

    def __init__(self) -> None:
        self.peer = ""
        self._transport: asyncio.Transport | None = None
        self._twin: Twin | None = None
        # Who receives: where to, whom to tell, and the task that waits for the end of it.
        self._get_buffer: Callable[[], memoryview] | None = None
        self._received: Callable[[int], None] | None = None
        self._receiver: asyncio.Future[None] | None = None
        self._unasked: deque[memoryview] = deque()
        self._spare: memoryview | None = None
        self._ended = False
        self._lost = False
        self._cause: Exception | None = None
        self._full = False
        self._drained = Signal()

    def attach(self, peer: str, twin: Twin) -> None:
        """The connection is made."""
        self.peer = peer
        self._twin = twin

    # --- what asyncio tells -------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        # Full as soon as the system takes no more: what waits is to wait with its sender.
        self._transport.set_write_buffer_limits(0)

    def get_buffer(self, _: int) -> memoryview:
        if self._get_buffer is not None:
            self._spare = None
            return self._get_buffer()
        self._spare = memoryview(bytearray(UNASKED_BYTES))
        return self._spare

    def buffer_updated(self, nbytes: int) -> None:
        if self._spare is not None:
            self._unasked.append(self._spare[:nbytes])
            self._spare = None
            self._pause()
        elif self._received is not None:
            try:
                self._received(nbytes)
            except Exception as error:
                self._leave_receiver(error)

    def eof_received(self) -> bool:
        self._ended = True
        self._leave_receiver(None)
        return True  # what this end still sends may be read all the same

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended = self._lost = True
        self._cause = exc
        self._leave_receiver(None if exc is None else self._broken())
        self._full = False
        self._drained.set()

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False
        self._drained.set()

    # --- receiving ----------------------------------------------------------------------------

    async def receive_each(
        self, get_buffer: Callable[[], memoryview], received: Callable[[int], None]
    ) -> None:
        await checkpoint()
        while self._unasked:
            received(self._take(get_buffer()))
        await self._receive(get_buffer, received)

    async def receive_into(self, buffer: memoryview) -> int:
        await checkpoint()
        if self._unasked:
            return self._take(buffer)
        counts: list[int] = []

        def received(count: int) -> None:
            counts.append(count)
            self._leave_receiver(None)

        try:
            await self._receive(lambda: buffer, received)
        except BaseException:
            if counts:  # cancelled when it had come
                self._unasked.appendleft(memoryview(bytes(buffer[: counts[0]])))
            raise
        return counts[0] if counts else 0

    async def _receive(
        self, get_buffer: Callable[[], memoryview], received: Callable[[int], None]
    ) -> None:
        """Let all that comes be told to `received` until the receiver is left."""
        assert self._transport is not None
        if self._lost or self._transport.is_closing():
            raise self._broken()
        if self._ended:
            return
        self._get_buffer, self._received = get_buffer, received
        self._receiver = asyncio.get_running_loop().create_future()
        self._transport.resume_reading()
        try:
            await self._receiver
        finally:
            self._receiver = self._get_buffer = self._received = None
            self._pause()

    def _take(self, buffer: memoryview) -> int:
        """Give out what came before somebody received."""
        piece = self._unasked.popleft()
        count = min(len(piece), len(buffer))
        buffer[:count] = piece[:count]
        if count < len(piece):
            self._unasked.appendleft(piece[count:])
        return count

    def _leave_receiver(self, error: Exception | None) -> None:
        """Nothing more is told to who receives; its task goes on, with `error` if there is one."""
        self._get_buffer = self._received = None
        self._pause()
        if self._receiver is not None and not self._receiver.done():
            if error is None:
                self._receiver.set_result(None)
            else:
                self._receiver.set_exception(error)

    def _pause(self) -> None:
        assert self._transport is not None
        if not self._ended and not self._transport.is_closing():
            self._transport.pause_reading()

    # --- sending ------------------------------------------------------------------------------

    def send_now(self, buffers: Sequence[Buffer]) -> Sequence[Buffer]:
        assert self._transport is not None
        if self._lost or self._transport.is_closing():
            raise self._broken()
        if len(buffers) == 1 and not self._full:
            self._transport.write(buffers[0])
            return ()
        pieces = joined(buffers)
        for number, piece in enumerate(pieces):
            if self._full:
                return pieces[number:]
            if number and self._transport.is_closing():
                raise self._broken()  # asyncio complains in the log of writes after the end
            self._transport.write(piece)
        return ()

    async def send(self, buffers: Sequence[Buffer]) -> None:
        while buffers := self.send_now(buffers):
            await self._drained.wait()
        while self._full:
            await self._drained.wait()
        if self._lost:
            raise self._broken()

    def _broken(self) -> OSError:
        if isinstance(self._cause, OSError):
            return ConnectionResetError(self._cause.errno, self._cause.strerror)
        return ConnectionResetError("the connection is closed")

    # --- the end ------------------------------------------------------------------------------

    def abort(self) -> None:
        assert self._twin is not None
        self._twin.abort()

    async def aclose(self) -> None:
        assert self._transport is not None
        assert self._twin is not None
        self._twin.close()
        self._transport.abort()
        await checkpoint()


async def connect(address: Address) -> AsyncioTransport:
    """Connect to a resolved address. Raises `OSError`."""
    _name_library()
    transport, connected = await asyncio.get_running_loop().create_connection(
        AsyncioTransport, address.host, address.port
    )
    try:
        raw = transport.get_extra_info("socket")
        twin = Twin(raw.fileno(), raw.family, raw.type)
    except (AttributeError, OSError) as error:
        transport.abort()
        await checkpoint()
        if out_of_descriptors(error):
            raise
        # It is closed already: with uvloop there is not even the socket.
        raise ConnectionResetError("the peer closed the new connection at once") from error
    connected.attach(str(address), twin)
    try:
        await checkpoint()
    except BaseException:
        twin.close()
        transport.abort()
        raise
    return connected


def _name_library() -> None:
    """Let what runs in the callbacks of connections made here, outside of any task, be known for
    asyncio's: they run in the context in which the connection was made."""
    if "sniffio" in sys.modules:
        import sniffio  # noqa: PLC0415

        sniffio.current_async_library_cvar.set("asyncio")
