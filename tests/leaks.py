"""Leftovers of a client in a process: tasks, sockets, threads, timers."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio.lowlevel
import sniffio

DESCRIPTORS = Path("/proc/self/fd")

MAX_CHECKPOINTS = 100
"""asyncio closes a socket some iterations of its loop after the call."""

DIGITS = "0123456789"

MANY = 1_000_000

POOLS = ("AnyIO worker thread", "Trio thread", "asyncio_")
"""Threads that the event loop keeps for later work, and ends by itself."""


def census() -> Counter[str]:
    """Count the objects of each kind."""
    tasks = _trio_tasks() if _on_trio() else [task.get_name() for task in asyncio.all_tasks()]
    counts = Counter(f"task {name.rstrip(DIGITS)}" for name in tasks)
    counts["socket"] = _sockets()
    counts["timer"] = _timers()
    counts.update(f"thread {t.name}" for t in threading.enumerate() if not t.name.startswith(POOLS))
    return counts


@asynccontextmanager
async def nothing_left(*, timers: bool = True) -> AsyncIterator[None]:
    """Fail if the block leaves anything behind; an exception of the block takes precedence.

    A permanently running embedded broker has timers of its own: `timers=False`.
    """
    before = census()
    if not timers:
        before["timer"] = MANY
    yield
    await settled(before)


async def settled(before: Counter[str]) -> None:
    """Wait a few iterations of the loop until there is no more than `before`; else fail."""
    for _ in range(MAX_CHECKPOINTS):
        if census() <= before:
            break
        await anyio.lowlevel.checkpoint()
    left = census() - before
    assert not left, f"left behind: {dict(left)}"
    gc.collect()  # a coroutine never awaited, or a socket never closed, warns when it is freed


def _on_trio() -> bool:
    return sniffio.current_async_library() == "trio"


def _trio_tasks() -> list[str]:
    import trio

    root = trio.lowlevel.current_root_task()
    names, nurseries = [], list(root.child_nurseries) if root else []
    while nurseries:
        for task in nurseries.pop().child_tasks:
            names.append(task.name)
            nurseries.extend(task.child_nurseries)
    return names


def _timers() -> int:
    if _on_trio():
        import trio

        # trio only reveals whether there is a deadline.
        return trio.lowlevel.current_statistics().seconds_to_next_deadline < 3_600
    scheduled = getattr(
        asyncio.get_running_loop(), "_scheduled", ()
    )  # uvloop has no such attribute
    return sum(not handle.cancelled() for handle in scheduled)


def _sockets() -> int:
    if not DESCRIPTORS.exists():
        return 0
    count = 0
    for descriptor in os.listdir(DESCRIPTORS):
        try:
            count += os.readlink(DESCRIPTORS / descriptor).startswith("socket:")
        except FileNotFoundError:  # the one that listed the directory
            continue
    return count
