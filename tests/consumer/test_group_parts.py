from __future__ import annotations

import anyio

from aiokafkawire.consumer.group_parts import News


async def test_news_wake_all_that_wait() -> None:
    news = News()
    assert not await news.wait(0.0)
    woken: list[bool] = []

    async def wait() -> None:
        woken.append(await news.wait(float("inf")))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        tasks.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        news.tell()
    assert woken == [True, True]
