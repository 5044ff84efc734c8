"""Passes changes, results and errors between the tasks of a consumer and its calls."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from aiokafkawire.errors import KafkaError
from aiokafkawire.logs import RateLimit, log_fields
from aiokafkawire.runtime import AutoResetEvent, Clock, Supervisor, Waiters

from .outage_log import OutageLog

if TYPE_CHECKING:
    from .partition import AssignedPartition

__all__ = ("ChangedPartitions", "Notifier")

logger = logging.getLogger("aiokafkawire.consumer")


class ChangedPartitions:
    """The partitions that a task must check, and the event that wakes the task.

    Attributes:
        check_all: All partitions must be checked.
        partitions: Partitions to check. A task that adds one itself need not wake.
        waits_for_room: The task waits until records are delivered from any buffer.
    """

    def __init__(self) -> None:
        self.check_all = True
        self.partitions: dict[AssignedPartition, None] = {}
        self.waits_for_room = False
        self.changed = AutoResetEvent()

    def add_all(self) -> None:
        """Check all partitions: positions or leaders may have changed."""
        self.check_all = True
        self.changed.set()

    def add(self, partitions: Iterable[AssignedPartition]) -> None:
        """Check these partitions."""
        self.partitions.update(dict.fromkeys(partitions))
        self.changed.set()

    def take(self) -> list[AssignedPartition]:
        """Return the partitions to check, and forget them."""
        partitions, self.partitions = self.partitions, {}
        return [*partitions]


class Notifier:
    """Wakes the fetcher, the position resolver and the application's calls.

    Attributes:
        to_fetch: What the fetcher must check.
        to_resolve: What the position resolver must check.
        outage: Notes how long no broker has responded.
        pending_error: The error that the application's next call raises.
    """

    def __init__(self, clock: Clock, supervisor: Supervisor) -> None:
        self.to_fetch = ChangedPartitions()
        self.to_resolve = ChangedPartitions()
        self.outage = OutageLog()
        self._clock = clock
        self._supervisor = supervisor
        self._calls = Waiters()
        self.pending_error: Exception | None = None
        self._rate_limit = RateLimit()

    def notify_all(self) -> None:
        """Wake all calls that wait now."""
        self._calls.notify_all()

    async def wait(self, deadline: float) -> bool:
        """Wait for the next `notify_all`. Return False at the deadline."""
        return await self._calls.wait_notified(deadline)

    def check_all(self) -> None:
        """Have the fetcher and the position resolver check all partitions."""
        self.to_fetch.add_all()
        self.to_resolve.add_all()

    def state_changed(self) -> None:
        """Wake all tasks and calls, because partitions, positions or leaders changed."""
        self.notify_all()
        self.check_all()

    def positions_changed(self, partitions: Iterable[AssignedPartition]) -> None:
        """Wake calls and the fetcher, because these have a position or an error now."""
        self.notify_all()
        self.to_fetch.add(partitions)

    def raise_in_next_call(self, error: Exception) -> None:
        """Raise an error in the application's next call. Further errors are only logged."""
        if self.pending_error is None:
            self.pending_error = error
        else:
            logger.log(
                self._rate_limit.level(logging.WARNING, type(error), self._clock.now()),
                "%s: %r is not raised, because an earlier error has not been raised yet",
                self._supervisor.name,
                error,
                extra=log_fields(self._supervisor.fields, error=error),
            )
        self.notify_all()

    def take_error(self) -> Exception | None:
        """Return the error to raise in this call, if any."""
        error, self.pending_error = self.pending_error, None
        return error

    def request_finished(self, failure: KafkaError | None) -> None:
        """Note that a broker responded (None), or the error of a request."""
        if failure is None and self.outage.failure is None:
            return
        text = self.outage.record(failure, self._clock.now())
        if text is not None:
            extra = log_fields(self._supervisor.fields, error=failure)
            logger.warning("%s: %s", self._supervisor.name, text, extra=extra)
        elif (outage_s := self.outage.ended_after_s) is not None:
            logger.info(
                "%s: brokers respond again after %.3f s",
                self._supervisor.name,
                outage_s,
                extra=log_fields(self._supervisor.fields, outage_ms=round(outage_s * 1_000)),
            )
