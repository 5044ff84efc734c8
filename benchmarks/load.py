"""The work and the settings that all clients have in common."""

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
"""Limit of a producer's unacknowledged bytes; aiokafka has no such setting."""
MAX_RECORDS = 500
"""Limit of records per call, Java's default, for all clients."""
ARROW_RECORDS = 10_000
"""Limit of records per call for Arrow: such an application wants large batches."""
FETCH_BYTES = 1024 * 1024
"""Limit of bytes per partition in one Fetch response."""
PER_YIELD = 500
"""Messages between two runs of the event loop, or two calls of `poll`."""
REQUESTS_PER_SECOND = 2_000
SLOW_HANDLERS = 100
SLOW_HANDLER_S = 0.01
"""Handlers of a worker that run at the same time, and how long each one waits."""
WARM_UP = 0.05
"""Share of the messages that is not measured."""
POLL_MS = 10_000


class Incomplete(RuntimeError):
    """The client did not complete the measured work."""


@dataclass(frozen=True, slots=True)
class Setup:
    """The broker and topic of one side; `latencies_s` collects the latency of each message.

    `authority` is the PEM file that a client over TLS trusts; None without TLS.
    """

    bootstrap_servers: str
    topic: str
    compression: str = "none"
    authority: str | None = None
    latencies_s: list[float] = field(default_factory=list)


Work = Callable[[int], Awaitable[int]]
"""Performs at least this number of messages and returns the actual number."""
Side = Callable[[Setup], AbstractAsyncContextManager[Work]]


def check(size: int, count: int) -> None:
    """Raise unless `count` values have `size` bytes."""
    if size != count * len(VALUE):
        raise Incomplete(f"{count} values have {size} bytes, not {count * len(VALUE)}")


def nothing_came(seen: int, count: int) -> Incomplete:
    return Incomplete(f"no message within {POLL_MS} ms, after {seen} of {count}")


def working(action: Callable[[Any, Setup, int], Awaitable[int]], client: Any) -> Side:
    """Return a side that opens a client and performs an action with it."""

    @asynccontextmanager
    async def side(setup: Setup) -> AsyncIterator[Work]:
        async with client(setup) as opened:

            async def work(count: int) -> int:
                return await action(opened, setup, count)

            yield work

    return side
