"""`ping` with and without faults: the right result, within its timeout."""

from __future__ import annotations

import signal
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Literal

import anyio
import anyio.lowlevel
import pytest

from aiokafkawire import errors
from aiokafkawire.broker import Answer, ApiKey, Broker, Drop
from aiokafkawire.consumer import Consumer
from aiokafkawire.producer import Producer
from aiokafkawire.types import PingResult
from aiokafkawire.wire import ErrorCode
from tests.cli.shell import serving
from tests.elapsed import ends_within
from tests.faults import peers
from tests.faults.support import IMPATIENT

pytestmark = pytest.mark.slow

TIMEOUT_MS = 1_000
GRACE_S = 0.5
"""Tolerance for the end of a call on a busy machine."""

BAD = 2
"""The node of three that has the fault."""

Client = Producer | Consumer
CLIENTS = pytest.mark.parametrize("client_class", [Producer, Consumer])

# The client keeps this backoff after each failure; `ping` must not wait for it.
PATIENT: dict[str, Any] = IMPATIENT | {
    "reconnect_backoff_ms": 60_000,
    "reconnect_backoff_max_ms": 60_000,
}


async def pinged(client: Client, **target: str) -> PingResult:
    """Return the result or error of `ping`, which must end in time."""
    with ends_within(TIMEOUT_MS / 1_000 + GRACE_S):
        return await client.ping(TIMEOUT_MS, **target)


async def refused(client: Client, **target: str) -> errors.KafkaError:
    """Reasons for a missing response."""
    with pytest.raises(errors.KafkaError) as caught:
        await pinged(client, **target)
    return caught.value


def nodes_of(result: PingResult) -> set[str]:
    return {name.split()[0] for name in result.brokers}


# --- one node of three ------------------------------------------------------------------------

Day = Literal["healthy", "paused", "killed", "silent"]


@pytest.fixture
async def away(broker: Broker) -> str:
    """A topic whose only partition is on the faulty node."""
    for number in range(3):
        topic = f"away-{number}"
        await broker.create_topic(topic, partitions=1, replication_factor=1)
        if broker.leader(topic, 0) == BAD:
            return topic
    raise AssertionError("one node after the other leads the next topic")


@pytest.fixture
async def spread(broker: Broker) -> str:
    """A topic with a partition led by each node."""
    topic = f"spread-{uuid.uuid4().hex[:8]}"
    await broker.create_topic(topic, partitions=3, replication_factor=3)
    for partition in range(3):
        broker.move_leader(topic, partition, partition + 1)
    return topic


@pytest.fixture
async def topics(away: str, spread: str) -> dict[str, str]:
    return {"away": away, "spread": spread}


async def make(broker: Broker, day: Day) -> None:
    """Inject the fault into the faulty node."""
    if day == "paused":
        broker.pause(BAD)
    elif day == "killed":
        await broker.kill(BAD)
    elif day == "silent":
        broker.on(None, Drop(), node=BAD)


@pytest.mark.parametrize("connected", [True, False], ids=["connected", "not connected"])
@pytest.mark.parametrize("day", ["healthy", "paused", "killed", "silent"])
@CLIENTS
async def test_one_of_three_nodes(
    broker: Broker, client_class: type[Client], day: Day, connected: bool, topics: dict[str, str]
):
    away, spread, group_id = topics["away"], topics["spread"], "billing"
    broker.move_coordinator(group_id, BAD)
    async with client_class(bootstrap_servers=broker.bootstrap_servers, **PATIENT) as client:
        if connected:
            assert nodes_of(await pinged(client, topic=spread)) == {"1", "2", "3"}
        await make(broker, day)
        for _ in range(3):
            assert await pinged(client)
        if day == "healthy":
            assert nodes_of(await pinged(client, topic=away)) == {"2"}
            assert nodes_of(await pinged(client, topic=spread)) == {"1", "2", "3"}
            assert nodes_of(await pinged(client, group=group_id)) == {"2"}
            assert nodes_of(await pinged(client, topic=away, group=group_id)) == {"2"}
        elif day == "killed":
            error = await refused(client, topic=away)
            assert isinstance(error, errors.BrokerError)
            assert error.code == ErrorCode.LEADER_NOT_AVAILABLE
            # Other nodes lead, and coordinate, the dead node's partitions and groups.
            assert nodes_of(await pinged(client, topic=spread)) == {"1", "3"}
            assert nodes_of(await pinged(client, group=group_id)) <= {"1", "3"}
        else:
            for target in ({"topic": away}, {"topic": spread}, {"group": group_id}):
                error = await refused(client, **target)
                assert error.retriable
                assert str(error.broker).startswith("2 at ")


async def test_the_leader_that_does_not_answer_is_named_with_its_partitions(
    broker: Broker, spread: str
):
    async with Producer(bootstrap_servers=broker.bootstrap_servers) as client:
        await client.ping(topic=spread)
        broker.pause(BAD)
        error = await refused(client, topic=spread)
        assert isinstance(error, errors.RequestTimedOut)
        assert error.topic == spread
        assert "broker 2 leads partition 1" in str(error)
        assert f"no response within {TIMEOUT_MS} ms" in str(error) or "deadline" in str(error)
        broker.pause(3)
        assert "broker 3 leads partition 2" in str(await refused(client, topic=spread))


@CLIENTS
async def test_a_node_that_is_back_is_seen_at_once(
    broker: Broker, client_class: type[Client], away: str
):
    async with client_class(bootstrap_servers=broker.bootstrap_servers, **PATIENT) as client:
        assert nodes_of(await pinged(client, topic=away)) == {"2"}
        await broker.kill(BAD)
        assert await refused(client, topic=away)
        await broker.restart(BAD)
        assert nodes_of(await pinged(client, topic=away)) == {"2"}


async def test_what_does_not_exist(broker: Broker, group_id: str):
    async with Producer(bootstrap_servers=broker.bootstrap_servers) as client:
        error = await refused(client, topic="no-such-topic")
        assert isinstance(error, errors.UnknownTopic)
        assert "no-such-topic" not in broker.topics
        # A group need not exist to have a coordinator.
        assert await pinged(client, group=group_id)


async def test_a_coordinator_that_is_not_ready(broker: Broker, group_id: str):
    async with Consumer(bootstrap_servers=broker.bootstrap_servers) as client:
        broker.on(ApiKey.OFFSET_FETCH, Answer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
        error = await refused(client, group=group_id)
        assert isinstance(error, errors.BrokerError)
        assert (error.code, error.group) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, group_id)


@pytest.mark.parametrize("as_of", ["0.8.0", "0.9", "0.10.0", "2.0"])
async def test_older_brokers(as_of: str):
    async with (
        Broker(as_of=as_of) as broker,
        Producer(bootstrap_servers=broker.bootstrap_servers) as client,
    ):
        await broker.create_topic("orders", partitions=2)
        assert await client.ping()
        assert await client.ping(topic="orders")
        if as_of != "0.8.0":
            assert await client.ping(group="billing")


# --- the client -------------------------------------------------------------------------------


@CLIENTS
async def test_a_client_that_does_not_run(broker: Broker, client_class: type[Client]):
    client = client_class(bootstrap_servers=broker.bootstrap_servers)
    with pytest.raises(errors.ClientClosed):
        await client.ping()
    async with client:
        assert await client.ping()
    with pytest.raises(errors.ClientClosed):
        await client.ping()


@CLIENTS
async def test_a_client_that_is_stopped_meanwhile(broker: Broker, client_class: type[Client]):
    client = client_class(bootstrap_servers=broker.bootstrap_servers)
    await client.start()
    for node in (1, 2, 3):
        broker.pause(node)

    async def ping() -> None:
        with pytest.raises(errors.ClientClosed):
            await client.ping(30_000)

    with ends_within(5):
        async with anyio.create_task_group() as group:
            group.start_soon(ping)
            await anyio.sleep(0.1)
            await client.stop()


async def test_a_client_that_is_stopped_at_any_step_of_pings(broker: Broker, spread: str):
    async def ping(client: Client) -> None:
        try:
            await client.ping(TIMEOUT_MS, topic=spread)
        except errors.ClientClosed:
            return

    # trio runs tasks in any order.
    for steps in [*range(20, 50)] * 4:
        servers = broker.bootstrap_servers
        client = Consumer(bootstrap_servers=servers, connect_on_start=False)
        await client.start()
        async with anyio.create_task_group() as group:
            for _ in range(5):
                group.start_soon(ping, client)
            for _ in range(steps):
                await anyio.lowlevel.checkpoint()
            await client.stop()


async def test_a_producer_that_is_fenced(broker: Broker):
    options: dict[str, Any] = {
        "bootstrap_servers": broker.bootstrap_servers,
        "transactional_id": "billing",
    }
    async with Producer(**options) as older, Producer(**options):
        with pytest.raises(errors.KafkaError):
            async with older.transaction():
                await older.send_and_wait("orders", b"book")
        with pytest.raises(errors.ProducerFenced):
            await older.ping()


@pytest.mark.parametrize("timeout_ms", [0, 1])
async def test_no_time(broker: Broker, timeout_ms: int):
    async with Producer(bootstrap_servers=broker.bootstrap_servers) as client:
        for node in (1, 2, 3):
            broker.pause(node)
        # The attempts end at the same deadline as ping: the first of them to notice gives the text.
        with pytest.raises(errors.NoBrokerAvailable, match=r"within [0-9.e-]+ m?s"):
            await client.ping(timeout_ms)


async def test_pings_leave_the_traffic_alone(broker: Broker, topic: str):
    async with Producer(
        bootstrap_servers=broker.bootstrap_servers, request_timeout_ms=10_000
    ) as client:
        await client.send_and_wait(topic, b"first")
        lost = client.metrics()["connections_lost_total"]
        fault = broker.on(ApiKey.METADATA, Drop(), times=3)
        for _ in range(3):
            await refused_or_answered(client)
        for _ in range(20):
            await client.send_and_wait(topic, b"more")
        assert fault.hits >= 1
        assert client.metrics()["connections_lost_total"] == lost
        assert broker.end_offset(topic, 0) == 21


async def refused_or_answered(client: Client) -> None:
    with suppress(errors.KafkaError):
        await pinged(client)


# --- all that there is ------------------------------------------------------------------------


@asynccontextmanager
async def started(client: Client) -> AsyncIterator[Client]:
    """A client that is stopped at the end, even if its broker is gone."""
    await client.start()
    try:
        yield client
    finally:
        with suppress(errors.KafkaError):
            await client.stop()


STRANGERS: dict[str, Callable[[Any], Awaitable[None]]] = {
    "silent": peers.silent,
    "closing": peers.closing,
    "http": peers.http,
}


@pytest.mark.parametrize("stranger", STRANGERS)
@CLIENTS
async def test_what_listens_there_is_no_broker(client_class: type[Client], stranger: str):
    async with (
        peers.listening(STRANGERS[stranger]) as address,
        started(
            client_class(bootstrap_servers=address, connect_on_start=False, **IMPATIENT)
        ) as client,
    ):
        for _ in range(2):
            error = await refused(client)
            assert isinstance(error, errors.NoBrokerAvailable)
            assert address in str(error)


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="needs SIGSTOP")
@CLIENTS
async def test_a_broker_process_that_is_stopped_continued_killed_and_restarted(
    client_class: type[Client], tmp_path: Path
):
    # With its data the broker is a node of the same cluster when it comes back.
    data = ("--data", str(tmp_path))
    with serving("-t", "orders:3", *data) as (servers, process):
        async with started(client_class(bootstrap_servers=servers, **PATIENT)) as client:
            for target in ({}, {"topic": "orders"}, {"group": "billing"}):
                assert await pinged(client, **target)
            process.send_signal(signal.SIGSTOP)
            for _ in range(2):
                for target in ({}, {"topic": "orders"}, {"group": "billing"}):
                    error = await refused(client, **target)
                    assert isinstance(error, errors.NoBrokerAvailable)
                    assert servers in str(error)
            process.send_signal(signal.SIGCONT)
            for target in ({}, {"topic": "orders"}, {"group": "billing"}):
                assert await pinged(client, **target)
            process.kill()
            process.wait(timeout=20)
            assert isinstance(await refused(client), errors.NoBrokerAvailable)
            port = servers.rpartition(":")[2]
            with serving("--port", port, *data):
                assert await pinged(client)
