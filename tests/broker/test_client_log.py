"""Log lines of the broker about clients, topics and groups."""

from __future__ import annotations

import logging
import struct
from dataclasses import replace

import anyio
import pytest

from aiokafkawire.broker import Broker, client_log
from aiokafkawire.broker.client_log import MAX_LINES_PER_KEY, WINDOW_S, LogRateLimiter, error_codes
from aiokafkawire.runtime import RealRuntime
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.api_versions import ApiVersionsRequest
from aiokafkawire.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from aiokafkawire.wire.messages.leave_group import LeaveGroupRequest
from aiokafkawire.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from aiokafkawire.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from aiokafkawire.wire.messages.streams_group_describe import StreamsGroupDescribeRequest

from .group_requests import join, sync
from .raw_client import RawClient, connected


def lines(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno == level]


async def introduced(client: RawClient) -> None:
    request = ApiVersionsRequest(client_software_name="librdkafka", client_software_version="2.5.0")
    await client.call(request, 3)


async def test_clients_that_come_and_go_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "aiokafkawire.broker")
    async with Broker() as broker, connected(broker) as client:
        await introduced(client)
        await introduced(client)
    connecting, leaving = lines(caplog, logging.INFO)
    assert connecting.startswith("node 1: connection 1 from 127.0.0.1:")
    assert connecting.endswith(": client 'raw' (librdkafka 2.5.0) connected")
    assert leaving == connecting.replace(" connected", " disconnected")


async def test_topics_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "aiokafkawire.broker")
    async with Broker(3) as broker:
        await broker.create_topic("orders", 2)
        await broker.add_partitions("orders", 5)
        await broker.delete_topic("orders")
    assert lines(caplog, logging.INFO) == [
        "Topic orders: created with 2 partitions, replication factor 3",
        "Topic orders: number of partitions raised to 5 from 2",
        "Topic orders: deleted",
    ]


async def test_group_events_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "aiokafkawire.broker")
    async with Broker() as broker, connected(broker) as client:
        member = (await client.call(join(), 2)).member_id
        await client.call(sync(member, **{member: b""}), 1)
        await client.call(LeaveGroupRequest(group_id="g", member_id=member), 1)
    assert [each for each in lines(caplog, logging.INFO) if each.startswith("Group")] == [
        f"Group g: member {member} joined, client 'raw' at 127.0.0.1",
        "Group g: CompletingRebalance, generation 1",
        f"Group g: generation 1 is stable: 1 member, leader {member}, assignor range",
        f"Group g: member {member} left",
        "Group g: Empty, generation 2",
    ]


async def test_a_member_whose_session_ends_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "aiokafkawire.broker")
    async with Broker(group_min_session_timeout_ms=10) as broker, connected(broker) as client:
        member = (await client.call(join(session_ms=10), 2)).member_id
        again = await client.call(join(session_ms=10), 2)
        assert again.member_id != member
    expected = f"Group g: member {member} removed: session timeout"
    assert expected in lines(caplog, logging.INFO)


async def test_a_member_that_misses_a_rebalance_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "aiokafkawire.broker")
    request = join(session_ms=300_000)
    request.rebalance_timeout_ms = 10
    async with Broker() as broker, connected(broker) as client:
        member = (await client.call(request, 2)).member_id
        again = await client.call(request, 2)
        assert again.member_id != member
    expected = f"Group g: member {member} removed: rebalance timeout"
    assert expected in lines(caplog, logging.INFO)


HEARTBEATS = {
    "consumer": ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=300_000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    ),
    "share": ShareGroupHeartbeatRequest(
        group_id="g", member_id="m", member_epoch=0, subscribed_topic_names=["t"]
    ),
}


@pytest.mark.parametrize(
    ("kind", "session_ms", "expected"),
    [
        ("consumer", 300_000, "Group g: member m left"),
        ("consumer", 10, "Group g: member m removed: session or rebalance timeout"),
        ("share", 300_000, "Share group g: member m left"),
        ("share", 10, "Share group g: member m removed: session timeout"),
    ],
)
async def test_a_member_that_goes_is_logged(
    caplog: pytest.LogCaptureFixture, kind: str, session_ms: int, expected: str
) -> None:
    caplog.set_level(logging.INFO, "aiokafkawire.broker")
    timeouts = {
        f"group_{kind}_min_session_timeout_ms": 10,
        f"group_{kind}_session_timeout_ms": session_ms,
    }
    async with Broker(**timeouts) as broker, connected(broker) as client:
        await client.call(HEARTBEATS[kind], 1)
        if expected.endswith("left"):
            await client.call(replace(HEARTBEATS[kind], member_epoch=-1), 1)
        with anyio.fail_after(10):
            while expected not in lines(caplog, logging.INFO):  # noqa: ASYNC110
                await anyio.sleep(0.01)


async def test_an_api_that_is_not_served_is_named(caplog: pytest.LogCaptureFixture) -> None:
    """A client of KIP-1071's protocol retries: each reason is logged a few times."""
    async with Broker() as broker:
        for _ in range(MAX_LINES_PER_KEY + 3):
            async with connected(broker) as client:
                await introduced(client)
                await client.send(
                    StreamsGroupDescribeRequest(
                        group_ids=["g"], include_authorized_operations=False
                    ),
                    0,
                )
                assert await client.closed()
    logged = lines(caplog, logging.WARNING)
    assert len(logged) == MAX_LINES_PER_KEY + 1
    assert logged[0].endswith(
        ": closed: StreamsGroupDescribe (API key 89) v0 is not supported, requested by"
        " client 'raw' (librdkafka 2.5.0)"
    )
    assert "logged at DEBUG" in logged[-1]


async def test_a_version_that_is_not_served_is_named(caplog: pytest.LogCaptureFixture) -> None:
    async with Broker(as_of="2.0") as broker, connected(broker) as client:
        request = ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=[])
        await client.send(request, 7)
        assert await client.closed()
    (line,) = lines(caplog, logging.WARNING)
    assert line.endswith(
        ": closed: ListOffsets (API key 2) v7 is not supported (v0 to v3 are),"
        " requested by client 'raw'"
    )


async def test_an_unknown_api_key_is_named(caplog: pytest.LogCaptureFixture) -> None:
    async with Broker() as broker:
        transport = await RealRuntime().connect(broker.nodes[1])
        client = RawClient(transport)
        await transport.send([struct.pack(">ihhih", 10, 999, 0, 1, -1)])
        assert await client.closed()
        await transport.aclose()
    (line,) = lines(caplog, logging.WARNING)
    assert "unknown API key 999" in line


async def test_errors_are_logged_at_debug(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "aiokafkawire.broker")
    async with Broker() as broker, connected(broker) as client:
        asked = ListOffsetsPartition(partition_index=0, timestamp=-1)
        topic = ListOffsetsTopic(name="none", partitions=[asked])
        request = ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=[topic])
        response = await client.call(request, 5)
    assert list(error_codes(response)) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    (line,) = [each for each in lines(caplog, logging.DEBUG) if "fails with" in each]
    assert line.endswith("ListOffsets v5 of client 'raw' fails with UNKNOWN_TOPIC_OR_PARTITION")


def test_repeats_are_logged_again_after_a_while() -> None:
    now = 0.0
    repeats = LogRateLimiter(lambda: now)
    levels = [repeats.level("a", logging.INFO) for _ in range(MAX_LINES_PER_KEY + 1)]
    assert levels == [logging.INFO] * MAX_LINES_PER_KEY + [logging.DEBUG]
    assert repeats.level("b", logging.INFO) == logging.INFO
    now = WINDOW_S
    assert repeats.level("a", logging.INFO) == logging.INFO


def test_many_kinds_of_events_are_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_log, "MAX_LINES", 3)
    repeats = LogRateLimiter(lambda: 0.0)
    levels = [repeats.level(key, logging.INFO) for key in range(5)]
    assert levels == [logging.INFO] * 3 + [logging.DEBUG] * 2
