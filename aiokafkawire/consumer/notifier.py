"""Wakes the calls that wait for a change in the consumer."""

from __future__ import annotations

import anyio

from aiokafkawire.runtime import wait_until

__all__ = ("Notifier",)


class Notifier:
    """Wakes all waiting tasks at once, like a condition's `notify_all`."""

    def __init__(self) -> None:
        self._event = anyio.Event()

    def notify_all(self) -> None:
        """Wake all tasks that wait now."""
        self._event.set()
        self._event = anyio.Event()

    async def wait(self, deadline: float) -> bool:
        """Wait for the next `notify_all`. Return False at the deadline."""
        return await wait_until(self._event, deadline)
