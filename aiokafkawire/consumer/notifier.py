"""Wakes the calls that wait for a change in the consumer."""

from __future__ import annotations

import anyio

from aiokafkawire.runtime import wait_until

__all__ = ("Notifier",)


class Notifier:
    """Wakes all that wait at the time."""

    def __init__(self) -> None:
        self._event = anyio.Event()

    def notify_all(self) -> None:
        """Wake them."""
        self._event.set()
        self._event = anyio.Event()

    async def wait(self, deadline: float) -> bool:
        """Wait for the next `notify_all`; False if the deadline came first."""
        return await wait_until(self._event, deadline)
