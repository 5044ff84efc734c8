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
    cancellation that no shield holds (asyncio's `task.cancel()`) cuts the goodbye short, and so
    does the end of the event loop; the tasks end all the same. `on_lost` is called when somebody
    else ended the tasks of a running client: asyncio lets anyone cancel every task of the loop.
    """

    def __init__(self, host: Host, on_lost: Callable[[], None] | None = None) -> None:
        self.host = host
        self._on_lost = on_lost
        self.phase = Phase.NEW
        self._closed = anyio.Event()

    @property
    def name(self) -> str:
        return self.host.name

    def check_running(self) -> None:
        """Raise `ClientClosed` unless the client was entered and not yet left."""
        if self.phase is not Phase.RUNNING:
            raise ClientClosed(f"the {self.name} is {self.phase.value}; use it inside 'async with'")

    async def enter(self, start: Callable[[], Awaitable[None]]) -> None:
        """Start; if that fails or is cancelled, nothing stays behind."""
        if self.phase is not Phase.NEW:
            raise ClientClosed(
                f"the {self.name} is {self.phase.value}; make a new one to enter again"
            )
        self.phase = Phase.STARTING
        try:
            await self.host.start()
            self.host.on_end = self._lost
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
            # Without the host's tasks nobody does what a goodbye waits for.
            if was_running and self.host.running:
                with anyio.CancelScope(deadline=deadline, shield=True) as scope:
                    self.host.on_end = scope.cancel
                    await goodbye()
        finally:
            self.host.on_end = None
            self.phase = Phase.CLOSED
            await self._end()

    def _lost(self) -> None:
        if self.phase is not Phase.RUNNING:
            return
        self.phase = Phase.CLOSED
        self._closed.set()
        if self._on_lost is not None:
            self._on_lost()

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
