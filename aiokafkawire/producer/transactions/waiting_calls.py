"""Calls that wait for a state of the transaction, each with a deadline."""

from __future__ import annotations

from collections.abc import Callable

from aiokafkawire.errors import RequestTimedOut
from aiokafkawire.producer.transactions.state_machine import TransactionStateMachine
from aiokafkawire.runtime import AT_ONCE, NEVER, AutoResetEvent

__all__ = ("WaitingCalls",)


class WaitingCalls:
    """The waiting calls of one producer.

    One task watches all deadlines: most waits are shorter than setting up a timer.

    Attributes:
        state_changed: Wakes the calls, which check their condition again.
    """

    def __init__(self, machine: TransactionStateMachine, now: Callable[[], float]) -> None:
        self.state_changed = AutoResetEvent()
        self._task_event = AutoResetEvent()
        self._machine = machine
        self._now = now
        self._deadlines: dict[object, float] = {}
        self._task_wakes_at = AT_ONCE

    @property
    def any_waiting(self) -> bool:
        """True if a call is waiting, which raises a failure."""
        return bool(self._deadlines)

    async def wait_until(self, done: Callable[[], bool], deadline: float, problem: str) -> None:
        """Wait until a condition holds.

        Raises:
            RequestTimedOut: It does not hold at the deadline; `problem` says what that means.
        """
        if done():
            return
        caller = object()
        self._deadlines[caller] = deadline
        if deadline < self._task_wakes_at:
            self.wake_task()
        try:
            while True:
                if self._now() >= deadline:
                    last_error = self._machine.last_error
                    why = "" if last_error is None else f"; last error: {last_error}"
                    raise RequestTimedOut(
                        f"timed out waiting: {problem}{why}",
                        transactional_id=self._machine.transactional_id,
                    )
                await self.state_changed.wait()
                if done():
                    return
        finally:
            del self._deadlines[caller]

    async def watch_deadlines(self) -> None:
        """Wake calls past their deadline, and wait for the next one or for `wake_task`."""
        now = self._now()
        left = [deadline for deadline in self._deadlines.values() if deadline > now]
        if len(left) < len(self._deadlines):
            self.state_changed.set()
        self._task_wakes_at = min(left, default=NEVER)
        await self._task_event.wait(self._task_wakes_at)
        self._task_wakes_at = AT_ONCE

    def wake_task(self) -> None:
        """Make `watch_deadlines` return."""
        self._task_event.set()
