"""trio in virtual time, and in an order of tasks that a seed decides.

The only module that uses private names of trio: nothing public makes its order reproducible. It is
imported only where trio runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import trio
from trio._core import _run
from trio.testing import MockClock

from aiokafkawire.testing.simulation.task_dump import SuspendedTask, waiting
from aiokafkawire.testing.simulation.virtual_time import VirtualTime

__all__ = ("TrioScheduler", "seeded", "tasks", "timers", "virtual_clock")

LONG_S = 1e9
"""What trio is told to wait for real; it is called off at once."""


def virtual_clock(time: VirtualTime) -> MockClock:
    """Lets the time pass whenever all tasks wait."""
    clock = MockClock(autojump_threshold=0.0)

    def jump() -> None:
        time.idle(_run.GLOBAL_RUN_CONTEXT.runner.deadlines.next_deadline())

    # trio wants no other class, which is final, and knows nothing of what a world does by itself.
    ours: Any = clock
    ours.current_time = time.now
    ours.deadline_to_sleep_time = lambda deadline: LONG_S if deadline > time.now() else 0.0
    ours._autojump = jump
    return clock


class TrioScheduler(trio.abc.Instrument):
    """Tells the time of each turn of trio's loop."""

    def __init__(self, time: VirtualTime) -> None:
        self._time = time

    def before_io_wait(self, timeout: float) -> None:
        if timeout == 0.0:
            self._time.on_iteration()


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Let the seed decide in which order tasks run that could run at the same time."""
    run: Any = _run
    before = run._ALLOW_DETERMINISTIC_SCHEDULING
    run._ALLOW_DETERMINISTIC_SCHEDULING = True
    state = run._r.getstate()
    run._r.seed(seed)
    try:
        yield
    finally:
        run._ALLOW_DETERMINISTIC_SCHEDULING = before
        run._r.setstate(state)


def tasks() -> Iterator[tuple[object, SuspendedTask]]:
    """All tasks of the running trio, and what they wait for."""
    root = trio.lowlevel.current_root_task()
    found: list[trio.lowlevel.Task] = []
    nurseries = list(root.child_nurseries) if root is not None else []
    while nurseries:
        for task in nurseries.pop().child_tasks:
            found.append(task)
            nurseries.extend(task.child_nurseries)
    # Tasks of one name in the order in which they were made.
    for task in sorted(found, key=lambda task: (task.name, task._counter)):
        yield task, waiting(task.name, task.coro)


def timers() -> Iterator[str]:
    """What waits for its time; trio tells only of the first."""
    ahead = trio.lowlevel.current_statistics().seconds_to_next_deadline
    if ahead != math.inf:
        yield f"a deadline at {trio.current_time() + ahead:.6f} s"
