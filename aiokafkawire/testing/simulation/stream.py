"""One direction of a simulated connection, and the two of them as a transport."""

from __future__ import annotations

import random
import zlib
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from aiokafkawire.runtime import NEVER, Buffer, Clock, Signal, checkpoint
from aiokafkawire.testing.simulation.trace import Trace

__all__ = ("MAX_ON_THE_WAY_BYTES", "Link", "Pipe", "SimulatedTransport")

MAX_ON_THE_WAY_BYTES = 256 * 1024
"""What may be sent and not yet received; then the sender waits."""

MAX_FRAGMENTS = 4
"""Into how many pieces one write is cut at most."""


@dataclass(slots=True)
class Link:
    """How one connection behaves: the delay of each packet, and whether packets get through."""

    delay_s: Callable[[], float]
    rng: random.Random
    clock: Clock
    trace: Trace
    cut: Callable[[], bool]


class Pipe:
    """Bytes on their way, in order, each piece with the time at which it arrives."""

    def __init__(self, name: str, link: Link) -> None:
        self.name = name
        self._link = link
        self._pieces: deque[tuple[float, memoryview]] = deque()
        self._size = 0
        self._last_at = 0.0
        self._ends_at = NEVER
        self._news = Signal()
        self._room = Signal()
        self.error: OSError | None = None

    # --- the sender's end ---

    async def write(self, data: bytes) -> None:
        """Send; waits while too much is on the way."""
        await checkpoint()
        left = memoryview(data)
        while left:
            self._check()
            room = MAX_ON_THE_WAY_BYTES - self._size
            if room <= 0:
                await self._room.wait()
                continue
            self._cut(left[:room])
            left = left[room:]

    def _check(self) -> None:
        if self.error is not None:
            raise ConnectionResetError(self.error.errno, self.error.strerror)
        if self._ends_at != NEVER:
            raise BrokenPipeError("the connection is closed")

    def _cut(self, data: memoryview) -> None:
        """Put data on its way in pieces, as a network does."""
        rng = self._link.rng
        count = min(rng.randint(1, MAX_FRAGMENTS), len(data))
        cuts = [0, *sorted(rng.randrange(1, len(data)) for _ in range(count - 1)), len(data)]
        for start, end in pairwise(cuts):
            if start < end:
                self._pieces.append((self._arrival(), data[start:end]))
        self._size += len(data)
        self._link.trace.note(f"{self.name} {len(data)} bytes, crc {zlib.crc32(data):08x}")
        self._news.set()

    def _arrival(self) -> float:
        self._last_at = max(self._last_at, self._link.clock.now() + self._link.delay_s())
        return self._last_at

    def end(self) -> None:
        """Nothing more will be sent: the receiver gets what is on its way, and then the end."""
        if not self.over:
            self._ends_at = self._arrival()
            self._link.trace.note(f"{self.name} ends")
            self._wake()

    def reset(self, error: OSError) -> None:
        """What is on its way is lost; both ends hear of it."""
        if self.error is None:
            self.error = error
            self._pieces.clear()
            self._size = 0
            self._link.trace.note(f"{self.name} reset: {error}")
            self._wake()

    def _wake(self) -> None:
        self._news.set()
        self._room.set()

    @property
    def over(self) -> bool:
        """Whether nothing will be sent any more."""
        return self._ends_at != NEVER or self.error is not None

    # --- the receiver's end ---

    def healed(self) -> None:
        """Packets get through again."""
        self._wake()

    async def read(self, buffer: memoryview) -> int:
        """Wait for bytes; 0 at the end."""
        await checkpoint()
        while True:
            if self.error is not None:
                raise ConnectionResetError(self.error.errno, self.error.strerror)
            now = self._link.clock.now()
            next_at = self._pieces[0][0] if self._pieces else self._ends_at
            if self._link.cut():
                next_at = NEVER
            if next_at <= now:
                return self._take(buffer)
            await self._news.wait(next_at)

    def _take(self, buffer: memoryview) -> int:
        if not self._pieces:
            return 0
        arrived_at, piece = self._pieces.popleft()
        count = min(len(piece), len(buffer))
        buffer[:count] = piece[:count]
        if count < len(piece):
            self._pieces.appendleft((arrived_at, piece[count:]))
        self._size -= count
        self._room.set()
        return count


class SimulatedTransport:
    """One end of a connection (`runtime.Transport`)."""

    def __init__(self, peer: str, outgoing: Pipe, incoming: Pipe) -> None:
        self.peer = peer
        self._outgoing = outgoing
        self._incoming = incoming
        self._gone = False

    async def receive_into(self, buffer: memoryview) -> int:
        if self._gone:
            await checkpoint()
            return 0
        count = await self._incoming.read(buffer)
        return 0 if self._gone else count

    async def send(self, buffers: Sequence[Buffer]) -> None:
        await self._outgoing.write(b"".join(buffers))

    def abort(self) -> None:
        if not self._gone:
            self._gone = True
            self._outgoing.end()
            # Whoever receives at this end wakes; what the peer still sends is lost.
            self._incoming.end()

    async def aclose(self) -> None:
        self.abort()
        await checkpoint()
