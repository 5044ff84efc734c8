"""One live connection: order, deadlines, silence, hostile bytes, and one end for all."""

from __future__ import annotations

import struct
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from aiokafkawire import errors
from aiokafkawire.connection import LARGE_REQUEST_BYTES, Channel, in_flight_requests
from aiokafkawire.runtime import Future, Transport
from aiokafkawire.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from aiokafkawire.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

from .scripted import Hangup, ServerConnection, channel_to, gather, outcome_of, serve

HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
VERSION = 4


def soon(seconds: float = 20) -> float:
    return anyio.current_time() + seconds


async def request_on(channel: Channel, message: Any, version: int, **options: Any) -> Any:
    return await channel.wait_response(channel.submit(message, version, **options))


def heartbeat(channel: Channel, seconds: float = 5) -> Any:
    return request_on(channel, HEARTBEAT, VERSION, deadline=soon(seconds))


def produce(size: int) -> ProduceRequest:
    data = PartitionProduceData(index=0, records=bytes(size))
    topic = TopicProduceData(name="t", partition_data=[data])
    return ProduceRequest(acks=1, timeout_ms=1, topic_data=[topic])


async def echo(connection: ServerConnection) -> None:
    """Answers each heartbeat; the error code counts them."""
    number = 0
    while True:
        header, _ = await connection.next_request()
        await connection.respond(header, HeartbeatResponse(error_code=number))
        number += 1


async def until_the_end(connection: ServerConnection) -> None:
    while await connection.receive() is not None:
        pass


async def test_many_requests_at_once_each_get_their_own_answer():
    async with serve(echo) as server, channel_to(server.address, max_in_flight=3) as channel:
        outcomes = await gather(*(heartbeat(channel) for _ in range(50)))
        assert [outcome.error_code for outcome in outcomes] == list(range(50))
        assert channel.in_flight_count == 0


async def test_submit_writes_immediately_and_the_reader_calls_back():
    results: list[Any] = []
    done = anyio.Event()

    async with serve(echo) as server, channel_to(server.address) as channel:

        def answered(future: Future[Any]) -> None:
            results.append(future.result().error_code)
            if len(results) < 3:
                submit()
            else:
                done.set()

        def submit() -> None:
            before = channel._observer.metrics.requests
            request = channel.submit(HEARTBEAT, VERSION, deadline=soon())
            assert channel._observer.metrics.requests == before + 1
            request.set_done_callback(answered)

        submit()
        with anyio.fail_after(5):
            await done.wait()
        assert results == [0, 1, 2]
        assert channel.in_flight_count == 0


async def test_requests_behind_a_partial_write_keep_their_order():
    go_on = anyio.Event()
    sizes: list[int] = []

    async def reads_late(connection: ServerConnection) -> None:
        await go_on.wait()
        for _ in range(2):
            frame = await connection.receive()
            assert frame is not None
            sizes.append(len(frame))
        header, _ = await connection.next_request()
        await connection.respond(header, HeartbeatResponse(error_code=5))
        await until_the_end(connection)

    size = 16 * 1024 * 1024
    async with serve(reads_late) as server, channel_to(server.address) as channel:
        for request in (produce(size), produce(10)):
            request.acks = 0
            channel.submit(request, 9, deadline=soon(), expect_response=False)
        last = channel.submit(HEARTBEAT, VERSION, deadline=soon())
        # Part of the first is gone, and the rest is the writer's.
        assert channel._observer.metrics.requests == 1
        go_on.set()
        assert (await last.wait()).error_code == 5
    assert sizes[0] > size
    assert sizes[1] < 1_000


async def test_callbacks_are_called_at_the_deadline_and_when_the_connection_closes():
    async with serve(until_the_end) as server, channel_to(server.address) as channel:
        results: list[Any] = []
        for seconds in (0.01, 5):
            request = channel.submit(HEARTBEAT, VERSION, deadline=soon(seconds))
            request.set_done_callback(lambda future: results.append(future.error))
        with pytest.raises(errors.RequestTimedOut):
            await heartbeat(channel, 0.01)
        channel.close(errors.ClientClosed("over"))
        assert [type(error) for error in results] == [errors.RequestTimedOut, errors.ClientClosed]


async def test_a_late_response_is_dropped_and_not_taken_for_the_next():
    late = anyio.Event()

    async def slow(connection: ServerConnection) -> None:
        header, _ = await connection.next_request()
        await late.wait()
        await connection.respond(header, HeartbeatResponse(error_code=1))
        header, _ = await connection.next_request()
        await connection.respond(header, HeartbeatResponse(error_code=2))
        await until_the_end(connection)

    async with serve(slow) as server, channel_to(server.address) as channel:
        with pytest.raises(
            errors.RequestTimedOut, match=r"no response.*broker 1 at test, api Heartbeat"
        ) as caught:
            await heartbeat(channel, 0.05)
        assert caught.value.sent
        assert channel.is_usable
        assert channel.in_flight_count == 1
        late.set()
        assert (await heartbeat(channel)).error_code == 2
        assert channel.in_flight_count == 0


async def test_a_deadline_in_the_past_sends_nothing():
    async with serve(echo) as server, channel_to(server.address) as channel:
        with pytest.raises(errors.RequestTimedOut) as caught:
            await heartbeat(channel, 0)
        assert not caught.value.sent
        assert (await heartbeat(channel)).error_code == 0


async def test_no_response_within_the_request_timeout_closes_the_connection():
    async with (
        serve(until_the_end) as server,
        channel_to(server.address, max_in_flight=1, request_timeout_s=0.1) as channel,
    ):
        first, second = await gather(heartbeat(channel, 0.05), heartbeat(channel))
        assert isinstance(first, errors.RequestTimedOut)
        assert isinstance(second, errors.ConnectionLost)
        assert "no response to Heartbeat in time" in str(second)
        assert not second.sent
        assert not channel.is_usable


async def test_the_end_of_the_stream_fails_all_requests():
    async def hang_up_at_the_third(connection: ServerConnection) -> None:
        for _ in range(3):
            await connection.next_request()

    async with (
        serve(hang_up_at_the_third) as server,
        channel_to(server.address, max_in_flight=3) as channel,
    ):
        outcomes = await gather(*(heartbeat(channel) for _ in range(5)))
        assert all(isinstance(outcome, errors.ConnectionLost) for outcome in outcomes)
        assert [outcome.sent for outcome in outcomes] == [True, True, True, False, False]
        assert {(outcome.broker, outcome.api) for outcome in outcomes} == {
            ("1 at test", "Heartbeat")
        }
        assert len({id(outcome) for outcome in outcomes}) == 5
        later = await outcome_of(heartbeat(channel))
        assert isinstance(later, errors.ConnectionLost)
        assert not later.sent
        assert later.reason == outcomes[0].reason


def frame(correlation_id: int, body: bytes) -> bytes:
    # A flexible response: correlation id, tagged fields, body.
    return struct.pack(">iib", 5 + len(body), correlation_id, 0) + body


BODY = struct.pack(">ihb", 0, 0, 0)

HOSTILE = {
    "length -1": (struct.pack(">i", -1), errors.MalformedFrame),
    "length 0": (struct.pack(">i", 0), errors.MalformedFrame),
    "length 3": (struct.pack(">i", 3), errors.MalformedFrame),
    "length over the limit": (struct.pack(">i", 1024 * 1024 + 1), errors.MalformedFrame),
    "length of 2 GiB": (struct.pack(">i", 2**31 - 1), errors.MalformedFrame),
    "unknown correlation id": (frame(77, BODY), errors.ProtocolError),
    "negative correlation id": (frame(-1, BODY), errors.ProtocolError),
    "out of order": (frame(1, BODY), errors.ProtocolError),
    "repeated": (frame(0, BODY) * 2, errors.ProtocolError),
    "trailing bytes": (frame(0, BODY + b"!"), errors.MalformedMessage),
    "cut short": (frame(0, BODY[:-2]), errors.MalformedMessage),
    "header only": (struct.pack(">ii", 4, 0), errors.MalformedMessage),
    "HTTP": (b"HTTP/1.1 400 Bad Request\r\n\r\n", errors.MalformedFrame),
    "TLS alert": (bytes.fromhex("15030300020228"), errors.MalformedFrame),
    "noise": (bytes(range(255, 0, -1)), errors.MalformedFrame),
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_invalid_bytes_close_the_connection_and_fail_all_requests(name: str):
    data, expected = HOSTILE[name]

    async def hostile(connection: ServerConnection) -> None:
        for _ in range(2):
            await connection.next_request()
        await connection.transport.send([data])
        await until_the_end(connection)

    async with serve(hostile) as server, channel_to(server.address, max_in_flight=2) as channel:
        outcomes = await gather(*(heartbeat(channel) for _ in range(3)))
        if name == "repeated":
            assert isinstance(outcomes[0], HeartbeatResponse)
            outcomes.pop(0)
        *sent, unsent = outcomes
        for outcome in sent:
            assert isinstance(outcome, expected)
            assert (outcome.broker, outcome.api) == ("1 at test", "Heartbeat")
            assert not outcome.retriable
        # What was never written can be sent elsewhere without harm.
        assert isinstance(unsent, errors.ConnectionLost)
        assert not unsent.sent
        assert unsent.reason == sent[-1].reason
        assert not channel.is_usable


@pytest.mark.parametrize(("name", "words"), [("HTTP", "HTTP"), ("TLS alert", "TLS")])
async def test_errors_name_other_protocols(name: str, words: str):
    async def other(connection: ServerConnection) -> None:
        await connection.next_request()
        await connection.transport.send([HOSTILE[name][0]])
        await until_the_end(connection)

    async with serve(other) as server, channel_to(server.address) as channel:
        with pytest.raises(errors.MalformedFrame, match=words):
            await heartbeat(channel)


async def test_an_incomplete_response_is_reported():
    async def cut(connection: ServerConnection) -> None:
        await connection.next_request()
        await connection.transport.send([frame(0, BODY)[:-3]])

    async with serve(cut) as server, channel_to(server.address) as channel:
        with pytest.raises(errors.ConnectionLost, match="in the middle of a response"):
            await heartbeat(channel)


async def test_the_longest_throttle_leaves_callers_their_deadline():
    async def throttling(connection: ServerConnection) -> None:
        header, _ = await connection.next_request()
        response = HeartbeatResponse(error_code=0, throttle_time_ms=2**31 - 1)
        await connection.respond(header, response)
        await until_the_end(connection)

    async with serve(throttling) as server, channel_to(server.address) as channel:
        await heartbeat(channel)
        with pytest.raises(errors.RequestTimedOut, match="throttled by the broker") as caught:
            await heartbeat(channel, 0.05)
        assert not caught.value.sent
        assert channel.in_flight_count == 0


async def test_a_short_throttle_delays_the_next_request():
    arrived: list[float] = []

    async def throttling(connection: ServerConnection) -> None:
        while True:
            header, _ = await connection.next_request()
            arrived.append(anyio.current_time())
            response = HeartbeatResponse(error_code=0, throttle_time_ms=60)
            await connection.respond(header, response)

    async with serve(throttling) as server, channel_to(server.address) as channel:
        await heartbeat(channel)
        await heartbeat(channel)
    assert arrived[1] - arrived[0] >= 0.059


async def test_a_request_without_a_response_returns_when_it_is_written():
    got = anyio.Event()

    async def sink(connection: ServerConnection) -> None:
        await connection.next_request()
        header, _ = await connection.next_request()
        got.set()
        await connection.respond(header, HeartbeatResponse(error_code=9))
        await until_the_end(connection)

    async with serve(sink) as server, channel_to(server.address, max_in_flight=1) as channel:
        request = produce(10)
        request.acks = 0
        nothing = await request_on(channel, request, 9, deadline=soon(), expect_response=False)
        assert nothing is None
        assert (await heartbeat(channel)).error_code == 9
        assert got.is_set()


async def test_a_disconnect_after_a_large_request_reports_size_and_likely_cause():
    async def too_large(connection: ServerConnection) -> None:
        await connection.transport.receive_into(memoryview(bytearray(4)))
        raise Hangup

    size = LARGE_REQUEST_BYTES * 4
    async with serve(too_large) as server, channel_to(server.address) as channel:
        with pytest.raises(errors.ConnectionLost, match=r"socket\.request\.max\.bytes") as caught:
            await request_on(channel, produce(size), 9, deadline=soon())
        assert any(int(word) > size for word in str(caught.value).split() if word.isdigit())
        assert caught.value.api == "Produce"


async def test_a_cancelled_request_is_sent_completely():
    go_on = anyio.Event()
    frames: list[int] = []

    async def reads_late(connection: ServerConnection) -> None:
        await go_on.wait()
        frame = await connection.receive()
        assert frame is not None
        frames.append(len(frame))
        header, _ = await connection.next_request()
        await connection.respond(header, HeartbeatResponse(error_code=5))
        await until_the_end(connection)

    size = 16 * 1024 * 1024
    async with serve(reads_late) as server, channel_to(server.address) as channel:
        request = produce(size)
        request.acks = 0
        with anyio.move_on_after(0.1):
            await request_on(channel, request, 9, deadline=soon(), expect_response=False)
        go_on.set()
        assert (await heartbeat(channel)).error_code == 5
        assert frames[0] > size


@pytest.mark.parametrize("steps", range(12))
async def test_a_cancelled_request_never_affects_the_next(steps: int):
    async with serve(echo) as server, channel_to(server.address, max_in_flight=2) as channel:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:
                for _ in range(3):
                    group.start_soon(outcome_of, heartbeat(channel))
                for _ in range(steps):
                    await anyio.lowlevel.checkpoint()
                scope.cancel()
        assert channel.is_usable
        numbers = [(await heartbeat(channel)).error_code for _ in range(3)]
        # Up to three were sent before; from there the server counts on.
        assert numbers == list(range(numbers[0], numbers[0] + 3))
        assert numbers[0] <= 3
        assert channel.in_flight_count == 0


async def test_an_idle_connection_is_closed_quietly():
    closed = anyio.Event()
    async with serve(echo) as server, channel_to(server.address, max_idle_s=0.05) as channel:
        channel.on_closed = lambda _, __: closed.set()
        await heartbeat(channel)
        with anyio.fail_after(20):
            await closed.wait()
        assert channel.closed_by_client
        assert not channel.is_usable


async def test_a_retired_connection_closes_after_its_last_response():
    answer = anyio.Event()

    async def slow(connection: ServerConnection) -> None:
        header, _ = await connection.next_request()
        await answer.wait()
        await connection.respond(header, HeartbeatResponse(error_code=3))
        await until_the_end(connection)

    async with serve(slow) as server, channel_to(server.address) as channel:
        closed = anyio.Event()
        reasons: list[errors.KafkaError] = []

        def on_closed(_: Channel, error: errors.KafkaError) -> None:
            reasons.append(error)
            closed.set()

        channel.on_closed = on_closed
        moved = errors.ConnectionLost("the node has moved")
        async with anyio.create_task_group() as group:

            async def ask() -> None:
                assert (await heartbeat(channel)).error_code == 3

            group.start_soon(ask)
            await anyio.wait_all_tasks_blocked()
            channel.close_when_idle(moved)
            await anyio.wait_all_tasks_blocked()
            assert channel.is_usable
            answer.set()
        with anyio.fail_after(20):
            await closed.wait()
        assert reasons == [moved]


async def test_close_fails_pending_requests():
    async with serve(until_the_end) as server, channel_to(server.address) as channel:
        async with anyio.create_task_group() as group:

            async def ask() -> None:
                with pytest.raises(errors.ClientClosed, match="bye"):
                    await heartbeat(channel)

            group.start_soon(ask)
            await anyio.wait_all_tasks_blocked()
            channel.close(errors.ClientClosed("bye"))
        await channel.wait_closed()
        assert server.accepted == 1


async def test_a_request_that_cannot_be_encoded_affects_no_other():
    async with serve(echo) as server, channel_to(server.address) as channel:
        bad = HeartbeatRequest(group_id="g", generation_id=2**40, member_id="m")
        with pytest.raises((ValueError, TypeError)):
            await request_on(channel, bad, VERSION, deadline=soon())
        static = HeartbeatRequest(
            group_id="g", generation_id=1, member_id="m", group_instance_id="i"
        )
        with pytest.raises(errors.UnsupportedVersion):
            await request_on(channel, static, 0, deadline=soon())
        assert (await heartbeat(channel)).error_code == 0


async def test_a_full_queue_rejects_requests(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(in_flight_requests, "MAX_QUEUED", 0)
    async with serve(until_the_end) as server, channel_to(server.address) as channel:
        channel._in_flight._max_in_flight = 0
        with pytest.raises(
            errors.KafkaError, match="already waiting for this connection"
        ) as caught:
            await heartbeat(channel)
        assert caught.value.retriable


class FailingTransport:
    """A transport that cannot write."""

    def __init__(self, transport: Transport) -> None:
        self.abort, self.aclose = transport.abort, transport.aclose
        self.receive_until_eof = transport.receive_until_eof

    def send_nowait(self, buffers: Any) -> Any:
        raise BrokenPipeError("broken")


@pytest.mark.parametrize("way", ["request", "one way", "frame"])
async def test_a_write_that_fails_closes_the_connection(way: str, monkeypatch: pytest.MonkeyPatch):
    async with serve(until_the_end) as server, channel_to(server.address) as channel:
        monkeypatch.setattr(channel.stream, "transport", FailingTransport(channel.stream.transport))
        if way == "frame":
            channel.send_frame(b"token")
        else:
            request = produce(10)
            request.acks = 1 if way == "request" else 0
            with pytest.raises(errors.ConnectionLost, match="connection lost: broken") as caught:
                await request_on(
                    channel, request, 9, deadline=soon(), expect_response=way == "request"
                )
            assert caught.value.sent
        assert not channel.is_usable
        assert not channel.closed_by_client
        assert await channel.wait_failed_until(soon())
