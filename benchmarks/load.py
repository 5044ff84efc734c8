"""What all clients are given to do, and with which settings."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

PARTITIONS = 4
VALUE = b"x" * 100
LINGER_MS = 5
BATCH_BYTES = 64 * 1024
BUFFER_BYTES = 32 * 1024 * 1024
"""What a producer may hold that is not acknowledged; aiokafka has no such setting."""
MAX_RECORDS = 500
"""The most that one call of getmany gives, Java's default: for all clients."""
ARROW_RECORDS = 10_000
"""The same where records become columns: such an application wants them by the thousand."""
FETCH_BYTES = 1024 * 1024
"""Of one partition in one answer."""
PER_YIELD = 500
"""Messages between two turns of what brings news: the event loop's, or `poll`."""
REQUESTS_PER_SECOND = 2_000
WARM_UP = 0.05
"""The share of the messages that is not measured."""
POLL_MS = 10_000


class Incomplete(RuntimeError):
    """The client did not do what it was measured at."""


@dataclass(frozen=True, slots=True)
class Setup:
    """Where one side works. `latencies_s` is what it adds to where each message is waited for."""

    bootstrap_servers: str
    topic: str
    compression: str = "none"
    latencies_s: list[float] = field(default_factory=list)


Work = Callable[[int], Awaitable[int]]
"""Takes the least number of messages, gives how many it were: a list may give more at the end."""
Side = Callable[[Setup], AbstractAsyncContextManager[Work]]


def check(size: int, count: int) -> None:
    """Whether as many bytes of values were seen as there are in so many messages."""
    if size != count * len(VALUE):
        raise Incomplete(f"{count} values have {size} bytes, not {count * len(VALUE)}")


def nothing_came(seen: int, count: int) -> Incomplete:
    return Incomplete(f"no message within {POLL_MS} ms, after {seen} of {count}")


def working(action: Callable[[Any, Setup, int], Awaitable[int]], client: Any) -> Side:
    """A side made of what opens a client and of what is done with it."""

    @asynccontextmanager
    async def side(setup: Setup) -> AsyncIterator[Work]:
        async with client(setup) as opened:

            async def work(count: int) -> int:
                return await action(opened, setup, count)

            yield work

    return side
