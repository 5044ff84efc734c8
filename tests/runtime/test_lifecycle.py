"""A client is entered and left as the caller likes: another task, any order, own exceptions."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from aiokafkawire.errors import ClientClosed
from aiokafkawire.runtime import (
    NEVER,
    Address,
    Host,
    Lifecycle,
    RealRuntime,
    Transport,
    checkpoint,
)
from aiokafkawire.runtime.lifecycle import Phase

WITHIN_S = 3.0


class Client:
    """The least client there can be: one task, and a goodbye."""

    def __init__(self, goodbye: Callable[[], Awaitable[None]] | None = None) -> None:
        self.life = Lifecycle(Host("client"))
        self.close_timeout_s = 5.0
        self.said_goodbye = False
        self._goodbye = goodbye

    async def __aenter__(self) -> Client:
        await self.life.enter(self._start)
        return self

    async def __aexit__(self, *_: object) -> None:
        deadline = self.clock.now() + self.close_timeout_s
        await self.life.leave(self._leave, deadline)

    async def _start(self) -> None:
        self.clock = RealRuntime().clock
        self.task = self.life.host.spawn(anyio.sleep_forever, name="work")

    async def _leave(self) -> None:
        if self._goodbye is not None:
            await self._goodbye()
        self.said_goodbye = True


async def test_left_in_another_task_than_it_was_entered_in():
    client = Client()
    entered = anyio.Event()
    left = anyio.Event()

    async def enter() -> None:
        await client.__aenter__()
        entered.set()

    async def leave() -> None:
        await entered.wait()
        await client.__aexit__(None, None, None)
        left.set()

    async with anyio.create_task_group() as group:
        group.start_soon(leave)
        group.start_soon(enter)
    assert left.is_set()
    assert client.task.done
    assert client.said_goodbye


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
async def test_two_clients_close_in_any_order(order: tuple[int, int]):
    clients = [Client(), Client()]
    for client in clients:
        await client.__aenter__()
    for number in order:
        await clients[number].__aexit__(None, None, None)
        assert clients[number].task.done
    assert all(client.said_goodbye for client in clients)


class OwnError(Exception):
    pass


async def test_the_bodys_exception_comes_through_as_it_is():
    error = OwnError("mine")
    with pytest.raises(OwnError) as caught:
        async with Client() as client:
            raise error
    assert caught.value is error
    assert client.task.done


async def test_the_bodys_cancellation_comes_through_after_the_goodbye():
    client = Client(goodbye=anyio.lowlevel.checkpoint)
    with anyio.CancelScope() as scope:
        async with client:
            scope.cancel()
            await anyio.sleep_forever()
    assert scope.cancelled_caught
    assert client.said_goodbye
    assert client.task.done


async def test_a_goodbye_that_hangs_is_cut_at_the_deadline():
    client = Client(goodbye=anyio.sleep_forever)
    client.close_timeout_s = 0.05
    async with client:
        pass
    assert not client.said_goodbye
    assert client.task.done


async def test_a_failing_start_leaves_nothing_behind():
    life = Lifecycle(Host("client"))
    tasks: list[Any] = []

    async def start() -> None:
        tasks.append(life.host.spawn(anyio.sleep_forever, name="work"))
        raise OwnError("no broker")

    with pytest.raises(OwnError):
        await life.enter(start)
    assert tasks[0].done
    with pytest.raises(ClientClosed, match="closed"):
        life.check_running()


async def test_a_cancelled_start_leaves_nothing_behind():
    life = Lifecycle(Host("client"))
    tasks: list[Any] = []

    async def start() -> None:
        tasks.append(life.host.spawn(anyio.sleep_forever, name="work"))
        await anyio.sleep_forever()

    with anyio.move_on_after(0.05):
        await life.enter(start)
    assert tasks[0].done


async def test_use_outside_of_the_block_is_named():
    client = Client()
    with pytest.raises(ClientClosed, match="not entered yet"):
        client.life.check_running()
    async with client:
        client.life.check_running()
        with pytest.raises(ClientClosed, match="running"):
            await client.__aenter__()
    with pytest.raises(ClientClosed, match="closed"):
        client.life.check_running()


async def test_leaving_twice_waits_for_the_first():
    release = anyio.Event()
    client = Client(goodbye=release.wait)
    await client.__aenter__()
    order: list[str] = []

    async def leave(name: str) -> None:
        await client.__aexit__(None, None, None)
        order.append(name)

    async with anyio.create_task_group() as group:
        group.start_soon(leave, "first")
        group.start_soon(leave, "second")
        await anyio.wait_all_tasks_blocked()
        assert order == []
        release.set()
    assert sorted(order) == ["first", "second"]
    assert client.task.done


async def test_abort_ends_the_tasks_without_a_goodbye():
    client = Client()
    await client.__aenter__()
    client.life.abort()
    await client.task.wait()
    await client.__aexit__(None, None, None)
    assert not client.said_goodbye


async def test_a_silent_peer_does_not_hold_the_close():
    """The peer accepts and never answers; the goodbye waits for it, up to the deadline."""
    runtime = RealRuntime()
    listener = await runtime.listen(Address("127.0.0.1", 0))
    transport: Transport = await runtime.connect(listener.address)
    silent = await listener.accept()

    async def wait_for_an_answer() -> None:
        await transport.receive_into(memoryview(bytearray(10)))

    client = Client(goodbye=wait_for_an_answer)
    client.close_timeout_s = 0.05
    async with client:
        pass
    assert client.task.done
    assert not client.said_goodbye
    await transport.aclose()
    await silent.aclose()
    await listener.aclose()


def test_the_end_of_the_loop_is_not_held_by_a_goodbye() -> None:
    """asyncio.run cancels all tasks at once: those that would do the goodbye, too."""
    client = Client(goodbye=anyio.sleep_forever)
    client.close_timeout_s = WITHIN_S
    tasks: list[asyncio.Task[None]] = []

    async def use(entered: asyncio.Event) -> None:
        async with client:
            entered.set()
            await anyio.sleep_forever()

    async def main() -> None:
        entered = asyncio.Event()
        tasks.append(asyncio.get_running_loop().create_task(use(entered)))
        await entered.wait()
        await anyio.wait_all_tasks_blocked()

    began = time.monotonic()
    asyncio.run(main())
    assert time.monotonic() - began < WITHIN_S
    assert client.life.phase is Phase.CLOSED


def test_a_goodbye_under_way_ends_with_the_tasks() -> None:
    client = Client(goodbye=anyio.sleep_forever)
    client.close_timeout_s = WITHIN_S

    async def main() -> None:
        await client.__aenter__()
        leaving = asyncio.get_running_loop().create_task(client.__aexit__())
        await anyio.wait_all_tasks_blocked()
        assert client.life.phase is Phase.CLOSING
        for task in asyncio.all_tasks() - {asyncio.current_task(), leaving}:
            task.cancel()
        await leaving

    began = time.monotonic()
    asyncio.run(main())
    assert time.monotonic() - began < WITHIN_S
    assert not client.said_goodbye


def test_a_client_hears_that_its_tasks_were_cancelled_by_somebody_else() -> None:
    lost: list[str] = []

    async def main() -> None:
        life = Lifecycle(Host("client"), lambda: lost.append("tasks"))
        await life.enter(checkpoint)
        supervisors = asyncio.all_tasks() - {asyncio.current_task()}
        for task in supervisors:
            task.cancel()
        await asyncio.wait(supervisors)
        await life.leave(checkpoint, NEVER)

    asyncio.run(main())
    assert lost == ["tasks"]


async def test_leaving_is_no_loss():
    lost: list[str] = []
    life = Lifecycle(Host("client"), lambda: lost.append("tasks"))
    await life.enter(checkpoint)
    await life.leave(checkpoint, NEVER)
    assert not lost
