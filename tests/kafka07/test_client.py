"""The client beside the embedded broker's port of 0.7, and beside brokers that misbehave."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from aiokafkawire.broker import Broker
from aiokafkawire.errors import (
    BrokerError,
    ClientClosed,
    ConnectionFailed,
    ConnectionLost,
    InvalidOption,
    MalformedFrame,
    MalformedMessage,
    ProtocolError,
    RecordTooLarge,
    RequestTimedOut,
    UnknownServerError,
)
from aiokafkawire.kafka07 import EARLIEST, LATEST, Client, ErrorCode
from aiokafkawire.runtime import Address, RealRuntime
from aiokafkawire.runtime.asyncio_transport import AsyncioTransport
from aiokafkawire.runtime.real import StreamTransport
from tests.leaks import nothing_left

from .scripted_broker import (
    FAST_OPTIONS,
    FETCH_RESPONSE,
    MESSAGE_A,
    ScriptedConnection,
    connected_client,
    embedded_broker_client,
    respond_with,
    serve_scripts,
    silent,
)

# --- as it is drawn -------------------------------------------------------------------------------

PRODUCE = "0000001a 0000 0003 746f70 00000001 0000000b" + MESSAGE_A
FETCH = "00000017 0001 0003 746f70 00000001 0000000000000000 00000400"
MULTIFETCH = (
    "0000002e 0002 0002"
    " 0003 746f70 00000001 0000000000000000 00000400"
    " 0003 746f70 00000000 000000000000000b 00000400"
)
MULTIFETCH_RESPONSE = "00000019 0000  0000000d 0000" + MESSAGE_A + " 00000002 0000"
MULTIPRODUCE = "0000001c 0003 0001 0003 746f70 00000000 0000000b" + MESSAGE_A
OFFSETS = "00000017 0004 0003 746f70 00000001 ffffffffffffffff 00000002"
OFFSETS_RESPONSE = "00000016 0000 00000002 000000000000000b 0000000000000000"


class RecordingProxy:
    """Stands between a client and the broker, and keeps what each of them says."""

    def __init__(self, server: str) -> None:
        host, _, port = server.rpartition(":")
        self._address = Address(host, int(port))
        self.requests: list[bytes] = []
        self.responses = bytearray()

    async def __call__(self, peer: ScriptedConnection) -> None:
        transport = await RealRuntime().connect(self._address)

        async def answers() -> None:
            buffer = memoryview(bytearray(4_096))
            while count := await transport.receive_into(buffer):
                self.responses += buffer[:count]
                await peer.send(bytes(buffer[:count]))

        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(answers)
                while frame := await peer.receive():
                    self.requests.append(frame)
                    await transport.send([frame])
                tasks.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                await transport.aclose()


async def test_every_request_is_as_it_is_drawn() -> None:
    async with Broker(kafka07_port=0, default_partitions=2) as broker:
        tap = RecordingProxy(broker.kafka07_server)
        async with connected_client(tap, fetch_size_bytes=1024) as client:
            await client.produce("top", [b"a"], 1)
            assert list(await client.fetch("top", 1, 0)) == [(b"a", 11)]
            one, two = await client.multi_fetch([("top", 1, 0), ("top", 0, 11)])
            assert (list(one), list(two)) == ([(b"a", 11)], [])
            await client.multi_produce([("top", 0, [b"a"])])
            assert await client.offsets("top", 1, LATEST, 2) == (11, 0)
    drawn = [PRODUCE, FETCH, MULTIFETCH, MULTIPRODUCE, OFFSETS]
    assert tap.requests == [bytes.fromhex(each) for each in drawn]
    assert tap.responses == bytes.fromhex(FETCH_RESPONSE + MULTIFETCH_RESPONSE + OFFSETS_RESPONSE)


# --- writing and reading --------------------------------------------------------------------------


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy"])
async def test_what_is_produced_is_read(codec: Any) -> None:
    values = [b"%03d" % number for number in range(30)]
    async with embedded_broker_client(compression_type=codec) as client:
        for start in range(0, 30, 10):
            await client.produce("t", values[start : start + 10], 1)
        read = [message async for message in client.messages("t", 1, 0, until_end=True)]
        assert [message.payload for message in read] == values
        end = await client.end_offset("t", 1)
        assert read[-1].next_offset == end
        # Whoever begins anew at the offset of any message misses nothing.
        again = client.messages("t", 1, read[14].next_offset, until_end=True)
        following = [message.payload async for message in again]
        assert following == values[30 - len(following) :]
        assert len(following) == (15 if codec == "none" else 20)
        assert again.next_offset == end
        assert await client.beginning_offset("t", 1) == 0
        assert await client.beginning_offset("unknown", 0) == 0


async def test_a_codec_may_be_chosen_for_one_call() -> None:
    async with embedded_broker_client() as client:
        await client.produce("t", [b"a" * 100] * 10, 0, compression_type="gzip")
        assert await client.end_offset("t", 0) < 200
        with pytest.raises(InvalidOption, match="none, gzip, snappy"):
            await client.produce("t", [b"a"], 0, compression_type="zstd")  # type: ignore[arg-type]


async def test_several_sets_go_in_one_request() -> None:
    async with embedded_broker_client() as client:
        await client.multi_produce([("t", 0, [b"a"]), ("u", 1, [b"b", b"c"])])
        await client.multi_produce([])
        fetched = await client.multi_fetch([("u", 1, 0), ("t", 0, 0), ("t", 5, 0), ("t", 0, 99)])
        assert [list(each) for each in fetched[:2]] == [[(b"b", 11), (b"c", 22)], [(b"a", 11)]]
        codes = [each.error.code for each in fetched[2:] if isinstance(each.error, BrokerError)]
        assert codes == [ErrorCode.WRONG_PARTITION, ErrorCode.OFFSET_OUT_OF_RANGE]
        assert await client.multi_fetch([]) == []


async def test_messages_go_to_any_partition_unless_told() -> None:
    async with embedded_broker_client() as client:
        await client.produce("t", [b"a"])
        ends = [await client.end_offset("t", partition) for partition in (0, 1)]
        assert sorted(ends) == [0, 11]


async def test_tasks_take_turns() -> None:
    async with embedded_broker_client() as client, anyio.create_task_group() as tasks:
        for number in range(20):
            tasks.start_soon(client.produce, "t", [b"%d" % number], 0)
            tasks.start_soon(client.end_offset, "t", 0)
            tasks.start_soon(client.multi_fetch, [("t", 0, 0)])


# --- refusals -------------------------------------------------------------------------------------


async def test_errors_say_what_is_wrong_and_where() -> None:
    async with embedded_broker_client() as client:
        await client.produce("t", [b"a"], 0)
        with pytest.raises(BrokerError, match=r"OFFSET_OUT_OF_RANGE.*topic t, partition 0") as one:
            await client.fetch("t", 0, 12)
        assert one.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert (one.value.offset, one.value.api) == (12, "FETCH")
        assert one.value.broker == client.config.server
        with pytest.raises(BrokerError, match="WRONG_PARTITION"):
            await anext(client.messages("t", 7, 0))
        with pytest.raises(UnknownServerError):
            await client.fetch("a/b", 0, 0)
        # None of these cost the connection.
        assert await client.end_offset("t", 0) == 11


async def test_what_cannot_be_sent_is_refused_before() -> None:
    async with embedded_broker_client(
        max_message_size_bytes=100, max_request_size_bytes=2_000
    ) as client:
        with pytest.raises(RecordTooLarge, match="max_message_size_bytes") as caught:
            await client.produce("t", [b"a", bytes(101)], 0)
        assert (caught.value.size_bytes, caught.value.topic) == (101, "t")
        with pytest.raises(RecordTooLarge, match="max_request_size_bytes"):
            await client.produce("t", [bytes(100)] * 20, 0)
        wrong: list[tuple[type[Exception], Any]] = [
            (TypeError, lambda: client.produce("t", b"abc", 0)),  # type: ignore[arg-type]
            (TypeError, lambda: client.produce("t", ["abc"], 0)),  # type: ignore[list-item]
            (TypeError, lambda: client.produce(b"t", [b"abc"], 0)),  # type: ignore[arg-type]
            (ValueError, lambda: client.produce("t", [b"abc"], 2**31)),
            (ValueError, lambda: client.fetch("\ud800", 0, 0)),
            (ValueError, lambda: client.fetch("t", 0, 0, max_size=-1)),
            (ValueError, lambda: client.offsets("t", 0, max_number=-1)),
        ]
        for kind, call in wrong:
            with pytest.raises(kind):
                await call()
        assert await client.end_offset("t", 0) == 0


async def test_what_the_broker_answers_by_closing_says_so() -> None:
    async with embedded_broker_client() as client:
        with pytest.raises(ConnectionLost, match="a topic or a partition"):
            await client.offsets("t", 9)
        # The next call makes a new connection.
        assert await client.offsets("t", 0, EARLIEST) == (0,)


# --- what becomes of a produce --------------------------------------------------------------------


async def test_a_refused_produce_is_told_once() -> None:
    async with embedded_broker_client() as client:
        await client.produce("t", [b"a"], 9)
        with pytest.raises(ConnectionLost, match=r"1 earlier call.*in the log or not"):
            await client.flush()
        await client.flush()
        await client.produce("t", [b"a"], 0)
        assert await client.end_offset("t", 0) == 11


async def test_several_flushes_of_one_refused_produce() -> None:
    errors: list[ConnectionLost] = []
    hang_up = anyio.Event()

    async def disconnect_later(peer: ScriptedConnection) -> None:
        await peer.receive()
        await hang_up.wait()

    async def flush() -> None:
        try:
            await client.flush()
        except ConnectionLost as error:
            errors.append(error)

    async with connected_client(disconnect_later, silent) as client:
        await client.produce("t", [b"a"], 0)
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(flush)
            await anyio.wait_all_tasks_blocked()
            # The first asks, and the others wait for their turn.
            hang_up.set()
    assert len(errors) == 1


async def test_a_read_does_not_hide_a_refused_produce() -> None:
    async with embedded_broker_client() as client:
        await client.produce("t", [b"a"], 9)
        messages = client.messages("t", 0, 0, until_end=True)
        assert [message async for message in messages] == []
        with pytest.raises(ConnectionLost, match="of this call nothing was sent") as caught:
            await client.produce("t", [b"b"], 0)
        assert not caught.value.sent
        assert await client.end_offset("t", 0) == 0


async def test_stopping_tells_of_a_refused_produce() -> None:
    async with Broker(kafka07_port=0) as broker:
        client = Client(broker.kafka07_server, **FAST_OPTIONS)
        await client.start()
        await client.produce("t", [b"a"], 9)
        with pytest.raises(ConnectionLost, match="1 earlier call"):
            await client.stop()
        await client.stop()


async def test_leaving_notes_it_on_the_bodys_own_exception() -> None:
    async def body() -> None:
        async with Client(broker.kafka07_server, **FAST_OPTIONS) as client:
            await client.produce("t", [b"a"], 9)
            raise KeyError("the body's own")

    async with Broker(kafka07_port=0) as broker:
        with pytest.raises(KeyError) as caught:
            await body()
    assert "1 earlier call" in caught.value.__notes__[0]


async def test_stopping_hears_of_what_was_produced() -> None:
    async with Broker(kafka07_port=0) as broker:
        for number in range(5):
            async with Client(broker.kafka07_server, **FAST_OPTIONS) as client:
                await client.produce("t", [b"%d" % number] * 100, 0)
        async with Client(broker.kafka07_server, **FAST_OPTIONS) as client:
            assert await client.end_offset("t", 0) == 5_500


async def test_stopping_waits_no_longer_than_it_may() -> None:
    async with serve_scripts(silent) as server:
        client = Client(server, **{**FAST_OPTIONS, "close_timeout_ms": 10})
        await client.start()
        await client.produce("t", [b"a"], 0)
        with pytest.raises(ConnectionLost, match="1 earlier call"):
            await client.stop()
        # Where nothing is open there is nothing to wait for.
        async with Client(server, **{**FAST_OPTIONS, "close_timeout_ms": 3_600_000}):
            pass


# --- brokers that misbehave -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        pytest.param("ffffffff", MalformedFrame, id="negative length"),
        pytest.param("00000001 00", MalformedFrame, id="no room for an error"),
        pytest.param("7fffffff 0000", MalformedFrame, id="a length beyond the limit"),
        pytest.param("48545450 2f312e31", MalformedFrame, id="HTTP"),
        pytest.param("00000406 0000" + "00" * 1028, ProtocolError, id="more than was asked for"),
    ],
)
async def test_fetches_that_are_answered_by_what_is_no_answer(
    answer: str, kind: type[Exception]
) -> None:
    async with connected_client(respond_with(answer), fetch_size_bytes=1_024) as client:
        with pytest.raises(kind) as caught:
            await client.fetch("t", 0, 0)
        assert client.config.server in str(caught.value)


async def test_an_answer_too_many_costs_the_connection() -> None:
    twice = "00000002 0000 00000002 0000"
    async with connected_client(respond_with(twice), respond_with(FETCH_RESPONSE)) as client:
        assert list(await client.fetch("top", 1, 0)) == []
        assert list(await client.fetch("top", 1, 0)) == [(b"a", 11)]


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param("00000006 0000 00000002 0003", id="too few"),
        pytest.param("0000000f 0000 00000002 0000 00000002 0000 00", id="more bytes than frames"),
        pytest.param("00000002 0001", id="an error for all"),
        pytest.param("00000008 0000 7fffffff 0000", id="an inner length that lies"),
        pytest.param("00000008 0000 ffffffff 0000", id="a negative inner length"),
    ],
)
async def test_multi_fetches_that_are_answered_by_what_is_no_answer(answer: str) -> None:
    # What follows on the connection is not looked at any more.
    script = respond_with(answer)
    async with connected_client(script, script, request_timeout_ms=500) as client:
        with pytest.raises((MalformedMessage, MalformedFrame, RequestTimedOut)):
            await client.multi_fetch([("t", 0, 0), ("t", 1, 0)])


async def test_offsets_that_are_answered_by_what_is_no_answer() -> None:
    none = respond_with("00000006 0000 00000000")
    lie = respond_with("0000000e 0000 7fffffff 0000000000000000")
    refused = respond_with("00000006 0003 00000000")
    async with connected_client(lie, none, refused) as client:
        with pytest.raises(MalformedMessage, match="2147483647 elements"):
            await client.offsets("t", 0)
        # That connection was of no further use.
        with pytest.raises(MalformedMessage, match="no offset"):
            await client.end_offset("t", 0)
    async with connected_client(refused) as client:
        with pytest.raises(BrokerError, match="WRONG_PARTITION"):
            await client.offsets("t", 0)


@pytest.mark.slow
async def test_an_answer_that_does_not_come_is_not_awaited_for_ever() -> None:
    later = respond_with(OFFSETS_RESPONSE, OFFSETS_RESPONSE)
    async with connected_client(silent, later, request_timeout_ms=200) as client:
        with pytest.raises(RequestTimedOut, match=r"no answer.*api OFFSETS") as caught:
            await client.offsets("top", 1)
        assert caught.value.sent
    async with connected_client(silent, later) as client:
        # A call that was given up costs the connection: its answer might still come.
        with anyio.move_on_after(0.01):
            await client.offsets("top", 1)
        assert await client.offsets("top", 1) == (11, 0)


@pytest.mark.slow
async def test_a_produce_that_is_not_written_is_not_awaited_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def stuck(*_: object) -> None:
        await anyio.sleep_forever()

    async with connected_client(silent, request_timeout_ms=200) as client:
        with monkeypatch.context() as patch:
            for transport in (StreamTransport, AsyncioTransport):
                patch.setattr(transport, "send", stuck)
            with pytest.raises(RequestTimedOut, match="not written before the deadline"):
                await client.produce("t", [b"a"], 0)
        # It was told, so nothing is left to tell.
        await client.flush()


@pytest.mark.slow
async def test_a_turn_that_does_not_come_is_not_awaited_for_ever() -> None:
    async with connected_client(silent, request_timeout_ms=200) as client:
        errors: list[RequestTimedOut | ConnectionFailed] = []

        async def ask() -> None:
            # Whose turn comes in the last moment has no time left to connect anew.
            with pytest.raises((RequestTimedOut, ConnectionFailed)) as caught:
                await client.offsets("t", 0)
            errors.append(caught.value)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            tasks.start_soon(ask)
        assert len(errors) == 2
        assert any(isinstance(error, RequestTimedOut) and error.sent for error in errors)


async def test_a_broker_that_is_not_there() -> None:
    async with serve_scripts(silent) as server:
        pass
    client = Client(server, **FAST_OPTIONS)
    with pytest.raises(ConnectionFailed, match="connection refused"):
        await client.start()
    with pytest.raises(ConnectionFailed, match="check the server's name"):
        await Client("no-such-host.invalid", **FAST_OPTIONS).start()


# --- life -----------------------------------------------------------------------------------------


async def test_a_client_that_is_closed_says_so() -> None:
    async with connected_client(silent) as client:
        messages = client.messages("t", 0, 0)
    for call in (client.fetch("t", 0, 0), client.produce("t", [b"a"]), anext(messages)):
        with pytest.raises(ClientClosed):
            await call


async def test_closing_wakes_who_waits() -> None:
    async with serve_scripts(silent) as server:
        client = Client(server, **FAST_OPTIONS)
        await client.start()

        async def wait() -> None:
            with pytest.raises(ClientClosed):
                await client.fetch("t", 0, 0)

        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            await client.stop()


async def test_nothing_is_left_behind() -> None:
    async with (
        Broker(kafka07_port=0) as broker,
        nothing_left(timers=False),
        Client(broker.kafka07_server, **FAST_OPTIONS) as client,
    ):
        await client.produce("t", [b"a"], 0)
        # A connection given up with what is not confirmed on it would be told when leaving.
        await client.flush()
        with anyio.move_on_after(0.01):
            await anext(client.messages("t", 0, 11))
        assert await client.end_offset("t", 0) == 11
