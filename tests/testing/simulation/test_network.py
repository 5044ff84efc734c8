"""Hosts, ports, names, and what befalls connections."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
import pytest

from aiokafkawire.runtime import Address, Listener, Transport
from aiokafkawire.testing.simulation import World
from aiokafkawire.testing.simulation import network as module
from aiokafkawire.testing.simulation.world import Backend

ONE, OTHER = "10.0.0.1", "10.0.0.2"
PORT = Address(ONE, 9092)


async def connected(world: World) -> tuple[Listener, Transport, Transport]:
    listener = await world.runtime(ONE).listen(PORT)
    client = await world.runtime(OTHER).connect(PORT)
    return listener, client, await listener.accept()


async def received(transport: Transport, count: int) -> bytes:
    data = b""
    while len(data) < count:
        buffer = memoryview(bytearray(100))
        size = await transport.receive_into(buffer)
        if not size:
            break
        data += buffer[:size]
    return data


def in_world(backend: Backend, main: Callable[[World], Awaitable[None]]) -> World:
    world = World(11, backend=backend)
    world.run(lambda: main(world))
    return world


def test_bytes_come_in_order_and_in_pieces(backend: Backend) -> None:
    async def main(world: World) -> None:
        _, client, server = await connected(world)
        data = bytes(range(256)) * 10
        sizes: list[int] = []
        await client.send([data[:1000], data[1000:]])
        got = b""
        while len(got) < len(data):
            buffer = memoryview(bytearray(10_000))
            sizes.append(await server.receive_into(buffer))
            got += buffer[: sizes[-1]]
        assert got == data
        assert len(sizes) > 1
        await server.send([b"answer"])
        assert await received(client, 6) == b"answer"

    world = in_world(backend, main)
    assert world.now() > 0


def test_closing_ends_the_other_end_after_what_was_sent(backend: Backend) -> None:
    async def main(world: World) -> None:
        _, client, server = await connected(world)
        await client.send([b"last words"])
        await client.aclose()
        assert await received(server, 100) == b"last words"
        assert await received(client, 1) == b""
        with pytest.raises(OSError, match="closed"):
            await server.send([b"too late"])

    in_world(backend, main)


def test_abort_wakes_who_receives(backend: Backend) -> None:
    async def main(world: World) -> None:
        _, client, _ = await connected(world)
        woken: list[bytes] = []

        async def receive() -> None:
            woken.append(await received(client, 1))

        async with anyio.create_task_group() as group:
            group.start_soon(receive)
            await world.clock.sleep_until(1)
            client.abort()
        assert woken == [b""]

    in_world(backend, main)


def test_nobody_listens(backend: Backend) -> None:
    async def main(world: World) -> None:
        with pytest.raises(ConnectionRefusedError):
            await world.runtime(OTHER).connect(PORT)
        listener = await world.runtime(ONE).listen(PORT)
        with pytest.raises(OSError, match="in use"):
            await world.runtime(ONE).listen(PORT)
        await listener.aclose()
        with pytest.raises(ConnectionRefusedError):
            await world.runtime(OTHER).connect(PORT)
        with pytest.raises(OSError, match="closed"):
            await listener.accept()

    in_world(backend, main)


def test_a_free_port_is_one_that_nobody_has(backend: Backend) -> None:
    async def main(world: World) -> None:
        ports = [(await world.runtime(ONE).listen(Address(ONE, 0))).address for _ in range(3)]
        assert len(set(ports)) == 3

    in_world(backend, main)


def test_a_full_backlog_refuses(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_BACKLOG", 2)

    async def main(world: World) -> None:
        listener = await world.runtime(ONE).listen(PORT)
        for _ in range(2):
            await world.runtime(OTHER).connect(PORT)
        with pytest.raises(ConnectionRefusedError):
            await world.runtime(OTHER).connect(PORT)
        await listener.accept()
        await world.runtime(OTHER).connect(PORT)

    in_world(backend, main)


def test_names(backend: Backend) -> None:
    async def main(world: World) -> None:
        runtime = world.runtime(OTHER)
        world.network.name("brokers", ONE, "10.0.0.3")
        assert await runtime.resolve("brokers", 1) == [Address(ONE, 1), Address("10.0.0.3", 1)]
        assert await runtime.resolve(ONE, 1) == [Address(ONE, 1)]
        with pytest.raises(OSError, match="not known"):
            await runtime.resolve("nobody", 1)

    in_world(backend, main)


def test_what_is_severed_gets_through_when_it_is_healed(backend: Backend) -> None:
    async def main(world: World) -> None:
        _, client, server = await connected(world)
        world.network.sever(ONE, OTHER)
        await client.send([b"patience"])
        with anyio.move_on_after(60) as scope:
            await received(server, 1)
        assert scope.cancelled_caught
        with anyio.move_on_after(60) as scope:
            await world.runtime(OTHER).connect(PORT)
        assert scope.cancelled_caught
        world.network.heal(OTHER, ONE)
        assert await received(server, 8) == b"patience"
        await world.runtime(OTHER).connect(PORT)

    in_world(backend, main)


def test_who_waits_to_connect_does_when_the_host_is_back(backend: Backend) -> None:
    async def main(world: World) -> None:
        await world.runtime(ONE).listen(PORT)
        world.network.lose_power(ONE)
        async with anyio.create_task_group() as group:
            group.start_soon(world.runtime(OTHER).connect, PORT)
            await world.clock.sleep_until(60)
            assert "vanishes" in world.trace.lines[-1]
            world.network.restore(ONE)

    world = in_world(backend, main)
    assert "connected" in world.trace.lines[-1]


def test_a_reset_is_heard_at_both_ends(backend: Backend) -> None:
    async def main(world: World) -> None:
        _, client, server = await connected(world)
        world.network.reset(OTHER, ONE)
        for end in (client, server):
            with pytest.raises(ConnectionResetError, match="reset by peer"):
                await received(end, 1)
            with pytest.raises(ConnectionResetError, match="reset by peer"):
                await end.send([b"x"])
        await world.runtime(OTHER).connect(PORT)

    in_world(backend, main)


def test_a_crash_closes_ports_and_connections(backend: Backend) -> None:
    async def main(world: World) -> None:
        listener, client, _ = await connected(world)
        world.network.crash(ONE)
        with pytest.raises(ConnectionResetError, match="crashed"):
            await received(client, 1)
        with pytest.raises(ConnectionRefusedError):
            await world.runtime(OTHER).connect(PORT)
        with pytest.raises(OSError, match="crashed"):
            await listener.accept()
        await world.runtime(ONE).listen(PORT)
        await world.runtime(OTHER).connect(PORT)

    in_world(backend, main)


def test_closing_a_listener_ends_what_nobody_accepted(backend: Backend) -> None:
    async def main(world: World) -> None:
        listener = await world.runtime(ONE).listen(PORT)
        client = await world.runtime(OTHER).connect(PORT)
        await listener.aclose()
        assert await received(client, 1) == b""

    in_world(backend, main)
