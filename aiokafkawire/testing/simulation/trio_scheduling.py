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
"""Sleep reported to trio while no timer is due. trio calls `_autojump` instead of sleeping."""


def virtual_clock(time: VirtualTime) -> MockClock:
    """Return a clock that advances virtual time whenever all tasks wait."""
    clock = MockClock(autojump_threshold=0.0)

    def jump() -> None:
        time.advance(_run.GLOBAL_RUN_CONTEXT.runner.deadlines.next_deadline())

    # trio calls `_autojump` only on a MockClock, a final class, so no subclass can override its
    # methods. The originals do not know the scheduled events of the simulation.
    patched: Any = clock
    patched.current_time = time.now
    patched.deadline_to_sleep_time = lambda deadline: LONG_S if deadline > time.now() else 0.0
    patched._autojump = jump
    return clock


class TrioScheduler(trio.abc.Instrument):
    """Reports each iteration of trio's loop to the virtual time."""

    def __init__(self, time: VirtualTime) -> None:
        self._time = time

    def before_io_wait(self, timeout: float) -> None:
        if timeout == 0.0:
            self._time.on_iteration()


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Let the seed decide the order of tasks that are ready at the same time."""
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
    """Yield all tasks of the running trio loop, and where they wait."""
    root = trio.lowlevel.current_root_task()
    running_tasks: list[trio.lowlevel.Task] = []
    nurseries = list(root.child_nurseries) if root is not None else []
    while nurseries:
        for task in nurseries.pop().child_tasks:
            running_tasks.append(task)
            nurseries.extend(task.child_nurseries)
    # Tasks with the same name in the order of their creation.
    for task in sorted(running_tasks, key=lambda task: (task.name, task._counter)):
        yield task, waiting(task.name, task.coro)


def timers() -> Iterator[str]:
    """Yield pending deadlines; trio reports only the first."""
    ahead = trio.lowlevel.current_statistics().seconds_to_next_deadline
    if ahead != math.inf:
        yield f"a deadline at {trio.current_time() + ahead:.6f} s"
