"""Hosts, ports, names, and what befalls connections."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
import pytest

from aiokafkawire.runtime import Address, Listener, Transport
from aiokafkawire.testing.simulation import NetworkOptions, World
from aiokafkawire.testing.simulation import listener as listener_module
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


async def received_until_reset(transport: Transport) -> bytes:
    data = b""
    try:
        while True:
            data += await received(transport, 1)
    except ConnectionResetError:
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
        with pytest.raises(BrokenPipeError):
            await client.send([b"x"])
        # The peer hears when it writes, and not before.
        await server.send([b"too late"])
        assert await received(server, 1) == b""
        await world.clock.sleep_until(1)
        with pytest.raises(ConnectionResetError):
            await server.send([b"too late"])

    in_world(backend, main)


def test_abort_wakes_the_receiver(backend: Backend) -> None:
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


def test_a_port_without_listener_refuses(backend: Backend) -> None:
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


def test_a_free_port_is_not_in_use(backend: Backend) -> None:
    async def main(world: World) -> None:
        ports = [(await world.runtime(ONE).listen(Address(ONE, 0))).address for _ in range(3)]
        assert len(set(ports)) == 3
        listener = await world.runtime(ONE).listen(Address(ONE, 0))
        await listener.aclose()
        another = await world.runtime(ONE).listen(Address(ONE, 0))
        assert another.address not in (*ports, listener.address)

    in_world(backend, main)


def test_a_full_backlog_refuses(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener_module, "MAX_BACKLOG", 2)

    async def main(world: World) -> None:
        listener = await world.runtime(ONE).listen(PORT)
        for _ in range(2):
            await world.runtime(OTHER).connect(PORT)
        with pytest.raises(ConnectionRefusedError):
            await world.runtime(OTHER).connect(PORT)
        await listener.accept()
        await world.runtime(OTHER).connect(PORT)

    in_world(backend, main)


def test_name_resolution(backend: Backend) -> None:
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


def test_a_waiting_connect_completes_when_the_host_returns(backend: Backend) -> None:
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


def test_a_reset_is_seen_at_both_ends(backend: Backend) -> None:
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


def test_closing_a_listener_closes_unaccepted_connections(backend: Backend) -> None:
    async def main(world: World) -> None:
        listener = await world.runtime(ONE).listen(PORT)
        client = await world.runtime(OTHER).connect(PORT)
        await listener.aclose()
        assert await received(client, 1) == b""

    in_world(backend, main)


@pytest.mark.parametrize("ends", [(OTHER, ONE), (OTHER, str(PORT))])
def test_sever_one_direction(backend: Backend, ends: tuple[str, str]) -> None:
    async def main(world: World) -> None:
        _, client, server = await connected(world)
        world.network.sever(*ends, one_way=True)
        await server.send([b"reply"])
        assert await received(client, 5) == b"reply"
        await client.send([b"unheard"])
        with anyio.move_on_after(60) as scope:
            await received(server, 1)
        assert scope.cancelled_caught
        with anyio.move_on_after(60) as scope:
            await world.runtime(OTHER).connect(PORT)
        assert scope.cancelled_caught
        world.network.heal(*ends)
        assert await received(server, 7) == b"unheard"

    in_world(backend, main)


def test_one_port_of_a_host(backend: Backend) -> None:
    second = Address(ONE, 9093)

    async def main(world: World) -> None:
        for port in (PORT, second):
            await world.runtime(ONE).listen(port)
        world.network.sever(OTHER, str(PORT))
        with anyio.move_on_after(60) as scope:
            await world.runtime(OTHER).connect(PORT)
        assert scope.cancelled_caught
        await world.runtime(OTHER).connect(second)
        await world.runtime("10.0.0.3").connect(PORT)

    in_world(backend, main)


def test_order_holds_within_a_connection_and_not_across(backend: Backend) -> None:
    orders: set[tuple[int, ...]] = set()
    options = NetworkOptions(max_delay_s=1.0)

    async def main(world: World) -> None:
        listener = await world.runtime(ONE).listen(PORT)
        came: list[int] = []

        async def talk(number: int) -> None:
            client = await world.runtime(OTHER).connect(PORT)
            for part in range(3):
                await client.send([bytes([number, part])])

        async def listen() -> None:
            server = await listener.accept()
            data = await received(server, 6)
            assert [*data[1::2]] == [0, 1, 2]
            came.append(data[0])

        async with anyio.create_task_group() as group:
            for number in range(5):
                group.start_soon(talk, number)
                group.start_soon(listen)
        orders.add(tuple(came))

    for seed in range(5):
        world = World(seed, backend=backend, network=options)
        world.run(lambda world=world: main(world))  # type: ignore[misc]
    assert len(orders) > 1


def test_links_of_their_own(backend: Backend) -> None:
    async def took(world: World, address: Address) -> float:
        began = world.now()
        await world.runtime(OTHER).connect(address)
        return world.now() - began

    async def main(world: World) -> None:
        near = Address("10.0.0.3", 9092)
        for port in (PORT, near):
            await world.runtime(port.host).listen(port)
        world.network.set_link(ONE, OTHER, NetworkOptions(min_delay_s=1, max_delay_s=1))
        assert await took(world, near) < 0.01
        assert await took(world, PORT) == pytest.approx(2)
        world.network.set_link(ONE, OTHER, None)
        assert await took(world, PORT) < 0.01

    in_world(backend, main)


def test_a_host_without_power_is_there_again_with_its_connections(backend: Backend) -> None:
    async def main(world: World) -> None:
        _, client, server = await connected(world)
        world.network.lose_power(OTHER)
        await server.send([b"hello?"])
        await world.clock.sleep_until(60)
        world.network.heal(OTHER, ONE)  # which is not what is wrong
        with anyio.move_on_after(60) as scope:
            await received(client, 1)
        assert scope.cancelled_caught
        world.network.restore(OTHER)
        assert await received(client, 6) == b"hello?"

    in_world(backend, main)


def test_a_reset_in_the_middle_of_a_write(backend: Backend) -> None:
    async def main(world: World) -> None:
        _, client, server = await connected(world)
        world.network.reset_mid_write(OTHER, ONE)
        await server.send([b"not this one"])
        assert await received(client, 12) == b"not this one"
        await client.send([bytes(100)])
        assert 0 < len(await received_until_reset(server)) < 100
        with pytest.raises(ConnectionResetError):
            await received(client, 1)
        with pytest.raises(ConnectionResetError):
            await client.send([b"x"])
        # Only the connections that there were.
        again = await world.runtime(OTHER).connect(PORT)
        await again.send([bytes(100)])

    in_world(backend, main)


def test_half_open(backend: Backend) -> None:
    async def main(world: World) -> None:
        _, client, server = await connected(world)
        world.network.half_open(ONE, OTHER)
        for call in (server.receive_into(memoryview(bytearray(1))), server.send([b"x"])):
            with pytest.raises(ConnectionResetError, match="gone"):
                await call
        with anyio.move_on_after(3_600) as scope:
            await received(client, 1)
        assert scope.cancelled_caught
        await client.send([b"hello?"])
        with pytest.raises(ConnectionResetError, match="by peer"):
            await received(client, 1)

    in_world(backend, main)


def test_half_open_and_silent(backend: Backend) -> None:
    async def main(world: World) -> None:
        _, client, server = await connected(world)
        world.network.half_open(str(PORT), OTHER, silent=True)
        await client.send([b"hello?"])
        with anyio.move_on_after(3_600) as scope:
            await received(client, 1)
        assert scope.cancelled_caught
        # In the end there is no more room for what nobody takes.
        with anyio.move_on_after(60) as scope:
            await client.send([bytes(300_000)])
        assert scope.cancelled_caught
        server.abort()
        with anyio.move_on_after(60) as scope:
            await received(client, 1)
        assert scope.cancelled_caught

    in_world(backend, main)


def test_connects_that_are_refused(backend: Backend) -> None:
    async def main(world: World) -> None:
        await world.runtime(ONE).listen(PORT)
        world.network.refuse_connects(ONE, by=OTHER, times=1)
        await world.runtime("10.0.0.3").connect(PORT)
        with pytest.raises(ConnectionRefusedError):
            await world.runtime(OTHER).connect(PORT)
        await world.runtime(OTHER).connect(PORT)
        world.network.refuse_connects(str(PORT))
        for _ in range(2):
            with pytest.raises(ConnectionRefusedError):
                await world.runtime(OTHER).connect(PORT)
        world.network.allow_connects(str(PORT))
        await world.runtime(OTHER).connect(PORT)
        assert (world.network.connects, world.network.connects_refused) == (3, 3)

    in_world(backend, main)


def test_connects_that_hang(backend: Backend) -> None:
    async def main(world: World) -> None:
        await world.runtime(ONE).listen(PORT)
        world.network.hang_connects(ONE, times=1)
        with anyio.move_on_after(3_600) as scope:
            await world.runtime(OTHER).connect(PORT)
        assert scope.cancelled_caught
        await world.runtime(OTHER).connect(PORT)
        world.network.hang_connects(ONE)
        async with anyio.create_task_group() as group:
            group.start_soon(world.runtime(OTHER).connect, PORT)
            await world.clock.sleep_until(world.now() + 60)
            assert world.network.connects == 1
            world.network.allow_connects(ONE)
        assert world.network.connects == 2

    in_world(backend, main)


def test_a_cancelled_connect_leaves_a_closed_connection(backend: Backend) -> None:
    async def main(world: World) -> None:
        listener = await world.runtime(ONE).listen(PORT)
        options = NetworkOptions(min_delay_s=1, max_delay_s=1)
        world.network.set_link(ONE, OTHER, options)
        with anyio.move_on_after(1.5) as scope:
            await world.runtime(OTHER).connect(PORT)
        assert scope.cancelled_caught
        assert await received(await listener.accept(), 1) == b""

    in_world(backend, main)


def test_a_name_service_that_is_not_reached(backend: Backend) -> None:
    async def main(world: World) -> None:
        world.network.name("broker", ONE)
        world.network.lose_power(OTHER)
        with anyio.move_on_after(60) as scope:
            await world.runtime(OTHER).resolve("broker", 1)
        assert scope.cancelled_caught
        world.network.restore(OTHER)
        assert await world.runtime(OTHER).resolve("broker", 1) == [Address(ONE, 1)]

    in_world(backend, main)


def test_all_is_healed(backend: Backend) -> None:
    async def main(world: World) -> None:
        await world.runtime(ONE).listen(PORT)
        network = world.network
        network.name("broker", ONE)
        network.sever(ONE, OTHER)
        network.sever(OTHER, ONE, one_way=True)
        network.lose_power(ONE)
        network.set_link(ONE, OTHER, NetworkOptions(min_delay_s=9, max_delay_s=9))
        network.refuse_connects(ONE)
        network.hang_connects(ONE, times=1)
        network.hang_name("broker")
        network.fail_name("broker")
        network.heal_all()
        runtime = world.runtime(OTHER)
        await runtime.connect((await runtime.resolve("broker", PORT.port))[0])
        assert world.now() < 0.1

    in_world(backend, main)


def test_open_connections_are_reported(backend: Backend) -> None:
    async def main(world: World) -> None:
        listener, client, server = await connected(world)
        ends = f"#1 {OTHER} -> {PORT}"
        assert list(world.network.open_sockets()) == [
            f"listener {PORT}",
            f"{ends}: the end at {OTHER}",
            f"{ends}: the end at {PORT}",
        ]
        await listener.aclose()
        world.network.reset(ONE, OTHER)  # which closes nothing
        client.abort()
        assert list(world.network.open_sockets()) == [f"{ends}: the end at {PORT}"]
        assert [line.rpartition(": ")[0] for line in world.network.in_transit()] == [
            ends,
            f"#1 {PORT} -> {OTHER}",
        ]
        await server.aclose()
        assert list(world.network.open_sockets()) == []

    in_world(backend, main)
