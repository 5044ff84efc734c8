"""trio with a clock of its own and an order of tasks that a seed decides.

The only module that uses private names of trio: nothing public makes its order reproducible.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from aiokafkawire.testing.simulation.waits import Waiting, waiting

if TYPE_CHECKING:
    import trio
    from trio.testing import MockClock

__all__ = ("seeded", "tasks_waiting", "virtual_clock")


def virtual_clock(on_stuck: Callable[[], None]) -> MockClock:
    """A clock that jumps to the next deadline whenever all tasks wait.

    `on_stuck` is called when all wait and there is no deadline.
    """
    import trio.testing  # noqa: PLC0415

    clock = trio.testing.MockClock(autojump_threshold=0.0)

    def jump() -> None:
        ahead = trio.lowlevel.current_statistics().seconds_to_next_deadline
        if ahead == math.inf:
            on_stuck()
        else:
            clock.jump(max(ahead, 0.0))

    # The class is final, and does nothing where there is no deadline.
    clock._autojump = jump  # type: ignore[method-assign]
    return clock


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Let the seed decide in which order tasks run that could run at the same time."""
    from trio._core import _run  # noqa: PLC0415

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


def tasks_waiting() -> Iterator[Waiting]:
    """Who waits where, in the running trio."""
    import trio  # noqa: PLC0415

    root = trio.lowlevel.current_root_task()
    found: list[trio.lowlevel.Task] = []
    nurseries = list(root.child_nurseries) if root is not None else []
    while nurseries:
        for task in nurseries.pop().child_tasks:
            found.append(task)
            nurseries.extend(task.child_nurseries)
    for task in sorted(found, key=lambda task: task.name):
        yield waiting(task.name, task.coro)
