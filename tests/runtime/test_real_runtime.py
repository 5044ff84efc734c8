from __future__ import annotations

import contextlib
import errno
import socket
import threading

import anyio
import anyio.lowlevel
import pytest

from aiokafkawire.runtime import Address, RealRuntime, Transport, asyncio_transport, checkpoint
from aiokafkawire.runtime.real_runtime import COALESCED_WRITE_BYTES
from aiokafkawire.runtime.supervisor import get_call_soon_threadsafe, running_on_trio

LOOPBACK = Address("127.0.0.1", 0)


async def connected(runtime: RealRuntime) -> tuple[Transport, Transport]:
    listener = await runtime.listen(LOOPBACK)
    client = await runtime.connect(listener.address)
    server = await listener.accept()
    await listener.aclose()
    return client, server


async def receive_exactly(transport: Transport, size: int) -> bytes:
    buffer = bytearray(size)
    view = memoryview(buffer)
    while view:
        count = await transport.receive_into(view)
        assert count, "the stream ended early"
        view = view[count:]
    return bytes(buffer)


async def test_bytes_go_both_ways():
    client, server = await connected(RealRuntime())
    await client.send([b"one ", memoryview(b"two "), bytearray(b"three")])
    assert await receive_exactly(server, 13) == b"one two three"
    await server.send([b"back"])
    assert await receive_exactly(client, 4) == b"back"
    await client.aclose()
    assert await server.receive_into(memoryview(bytearray(1))) == 0
    await server.aclose()


async def test_large_buffers_arrive_whole_and_in_order():
    client, server = await connected(RealRuntime())
    buffers = [bytes([number]) * (COALESCED_WRITE_BYTES // 2) for number in range(7)]
    async with anyio.create_task_group() as group:
        group.start_soon(client.send, buffers)
        received = await receive_exactly(server, sum(map(len, buffers)))
    assert received == b"".join(buffers)
    await client.aclose()
    await server.aclose()


async def test_abort_wakes_a_waiting_receiver():
    client, server = await connected(RealRuntime())
    ended = anyio.Event()

    async def receive() -> None:
        with contextlib.suppress(OSError):
            assert await client.receive_into(memoryview(bytearray(1))) == 0
        ended.set()

    async with anyio.create_task_group() as group:
        group.start_soon(receive)
        await anyio.wait_all_tasks_blocked()
        client.abort()
        client.abort()
        with anyio.fail_after(20):
            await ended.wait()
    await client.aclose()
    await client.aclose()
    await server.aclose()


async def test_use_after_close_is_an_os_error():
    client, server = await connected(RealRuntime())
    await client.aclose()
    with pytest.raises(OSError, match="closed"):
        await client.send([b"late"])
    with pytest.raises(OSError, match="closed"):
        await client.receive_into(memoryview(bytearray(1)))
    await server.aclose()


async def test_a_refused_connection_names_the_systems_reason():
    runtime = RealRuntime()
    listener = await runtime.listen(LOOPBACK)
    await listener.aclose()
    with pytest.raises(ConnectionRefusedError):
        await runtime.connect(listener.address)


async def test_a_closed_listener_accepts_nothing():
    listener = await RealRuntime().listen(LOOPBACK)
    await listener.aclose()
    with pytest.raises(OSError):
        await listener.accept()


async def test_the_clock_is_the_event_loops():
    clock = RealRuntime().clock
    before = clock.now()
    await clock.sleep_until(before + 0.02)
    # uvloop counts whole milliseconds.
    assert clock.now() - before > 0.018
    assert abs(clock.now() - anyio.current_time()) < 1
    assert clock.wall_ms() > 1_600_000_000_000


async def test_offloaded_work_runs_in_another_thread():
    assert await RealRuntime().offload(threading.get_ident) != threading.get_ident()


def test_ipv6_addresses_have_brackets():
    assert str(Address("localhost", 9092)) == "localhost:9092"
    assert str(Address("::1", 9092)) == "[::1]:9092"


class GoneStream:
    """A stream whose peer closed it before anybody looked: uvloop has no socket for it then."""

    def __init__(self) -> None:
        self.closed = False

    def extra(self, *_: object) -> object:
        raise AttributeError("'NoneType' object has no attribute 'getpeername'")

    async def aclose(self) -> None:
        self.closed = True


async def test_a_peer_that_has_already_disconnected_is_not_accepted(
    monkeypatch: pytest.MonkeyPatch,
):
    listener = await RealRuntime().listen(LOOPBACK)
    gone = GoneStream()
    accept, streams = listener._listener.accept, [gone]

    async def accept_next() -> object:
        return streams.pop() if streams else await accept()

    monkeypatch.setattr(listener._listener, "accept", accept_next)
    client = await RealRuntime().connect(listener.address)
    server = await listener.accept()
    assert gone.closed
    for closed in (client, server, listener):
        await closed.aclose()


async def test_a_connection_that_is_closed_immediately_is_a_reset(
    monkeypatch: pytest.MonkeyPatch,
):
    gone = GoneStream()

    async def connect_tcp(*_: object) -> GoneStream:
        return gone

    def no_socket(*_: object) -> None:
        raise OSError("Bad file descriptor")

    runtime = RealRuntime()
    listener = await runtime.listen(LOOPBACK)
    monkeypatch.setattr(anyio, "connect_tcp", connect_tcp)
    with monkeypatch.context() as patch:
        patch.setattr(asyncio_transport, "DuplicateSocket", no_socket)
        with pytest.raises(ConnectionResetError, match="immediately"):
            await runtime.connect(listener.address)
    assert gone.closed is running_on_trio()
    await listener.aclose()


async def test_too_many_open_files_are_reported(monkeypatch: pytest.MonkeyPatch):
    def full(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    runtime = RealRuntime()
    listener = await runtime.listen(LOOPBACK)
    with monkeypatch.context() as patch:
        patch.setattr(socket, "fromfd", full)
        with pytest.raises(OSError, match="Too many open files"):
            await runtime.connect(listener.address)
    await listener.aclose()


async def test_a_write_after_a_disconnect_is_not_logged(
    caplog: pytest.LogCaptureFixture,
):
    client, server = await connected(RealRuntime())
    server.abort()
    await server.aclose()
    pieces = [bytes(COALESCED_WRITE_BYTES)] * 64
    with anyio.fail_after(10), contextlib.suppress(OSError):
        while True:
            client.send_nowait(pieces)
            await anyio.lowlevel.checkpoint()
    await client.aclose()
    assert not caplog.records


async def test_received_bytes_are_passed_on_until_the_end_of_the_stream():
    client, server = await connected(RealRuntime())
    received: list[bytes] = []
    buffer = memoryview(bytearray(3))

    async def talk() -> None:
        await server.send([b"1234567"])
        await server.aclose()

    async with anyio.create_task_group() as group:
        group.start_soon(talk)
        with anyio.fail_after(5):
            await client.receive_until_eof(
                lambda: buffer, lambda count: received.append(bytes(buffer[:count]))
            )
    assert b"".join(received) == b"1234567"
    assert max(map(len, received)) <= 3
    await client.aclose()


async def test_an_exception_of_on_received_is_raised():
    client, server = await connected(RealRuntime())
    await server.send([b"x"])

    def refuse(_: int) -> None:
        raise ValueError("not this")

    with pytest.raises(ValueError, match="not this"):
        await client.receive_until_eof(lambda: memoryview(bytearray(10)), refuse)
    await client.aclose()
    await server.aclose()


async def test_a_receive_that_is_cancelled_loses_nothing():
    client, server = await connected(RealRuntime())
    buffer = memoryview(bytearray(100))
    whole = b"".join(b"%04d" % number for number in range(50))

    async def talk() -> None:
        for start in range(0, len(whole), 4):
            await server.send([whole[start : start + 4]])
            await anyio.lowlevel.checkpoint()

    received = b""
    async with anyio.create_task_group() as group:
        group.start_soon(talk)
        while len(received) < len(whole):
            async with anyio.create_task_group() as impatient:

                async def receive(scope: anyio.CancelScope = impatient.cancel_scope) -> None:
                    nonlocal received
                    count = await client.receive_into(buffer)
                    received += bytes(buffer[:count])
                    scope.cancel()

                impatient.start_soon(receive)
                for _ in range(3):
                    await anyio.lowlevel.checkpoint()
                impatient.cancel_scope.cancel()
    assert received == whole
    await client.aclose()
    await server.aclose()


async def test_send_nowait_returns_the_unwritten_rest():
    client, server = await connected(RealRuntime())
    pieces = [bytes([number]) * COALESCED_WRITE_BYTES for number in range(64)]
    rest = client.send_nowait(pieces)
    left = sum(map(len, rest))
    assert left
    # Nothing more goes past it.
    assert sum(map(len, client.send_nowait(rest))) == left
    async with anyio.create_task_group() as group:
        group.start_soon(client.send, rest)
        received = await receive_exactly(server, sum(map(len, pieces)))
    assert received == b"".join(pieces)
    assert not client.send_nowait([b"and on"])
    assert await receive_exactly(server, 6) == b"and on"
    await client.aclose()
    with pytest.raises(OSError):
        client.send_nowait([b"late"])
    await server.aclose()


async def test_an_accept_that_is_cancelled_loses_no_connection(caplog: pytest.LogCaptureFixture):
    listener = await RealRuntime().listen(LOOPBACK)
    accepted: list[Transport] = []

    async def accept() -> None:
        accepted.append(await listener.accept())

    call_soon = get_call_soon_threadsafe()
    with socket.socket() as client:
        async with anyio.create_task_group() as group:
            group.start_soon(accept)
            await anyio.wait_all_tasks_blocked()
            # The loop sees the connection in the same turn in which the accept is cancelled.
            call_soon(group.cancel_scope.cancel)
            client.connect(listener.address)
        if not accepted:
            with anyio.fail_after(20):
                await accept()
        client.sendall(b"whole")
        assert await receive_exactly(accepted[0], 5) == b"whole"
        await accepted[0].aclose()
    await listener.aclose()
    assert not caplog.records


async def test_closing_a_listener_wakes_accept():
    listener = await RealRuntime().listen(LOOPBACK)
    ended = anyio.Event()

    async def accept() -> None:
        with pytest.raises(OSError, match="closed"):
            await listener.accept()
        ended.set()

    async with anyio.create_task_group() as group:
        group.start_soon(accept)
        await anyio.wait_all_tasks_blocked()
        await listener.aclose()
        with anyio.fail_after(20):
            await ended.wait()


async def test_tasks_that_checkpoint_one_by_one_go_on_in_different_passes_of_the_loop():
    runtime = RealRuntime()
    passes, went = 0, list[int]()

    async def go_on() -> None:
        await runtime.checkpoint_one_by_one()
        went.append(passes)

    async with anyio.create_task_group() as group:
        for _ in range(20):
            group.start_soon(go_on)
        while len(went) < 20:
            passes += 1
            await checkpoint()
    # Within a pass, trio runs tasks in any order: two may resume between two counts.
    assert len({*went}) >= 10
