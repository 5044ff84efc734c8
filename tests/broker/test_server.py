"""Handling of input that no client should send, and the end of connections."""

from __future__ import annotations

import logging
import struct
from collections.abc import AsyncIterator

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aiokafkawire.broker import Broker, Delay
from aiokafkawire.broker.request_queue import MAX_QUEUED_REQUESTS
from aiokafkawire.wire import ApiKey, ErrorCode
from aiokafkawire.wire.codec import decode
from aiokafkawire.wire.header import encode_request
from aiokafkawire.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

from .raw_client import RawClient, build_update_metadata_request, connected

VERSIONS = ApiVersionsRequest()


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker(max_request_bytes=10_000) as broker:
        yield broker
        # Whatever happens to one connection, others are served.
        async with connected(broker) as client:
            assert (await client.call(VERSIONS, 0)).error_code == ErrorCode.NONE


@pytest.fixture
async def client(broker: Broker) -> AsyncIterator[RawClient]:
    async with connected(broker) as client:
        yield client


def header(key: int, version: int, correlation_id: int = 5) -> bytes:
    return struct.pack(">hhih", key, version, correlation_id, -1)


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


@pytest.mark.parametrize(
    "sent",
    [
        struct.pack(">i", -1),
        struct.pack(">i", 0),
        struct.pack(">i", 3) + b"abc",
        struct.pack(">i", 10_001),
        struct.pack(">i", 2**31 - 1),
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        framed(b"abcd"),
        framed(header(999, 0)),
        framed(header(-1, 0)),
        framed(header(ApiKey.METADATA, 99)),
        framed(header(ApiKey.METADATA, -1)),
        framed(header(ApiKey.INIT_PRODUCER_ID, 6)),
        framed(header(ApiKey.LEADER_AND_ISR, 0)),
        framed(header(ApiKey.METADATA, 1)),
        framed(header(ApiKey.METADATA, 1) + b"\x7f\xff\xff\xff"),
        framed(header(ApiKey.METADATA, 1) + b"\x00\x00\x00\x01\x00\x09abc"),
        framed(header(ApiKey.METADATA, 1) + b"\x00\x00\x00\x01\x00\x02\xff\xfe"),
        framed(header(ApiKey.METADATA, 12) + b"\xff\xff\xff\xff\xff\xff"),
    ],
    ids=lambda sent: sent[:24].hex(),
)
async def test_what_is_no_request_closes_the_connection_with_a_log_line(
    client: RawClient, sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "aiokafkawire.broker"):
        await client.transport.send([sent])
        assert await client.closed()
    assert [r.levelname for r in caplog.records] == ["WARNING"]
    assert "closed: " in caplog.text


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(sent=st.lists(st.binary(max_size=60), max_size=4))
@pytest.mark.slow
def test_any_bytes_leave_the_broker_alive(sent: list[bytes]) -> None:
    async def run() -> None:
        async with Broker() as broker:
            async with connected(broker) as client:
                await client.transport.send([framed(body) for body in sent])
                await client.transport.send([framed(b"")])
                while await client.frame() is not None:
                    pass
            async with connected(broker) as client:
                assert (await client.call(VERSIONS, 0)).error_code == ErrorCode.NONE

    logging.getLogger("aiokafkawire.broker").setLevel(logging.CRITICAL)
    try:
        anyio.run(run)
    finally:
        logging.getLogger("aiokafkawire.broker").setLevel(logging.NOTSET)


@pytest.mark.parametrize("version", [6, 99, 32_767])
async def test_an_unknown_api_versions_version_gets_the_supported_ones(
    client: RawClient, version: int
) -> None:
    await client.transport.send([framed(header(ApiKey.API_VERSIONS, version) + b"\x00whatever")])
    frame = await client.frame()
    assert frame is not None
    assert struct.unpack_from(">i", frame) == (5,)
    answer = decode(ApiVersionsResponse, 0, frame[4:])
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(k.api_key, k.min_version, k.max_version) for k in answer.api_keys] == [
        (ApiKey.API_VERSIONS, 0, 5)
    ]
    await client.call(VERSIONS, 0)


async def test_a_client_without_a_name_is_refused(client: RawClient) -> None:
    answer = await client.call(VERSIONS, 3)
    assert answer.error_code == ErrorCode.INVALID_REQUEST


async def test_unreadable_requests_are_kept(broker: Broker, client: RawClient) -> None:
    await client.call(VERSIONS, 0)
    assert not broker.requests.unreadable
    await client.transport.send([framed(header(ApiKey.METADATA, 4) + b"\x7f\xff")])
    assert await client.closed()
    [description] = broker.requests.unreadable
    assert "connection" in description
    assert "MetadataRequest v4" in description


async def test_bytes_after_a_request_do_no_harm(client: RawClient) -> None:
    (frame,) = encode_request(build_update_metadata_request(create=True), 1, 9, "c")
    await client.transport.send([framed(bytes(frame[4:]) + b"left over")])
    assert (await client.receive(ApiKey.METADATA, 1))[0] == 9


async def test_frames_may_come_in_any_pieces(client: RawClient) -> None:
    data = b"".join(bytes(part) for i in range(3) for part in encode_request(VERSIONS, 0, i, "c"))
    for byte in data:
        await client.transport.send([bytes([byte])])
    for expected in range(3):
        assert (await client.receive(ApiKey.API_VERSIONS, 0))[0] == expected


async def test_more_requests_than_the_queue_holds_are_all_answered(client: RawClient) -> None:
    sent = [await client.send(VERSIONS, 0) for _ in range(3 * MAX_QUEUED_REQUESTS)]
    got = [(await client.receive(ApiKey.API_VERSIONS, 0))[0] for _ in sent]
    assert got == sent


async def test_a_torn_frame_is_no_request(broker: Broker) -> None:
    async with connected(broker) as client:
        await client.transport.send([b"\x00\x00\x00\x20half of it"])
    async with connected(broker) as client:
        await client.call(VERSIONS, 0)
    assert [seen.api_key for seen in broker.requests] == [ApiKey.API_VERSIONS]


async def test_too_many_connections_are_refused() -> None:
    async with (
        Broker(max_connections=2) as broker,
        connected(broker) as first,
        connected(broker) as second,
    ):
        await first.call(VERSIONS, 0)
        await second.call(VERSIONS, 0)
        async with connected(broker) as third:
            assert await third.closed()
        await first.call(VERSIONS, 0)


async def test_a_connection_that_asks_nothing_is_closed() -> None:
    async with (
        Broker(connections_max_idle_ms=50) as broker,
        connected(broker) as idle,
        connected(broker) as begun,
    ):
        await idle.call(VERSIONS, 0)
        # A frame that never ends does not keep a connection open either.
        await begun.transport.send([b"\0\0\0\x20half of it"])
        assert await idle.closed()
        assert await begun.closed()


async def test_a_connection_that_waits_for_an_answer_is_not_idle() -> None:
    async with Broker(connections_max_idle_ms=200) as broker, connected(broker) as client:
        broker.on(ApiKey.API_VERSIONS, Delay(0.6))
        assert (await client.call(VERSIONS, 0)).error_code == 0
