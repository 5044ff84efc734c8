"""Interfaces to the outside world: clock, byte streams, listeners, name resolution, threads."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeVar

__all__ = (
    "AT_ONCE",
    "NEVER",
    "Address",
    "Buffer",
    "Clock",
    "Listener",
    "Runtime",
    "Threads",
    "Transport",
    "receive_until_eof",
)

Buffer = bytes | bytearray | memoryview

NEVER = math.inf
"""The deadline of a wait without a time limit."""

AT_ONCE = -NEVER
"""The deadline of a wait that ends at once."""

T = TypeVar("T")


class Address(NamedTuple):
    """A host (name or IP literal) and a TCP port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Clock(Protocol):
    """Source of time. A deadline is always an absolute value of `now()`."""

    def now(self) -> float:
        """Return seconds on a monotonic clock with an arbitrary zero."""
        ...

    def wall_ms(self) -> int:
        """Return the wall-clock time in milliseconds since the Unix epoch."""
        ...

    def wall_ns(self) -> int:
        """Return the wall-clock time in nanoseconds since the Unix epoch.

        Cheaper than `wall_ms`.
        """
        ...

    async def sleep_until(self, deadline: float) -> None:
        """Return once `now()` has reached `deadline`."""
        ...


class Transport(Protocol):
    """A connected byte stream. One task may receive and one may send at a time.

    All methods but `abort` and `aclose` raise `OSError` when the stream is broken. A cancelled
    `send` may have written a part of its buffers: the owner must then call `abort`.
    """

    @property
    def peer(self) -> str:
        """Address of the peer, for error messages."""
        ...

    async def receive_into(self, buffer: memoryview) -> int:
        """Receive at least one byte into `buffer`.

        Returns:
            Number of bytes received; 0 at the end of the stream.
        """
        ...

    async def receive_until_eof(
        self, get_buffer: Callable[[], memoryview], on_received: Callable[[int], None]
    ) -> None:
        """Receive until the end of the stream.

        Args:
            get_buffer: Returns the buffer for the next bytes.
            on_received: Called with the number of bytes that were written to the buffer, in any
                task or callback of the event loop. Its exceptions leave `receive_until_eof`.
        """
        ...

    def send_nowait(self, buffers: Sequence[Buffer]) -> Sequence[Buffer]:
        """Write as much as the socket accepts without waiting.

        Must not be called while a `send` is running.

        Returns:
            The unwritten rest, which must be sent before anything else.
        """
        ...

    async def send(self, buffers: Sequence[Buffer]) -> None:
        """Write all buffers, in order."""
        ...

    def abort(self) -> None:
        """Close the stream immediately; tasks in `receive_*` and `send` wake. Never raises."""
        ...

    async def aclose(self) -> None:
        """Release the stream. May be called more than once, and after `abort`."""
        ...


async def receive_until_eof(
    transport: Transport,
    get_buffer: Callable[[], memoryview],
    on_received: Callable[[int], None],
) -> None:
    """Implement `Transport.receive_until_eof` by `receive_into`."""
    while count := await transport.receive_into(get_buffer()):
        on_received(count)


class Listener(Protocol):
    """A listening socket."""

    @property
    def address(self) -> Address:
        """Local address, with the port that was assigned."""
        ...

    async def accept(self) -> Transport:
        """Wait for a connection. Raises `OSError` when the listener is closed."""
        ...

    async def aclose(self) -> None:
        """Stop listening. Accepted connections stay open."""
        ...


class Threads(Protocol):
    """Runs functions of the application that may block."""

    async def run(self, function: Callable[[], T]) -> T:
        """Run a function. A cancelled call returns without waiting for it.

        Raises:
            OSError: Too many functions still run, or no thread can be started.
        """
        ...


class Runtime(Protocol):
    """The outside world of one client or broker."""

    @property
    def clock(self) -> Clock:
        """Source of all times and deadlines."""
        ...

    @property
    def rng(self) -> random.Random:
        """Source of randomness, such as backoff jitter."""
        ...

    def nonce(self) -> str:
        """Return a text of printable ASCII that nobody can predict."""
        ...

    async def checkpoint_one_by_one(self) -> None:
        """Suspend once. Of all tasks that wait here, one resumes in each pass of the event loop."""
        ...

    async def resolve(self, host: str, port: int) -> list[Address]:
        """Resolve a host name. May be cancelled.

        Returns:
            All addresses of the name, as IP literals with the given port.

        Raises:
            OSError: The name has no address.
        """
        ...

    async def connect(self, address: Address) -> Transport:
        """Open a TCP connection to a resolved address. May be cancelled.

        Raises:
            OSError: The connection failed.
        """
        ...

    async def listen(self, address: Address) -> Listener:
        """Listen on a local address; port 0 lets the system choose a free port.

        Raises:
            OSError: The address cannot be bound.
        """
        ...

    def threads(self, name: str, limit: int) -> Threads:
        """Return threads for functions that may block.

        Args:
            name: Name of the threads.
            limit: Functions at a time.
        """
        ...

    async def offload(self, function: Callable[[], T]) -> T:
        """Run CPU-bound work in a worker thread.

        The function must not touch state that it shares with the event loop.
        """
        ...
