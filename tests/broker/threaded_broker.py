"""A broker with an event loop in its own thread, for blocking clients."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from anyio.from_thread import start_blocking_portal

from aiokafkawire.broker import Broker

DEADLINE_S = 30


class ThreadedBroker:
    """The broker, and a way to call it from the test's thread."""

    def __init__(self, portal: Any, broker: Broker) -> None:
        self._portal = portal
        self.broker = broker
        self.servers: str = portal.call(lambda: broker.bootstrap_servers)

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call a function, async or not, in the broker's thread."""
        return self._portal.call(function, *args)


@contextmanager
def threaded_broker(backend: str = "asyncio", **options: Any) -> Iterator[ThreadedBroker]:
    with (
        start_blocking_portal(backend) as portal,
        portal.wrap_async_context_manager(Broker(**options)) as broker,
    ):
        yield ThreadedBroker(portal, broker)


def repeat_until(step: Callable[[], Any], done: Callable[[], bool]) -> None:
    """Repeat a step until `done`; fail at the deadline."""
    end = time.monotonic() + DEADLINE_S
    while not done():
        assert time.monotonic() < end, f"not done after {DEADLINE_S} s"
        step()
