"""The client against the 0.7 port of the embedded broker and against faulty brokers."""

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
from aiokafkawire.kafka07 import EARLIEST, LATEST, Client, Kafka07ErrorCode
from aiokafkawire.runtime import Address, RealRuntime
from aiokafkawire.runtime.asyncio_transport import AsyncioTransport
from aiokafkawire.runtime.real_runtime import StreamTransport
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

# --- bytes on the wire ----------------------------------------------------------------------------

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
    """A proxy between client and broker that records requests and responses."""

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


async def test_requests_and_responses_match_the_specification() -> None:
    async with Broker(kafka07_port=0, default_partitions=2) as broker:
        tap = RecordingProxy(broker.kafka07_server)
        async with connected_client(tap, fetch_size_bytes=1024) as client:
            await client.produce("top", [b"a"], 1)
            assert list(await client.fetch("top", 1, 0)) == [(b"a", 11)]
            one, two = await client.multi_fetch([("top", 1, 0), ("top", 0, 11)])
            assert (list(one), list(two)) == ([(b"a", 11)], [])
            await client.multi_produce([("top", 0, [b"a"])])
            assert await client.offsets("top", 1, LATEST, 2) == (11, 0)
    specified = [PRODUCE, FETCH, MULTIFETCH, MULTIPRODUCE, OFFSETS]
    assert tap.requests == [bytes.fromhex(each) for each in specified]
    assert tap.responses == bytes.fromhex(FETCH_RESPONSE + MULTIFETCH_RESPONSE + OFFSETS_RESPONSE)


# --- writing and reading --------------------------------------------------------------------------


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy"])
async def test_produced_messages_are_read(codec: Any) -> None:
    values = [b"%03d" % number for number in range(30)]
    async with embedded_broker_client(compression_type=codec) as client:
        for start in range(0, 30, 10):
            await client.produce("t", values[start : start + 10], 1)
        read = [message async for message in client.messages("t", 1, 0, until_end=True)]
        assert [message.payload for message in read] == values
        end = await client.end_offset("t", 1)
        assert read[-1].next_offset == end
        # Resuming at the next_offset of any message skips no message.
        again = client.messages("t", 1, read[14].next_offset, until_end=True)
        following = [message.payload async for message in again]
        assert following == values[30 - len(following) :]
        assert len(following) == (15 if codec == "none" else 20)
        assert again.next_offset == end
        assert await client.beginning_offset("t", 1) == 0
        assert await client.beginning_offset("unknown", 0) == 0


async def test_compression_type_of_one_call() -> None:
    async with embedded_broker_client() as client:
        await client.produce("t", [b"a" * 100] * 10, 0, compression_type="gzip")
        assert await client.end_offset("t", 0) < 200
        with pytest.raises(InvalidOption, match="none, gzip, snappy"):
            await client.produce("t", [b"a"], 0, compression_type="zstd")  # type: ignore[arg-type]


async def test_multi_produce_and_multi_fetch() -> None:
    async with embedded_broker_client() as client:
        await client.multi_produce([("t", 0, [b"a"]), ("u", 1, [b"b", b"c"])])
        await client.multi_produce([])
        fetched = await client.multi_fetch([("u", 1, 0), ("t", 0, 0), ("t", 5, 0), ("t", 0, 99)])
        assert [list(each) for each in fetched[:2]] == [[(b"b", 11), (b"c", 22)], [(b"a", 11)]]
        codes = [each.error.code for each in fetched[2:] if isinstance(each.error, BrokerError)]
        assert codes == [Kafka07ErrorCode.WRONG_PARTITION, Kafka07ErrorCode.OFFSET_OUT_OF_RANGE]
        assert await client.multi_fetch([]) == []


async def test_broker_chooses_the_partition_by_default() -> None:
    async with embedded_broker_client() as client:
        await client.produce("t", [b"a"])
        ends = [await client.end_offset("t", partition) for partition in (0, 1)]
        assert sorted(ends) == [0, 11]


async def test_concurrent_calls() -> None:
    async with embedded_broker_client() as client, anyio.create_task_group() as tasks:
        for number in range(20):
            tasks.start_soon(client.produce, "t", [b"%d" % number], 0)
            tasks.start_soon(client.end_offset, "t", 0)
            tasks.start_soon(client.multi_fetch, [("t", 0, 0)])


# --- errors ---------------------------------------------------------------------------------------


async def test_errors_name_code_topic_and_partition() -> None:
    async with embedded_broker_client() as client:
        await client.produce("t", [b"a"], 0)
        with pytest.raises(BrokerError, match=r"OFFSET_OUT_OF_RANGE.*topic t, partition 0") as one:
            await client.fetch("t", 0, 12)
        assert one.value.code == Kafka07ErrorCode.OFFSET_OUT_OF_RANGE
        assert (one.value.offset, one.value.api) == (12, "FETCH")
        assert one.value.broker == client.config.server
        with pytest.raises(BrokerError, match="WRONG_PARTITION"):
            await anext(client.messages("t", 7, 0))
        with pytest.raises(UnknownServerError):
            await client.fetch("a/b", 0, 0)
        # The connection stays open after these errors.
        assert await client.end_offset("t", 0) == 11


async def test_invalid_arguments_are_rejected_before_sending() -> None:
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


async def test_closed_connection_error_names_possible_causes() -> None:
    async with embedded_broker_client() as client:
        with pytest.raises(ConnectionLost, match="check the topic name, the partition"):
            await client.offsets("t", 9)
        # The next call makes a new connection.
        assert await client.offsets("t", 0, EARLIEST) == (0,)


# --- rejected and unconfirmed produce requests ----------------------------------------------------


async def test_rejected_produce_is_reported_once() -> None:
    async with embedded_broker_client() as client:
        await client.produce("t", [b"a"], 9)
        with pytest.raises(
            ConnectionLost, match=r"1 earlier produce call.*may or may not be in the log"
        ):
            await client.flush()
        await client.flush()
        await client.produce("t", [b"a"], 0)
        assert await client.end_offset("t", 0) == 11


async def test_concurrent_flushes_report_a_rejected_produce_once() -> None:
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
            # The first flush sends a request, the others wait for the connection.
            hang_up.set()
    assert len(errors) == 1


async def test_reading_does_not_hide_a_rejected_produce() -> None:
    async with embedded_broker_client() as client:
        await client.produce("t", [b"a"], 9)
        messages = client.messages("t", 0, 0, until_end=True)
        assert [message async for message in messages] == []
        with pytest.raises(ConnectionLost, match="this call sent nothing") as caught:
            await client.produce("t", [b"b"], 0)
        assert not caught.value.sent
        assert await client.end_offset("t", 0) == 0


async def test_stop_reports_a_rejected_produce() -> None:
    async with Broker(kafka07_port=0) as broker:
        client = Client(broker.kafka07_server, **FAST_OPTIONS)
        await client.start()
        await client.produce("t", [b"a"], 9)
        with pytest.raises(ConnectionLost, match="1 earlier produce call"):
            await client.stop()
        await client.stop()


async def test_async_with_adds_lost_produces_as_note_to_an_exception() -> None:
    async def body() -> None:
        async with Client(broker.kafka07_server, **FAST_OPTIONS) as client:
            await client.produce("t", [b"a"], 9)
            raise KeyError("raised by the body")

    async with Broker(kafka07_port=0) as broker:
        with pytest.raises(KeyError) as caught:
            await body()
    assert "1 earlier produce call" in caught.value.__notes__[0]


async def test_stop_flushes() -> None:
    async with Broker(kafka07_port=0) as broker:
        for number in range(5):
            async with Client(broker.kafka07_server, **FAST_OPTIONS) as client:
                await client.produce("t", [b"%d" % number] * 100, 0)
        async with Client(broker.kafka07_server, **FAST_OPTIONS) as client:
            assert await client.end_offset("t", 0) == 5_500


async def test_stop_waits_at_most_close_timeout_ms() -> None:
    async with serve_scripts(silent) as server:
        client = Client(server, **{**FAST_OPTIONS, "close_timeout_ms": 10})
        await client.start()
        await client.produce("t", [b"a"], 0)
        with pytest.raises(ConnectionLost, match="1 earlier produce call"):
            await client.stop()
        # Without unconfirmed requests stop() does not wait.
        async with Client(server, **{**FAST_OPTIONS, "close_timeout_ms": 3_600_000}):
            pass


# --- faulty brokers -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        pytest.param("ffffffff", MalformedFrame, id="negative length"),
        pytest.param("00000001 00", MalformedFrame, id="too short for an error code"),
        pytest.param("7fffffff 0000", MalformedFrame, id="length above the limit"),
        pytest.param("48545450 2f312e31", MalformedFrame, id="HTTP"),
        pytest.param("00000406 0000" + "00" * 1028, ProtocolError, id="more bytes than requested"),
    ],
)
async def test_malformed_fetch_responses(answer: str, kind: type[Exception]) -> None:
    async with connected_client(respond_with(answer), fetch_size_bytes=1_024) as client:
        with pytest.raises(kind) as caught:
            await client.fetch("t", 0, 0)
        assert client.config.server in str(caught.value)


async def test_unexpected_response_closes_the_connection() -> None:
    twice = "00000002 0000 00000002 0000"
    async with connected_client(respond_with(twice), respond_with(FETCH_RESPONSE)) as client:
        assert list(await client.fetch("top", 1, 0)) == []
        assert list(await client.fetch("top", 1, 0)) == [(b"a", 11)]


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param("00000006 0000 00000002 0003", id="too few partitions"),
        pytest.param("0000000f 0000 00000002 0000 00000002 0000 00", id="trailing bytes"),
        pytest.param("00000002 0001", id="error code for the whole request"),
        pytest.param("00000008 0000 7fffffff 0000", id="inner length too large"),
        pytest.param("00000008 0000 ffffffff 0000", id="negative inner length"),
    ],
)
async def test_malformed_multi_fetch_responses(answer: str) -> None:
    # A malformed response closes the connection, so the rest of it is not read.
    script = respond_with(answer)
    async with connected_client(script, script, request_timeout_ms=500) as client:
        with pytest.raises((MalformedMessage, MalformedFrame, RequestTimedOut)):
            await client.multi_fetch([("t", 0, 0), ("t", 1, 0)])


async def test_malformed_offsets_responses() -> None:
    no_offsets = respond_with("00000006 0000 00000000")
    wrong_count = respond_with("0000000e 0000 7fffffff 0000000000000000")
    error_code = respond_with("00000006 0003 00000000")
    async with connected_client(wrong_count, no_offsets, error_code) as client:
        with pytest.raises(MalformedMessage, match="2147483647 elements"):
            await client.offsets("t", 0)
        # The malformed response closed that connection.
        with pytest.raises(MalformedMessage, match="has no offset"):
            await client.end_offset("t", 0)
    async with connected_client(error_code) as client:
        with pytest.raises(BrokerError, match="WRONG_PARTITION"):
            await client.offsets("t", 0)


@pytest.mark.slow
async def test_missing_response_times_out() -> None:
    later = respond_with(OFFSETS_RESPONSE, OFFSETS_RESPONSE)
    async with connected_client(silent, later, request_timeout_ms=200) as client:
        with pytest.raises(RequestTimedOut, match=r"no response.*api OFFSETS") as caught:
            await client.offsets("top", 1)
        assert caught.value.sent
    async with connected_client(silent, later) as client:
        # A cancelled call closes the connection: its response might still arrive.
        with anyio.move_on_after(0.01):
            await client.offsets("top", 1)
        assert await client.offsets("top", 1) == (11, 0)


@pytest.mark.slow
async def test_produce_times_out_if_it_cannot_be_written(
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
        # The error was raised to the caller, so flush() does not report it again.
        await client.flush()


@pytest.mark.slow
async def test_waiting_for_the_connection_times_out() -> None:
    async with connected_client(silent, request_timeout_ms=200) as client:
        errors: list[RequestTimedOut | ConnectionFailed] = []

        async def ask() -> None:
            # A call that gets the connection just before its deadline cannot reconnect in time.
            with pytest.raises((RequestTimedOut, ConnectionFailed)) as caught:
                await client.offsets("t", 0)
            errors.append(caught.value)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            tasks.start_soon(ask)
        assert len(errors) == 2
        assert any(isinstance(error, RequestTimedOut) and error.sent for error in errors)


async def test_unreachable_broker() -> None:
    async with serve_scripts(silent) as server:
        pass
    client = Client(server, **FAST_OPTIONS)
    with pytest.raises(ConnectionFailed, match="connection refused"):
        await client.start()
    with pytest.raises(ConnectionFailed, match="check the host name of `server`"):
        await Client("no-such-host.invalid", **FAST_OPTIONS).start()


# --- start and stop -------------------------------------------------------------------------------


async def test_calls_of_a_closed_client_raise_client_closed() -> None:
    async with connected_client(silent) as client:
        messages = client.messages("t", 0, 0)
    for call in (client.fetch("t", 0, 0), client.produce("t", [b"a"]), anext(messages)):
        with pytest.raises(ClientClosed):
            await call


async def test_stop_fails_pending_calls() -> None:
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


async def test_no_tasks_or_connections_are_leaked() -> None:
    async with (
        Broker(kafka07_port=0) as broker,
        nothing_left(timers=False),
        Client(broker.kafka07_server, **FAST_OPTIONS) as client,
    ):
        await client.produce("t", [b"a"], 0)
        # Without this flush, the cancelled call below would make stop() raise ConnectionLost.
        await client.flush()
        with anyio.move_on_after(0.01):
            await anext(client.messages("t", 0, 11))
        assert await client.end_offset("t", 0) == 11
