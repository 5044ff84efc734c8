"""MessageStream: fetches, retries and errors."""

from __future__ import annotations

import logging

import anyio
import pytest

from aiokafkawire.errors import ConnectionLost, CorruptRecord, ProtocolError, RecordTooLarge
from aiokafkawire.kafka07 import LATEST
from aiokafkawire.wire import kafka07

from .scripted_broker import (
    FETCH_RESPONSE,
    ScriptedConnection,
    connected_client,
    disconnect_on_request,
    embedded_broker_client,
    respond_with,
)


async def test_waits_for_new_messages() -> None:
    async with embedded_broker_client() as client:
        messages = client.messages("t", 0, 0)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.produce, "t", [b"a"], 0)
            assert await anext(messages) == (b"a", 11)
        await client.produce("t", [b"b"], 0)
        assert await anext(messages) == (b"b", 22)


async def test_reads_all_segments() -> None:
    values = [bytes(90) + b"%d" % number for number in range(9)]
    async with embedded_broker_client() as client:
        for value in values:
            await client.produce("t", [value], 0)
        messages = client.messages("t", 0, 0, until_end=True)
        assert [message.payload async for message in messages] == values
        assert len(await client.offsets("t", 0, LATEST, 10)) == 6


async def test_reads_a_message_larger_than_the_fetch_size() -> None:
    async with embedded_broker_client(fetch_size_bytes=20, fetch_size_max_bytes=1_000) as client:
        await client.produce("t", [b"a", bytes(500), b"b"], 0)
        messages = client.messages("t", 0, 0, until_end=True)
        assert [len(message.payload) async for message in messages] == [1, 500, 1]
        await client.produce("t", [bytes(1_000)], 0)
        with pytest.raises(RecordTooLarge) as caught:
            await anext(messages)
        assert (caught.value.size_bytes, caught.value.offset) == (1_010, 532)


async def test_offset_inside_a_message_raises() -> None:
    async with embedded_broker_client() as client:
        await client.produce("t", [bytes(40)], 0)
        for offset in (1, 7, 48):
            with pytest.raises((CorruptRecord, RecordTooLarge), match="offset"):
                await anext(client.messages("t", 0, offset))


async def test_empty_compressed_sets_are_skipped() -> None:
    # 49 empty compressed sets, then one message.
    wrapper = bytes.fromhex("0000001a 01 01 c6ee70fb 1f8b0800000000000003 0300 00000000 00000000")
    answer = (2 + len(wrapper)).to_bytes(4) + bytes(2) + wrapper
    requests = 0

    async def script(peer: ScriptedConnection) -> None:
        nonlocal requests
        while await peer.receive():
            requests += 1
            await peer.send(answer if requests < 50 else bytes.fromhex(FETCH_RESPONSE))

    async with connected_client(script) as client:
        message = await anext(client.messages("t", 0, 0))
        assert message == (b"a", 49 * len(wrapper) + 11)


async def test_retries_after_lost_connections(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with connected_client(
        disconnect_on_request, disconnect_on_request, respond_with(FETCH_RESPONSE)
    ) as client:
        assert await anext(client.messages("t", 0, 0)) == (b"a", 11)
    assert sum("retrying in" in record.message for record in caplog.records) == 2


async def test_raises_after_default_api_timeout_ms() -> None:
    async with connected_client(disconnect_on_request, default_api_timeout_ms=1_000) as client:
        messages = client.messages("t", 0, 0)
        with pytest.raises(ConnectionLost) as caught:
            await anext(messages)
        assert caught.value.attempt is not None
        assert caught.value.attempt > 1


async def test_yields_to_other_tasks() -> None:
    done: list[int] = []

    async def other() -> None:
        done.append(0)

    async with embedded_broker_client() as client:
        await client.produce("t", [b"a"] * 1_000, 0)
        messages = client.messages("t", 0, 0)
        await anext(messages)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(other)
            for _ in range(600):
                await anext(messages)
            assert done


async def test_errors_that_are_not_retriable_are_raised_at_once() -> None:
    # A response with more bytes than requested.
    oversized = bytes.fromhex("00000406 0000") + bytes(1028)
    async with connected_client(respond_with(oversized), fetch_size_bytes=1_024) as client:
        with pytest.raises(
            ProtocolError, match="received 1028 bytes, requested at most 1024"
        ) as caught:
            await anext(client.messages("t", 0, 0))
        assert caught.value.attempt is None


async def test_reading_can_continue_after_a_corrupt_message() -> None:
    bad = kafka07.encode_messages([kafka07.Kafka07Message(payload=b"x", crc=1)])
    good = kafka07.encode_messages([kafka07.Kafka07Message(payload=b"a")])
    log = good + bad + good

    async def script(peer: ScriptedConnection) -> None:
        while frame := await peer.receive():
            request, _ = kafka07.decode_request(frame[4:])
            assert isinstance(request, kafka07.Kafka07FetchRequest)
            data = kafka07.Kafka07FetchResponse(messages=log[request.offset :])
            await peer.send(kafka07.encode_response(data))

    async with connected_client(script) as client:
        messages = client.messages("t", 0, 0, until_end=True)
        assert await anext(messages) == (b"a", 11)
        for _ in range(2):
            with pytest.raises(CorruptRecord) as caught:
                await anext(messages)
            assert messages.next_offset == 11
        assert caught.value.next_offset == 22
        assert [m async for m in client.messages("t", 0, 22, until_end=True)] == [(b"a", 33)]
