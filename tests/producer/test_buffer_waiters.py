"""Callers that wait for buffer space."""

from __future__ import annotations

import anyio
import anyio.lowlevel
import pytest

from aiokafkawire.errors import BufferFull, ClientClosed
from aiokafkawire.producer import buffer_waiters
from aiokafkawire.producer.buffer_waiters import BufferWaiters
from aiokafkawire.runtime import NEVER


class Buffer:
    def __init__(self) -> None:
        self.free = 0
        self.waiters = BufferWaiters(0.25)
        self.served: list[int] = []

    def release(self, count: int) -> None:
        self.free += count
        self.waiters.space_freed()

    async def take(self, number: int, need: int, deadline: float = NEVER) -> None:
        await self.waiters.wait(lambda: self.free >= need, deadline)
        self.free -= need
        self.served.append(number)


async def waiting(count: int, buffer: Buffer) -> None:
    while len(buffer.waiters._waiting) < count:
        await anyio.lowlevel.checkpoint()


async def test_first_come_first_served():
    buffer = Buffer()
    async with anyio.create_task_group() as group:
        for number in range(3):
            group.start_soon(buffer.take, number, 1)
            await waiting(number + 1, buffer)
        assert buffer.waiters.has_waiters
        buffer.release(3)
    assert buffer.served == [0, 1, 2]
    assert not buffer.waiters.has_waiters


async def test_a_small_record_does_not_overtake_a_large_one():
    buffer = Buffer()
    async with anyio.create_task_group() as group:
        group.start_soon(buffer.take, 0, 10)
        await waiting(1, buffer)
        group.start_soon(buffer.take, 1, 1)
        await waiting(2, buffer)
        buffer.release(5)
        buffer.release(6)
    assert buffer.served == [0, 1]


async def test_waiting_ends_at_the_deadline():
    buffer = Buffer()
    with pytest.raises(BufferFull, match=r"full for 0\.25 s \(max_block_ms\)"):
        await buffer.take(0, 1, anyio.current_time() + 0.01)
    assert not buffer.waiters.has_waiters


async def test_a_cancelled_caller_does_not_hold_up_the_next():
    buffer = Buffer()
    async with anyio.create_task_group() as group:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as inner:
                inner.start_soon(buffer.take, 0, 10)
                await waiting(1, buffer)
                group.start_soon(buffer.take, 1, 1)
                await waiting(2, buffer)
                buffer.release(1)
                scope.cancel()
    assert buffer.served == [1]


async def test_closing_ends_all_waits():
    buffer = Buffer()
    failures: list[Exception] = []

    async def take() -> None:
        with pytest.raises(ClientClosed) as caught:
            await buffer.take(0, 1)
        failures.append(caught.value)

    async with anyio.create_task_group() as group:
        group.start_soon(take)
        group.start_soon(take)
        await waiting(2, buffer)
        buffer.waiters.close(ClientClosed("gone"))
    assert len(failures) == 2
    assert failures[0] is not failures[1]


async def test_the_number_of_waiters_is_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(buffer_waiters, "MAX_WAITERS", 2)
    buffer = Buffer()
    async with anyio.create_task_group() as group:
        for number in range(2):
            group.start_soon(buffer.take, number, 1)
            await waiting(number + 1, buffer)
        with pytest.raises(BufferFull, match="2 calls already wait for space"):
            await buffer.take(2, 1)
        buffer.release(2)
    assert buffer.served == [0, 1]
    buffer.release(1)
    await buffer.take(3, 1)
