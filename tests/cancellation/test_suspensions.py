"""The tool itself: it counts suspensions, and finds what it is there to find."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest
import sniffio

from tests.cancellation.suspensions import (
    CancelTime,
    by_scope,
    by_task_twice,
    each_suspension,
    ways,
)


async def thrice() -> str:
    for _ in range(3):
        await anyio.lowlevel.checkpoint()
    return "done"


async def enumerated(call: Callable[[], Awaitable[Any]], name: str) -> list[Any]:
    (chosen,) = [(way, when) for known, way, when in ways() if known == name]
    return [outcome async for outcome in each_suspension(call, *chosen)]


NAMES = [
    f"{name}, {when.value}"
    for name in ("scope", "Task.cancel", "Task.cancel twice", "asyncio.timeout", "asyncio.wait_for")
    for when in CancelTime
]


@pytest.mark.parametrize("name", NAMES)
async def test_a_call_is_cancelled_at_each_of_its_suspensions(name: str):
    if name not in [known for known, _, _ in ways()]:
        return  # a way that trio has not
    plain = [
        outcome
        async for outcome in each_suspension(thrice, lambda a: a.run(), CancelTime.WHILE_WAITING)
    ]
    suspensions = len(plain) - 1
    assert suspensions >= 3
    outcomes = await enumerated(thrice, name)
    # A timeout that strikes too late may come when the call has ended.
    assert all(outcome.cancelled for outcome in outcomes[: suspensions - 1])
    assert len(outcomes) - 1 in {suspensions, suspensions + 1}
    assert (outcomes[-1].hit, outcomes[-1].cancelled, outcomes[-1].result) == (False, False, "done")


async def test_a_result_that_a_late_cancellation_loses_is_found():
    if sniffio.current_async_library() != "asyncio":
        return
    items = [1, 2, 3]
    lost: list[int] = []

    async def take_and_wait() -> int:
        item = items.pop()
        await anyio.lowlevel.checkpoint()
        return item

    async for outcome in each_suspension(take_and_wait, by_scope, CancelTime.WHILE_WAITING):
        if outcome.cancelled:
            lost.append(3)
    assert lost
    assert len(items) < 2


async def test_the_second_cancellation_meets_the_cleaning_up():
    if sniffio.current_async_library() != "asyncio":
        return
    cleaned: list[bool] = []

    async def clean_up() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            await anyio.lowlevel.checkpoint()
            cleaned.append(True)

    attempts = each_suspension(clean_up, by_task_twice, CancelTime.WHILE_WAITING)
    outcome = await anext(attempts)
    await attempts.aclose()  # type: ignore[attr-defined]
    assert outcome.cancelled
    assert not cleaned
