"""A listening port of a simulated host."""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable

from aiokafkawire.runtime import Address, AutoResetEvent, Transport, checkpoint

__all__ = ("MAX_BACKLOG", "SimulatedListener")

MAX_BACKLOG = 128
"""Connections that wait to be accepted; further ones are refused."""


class SimulatedListener:
    """A listening port (`runtime.Listener`)."""

    def __init__(self, address: Address, on_close: Callable[[SimulatedListener], None]) -> None:
        self.address = address
        self._waiting: deque[Transport] = deque()
        self._error: OSError | None = None
        self._on_close = on_close
        self._changed = AutoResetEvent()

    @property
    def is_full(self) -> bool:
        return len(self._waiting) >= MAX_BACKLOG

    def offer(self, transport: Transport) -> None:
        """Queue a new connection for `accept`."""
        self._waiting.append(transport)
        self._changed.set()

    def fail(self, error: OSError) -> None:
        self._error = error
        self._changed.set()

    async def accept(self) -> Transport:
        await checkpoint()
        while not self._waiting:
            if self._error is not None:
                raise ConnectionResetError(self._error.errno, self._error.strerror)
            await self._changed.wait()
        return self._waiting.popleft()

    async def aclose(self) -> None:
        self._on_close(self)
        self.fail(ConnectionResetError(errno.ECONNRESET, "the listener is closed"))
        for transport in self._waiting:
            transport.abort()
        self._waiting.clear()
        await checkpoint()
