from __future__ import annotations

import anyio

from aiokafkawire.consumer.notifier import Notifier


async def test_notify_all_wakes_all_waiting_tasks() -> None:
    notifier = Notifier()
    assert not await notifier.wait(0.0)
    woken: list[bool] = []

    async def wait() -> None:
        woken.append(await notifier.wait(float("inf")))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        tasks.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        notifier.notify_all()
    assert woken == [True, True]
