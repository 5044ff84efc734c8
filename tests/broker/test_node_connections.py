"""Idle connections, and those beyond the quota."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from aiokafkawire.broker import node_connections
from aiokafkawire.broker.node_connections import NodeConnections
from aiokafkawire.runtime import NEVER


class Clock:
    """A clock that `advance` moves."""

    def __init__(self) -> None:
        self._now = 0.0
        self._moved = anyio.Event()

    def now(self) -> float:
        return self._now

    def wall_ms(self) -> int:
        return int(self._now * 1000)

    async def sleep_until(self, deadline: float) -> None:
        while self._now < deadline:
            await self._moved.wait()

    async def advance(self, seconds: float) -> None:
        """Move the clock, and wait until every task waits again."""
        self._now += seconds
        self._moved.set()
        self._moved = anyio.Event()
        await anyio.wait_all_tasks_blocked()


class Connection:
    def __init__(self, idle_since: float) -> None:
        self.name = f"idle since {idle_since}"
        self.idle_since = idle_since
        self._closing = anyio.Event()

    def close_when_idle(self) -> None:
        self._closing.set()

    async def run(self) -> None:
        await self._closing.wait()


class Transport:
    is_closed = False

    def abort(self) -> None:
        pass

    async def aclose(self) -> None:
        self.is_closed = True


async def test_connections_are_closed_when_they_were_idle_for_too_long() -> None:
    clock = Clock()
    connections = NodeConnections(clock)
    early, late, busy = Connection(0.0), Connection(3.0), Connection(NEVER)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(connections.close_idle, 5.0)
        for connection in (early, late, busy):
            connections.add(connection)
            tasks.start_soon(connections.serve, connection)
        await anyio.wait_all_tasks_blocked()
        assert len(connections) == 3
        await clock.advance(5.0)
        assert list(connections) == [late, busy]
        await clock.advance(5.0)
        assert list(connections) == [busy]
        tasks.cancel_scope.cancel()
    assert len(connections) == 0


async def test_few_throttled_connections_stay_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_connections, "MAX_THROTTLED_CONNECTIONS", 2)
    clock = Clock()
    connections = NodeConnections(clock)
    transports: list[Any] = [Transport() for _ in range(4)]
    async with anyio.create_task_group() as tasks:
        for transport in transports[:3]:
            tasks.start_soon(connections.close_throttled, transport, 1.0)
        await anyio.wait_all_tasks_blocked()
        assert sum(each.is_closed for each in transports[:3]) == 1
        await clock.advance(1.0)
        assert all(each.is_closed for each in transports[:3])
        tasks.start_soon(connections.close_throttled, transports[3], 2.0)
        await anyio.wait_all_tasks_blocked()
        assert not transports[3].is_closed
        await clock.advance(1.0)
    assert transports[3].is_closed


def test_numbers_differ() -> None:
    connections = NodeConnections(Clock())
    assert len({connections.next_number() for _ in range(3)}) == 3
