"""Entering and leaving a client, the same for all of them."""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable

import anyio

from aiokafkawire.errors import ClientClosed
from aiokafkawire.runtime.host import Host

__all__ = ("Lifecycle", "Phase")


class Phase(enum.Enum):
    """Where a client stands in its life; it only goes forward."""

    NEW = "not entered yet"
    STARTING = "starting"
    RUNNING = "running"
    CLOSING = "closing"
    CLOSED = "closed"


class Lifecycle:
    """Holds a client's phase and its host.

    `enter` starts the host and waits for the client's own start; `leave` waits, shielded from
    cancellation, for the client's own goodbye up to a deadline, and then ends all tasks. A
    cancellation that no shield holds (asyncio's `task.cancel()`) cuts the goodbye short; the tasks
    end all the same.
    """

    def __init__(self, host: Host) -> None:
        self.host = host
        self.phase = Phase.NEW
        self._closed = anyio.Event()

    @property
    def name(self) -> str:
        return self.host.name

    def check_running(self) -> None:
        """Raise `ClientClosed` unless the client was entered and not yet left."""
        if self.phase is not Phase.RUNNING:
            raise ClientClosed(f"{self.name} is {self.phase.value}; use it inside 'async with'")

    async def enter(self, start: Callable[[], Awaitable[None]]) -> None:
        """Start; if that fails or is cancelled, nothing stays behind."""
        if self.phase is not Phase.NEW:
            raise ClientClosed(f"{self.name} is {self.phase.value}; make a new one to enter again")
        self.phase = Phase.STARTING
        try:
            await self.host.start()
            await start()
        except BaseException:
            self.phase = Phase.CLOSED
            await self._end()
            raise
        self.phase = Phase.RUNNING

    async def leave(self, goodbye: Callable[[], Awaitable[None]], deadline: float) -> None:
        """Close; a second call waits for the first one to finish."""
        if self.phase in {Phase.CLOSING, Phase.CLOSED}:
            await self._closed.wait()
            return
        was_running = self.phase is Phase.RUNNING
        self.phase = Phase.CLOSING
        try:
            if was_running:
                with anyio.CancelScope(deadline=deadline, shield=True):
                    await goodbye()
        finally:
            self.phase = Phase.CLOSED
            await self._end()

    def abort(self) -> None:
        """End all tasks without a goodbye; return at once."""
        self.phase = Phase.CLOSED
        self._closed.set()
        self.host.abort()

    async def _end(self) -> None:
        self.host.abort()
        try:
            await self.host.stop()
        finally:
            self._closed.set()
