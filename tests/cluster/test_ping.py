"""`Pinger` with scripted nodes: the requests it sends and the result."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from aiokafkawire.broker import Broker
from aiokafkawire.cluster import Cluster
from aiokafkawire.errors import (
    BrokerError,
    ConnectionFailed,
    NoBrokerAvailable,
    RequestTimedOut,
    UnknownTopic,
)
from aiokafkawire.runtime import Address, RealRuntime
from aiokafkawire.wire import ApiKey, ErrorCode, Response
from aiokafkawire.wire.messages.find_coordinator import Coordinator as CoordinatorEntry
from aiokafkawire.wire.messages.find_coordinator import FindCoordinatorResponse
from aiokafkawire.wire.messages.metadata import MetadataResponse
from aiokafkawire.wire.messages.offset_fetch import OffsetFetchResponse, OffsetFetchResponseGroup

from .scripted import ScriptedCluster, client_of, cluster_client, scripted_cluster, topic_of


async def silence(_: Any, __: Any) -> Response | None:
    return None


def soon() -> float:
    return anyio.current_time() + 20


def coordinated(scripted: ScriptedCluster, *, port: int | None = None, error_code: int = 0) -> None:
    """Let FindCoordinator return node 2 for every group."""
    address = scripted.servers[2].address

    async def find(_: Any, request: Any) -> Response | None:
        (key,) = request.coordinator_keys
        entry = CoordinatorEntry(
            key=key,
            node_id=2,
            host=address.host,
            port=address.port if port is None else port,
            error_code=error_code,
            error_message="not now" if error_code else None,
        )
        return FindCoordinatorResponse(coordinators=[entry])

    async def fetch(_: Any, request: Any) -> Response | None:
        groups = [OffsetFetchResponseGroup(group_id=g.group_id, topics=[]) for g in request.groups]
        return OffsetFetchResponse(groups=groups)

    for node in scripted.nodes.values():
        node.answers[ApiKey.FIND_COORDINATOR] = find
        node.answers[ApiKey.OFFSET_FETCH] = fetch


async def test_ping_sends_an_empty_metadata_request_to_any_node():
    async with scripted_cluster(3) as scripted, client_of(scripted) as cluster:
        await cluster.start(soon())
        scripted.asked.clear()
        result = await cluster.pinger.ping(1_000)
        assert len(result.brokers) == 1
        assert 0 <= result.latency_ms < 20_000  # uvloop counts whole milliseconds
        assert scripted.asked == [[]]


async def test_other_nodes_are_tried_while_the_first_is_silent():
    async with scripted_cluster(3) as scripted, client_of(scripted) as cluster:
        await cluster.start(soon())
        for number in (1, 2):
            scripted.nodes[number].answers[ApiKey.METADATA] = silence
        for _ in range(3):
            assert (await cluster.pinger.ping(1_000)).brokers[0].startswith("3 at ")
        scripted.nodes[3].answers[ApiKey.METADATA] = silence
        with pytest.raises(NoBrokerAvailable, match="within 300 ms") as caught:
            await cluster.pinger.ping(300)
        assert all(f"{number} at " in str(caught.value) for number in (1, 2, 3))


@pytest.mark.parametrize(
    ("servers", "reason"),
    [
        ("127.0.0.1:1", r"127\.0\.0\.1:1: connection refused"),
        ("localhost:1", r"localhost:1 \([0-9.:]+\): connection refused"),
    ],
)
async def test_without_a_timeout_the_error_does_not_mention_one(servers: str, reason: str):
    async with cluster_client(bootstrap_servers=servers) as cluster:
        cluster._metadata_updater.start_in_background(cluster._supervisor)
        with pytest.raises(NoBrokerAvailable, match=rf"^no broker responded: {reason}") as caught:
            await cluster.pinger.ping(10_000)
        assert "connection refused" in str(caught.value)


async def test_ping_continues_when_the_bootstrap_clients_are_retired():
    """Clients of bootstrap addresses are retired once the nodes are known."""
    async with scripted_cluster(3) as scripted, client_of(scripted) as cluster:

        async def leave(_: Any, __: Any) -> Response | None:
            cluster.broker_clients.retire_bootstrap()
            return None

        for number in (1, 2):
            scripted.nodes[number].answers[ApiKey.METADATA] = leave
        address = scripted.servers[3].address
        assert (await cluster.pinger.ping(2_000)).brokers == (str(address),)


async def test_an_error_response_does_not_count():
    async def refuse(_: Any, __: Any) -> Response | None:
        return MetadataResponse(brokers=[], topics=[], error_code=ErrorCode.REBOOTSTRAP_REQUIRED)

    async with scripted_cluster(2) as scripted, client_of(scripted) as cluster:
        await cluster.start(soon())
        scripted.nodes[1].answers[ApiKey.METADATA] = refuse
        for _ in range(5):
            assert (await cluster.pinger.ping(1_000)).brokers[0].startswith("2 at ")


async def test_each_leader_is_pinged_and_the_topic_is_not_kept():
    async with scripted_cluster(3) as scripted, client_of(scripted) as cluster:
        await cluster.start(soon())
        scripted.topics["t"] = topic_of("t", 1, 3, 1)
        result = await cluster.pinger.ping(1_000, topic="t")
        assert sorted(name[0] for name in result.brokers) == ["1", "3"]
        assert cluster.metadata.topics == {}
        scripted.topics["t"] = topic_of("t", 1, -1, 1)
        with pytest.raises(BrokerError, match="LEADER_NOT_AVAILABLE") as caught:
            await cluster.pinger.ping(1_000, topic="t")
        assert (caught.value.topic, caught.value.partition) == ("t", 1)
        with pytest.raises(UnknownTopic):
            await cluster.pinger.ping(1_000, topic="u")
        scripted.topics["u"] = topic_of("u", error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        with pytest.raises(BrokerError, match="TOPIC_AUTHORIZATION_FAILED"):
            await cluster.pinger.ping(1_000, topic="u")


async def test_the_error_names_all_silent_leaders():
    async with scripted_cluster(3) as scripted, client_of(scripted) as cluster:
        await cluster.start(soon())
        scripted.topics["t"] = topic_of("t", 1, 2, 3, 2)
        first = await cluster.pinger.ping(1_000, topic="t")
        assert len(first.brokers) == 3

        async def only_named(connection: Any, request: Any) -> Response | None:
            return await scripted.metadata(connection, request) if request.topics else None

        for number in (2, 3):
            scripted.nodes[number].answers[ApiKey.METADATA] = only_named
        with pytest.raises(RequestTimedOut) as caught:
            await cluster.pinger.ping(400, topic="t")
        assert "broker 2 leads partition 1, 3" in str(caught.value)
        assert "broker 3 leads partition 2" in str(caught.value)
        assert caught.value.topic == "t"


async def test_the_coordinator_of_the_group_is_pinged():
    async with scripted_cluster(3) as scripted, client_of(scripted) as cluster:
        await cluster.start(soon())
        coordinated(scripted)
        result = await cluster.pinger.ping(1_000, group="g")
        assert [name[0] for name in result.brokers] == ["2"]
        assert ApiKey.OFFSET_FETCH in [header.api_key for header in scripted.nodes[2].seen]
        listener = await RealRuntime().listen(Address("127.0.0.1", 0))
        await listener.aclose()
        coordinated(scripted, port=listener.address.port)
        with pytest.raises(ConnectionFailed) as caught:
            await cluster.pinger.ping(1_000, group="g")
        assert caught.value.group == "g"
        assert str(caught.value.broker).startswith("2 at ")


async def test_a_coordinator_that_does_not_coordinate_the_group_does_not_count():
    async with scripted_cluster(2) as scripted, client_of(scripted) as cluster:
        await cluster.start(soon())
        coordinated(scripted)

        async def refuse(_: Any, request: Any) -> Response | None:
            code = ErrorCode.NOT_COORDINATOR
            groups = [
                OffsetFetchResponseGroup(group_id=group.group_id, topics=[], error_code=code)
                for group in request.groups
            ]
            return OffsetFetchResponse(groups=groups)

        scripted.nodes[2].answers[ApiKey.OFFSET_FETCH] = refuse
        with pytest.raises(BrokerError, match="NOT_COORDINATOR") as caught:
            await cluster.pinger.ping(1_000, group="g")
        assert (caught.value.group, caught.value.api) == ("g", "OffsetFetch")
        assert str(caught.value.broker).startswith("2 at ")


@pytest.mark.parametrize(
    ("as_of", "api"),
    [("0.10.1", ApiKey.METADATA), ("2.8", ApiKey.OFFSET_FETCH), ("4.3", ApiKey.OFFSET_FETCH)],
)
async def test_the_last_request_to_a_coordinator_depends_on_its_release(as_of: str, api: ApiKey):
    async with (
        Broker(as_of=as_of) as broker,
        cluster_client(bootstrap_servers=[broker.bootstrap_servers]) as cluster,
    ):
        await cluster.start(soon())
        result = await cluster.pinger.ping(10_000, group="g")
        assert result.brokers == (f"1 at {broker.bootstrap_servers}",)
        assert [*broker.requests][-1].api_key == api


@pytest.mark.parametrize("answer", [{"port": 0}, {"error_code": 15}])
async def test_no_coordinator(answer: dict[str, int]):
    async with scripted_cluster(3) as scripted, client_of(scripted) as cluster:
        await cluster.start(soon())
        coordinated(scripted, **answer)
        with pytest.raises(BrokerError, match="COORDINATOR_NOT_AVAILABLE") as caught:
            await cluster.pinger.ping(1_000, group="g")
        assert caught.value.group == "g"


async def test_an_encoding_error_is_raised_unchanged():
    async with scripted_cluster(1) as scripted, client_of(scripted) as cluster:
        await cluster.start(soon())
        with pytest.raises((TypeError, ValueError)):
            await cluster.pinger.ping(1_000, topic=7)  # type: ignore[arg-type]
        assert await works(cluster)


@pytest.mark.parametrize("timeout_ms", [-1, float("nan")])
async def test_an_invalid_timeout_is_rejected(timeout_ms: float):
    async with scripted_cluster(1) as scripted, client_of(scripted) as cluster:
        await cluster.start(soon())
        with pytest.raises(ValueError, match="timeout_ms"):
            await cluster.pinger.ping(timeout_ms)


async def works(cluster: Cluster) -> bool:
    return bool((await cluster.pinger.ping(1_000)).brokers)
