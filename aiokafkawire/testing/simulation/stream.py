"""Directions and ends of a simulated connection."""

from __future__ import annotations

import errno
import zlib
from collections import deque
from collections.abc import Callable, Sequence

from aiokafkawire.runtime import AutoResetEvent, Buffer, checkpoint
from aiokafkawire.testing.simulation.links import Link
from aiokafkawire.testing.simulation.trace import Trace
from aiokafkawire.testing.simulation.virtual_time import VirtualTime

__all__ = ("MAX_IN_TRANSIT_BYTES", "Pipe", "SimulatedTransport")

MAX_IN_TRANSIT_BYTES = 256 * 1024
"""Limit of bytes sent but not received; then the sender waits."""

Piece = memoryview | ConnectionResetError | None
"""Bytes, a connection error, or None for the end of the stream."""


def reset_by_peer() -> ConnectionResetError:
    return ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")


class Pipe:
    """One direction of a connection, with the data in transit and its arrival times."""

    __slots__ = (
        "_in_transit",
        "_last_at",
        "_scheduled",
        "_time",
        "_trace",
        "breaks_in_next_write",
        "drops_data",
        "link",
        "name",
        "receiver",
        "sender",
        "size_bytes",
    )

    def __init__(self, name: str, link: Link, time: VirtualTime, trace: Trace) -> None:
        self.name = name
        self.link = link
        self.size_bytes = 0  # sent and not yet received
        self.breaks_in_next_write = False
        self.drops_data = False  # all that is sent from now on
        self.sender: SimulatedTransport
        self.receiver: SimulatedTransport
        self._in_transit: deque[tuple[float, Piece]] = deque()
        self._scheduled = False
        self._last_at = 0.0
        self._time = time
        self._trace = trace

    def write(self, data: memoryview) -> None:
        """Send bytes."""
        if self.drops_data:
            self.size_bytes += len(data)
            return
        if self.breaks_in_next_write and len(data) > 1:
            self._write_partially(data)
            return
        self._trace.note(f"{self.name} {len(data)} bytes, crc {zlib.crc32(data):08x}")
        self._send(data)

    def _send(self, data: memoryview) -> None:
        self.size_bytes += len(data)
        for piece in self.link.pieces(data):
            self._put(piece, len(piece))

    def _write_partially(self, data: memoryview) -> None:
        """Deliver a part of a write and break the connection at both ends."""
        part = self.link.partial_write(data)
        self._trace.note(f"{self.name} torn after {len(part)} of {len(data)} bytes")
        self._send(part)
        self._put(reset_by_peer())
        self.drops_data = True
        self._time.at(self._last_at, lambda: self.sender.fail(reset_by_peer()))

    def end(self) -> None:
        """Send the end of the stream."""
        if not self.drops_data:
            self._trace.note(f"{self.name} ends")
            self._put(None)
            self.drops_data = True

    def refuse(self) -> None:
        """Reset the connection, because this end was closed."""
        self._trace.note(f"{self.name} refuses")
        self._put(reset_by_peer())
        self.drops_data = True

    def lose(self) -> None:
        """Drop what is in transit and everything sent later."""
        self._in_transit.clear()
        self.drops_data = True

    def _put(self, piece: Piece, size_bytes: int = 0) -> None:
        self._last_at = max(self._last_at, self.link.arrival(self._time.now(), size_bytes))
        self._in_transit.append((self._last_at, piece))
        if not self._scheduled and not self.link.severed:
            self._schedule(self._last_at)

    def _schedule(self, at: float) -> None:
        self._scheduled = True
        self._time.at(at, self._arrive)

    def _arrive(self) -> None:
        self._scheduled = False
        if self.link.severed:
            return
        now, in_transit = self._time.now(), self._in_transit
        while in_transit and in_transit[0][0] <= now:
            self.receiver.arrived(in_transit.popleft()[1])
        if in_transit:
            self._schedule(in_transit[0][0])

    def healed(self) -> None:
        """Deliver the packets that were held."""
        if self._in_transit and not self._scheduled and not self.link.severed:
            now = self._time.now()
            self._schedule(max(self._in_transit[0][0], self.link.arrival(now)))

    def taken(self, size_bytes: int) -> None:
        """Free space after the receiver took bytes."""
        was_full = self.size_bytes >= MAX_IN_TRANSIT_BYTES
        self.size_bytes -= size_bytes
        if was_full:
            self.sender.has_room()

    def __str__(self) -> str:
        held = ", held up" if self.link.severed else ""
        return f"{self.name}: {self.size_bytes} bytes not received{held}"


class SimulatedTransport:
    """One end of a connection (`runtime.Transport`)."""

    def __init__(
        self, peer: str, outgoing: Pipe, incoming: Pipe, on_close: Callable[[], None]
    ) -> None:
        self.peer = peer
        self.closed = False  # by its owner
        self._outgoing = outgoing
        self._incoming = incoming
        self._on_close = on_close
        self._received: deque[memoryview] = deque()
        self._ended = False
        self._error: ConnectionResetError | None = None
        self._ignores_data = False
        self._listener: tuple[Callable[[], memoryview], Callable[[int], None]] | None = None
        self._failure: Exception | None = None
        self._changed = AutoResetEvent()
        self._room_available = AutoResetEvent()
        outgoing.sender = self
        incoming.receiver = self

    # --- what the owner calls ---

    async def receive_into(self, buffer: memoryview) -> int:
        if self._received or self._ended or self._error is not None or self.closed:
            await checkpoint()
        while not self.closed:
            if self._received:
                return self._take(buffer)
            if self._error is not None:
                raise ConnectionResetError(self._error.errno, self._error.strerror)
            if self._ended:
                return 0
            await self._changed.wait()
        return 0

    async def receive_until_eof(
        self, get_buffer: Callable[[], memoryview], on_received: Callable[[int], None]
    ) -> None:
        """Receive until the end; call `on_received` for each arrival."""
        await checkpoint()
        self._listener = get_buffer, on_received
        try:
            self._deliver()
            while not self._all_delivered():
                await self._changed.wait()
        finally:
            self._listener = None

    def _deliver(self) -> None:
        while self._received and self._listener is not None and self._failure is None:
            get_buffer, on_received = self._listener
            try:
                on_received(self._take(get_buffer()))
            except Exception as error:
                self._failure = error

    def _all_delivered(self) -> bool:
        """Return True if nothing more will be delivered; raise the error of the stream."""
        if self._failure is not None:
            raise self._failure
        if self._error is not None and not self.closed:
            raise ConnectionResetError(self._error.errno, self._error.strerror)
        return self._ended or self.closed

    def _take(self, buffer: memoryview) -> int:
        piece = self._received[0]
        count = min(len(piece), len(buffer))
        buffer[:count] = piece[:count]
        if count < len(piece):
            self._received[0] = piece[count:]
        else:
            self._received.popleft()
        self._incoming.taken(count)
        return count

    def send_nowait(self, buffers: Sequence[Buffer]) -> Sequence[Buffer]:
        """Send what the system accepts, possibly nothing; return the rest."""
        data = memoryview(b"".join(buffers))
        room = MAX_IN_TRANSIT_BYTES - self._outgoing.size_bytes
        count = self._outgoing.link.accepted_bytes(min(len(data), room))
        if count <= 0 or self.closed or self._error is not None:
            return buffers
        self._outgoing.write(data[:count])
        return [data[count:]] if count < len(data) else []

    async def send(self, buffers: Sequence[Buffer]) -> None:
        await checkpoint()
        left = memoryview(b"".join(buffers))
        while left:
            if self.closed:
                raise BrokenPipeError(errno.EPIPE, "the connection is closed")
            if self._error is not None:
                raise ConnectionResetError(self._error.errno, self._error.strerror)
            room = MAX_IN_TRANSIT_BYTES - self._outgoing.size_bytes
            if room > 0:
                self._outgoing.write(left[:room])
                left = left[room:]
            else:
                await self._room_available.wait()

    def abort(self) -> None:
        if not self.closed:
            self.closed = True
            if self._received:
                # TCP resets the connection if received bytes were not read. The peer may wait for
                # room in its send buffer, and must fail.
                self._received.clear()
                self._outgoing.refuse()
            else:
                self._outgoing.end()
            self._wake()
            self._on_close()

    async def aclose(self) -> None:
        self.abort()
        await checkpoint()

    # --- what the network calls ---

    def arrived(self, piece: Piece) -> None:
        """Handle a piece from the other end."""
        if isinstance(piece, ConnectionResetError):
            self.fail(piece)
        elif piece is None:
            self._ended = True
        elif not self.closed and self._error is None:
            self._received.append(piece)
            self._deliver()
        elif not self._ignores_data:
            self._ignores_data = True
            self._outgoing.refuse()
        self._changed.set()

    def has_room(self) -> None:
        self._room_available.set()

    def fail(self, error: ConnectionResetError) -> None:
        """Break the connection; arrived bytes can still be read."""
        if self._error is None:
            self._error = error
            self._outgoing.drops_data = True
            self._wake()

    def lose(self, error: ConnectionResetError, *, ignores_data: bool = True) -> None:
        """Break the connection at this end; data in transit to the other end is lost.

        Data that arrives later is ignored with `ignores_data`, and causes a reset otherwise.
        """
        self._ignores_data = self._ignores_data or ignores_data
        self._received.clear()
        self._outgoing.lose()
        self.fail(error)

    def _wake(self) -> None:
        self._changed.set()
        self._room_available.set()
