"""One connection against callbacks and peers that do the worst at the worst moment."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from aiokafkawire.connection import channel as channel_module
from aiokafkawire.connection.channel import Channel
from aiokafkawire.errors import ClientClosed, ConnectionLost, KafkaError
from aiokafkawire.runtime import Address, Future

from .scripted import ServerConnection, channel_to, outcome_of, serve
from .test_channel import HEARTBEAT, VERSION, echo, produce, soon, until_the_end


def submit(channel: Channel, seconds: float = 20) -> Future[Any]:
    return channel.submit(HEARTBEAT, VERSION, deadline=soon(seconds))


def answers_together(count: int) -> Any:
    """A server that sends `count` responses at once."""

    async def serve_them(connection: ServerConnection) -> None:
        headers = [(await connection.next_request())[0] for _ in range(count)]
        answers = [
            struct.pack(">iibihb", 12, header.correlation_id, 0, 0, 7, 0) for header in headers
        ]
        await connection.transport.send(answers)
        await until_the_end(connection)

    return serve_them


def defect(_: object) -> None:
    raise ZeroDivisionError("a defect")


async def outcome(future: Future[Any]) -> Any:
    with anyio.fail_after(5):
        return await outcome_of(future.wait())


# --- callbacks that raise -------------------------------------------------------------------


async def test_a_callback_that_raises_on_close_does_not_affect_others():
    crashes: list[Exception] = []
    async with serve(until_the_end) as server, channel_to(server.address, crashes) as channel:
        lost: list[KafkaError] = []
        channel.on_closed = lambda _, error: lost.append(error)
        first, second, third = (submit(channel) for _ in range(3))
        first.set_done_callback(defect)
        second.set_done_callback(defect)
        channel.close(ClientClosed("over"))
        assert isinstance(await outcome(third), ClientClosed)
        assert len(lost) == 1
        await channel.wait_closed()
    assert [type(error) for error in crashes] == [ZeroDivisionError]


async def test_a_callback_that_raises_on_its_response_closes_the_connection():
    crashes: list[Exception] = []
    async with (
        serve(answers_together(2)) as server,
        channel_to(server.address, crashes) as channel,
    ):
        first, second, third = (submit(channel) for _ in range(3))
        first.set_done_callback(defect)
        assert (await outcome(first)).error_code == 7
        for future in (second, third):
            error = await outcome(future)
            assert isinstance(error, ConnectionLost)
            assert "ZeroDivisionError" in str(error)
        await channel.wait_closed()
    assert [type(error) for error in crashes] == [ZeroDivisionError]


async def test_a_decoder_bug_leaves_no_request_waiting(
    monkeypatch: pytest.MonkeyPatch,
):
    crashes: list[Exception] = []
    monkeypatch.setattr(channel_module, "decode_response", lambda *_: defect(None))
    async with (
        serve(answers_together(1)) as server,
        channel_to(server.address, crashes) as channel,
    ):
        first = submit(channel)
        second = submit(channel)
        for future in (first, second):
            assert "ZeroDivisionError" in str(await outcome(future))
        await channel.wait_closed()
    assert [type(error) for error in crashes] == [ZeroDivisionError]


async def test_a_callback_that_raises_at_a_deadline_closes_the_connection():
    crashes: list[Exception] = []
    async with serve(until_the_end) as server, channel_to(server.address, crashes) as channel:
        submit(channel, 0.01).set_done_callback(defect)
        also_late, later = submit(channel, 0.01), submit(channel)
        assert isinstance(await outcome(also_late), KafkaError)
        assert isinstance(await outcome(later), KafkaError)
        assert not channel.is_usable
        await channel.wait_closed()
    assert [type(error) for error in crashes] == [ZeroDivisionError]


def test_ctrl_c_in_a_callback_leaves_no_request_waiting():
    """It is raised wherever the loop is at, if nobody turns it into a cancellation."""

    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    async def main() -> list[Any]:
        async with (
            serve(answers_together(3)) as server,
            channel_to(server.address) as channel,
        ):
            futures = [submit(channel) for _ in range(4)]
            futures[0].set_done_callback(interrupt)
            return [await outcome(future) for future in futures]

    with contextlib.closing(asyncio.new_event_loop()) as loop:
        task = loop.create_task(main())
        with pytest.raises(KeyboardInterrupt):
            loop.run_until_complete(task)
        first, *others = loop.run_until_complete(task)
    assert first.error_code == 7
    assert [type(other) for other in others] == [ConnectionLost] * 3


async def test_an_error_in_the_timer_leaves_no_request_waiting():
    crashes: list[Exception] = []
    async with serve(until_the_end) as server, channel_to(server.address, crashes) as channel:
        future = submit(channel, 0.01)
        channel._in_flight.check_deadlines = defect  # type: ignore[assignment,method-assign]
        assert isinstance(await outcome(future), ConnectionLost)
        await channel.wait_closed()
    assert [type(error) for error in crashes] == [ZeroDivisionError]


# --- callbacks that act ---------------------------------------------------------------------


async def test_a_callback_may_close_its_connection():
    async with serve(answers_together(2)) as server, channel_to(server.address) as channel:
        first, second = submit(channel), submit(channel)
        first.set_done_callback(lambda _: channel.close(ClientClosed("closed in a callback")))
        assert (await outcome(first)).error_code == 7
        assert isinstance(await outcome(second), ClientClosed)
        with pytest.raises(ConnectionLost, match="closed in a callback"):
            submit(channel)
        await channel.wait_closed()


async def test_a_request_submitted_by_a_callback_during_close_is_rejected():
    again: list[KafkaError] = []

    async with serve(until_the_end) as server, channel_to(server.address) as channel:

        def submit_again(_: object) -> None:
            with pytest.raises(ConnectionLost) as caught:
                submit(channel)
            again.append(caught.value)

        submit(channel).set_done_callback(submit_again)
        submit(channel).set_done_callback(submit_again)
        channel.close(ClientClosed("over"))
    assert [error.sent for error in again if isinstance(error, ConnectionLost)] == [False] * 2


async def test_callbacks_that_submit_requests_do_not_starve_others():
    turns = 0
    answered = 0

    async with serve(echo) as server, channel_to(server.address) as channel:

        def again(future: Future[Any]) -> None:
            nonlocal answered
            if future.error is None and answered < 200:
                answered += 1
                submit(channel).set_done_callback(again)

        submit(channel).set_done_callback(again)
        with anyio.fail_after(20):
            while answered < 200:
                turns += 1
                await anyio.lowlevel.checkpoint()
    assert turns >= 200


# --- peers ----------------------------------------------------------------------------------


async def test_a_peer_that_reads_nothing_times_out_requests_without_a_response():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        async with channel_to(Address(*listening.getsockname()), request_timeout_s=0.2) as channel:
            unanswered = produce(32 * 1024 * 1024)
            unanswered.acks = 0
            request = channel.submit(unanswered, 9, deadline=soon(0.1), expect_response=False)
            waits = submit(channel)
            assert "deadline" in str(await outcome(request))
            error = await outcome(waits)
            assert isinstance(error, ConnectionLost)
            assert "Produce" in str(error)
            assert not channel.is_usable


def hostile(listening: socket.socket, *, half: bool) -> None:
    """Answers with the beginning of a frame, and resets the connection or ends its half of it."""
    peer, _ = listening.accept()
    with peer:
        peer.settimeout(5)
        peer.recv(1)
        peer.sendall(b"\x00\x00\x10\x00\x00\x00")
        if half:
            peer.shutdown(socket.SHUT_WR)
            while peer.recv(4096):
                pass
        else:
            # What it has not read makes the system reset it too.
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


@pytest.mark.parametrize("half", [False, True], ids=["reset", "half closed"])
async def test_a_disconnect_in_the_middle_of_a_response_fails_all_requests(half: bool):
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(5)
        async with (
            channel_to(Address(*listening.getsockname())) as channel,
            anyio.create_task_group() as group,
        ):
            futures = [submit(channel), submit(channel)]
            group.start_soon(anyio.to_thread.run_sync, partial(hostile, listening, half=half))
            for future in futures:
                error = await outcome(future)
                assert isinstance(error, ConnectionLost)
                assert error.sent
            assert "in the middle of a response" in error.reason
            with pytest.raises(ConnectionLost):
                submit(channel)


async def test_correlation_ids_begin_again_after_the_last():
    async with serve(echo) as server, channel_to(server.address) as channel:
        channel._in_flight.next_correlation_id = 2**31 - 2
        futures = [submit(channel) for _ in range(5)]
        assert [(await outcome(future)).error_code for future in futures] == list(range(5))
        assert channel._in_flight.next_correlation_id == 3
