"""The seams: what the rest of the package may ask of the outside world."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeVar

__all__ = (
    "NEVER",
    "Address",
    "Buffer",
    "Clock",
    "Listener",
    "Runtime",
    "Transport",
    "receive_until_eof",
)

Buffer = bytes | bytearray | memoryview

NEVER = math.inf
"""A deadline that does not come."""

T = TypeVar("T")


class Address(NamedTuple):
    """A host (name or IP literal) and a TCP port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Clock(Protocol):
    """Time. Deadlines everywhere are absolute values of `now()`."""

    def now(self) -> float:
        """Seconds on a clock that never goes back; its zero is arbitrary."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since 1970, as record timestamps count them."""
        ...

    def wall_ns(self) -> int:
        """The same time in nanoseconds: what is cheapest to ask for."""
        ...

    async def sleep_until(self, deadline: float) -> None:
        """Return once `now()` has reached `deadline`."""
        ...


class Transport(Protocol):
    """One connected byte stream. One task may receive and one may send at a time.

    A broken stream raises `OSError`. A cancelled `send` may have written a part: the owner must
    then `abort()`.
    """

    @property
    def peer(self) -> str:
        """The other end as text, for error messages."""
        ...

    async def receive_into(self, buffer: memoryview) -> int:
        """Fill the start of `buffer`; return how many bytes, 0 at the end of the stream."""
        ...

    async def receive_until_eof(
        self, get_buffer: Callable[[], memoryview], on_received: Callable[[int], None]
    ) -> None:
        """Receive to the end of the stream: each piece into `get_buffer()`, and then its size is
        told to `received`, in whatever task or callback of the event loop has it. What that raises
        comes out."""
        ...

    def send_nowait(self, buffers: Sequence[Buffer]) -> Sequence[Buffer]:
        """Write what the system takes at once, in order; returns the rest, which has to go before
        anything else. Only while nobody is in `send`. Cannot be cancelled, as it does not wait."""
        ...

    async def send(self, buffers: Sequence[Buffer]) -> None:
        """Write all buffers, in order."""
        ...

    def abort(self) -> None:
        """Close at once, without a goodbye; wakes whoever receives or sends. Never raises."""
        ...

    async def aclose(self) -> None:
        """Release the stream. Safe to call more than once, and after `abort`."""
        ...


async def receive_until_eof(
    transport: Transport,
    get_buffer: Callable[[], memoryview],
    on_received: Callable[[int], None],
) -> None:
    """`Transport.receive_until_eof` for one that can only `receive_into`."""
    while count := await transport.receive_into(get_buffer()):
        on_received(count)


class Listener(Protocol):
    """A listening socket."""

    @property
    def address(self) -> Address: ...

    async def accept(self) -> Transport: ...

    async def aclose(self) -> None: ...


class Runtime(Protocol):
    """The outside world of one client or broker."""

    @property
    def clock(self) -> Clock: ...

    @property
    def rng(self) -> random.Random: ...

    async def resolve(self, host: str, port: int) -> list[Address]:
        """All addresses of a name, each an IP literal. Raises `OSError`. May be cancelled."""
        ...

    async def connect(self, address: Address) -> Transport:
        """Connect to one resolved address. Raises `OSError`. May be cancelled."""
        ...

    async def listen(self, address: Address) -> Listener:
        """Listen on one local address; port 0 takes a free one. Raises `OSError`."""
        ...

    async def offload(self, function: Callable[[], T]) -> T:
        """Run work that is long for an event loop elsewhere; it must not touch shared state."""
        ...
