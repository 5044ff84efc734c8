"""The bounds of a simulated connection."""

from __future__ import annotations

import anyio
import pytest

from aiokafkawire.runtime import Address, Buffer
from aiokafkawire.testing.simulation import NetworkOptions, World
from aiokafkawire.testing.simulation import stream as module
from aiokafkawire.testing.simulation.stream import SimulatedTransport
from aiokafkawire.testing.simulation.world import Backend

PORT = Address("10.0.0.1", 9092)
CLIENT = "10.0.0.2"


async def connected(world: World) -> tuple[SimulatedTransport, SimulatedTransport]:
    listener = await world.runtime(PORT.host).listen(PORT)
    client = await world.runtime(CLIENT).connect(PORT)
    server = await listener.accept()
    assert isinstance(client, SimulatedTransport)
    assert isinstance(server, SimulatedTransport)
    return client, server


class Inbox:
    """Records the calls of `receive_until_eof`."""

    def __init__(self, world: World, size: int = 1_000) -> None:
        self.world = world
        self.buffer = bytearray(size)
        self.data = b""
        self.times: list[float] = []

    def get_buffer(self) -> memoryview:
        return memoryview(self.buffer)

    def received(self, count: int) -> None:
        self.data += self.buffer[:count]
        self.times.append(self.world.now())


def test_a_sender_waits_for_a_slow_receiver(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_IN_TRANSIT_BYTES", 1_000)
    world = World(1, backend=backend)
    sent: list[int] = []

    async def main() -> None:
        listener = await world.runtime(PORT.host).listen(PORT)
        client = await world.runtime("10.0.0.2").connect(PORT)
        server = await listener.accept()

        async def send() -> None:
            for number in range(5):
                await client.send([bytes(500)])
                sent.append(number)

        async with anyio.create_task_group() as group:
            group.start_soon(send)
            await world.clock.sleep_until(world.now() + 1)
            assert sent == [0, 1]
            total = 0
            while total < 2_500:
                total += await server.receive_into(memoryview(bytearray(300)))
        assert len(sent) == 5

    world.run(main)


def test_a_sender_that_waits_hears_of_a_reset(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_IN_TRANSIT_BYTES", 1_000)
    world = World(1, backend=backend)

    async def main() -> None:
        await world.runtime(PORT.host).listen(PORT)
        client = await world.runtime("10.0.0.2").connect(PORT)

        async def reset() -> None:
            await world.clock.sleep_until(world.now() + 1)
            world.network.crash(PORT.host)

        async with anyio.create_task_group() as group:
            group.start_soon(reset)
            with pytest.raises(ConnectionResetError):
                await client.send([bytes(5_000)])

    world.run(main)


def test_a_waiting_sender_gets_an_error_when_the_reader_closes(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_IN_TRANSIT_BYTES", 1_000)
    world = World(1, backend=backend)

    async def main() -> None:
        listener = await world.runtime(PORT.host).listen(PORT)
        client = await world.runtime("10.0.0.2").connect(PORT)
        server = await listener.accept()

        async def close() -> None:
            await world.clock.sleep_until(world.now() + 1)
            server.abort()

        async with anyio.create_task_group() as group:
            group.start_soon(close)
            with pytest.raises(ConnectionResetError):
                await client.send([bytes(5_000)])

    world.run(main)


def test_what_has_come_before_a_reset_can_be_read(backend: Backend) -> None:
    world = World(1, backend=backend, network=NetworkOptions(fragmented=0.0))

    async def main() -> None:
        listener = await world.runtime(PORT.host).listen(PORT)
        client = await world.runtime("10.0.0.2").connect(PORT)
        server = await listener.accept()
        await client.send([b"unread"])
        await server.send([b"last words"])
        await world.clock.sleep_until(world.now() + 1)
        server.abort()
        await world.clock.sleep_until(world.now() + 1)
        buffer = memoryview(bytearray(100))
        assert await client.receive_into(buffer) == 10
        with pytest.raises(ConnectionResetError):
            await client.receive_into(buffer)

    world.run(main)


def test_a_slow_line_takes_its_time(backend: Backend) -> None:
    world = World(1, backend=backend, network=NetworkOptions(bandwidth_bytes_per_s=10_000))

    async def main() -> None:
        listener = await world.runtime(PORT.host).listen(PORT)
        client = await world.runtime("10.0.0.2").connect(PORT)
        server = await listener.accept()
        await client.send([bytes(50_000)])
        left = 50_000
        while left:
            left -= await server.receive_into(memoryview(bytearray(50_000)))
        assert 5 <= world.now() < 5.1

    world.run(main)


def test_single_bytes_are_a_stream_too(backend: Backend) -> None:
    world = World(1, backend=backend, network=NetworkOptions(single_bytes=1.0))

    async def main() -> None:
        listener = await world.runtime(PORT.host).listen(PORT)
        client = await world.runtime("10.0.0.2").connect(PORT)
        server = await listener.accept()
        sent = bytes(range(256)) * 4
        await client.send([sent])
        got = b""
        buffer = memoryview(bytearray(300))
        while len(got) < len(sent):
            got += buffer[: await server.receive_into(buffer)]
        assert got == sent

    world.run(main)


def test_each_packet_is_delivered_on_arrival(backend: Backend) -> None:
    world = World(1, backend=backend)

    async def main() -> None:
        client, server = await connected(world)
        inbox = Inbox(world, size=7)
        await client.send([b"before"])
        await world.clock.sleep_until(world.now() + 1)

        async def send() -> None:
            await world.clock.sleep_until(world.now() + 1)
            await client.send([b"while somebody listens"])
            await world.clock.sleep_until(world.now() + 1)
            await client.aclose()

        async with anyio.create_task_group() as group:
            group.start_soon(send)
            await server.receive_until_eof(inbox.get_buffer, inbox.received)
        assert inbox.data == b"beforewhile somebody listens"
        assert inbox.times[0] < 1.1
        assert 2 < inbox.times[-1] < 2.1
        assert world.now() > 3

    world.run(main)


def test_errors_of_a_receive_callback_propagate(backend: Backend) -> None:
    world = World(1, backend=backend)

    async def main() -> None:
        client, server = await connected(world)

        def received(count: int) -> None:
            raise LookupError(count)

        await client.send([b"x"])
        with pytest.raises(LookupError):
            await server.receive_until_eof(Inbox(world).get_buffer, received)

    world.run(main)


def test_receivers_are_notified_of_a_reset_and_of_their_own_abort(backend: Backend) -> None:
    world = World(1, backend=backend)

    async def main() -> None:
        client, server = await connected(world)
        inbox = Inbox(world)

        def received(count: int) -> None:
            inbox.received(count)
            server.abort()

        await client.send([b"x"])
        await server.receive_until_eof(inbox.get_buffer, received)
        assert inbox.data == b"x"
        await client.receive_until_eof(inbox.get_buffer, inbox.received)

    async def hear_of_a_reset() -> None:
        client, _ = await connected(world)
        world.network.reset(CLIENT, PORT.host)
        with pytest.raises(ConnectionResetError):
            await client.receive_until_eof(lambda: memoryview(b""), print)

    world.run(main)
    world = World(1, backend=backend)
    world.run(hear_of_a_reset)


def test_bytes_accepted_at_once(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_IN_TRANSIT_BYTES", 1_000)
    options = NetworkOptions(partial_writes=0.5)
    world = World(1, backend=backend, network=options)

    async def main() -> None:
        client, server = await connected(world)
        sent = bytes(range(200)) * 5
        rest, rests = list[Buffer]([sent[:10], sent[10:]]), 0
        while rest:
            rest = list(client.send_nowait(rest))
            rests += bool(rest)
        assert rests
        full = [b"too", b"much"]
        assert client.send_nowait(full) is full
        got = b""
        buffer = memoryview(bytearray(300))
        while len(got) < len(sent):
            got += buffer[: await server.receive_into(buffer)]
        assert got == sent
        client.abort()
        assert client.send_nowait(full) is full

    world.run(main)
