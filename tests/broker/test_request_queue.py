"""The queue between reading and handling requests."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
import pytest

from aiokafkawire.broker.request_queue import MAX_QUEUED_BYTES, MAX_QUEUED_REQUESTS, RequestQueue


async def is_waiting(function: Callable[[], Awaitable[object]]) -> bool:
    """Return True if a call waits for another task."""
    is_done = False

    async def run() -> None:
        nonlocal is_done
        await function()
        is_done = True

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    return not is_done


@pytest.mark.parametrize(
    ("size", "count"), [(1, MAX_QUEUED_REQUESTS), (MAX_QUEUED_BYTES, 1), (2 * MAX_QUEUED_BYTES, 1)]
)
async def test_a_full_queue_waits_for_room(size: int, count: int) -> None:
    queue, frame = RequestQueue(), memoryview(bytes(size))
    for _ in range(count):
        await queue.put(frame)
    assert await is_waiting(lambda: queue.put(frame))
    await queue.get()
    assert not await is_waiting(lambda: queue.put(frame))


async def test_the_frames_of_a_closed_queue_are_handled() -> None:
    queue, frames = RequestQueue(), [memoryview(b"a"), memoryview(b"b")]
    for frame in frames:
        await queue.put(frame)
    queue.close()
    assert [await queue.get() for _ in range(3)] == [*frames, None]


async def test_closing_ends_the_wait_for_a_frame() -> None:
    queue = RequestQueue()
    async with anyio.create_task_group() as tasks:

        async def get() -> None:
            assert await queue.get() is None

        tasks.start_soon(get)
        await anyio.wait_all_tasks_blocked()
        queue.close()
