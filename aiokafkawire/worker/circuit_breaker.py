"""Pauses a worker whose handlers fail one after the other.

While all attempts fail, as without a database, attempts are spent and dead letters written for
records that are in order. The breaker lets no record start for a time, and then one record, the
probe. Its attempt counts: a record that always fails must not be the probe for ever. It awaits
nothing and reads no clock.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import TYPE_CHECKING

from aiokafkawire.runtime.state_machine import transition

if TYPE_CHECKING:
    from aiokafkawire.worker.partition_work import WorkItem

__all__ = ("BreakerState", "CircuitBreaker")


MAX_DOUBLINGS = 4
"""The pause doubles with each probe that fails, up to this number of times."""


class BreakerState(enum.Enum):
    """State of a breaker."""

    CLOSED = "closed"  # records start
    OPEN = "open"  # none starts before `due`
    HALF_OPEN = "half open"  # one may start
    PROBING = "probing"  # it runs


class BreakerEvent(enum.Enum):
    """An event that may change the state."""

    LIMIT_REACHED = "attempts failed in a row"
    PAUSE_ENDED = "the pause ended"
    PROBE_STARTED = "the probe started"
    PROBE_SUCCEEDED = "the probe succeeded"
    PROBE_FAILED = "the probe failed"
    PROBE_ENDED = "the probe ended without an attempt"


TRANSITIONS: Mapping[tuple[BreakerState, BreakerEvent], BreakerState] = {
    (BreakerState.CLOSED, BreakerEvent.LIMIT_REACHED): BreakerState.OPEN,
    (BreakerState.OPEN, BreakerEvent.PAUSE_ENDED): BreakerState.HALF_OPEN,
    (BreakerState.HALF_OPEN, BreakerEvent.PROBE_STARTED): BreakerState.PROBING,
    (BreakerState.PROBING, BreakerEvent.PROBE_SUCCEEDED): BreakerState.CLOSED,
    (BreakerState.PROBING, BreakerEvent.PROBE_FAILED): BreakerState.OPEN,
    (BreakerState.PROBING, BreakerEvent.PROBE_ENDED): BreakerState.HALF_OPEN,
}


class CircuitBreaker:
    """Counts consecutive failures of all handlers.

    Attempts that had started before the pause do not change its state.

    Args:
        limit: Failures in a row at which it opens.
        pause_s: Time without attempts after that, in seconds.

    Attributes:
        state: State.
        due: When the pause ends; valid while it is open.
        failures: Failures in a row.
        error: The last of them.
    """

    __slots__ = (
        "_failed_probes",
        "_limit",
        "_pause_s",
        "_probe",
        "due",
        "error",
        "failures",
        "state",
    )

    def __init__(self, limit: int, pause_s: float) -> None:
        self.state = BreakerState.CLOSED
        self.due = 0.0
        self.failures = 0
        self.error: BaseException | None = None
        self._limit = limit
        self._pause_s = pause_s
        self._failed_probes = 0
        self._probe: WorkItem | None = None

    def _transition(self, event: BreakerEvent) -> None:
        self.state = transition(TRANSITIONS, self.state, event)

    @property
    def can_start(self) -> bool:
        """True if a record may start."""
        return self.state in {BreakerState.CLOSED, BreakerState.HALF_OPEN}

    def can_continue(self, item: WorkItem) -> bool:
        """Return whether a running item may start an attempt."""
        return self.state is BreakerState.CLOSED or self._is_probe(item)

    def on_time(self, now: float) -> None:
        """Allow a probe if the pause has ended."""
        if self.state is BreakerState.OPEN and self.due <= now:
            self._transition(BreakerEvent.PAUSE_ENDED)

    def on_started(self, item: WorkItem) -> None:
        """Note that an item starts to run."""
        if self.state is BreakerState.HALF_OPEN:
            self._probe = item
            self._transition(BreakerEvent.PROBE_STARTED)

    def on_success(self, item: WorkItem) -> bool:
        """Note that a handler has decided about a record; return whether the pause is over."""
        if self.state is BreakerState.CLOSED:
            self.failures = 0
            return False
        if not self._is_probe(item):
            return False
        self.failures, self._failed_probes, self.error = 0, 0, None
        self._transition(BreakerEvent.PROBE_SUCCEEDED)
        return True

    def on_failure(self, item: WorkItem, error: BaseException, now: float) -> bool:
        """Note that an attempt has failed; return whether a pause begins."""
        if self.state is BreakerState.CLOSED:
            self.failures += 1
            self.error = error
            if self.failures < self._limit:
                return False
            event = BreakerEvent.LIMIT_REACHED
        elif self._is_probe(item):
            self.failures += 1
            self.error = error
            self._failed_probes = min(self._failed_probes + 1, MAX_DOUBLINGS)
            event = BreakerEvent.PROBE_FAILED
        else:
            return False
        self.due = now + self._pause_s * 2**self._failed_probes
        self._transition(event)
        return True

    def on_ended(self, item: WorkItem) -> None:
        """Note that an item runs no more."""
        if self._is_probe(item):
            self._transition(BreakerEvent.PROBE_ENDED)

    def _is_probe(self, item: WorkItem) -> bool:
        return self.state is BreakerState.PROBING and self._probe is item
