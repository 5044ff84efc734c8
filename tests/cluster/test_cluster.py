"""Bootstrap, topics, routing and retry against scripted nodes."""

from __future__ import annotations

import contextlib
import uuid
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from aiokafkawire.cluster import (
    Cluster,
    CoordinatorType,
    ToAnyNode,
    ToController,
    ToCoordinator,
    ToNode,
)
from aiokafkawire.cluster.all_nodes import request_all_nodes
from aiokafkawire.cluster.metadata_waits import MAX_UNKNOWN_TOPIC_RESPONSES
from aiokafkawire.connection import Handshake
from aiokafkawire.errors import (
    AuthenticationFailed,
    BrokerError,
    ClientClosed,
    ConnectionFailed,
    ConnectionLost,
    InvalidOption,
    KafkaError,
    NoBrokerAvailable,
    RequestTimedOut,
    UnknownTopic,
    UnsupportedVersion,
)
from aiokafkawire.runtime import Address
from aiokafkawire.types import TopicPartition
from aiokafkawire.wire import ApiKey, ErrorCode, Response
from aiokafkawire.wire.messages.create_topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from aiokafkawire.wire.messages.find_coordinator import Coordinator as CoordinatorEntry
from aiokafkawire.wire.messages.find_coordinator import FindCoordinatorResponse
from aiokafkawire.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from aiokafkawire.wire.messages.list_groups import (
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)
from tests.connection.scripted import (
    Hangup,
    ScriptedBroker,
    ServerConnection,
    closed_address,
    hosted,
    make_config,
    serve,
    speaks,
)

from .scripted import ScriptedCluster, client_of, cluster_client, scripted_cluster, topic_of

HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
CREATE = CreateTopicsRequest(topics=[])
LIST = ListGroupsRequest()
LONG = {"retry_backoff_ms": 60_000, "retry_backoff_max_ms": 60_000}


def soon(seconds: float = 20) -> float:
    return anyio.current_time() + seconds


def coordinated_by(scripted: ScriptedCluster, *nodes: int) -> list[str]:
    """Let FindCoordinator return these nodes in turn, then the last one; record the keys."""
    asked: list[str] = []

    async def find(_: Any, request: Any) -> Response | None:
        (key,) = request.coordinator_keys
        node = nodes[min(len(asked), len(nodes) - 1)]
        asked.append(key)
        address = scripted.servers[node].address if node else Address("", -1)
        code = 0 if node else ErrorCode.COORDINATOR_NOT_AVAILABLE
        entry = CoordinatorEntry(
            key=key, node_id=node, host=address.host, port=address.port, error_code=code
        )
        return FindCoordinatorResponse(coordinators=[entry])

    for node in scripted.nodes.values():
        node.answers[ApiKey.FIND_COORDINATOR] = find
    return asked


def test_the_constructor_rejects_an_unknown_api_version():
    with pytest.raises(InvalidOption, match="api_version"):
        Cluster(make_config(api_version="0.8"), None, None)  # type: ignore[arg-type]


# --- bootstrap ------------------------------------------------------------------------------


async def test_bootstrap_finds_the_nodes_and_a_topic():
    async with scripted_cluster(3) as scripted:
        scripted.topics["t"] = topic_of("t", 1, 2, 3)
        async with cluster_client(bootstrap_servers=scripted.bootstrap) as cluster:
            await cluster.start(soon())
            assert sorted(cluster.metadata.nodes) == [1, 2, 3]
            assert cluster.metadata.cluster_id == "scripted"
            assert cluster.metadata.topics == {}
            topic = await cluster.topic_metadata("t", soon())
            assert tuple(topic.partitions) == (0, 1, 2)
            assert cluster.metadata.leader(TopicPartition("t", 1)) == (2, 0)


async def test_without_connecting_on_start_requests_wait_for_the_nodes():
    async with scripted_cluster(2) as scripted:
        for node in scripted.nodes.values():
            node.answers[ApiKey.LIST_GROUPS] = list_groups
        options = {"bootstrap_servers": scripted.bootstrap, "connect_on_start": False}
        async with cluster_client(**options) as cluster:
            await cluster.start(soon())
            assert cluster.metadata.nodes == {}
            assert sorted(await request_all_nodes(cluster, LIST, deadline=soon())) == [1, 2]
        async with cluster_client(**options) as cluster:
            await cluster.start(soon())
            assert await cluster.request(LIST, to=ToAnyNode(), deadline=soon())
    dead = closed_address()
    async with cluster_client(bootstrap_servers=str(dead), connect_on_start=False) as cluster:
        await cluster.start(soon())
        for _ in range(2):
            with pytest.raises(NoBrokerAvailable, match="refused"):
                await cluster.request(LIST, to=ToAnyNode(), deadline=soon(0.2))
        with pytest.raises(NoBrokerAvailable, match="refused"):
            await request_all_nodes(cluster, LIST, deadline=soon(0.2))


async def list_groups(_: Any, __: Any) -> Response | None:
    return ListGroupsResponse(error_code=0, groups=[])


async def test_bootstrap_continues_with_the_next_address():
    dead = closed_address()
    async with scripted_cluster(1) as scripted:
        servers = f"{dead},{scripted.bootstrap}"
        async with cluster_client(bootstrap_servers=servers) as cluster:
            await cluster.start(soon())
            assert list(cluster.metadata.nodes) == [1]


async def test_no_broker_available_gives_the_reason_of_each_address():
    first, second = closed_address(), closed_address()
    async with cluster_client(bootstrap_servers=f"{first},{second}") as cluster:
        with pytest.raises(NoBrokerAvailable, match="refused") as caught:
            await cluster.start(soon(0.05))
        assert str(first) in str(caught.value)
        assert str(second) in str(caught.value)


async def test_a_port_that_is_not_kafkas_fails_at_once():
    async def http(connection: ServerConnection) -> None:
        await connection.receive()
        await connection.transport.send([b"HTTP/1.1 400 Bad Request\r\n\r\n"])

    async with (
        serve(http) as server,
        cluster_client(bootstrap_servers=str(server.address), **LONG) as cluster,
    ):
        with pytest.raises(NoBrokerAvailable, match="HTTP server"):
            await cluster.start(soon(60))


async def test_a_broker_that_comes_up_late_is_found():
    address = closed_address()
    async with (
        cluster_client(bootstrap_servers=str(address)) as cluster,
        anyio.create_task_group() as group,
    ):
        group.start_soon(cluster.start, soon())
        await anyio.wait_all_tasks_blocked()
        scripted = ScriptedCluster(1)
        async with serve(scripted.nodes[1], address) as server:
            scripted.servers[1] = server
            with anyio.fail_after(20):
                assert await cluster.wait_update(0, soon())


@pytest.mark.slow
async def test_metadata_without_a_valid_broker_is_rejected():
    async with scripted_cluster(1) as scripted:
        good = scripted.servers[1].address
        scripted.servers[1].address = Address("127.0.0.1", 70_000)
        async with cluster_client(bootstrap_servers=str(good)) as cluster:
            with pytest.raises(NoBrokerAvailable, match="no broker with a valid address"):
                await cluster.start(soon(0.4))


# --- topics ---------------------------------------------------------------------------------


async def test_topic_metadata_waits_for_a_new_topic():
    async with scripted_cluster(1) as scripted, client_of(scripted) as cluster:
        await cluster.start(soon())
        async with anyio.create_task_group() as group:

            async def wait() -> None:
                assert (await cluster.topic_metadata("late", soon())).name == "late"

            group.start_soon(wait)
            with anyio.fail_after(20):
                while scripted.asked.count(["late"]) < 3:
                    await anyio.lowlevel.checkpoint()
            scripted.topics["late"] = topic_of("late", 1)


async def test_an_unknown_topic_raises_at_the_deadline():
    async with scripted_cluster(1) as scripted, client_of(scripted) as cluster:
        await cluster.start(soon())
        with pytest.raises(UnknownTopic, match="'nope' does not exist") as caught:
            await cluster.topic_metadata("nope", soon(0.1))
        assert caught.value.topic == "nope"
        # The wait is over, and with it the interest.
        cluster.request_update()
        while scripted.asked[-1] != []:
            assert await cluster.wait_update(cluster.metadata.version, soon())


async def test_a_missing_topic_is_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr("aiokafkawire.cluster.refresh_schedule.MISSING_TOPIC_LOG_AFTER_S", 0.0)
    async with scripted_cluster(1) as scripted, client_of(scripted) as cluster:
        await cluster.start(soon())
        with pytest.raises(UnknownTopic):
            await cluster.topic_metadata("nope", soon(0.3))
        assert scripted.asked.count(["nope"]) > 1
    (line,) = [record.getMessage() for record in caplog.records]
    assert "topic 'nope' does not exist or is not available: UNKNOWN_TOPIC_OR_PARTITION" in line


async def test_without_topic_creation_an_unknown_topic_raises_soon():
    async with (
        scripted_cluster(1) as scripted,
        cluster_client(
            bootstrap_servers=scripted.bootstrap, allow_auto_create_topics=False
        ) as cluster,
    ):
        await cluster.start(soon())
        with pytest.raises(UnknownTopic, match="allow_auto_create_topics is off"):
            await cluster.topic_metadata("nope", soon(60))
        assert scripted.asked.count(["nope"]) >= MAX_UNKNOWN_TOPIC_RESPONSES


async def test_without_topic_creation_an_old_broker_gets_a_request_for_all_topics():
    async def old(_: Any, __: Any) -> Response | None:
        return speaks({ApiKey.METADATA: (0, 3), ApiKey.API_VERSIONS: (0, 3)})

    async with scripted_cluster(1) as scripted:
        scripted.nodes[1].answers[ApiKey.API_VERSIONS] = old
        async with cluster_client(
            bootstrap_servers=scripted.bootstrap, allow_auto_create_topics=False
        ) as cluster:
            await cluster.start(soon())
            with pytest.raises(UnknownTopic, match="'t' does not exist"):
                await cluster.topic_metadata("t", soon(60))
            scripted.topics |= {"t": topic_of("t", 1), "other": topic_of("other", 1)}
            await cluster.topic_metadata("t", soon(60))
            assert list(cluster.metadata.topics) == ["t"]
            assert ["t"] not in scripted.asked


@pytest.mark.parametrize(
    "code", [ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.INVALID_TOPIC_EXCEPTION]
)
async def test_a_final_error_of_a_topic_raises_at_once(code: ErrorCode):
    async with scripted_cluster(1) as scripted:
        scripted.topics["t"] = topic_of("t", error_code=code)
        async with cluster_client(bootstrap_servers=scripted.bootstrap) as cluster:
            await cluster.start(soon())
            with pytest.raises(BrokerError, match=code.name) as caught:
                await cluster.topic_metadata("t", soon(60))
            error = caught.value
            assert (error.topic, error.api, error.broker) == (
                "t",
                "Metadata",
                cluster.broker_client(1).name,
            )


async def test_a_topic_that_is_not_ready_at_the_deadline_raises_its_error():
    async with scripted_cluster(1) as scripted, client_of(scripted) as cluster:
        scripted.topics["t"] = topic_of("t", error_code=ErrorCode.INVALID_REPLICATION_FACTOR)
        scripted.topics["late"] = topic_of("late", error_code=ErrorCode.LEADER_NOT_AVAILABLE)
        await cluster.start(soon())
        with pytest.raises(BrokerError, match="INVALID_REPLICATION_FACTOR"):
            await cluster.topic_metadata("t", soon())
        with pytest.raises(UnknownTopic, match=r"'late' was not ready .*LEADER_NOT_AVAILABLE"):
            await cluster.topic_metadata("late", soon(0.1))
        assert scripted.asked.count(["late"]) > 1


@pytest.mark.slow
async def test_a_timeout_without_a_response_gives_the_reason():
    async def hang_up(_: Any, __: Any) -> Response | None:
        raise Hangup

    async with scripted_cluster(1) as scripted, client_of(scripted) as cluster:
        await cluster.start(soon())
        scripted.nodes[1].answers[ApiKey.METADATA] = hang_up
        with pytest.raises(
            RequestTimedOut, match=r"no broker returned metadata of topic 't'.*closed"
        ):
            await cluster.topic_metadata("t", soon(0.5))


async def test_a_new_topic_is_refreshed_alone_and_others_stay_known():
    async with scripted_cluster(1) as scripted, client_of(scripted) as cluster:
        await cluster.start(soon())
        names = [f"t{number}" for number in range(5)]
        for name in names:
            scripted.topics[name] = topic_of(name, 1)
            cluster.add_topics([name])
            await cluster.topic_metadata(name, soon())
        assert scripted.asked[1:] == [[name] for name in names]
        assert sorted(cluster.metadata.topics) == names
        cluster.request_update()
        assert await cluster.wait_update(cluster.metadata.version, soon())
        assert scripted.asked[-1] == names


async def test_topic_metadata_can_keep_a_topic():
    async with scripted_cluster(1) as scripted, client_of(scripted) as cluster:
        await cluster.start(soon())
        scripted.topics["t"] = topic_of("t", 1)
        await cluster.topic_metadata("t", soon(), keep=True)
        await cluster.topic_metadata("t", soon(), keep=True)
        for asked_for in (["t"], ["t"], []):
            version = cluster.metadata.version
            cluster.request_update()
            assert await cluster.wait_update(version, soon())
            assert scripted.asked[-1] == asked_for
            cluster.remove_topics(["t"])
        assert scripted.asked == [[], ["t"], ["t"], ["t"], []]


async def test_a_new_topic_without_a_leader_is_refreshed_alone_again():
    async with scripted_cluster(1) as scripted, client_of(scripted) as cluster:
        await cluster.start(soon())
        scripted.topics["old"] = topic_of("old", 1)
        cluster.add_topics(["old"])
        await cluster.topic_metadata("old", soon())
        async with anyio.create_task_group() as group:
            group.start_soon(cluster.topic_metadata, "new", soon())
            with anyio.fail_after(20):
                while scripted.asked.count(["new"]) < 3:
                    await anyio.lowlevel.checkpoint()
            scripted.topics["new"] = topic_of("new", 1)
        assert ["old", "new"] not in scripted.asked


async def test_a_final_error_ends_the_wait_for_a_topic():
    class Refusing(Handshake):
        refused = False

        async def new_mechanism(self, _: Address) -> None:
            if self.refused:
                raise AuthenticationFailed("wrong password")

    async def hang_up(_: Any, __: Any) -> Response | None:
        raise Hangup

    handshake = Refusing()
    async with scripted_cluster(1) as scripted, hosted() as (runtime, supervisor):
        config = make_config(bootstrap_servers=scripted.bootstrap, reconnect_backoff_ms=1)
        cluster = Cluster(config, runtime, supervisor, handshake=handshake)
        await cluster.start(soon())
        handshake.refused = True
        scripted.nodes[1].answers[ApiKey.METADATA] = hang_up
        with pytest.raises(AuthenticationFailed, match="wrong password"):
            await cluster.topic_metadata("t", soon(60))
        await cluster.aclose()


async def test_a_lost_connection_triggers_a_refresh():
    async with scripted_cluster(2) as scripted, client_of(scripted) as cluster:
        await cluster.start(soon())
        idle = cluster.broker_client(2)
        await idle.get_api_versions(soon())
        version = cluster.metadata.version

        async def hang_up(_: Any, __: Any) -> Response | None:
            raise Hangup

        scripted.nodes[2].answers[ApiKey.HEARTBEAT] = hang_up
        with pytest.raises(ConnectionLost):
            await idle.request(HEARTBEAT, deadline=soon())
        assert await cluster.wait_update(version, soon())


async def test_the_connections_are_counted():
    async with scripted_cluster(1) as scripted, client_of(scripted) as cluster:
        await cluster.start(soon())

        async def late(request: Any, version: Any) -> Response | None:
            await anyio.sleep(0.02)
            return await heartbeat(request, version)

        scripted.nodes[1].answers[ApiKey.HEARTBEAT] = late
        before = cluster.metrics()
        await cluster.request(HEARTBEAT, to=ToNode(1), deadline=soon())
        with pytest.raises(ConnectionLost):
            await cluster.request(CREATE, to=ToNode(1), deadline=soon(), retry=False)
        after = cluster.metrics()
        assert list(before) == list(after)
        assert after["connections_lost_total"] == 1
        assert after["connections_made_total"] >= before["connections_made_total"] + 1
        assert after["requests_total"] > after["responses_total"] > before["responses_total"]
        assert after["bytes_sent_total"] > before["bytes_sent_total"] > 0
        assert after["bytes_received_total"] > before["bytes_received_total"] > 0
        assert 0 < after["request_latency_ms_avg"] <= after["request_latency_ms_max"]
        assert after["request_latency_ms_max"] > 10
    assert cluster.metrics()["connections_open"] == 0


async def test_topics_are_refreshed_while_in_use_and_listeners_are_called():
    updates = []
    async with scripted_cluster(1) as scripted:
        scripted.topics["t"] = topic_of("t", 1)
        async with cluster_client(
            bootstrap_servers=scripted.bootstrap, metadata_max_age_ms=1
        ) as cluster:
            await cluster.start(soon())
            cluster.add_metadata_listener(updates.append)
            cluster.add_topics(["t"])
            with anyio.fail_after(20):
                while len(updates) < 3:
                    await anyio.lowlevel.checkpoint()
            assert "t" in updates[-1].snapshot.topics
            cluster.remove_topics(["t"])
            while scripted.asked[-1] != []:
                assert await cluster.wait_update(cluster.metadata.version, soon())


async def test_patterns_request_all_topics():
    async with scripted_cluster(1) as scripted:
        scripted.topics = {name: topic_of(name, 1) for name in ("a", "b")}
        async with cluster_client(bootstrap_servers=scripted.bootstrap) as cluster:
            await cluster.start(soon())
            version = cluster.metadata.version
            cluster.all_topics = True
            assert await cluster.wait_update(version, soon())
            assert sorted(cluster.metadata.topics) == ["a", "b"]
            assert cluster.all_topics


async def test_a_recreated_topic_is_reported():
    renewed: list[str] = []
    async with scripted_cluster(1) as scripted:
        scripted.topics["t"] = topic_of("t", 1, topic_id=uuid.UUID(int=1))
        async with cluster_client(bootstrap_servers=scripted.bootstrap) as cluster:
            await cluster.start(soon())
            cluster.add_topics(["t"])
            await cluster.topic_metadata("t", soon())
            cluster.add_metadata_listener(lambda update: renewed.extend(update.recreated_topics))
            scripted.topics["t"] = topic_of("t", 1, topic_id=uuid.UUID(int=2))
            cluster.request_update()
            assert await cluster.wait_update(cluster.metadata.version, soon())
            assert renewed == ["t"]


async def test_update_leader_applies_newer_epochs():
    async with scripted_cluster(2) as scripted:
        scripted.topics["t"] = topic_of("t", 1)
        async with cluster_client(bootstrap_servers=scripted.bootstrap) as cluster:
            await cluster.start(soon())
            tp = TopicPartition("t", 0)
            await cluster.topic_metadata("t", soon())
            cluster.update_leader(tp, 2, 0)
            assert cluster.metadata.leader(tp) == (1, 0)
            cluster.update_leader(tp, 7, 5, ("127.0.0.1", 9))
            assert cluster.metadata.leader(tp) == (7, 5)
            assert cluster.broker_client(7).address == Address("127.0.0.1", 9)


async def test_closing_ends_waits_for_metadata():
    async with scripted_cluster(1) as scripted, client_of(scripted) as cluster:
        await cluster.start(soon())

        async def wait() -> None:
            with pytest.raises(ClientClosed):
                await cluster.wait_update(10**9, soon(60))

        async with anyio.create_task_group() as group:
            group.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            await cluster._supervisor.stop()


# --- routing and retry ----------------------------------------------------------------------


async def heartbeat(_: Any, __: Any) -> Response | None:
    return HeartbeatResponse(error_code=0)


async def test_a_request_goes_to_the_node_of_its_route():
    async with scripted_cluster(3) as scripted, client_of(scripted) as cluster:
        await cluster.start(soon())
        scripted.nodes[2].answers[ApiKey.HEARTBEAT] = heartbeat
        assert (await cluster.request(HEARTBEAT, to=ToNode(2), deadline=soon())).error_code == 0
        assert cluster.broker_client(2) is cluster.broker_client(2)


async def test_an_unknown_node_raises_with_its_id():
    async with scripted_cluster(1) as scripted, client_of(scripted) as cluster:
        await cluster.start(soon())
        with pytest.raises(ConnectionFailed, match="no broker 9"):
            await cluster.request(HEARTBEAT, to=ToNode(9), deadline=soon(), retry=False)


@pytest.mark.slow
async def test_connection_failures_are_retried_until_the_deadline():
    calls = []

    async def fails_twice(_: Any, __: Any) -> Response | None:
        calls.append(1)
        if len(calls) < 3:
            raise Hangup
        return HeartbeatResponse(error_code=0)

    async with scripted_cluster(1) as scripted, client_of(scripted) as cluster:
        await cluster.start(soon())
        scripted.nodes[1].answers[ApiKey.HEARTBEAT] = fails_twice
        with pytest.raises(ConnectionLost) as caught:
            await cluster.request(HEARTBEAT, to=ToAnyNode(), deadline=soon(), retry=False)
        assert caught.value.attempt == 1
        assert (await cluster.request(HEARTBEAT, to=ToAnyNode(), deadline=soon())).error_code == 0
        assert len(calls) == 3
        scripted.nodes[1].answers.pop(ApiKey.HEARTBEAT)
        # Whichever comes last, the end of a connection or the deadline: it says why.
        with pytest.raises((ConnectionLost, RequestTimedOut), match="closed") as caught:
            await cluster.request(HEARTBEAT, to=ToAnyNode(), deadline=soon(0.3))
        assert (caught.value.attempt or 0) > 1


async def test_a_final_error_is_raised_at_once():
    async def old(_: Any, __: Any) -> Response | None:
        return speaks({ApiKey.METADATA: (0, 13)})

    async with scripted_cluster(1) as scripted:
        scripted.nodes[1].answers[ApiKey.API_VERSIONS] = old
        async with cluster_client(bootstrap_servers=scripted.bootstrap) as cluster:
            await cluster.start(soon())
            with pytest.raises(UnsupportedVersion, match="does not support Heartbeat"):
                await cluster.request(HEARTBEAT, to=ToAnyNode(), deadline=soon(60))


async def test_another_node_is_tried_if_one_lacks_the_version():
    async def old(_: Any, __: Any) -> Response | None:
        return speaks({ApiKey.METADATA: (0, 13)})

    async with scripted_cluster(3) as scripted, client_of(scripted) as cluster:
        await cluster.start(soon())
        for number in (1, 3):
            scripted.nodes[number].answers[ApiKey.API_VERSIONS] = old
        scripted.nodes[2].answers[ApiKey.HEARTBEAT] = heartbeat
        for _ in range(5):
            _, broker = await cluster.request_with_broker(
                HEARTBEAT, to=ToAnyNode(), deadline=soon()
            )
            assert broker == cluster.broker_client(2).name
        with pytest.raises(UnsupportedVersion, match="does not support Heartbeat"):
            await cluster.request(HEARTBEAT, to=ToNode(1), deadline=soon(60))


async def test_a_request_follows_a_moved_controller():
    async def create(_: Any, __: Any) -> Response | None:
        return CreateTopicsResponse(topics=[])

    async def refuse(_: Any, __: Any) -> Response | None:
        scripted.controller_id = 2
        code = ErrorCode.NOT_CONTROLLER
        return CreateTopicsResponse(topics=[CreatableTopicResult(name="t", error_code=code)])

    async with scripted_cluster(2) as scripted, client_of(scripted) as cluster:
        await cluster.start(soon())
        scripted.nodes[1].answers[ApiKey.CREATE_TOPICS] = refuse
        scripted.nodes[2].answers[ApiKey.CREATE_TOPICS] = create
        first = await cluster.request(CREATE, to=ToController(), deadline=soon(), retry=False)
        assert first.topics[0].error_code == ErrorCode.NOT_CONTROLLER
        scripted.controller_id = 1
        assert (await cluster.request(CREATE, to=ToController(), deadline=soon())).topics == []


async def test_without_a_controller_the_timeout_says_so():
    async with scripted_cluster(1) as scripted:
        scripted.controller_id = -1
        async with cluster_client(bootstrap_servers=scripted.bootstrap) as cluster:
            await cluster.start(soon())
            with pytest.raises(RequestTimedOut, match="no controller"):
                await cluster.request(CREATE, to=ToController(), deadline=soon(0.1))


async def test_a_coordinator_is_cached_and_looked_up_again_after_it_moved():
    async def moved(_: Any, __: Any) -> Response | None:
        return HeartbeatResponse(error_code=ErrorCode.NOT_COORDINATOR)

    async with scripted_cluster(3) as scripted, client_of(scripted) as cluster:
        await cluster.start(soon())
        asked = coordinated_by(scripted, 1, 2)
        scripted.nodes[1].answers[ApiKey.HEARTBEAT] = heartbeat
        scripted.nodes[2].answers[ApiKey.HEARTBEAT] = heartbeat
        for _ in range(3):
            await cluster.request(HEARTBEAT, to=ToCoordinator("g"), deadline=soon())
        assert asked == ["g"]
        assert await cluster.find_coordinator("g", deadline=soon()) == 1
        scripted.nodes[1].answers[ApiKey.HEARTBEAT] = moved
        response = await cluster.request(HEARTBEAT, to=ToCoordinator("g"), deadline=soon())
        assert response.error_code == 0
        assert asked == ["g", "g"]
        cluster.mark_coordinator_unknown("g")
        assert await cluster.find_coordinator("g", deadline=soon()) == 2
        assert asked == ["g", "g", "g"]


async def test_coordinator_versions_need_a_known_and_connected_coordinator():
    async with scripted_cluster(2) as scripted, client_of(scripted) as cluster:
        assert cluster.finalized_feature_level("transaction.version") is None
        await cluster.start(soon())
        coordinated_by(scripted, 1)
        scripted.nodes[1].answers[ApiKey.HEARTBEAT] = heartbeat
        assert cluster.coordinator_versions(ToCoordinator("g")) is None
        await cluster.request(HEARTBEAT, to=ToCoordinator("g"), deadline=soon())
        versions = cluster.coordinator_versions(ToCoordinator("g"))
        assert versions is not None
        assert versions.latest_usable_version(ApiKey.HEARTBEAT) >= 0
        assert cluster.finalized_feature_level("transaction.version") == 0
        cluster.mark_coordinator_unknown("g")
        assert cluster.coordinator_versions(ToCoordinator("g")) is None


async def test_a_loading_coordinator_stays_cached():
    async def loading(_: Any, __: Any) -> Response | None:
        scripted.nodes[1].answers[ApiKey.HEARTBEAT] = heartbeat
        return HeartbeatResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    async with scripted_cluster(2) as scripted, client_of(scripted) as cluster:
        await cluster.start(soon())
        asked = coordinated_by(scripted, 1)
        scripted.nodes[1].answers[ApiKey.HEARTBEAT] = loading
        response = await cluster.request(HEARTBEAT, to=ToCoordinator("g"), deadline=soon())
        assert (response.error_code, asked) == (0, ["g"])


@pytest.mark.slow
async def test_find_coordinator_retries_coordinator_not_available():
    async with scripted_cluster(2) as scripted, client_of(scripted) as cluster:
        await cluster.start(soon())
        asked = coordinated_by(scripted, 0, 0, 2)
        assert await cluster.find_coordinator("g", deadline=soon()) == 2
        assert len(asked) == 3
        coordinated_by(scripted, 0)
        with pytest.raises(KafkaError, match="COORDINATOR_NOT_AVAILABLE"):
            await cluster.find_coordinator("h", CoordinatorType.TRANSACTION, deadline=soon(0.3))


@pytest.mark.parametrize("address", [Address("", 9092), Address("h", 0), Address("h", 70_000)])
@pytest.mark.slow
async def test_a_coordinator_with_an_invalid_address_is_rejected(address: Address):
    async def find(_: Any, request: Any) -> Response | None:
        entry = CoordinatorEntry(
            key="g", node_id=8, host=address.host, port=address.port, error_code=0
        )
        return FindCoordinatorResponse(coordinators=[entry])

    async with scripted_cluster(1) as scripted:
        scripted.nodes[1].answers[ApiKey.FIND_COORDINATOR] = find
        async with cluster_client(bootstrap_servers=scripted.bootstrap) as cluster:
            await cluster.start(soon())
            with pytest.raises(KafkaError, match="its address is invalid: broker 8"):
                await cluster.find_coordinator("g", deadline=soon(0.3))
            assert 8 not in cluster.metadata.nodes


async def test_group_authorization_failed_raises_at_once():
    async def find(_: Any, request: Any) -> Response | None:
        entry = CoordinatorEntry(
            key="g", node_id=-1, host="", port=-1, error_code=30, error_message="no"
        )
        return FindCoordinatorResponse(coordinators=[entry])

    async with scripted_cluster(1) as scripted:
        scripted.nodes[1].answers[ApiKey.FIND_COORDINATOR] = find
        async with cluster_client(bootstrap_servers=scripted.bootstrap) as cluster:
            await cluster.start(soon())
            refused = r"GROUP_AUTHORIZATION_FAILED.*\(no\)"
            with pytest.raises(BrokerError, match=refused) as caught:
                await cluster.request(HEARTBEAT, to=ToCoordinator("g"), deadline=soon(60))
            assert caught.value.broker == cluster.broker_client(1).name


@pytest.mark.slow
async def test_request_all_nodes_returns_responses_and_errors():
    async def listed(_: Any, __: Any) -> Response | None:
        group = ListedGroup(group_id="g", protocol_type="consumer")
        return ListGroupsResponse(error_code=0, groups=[group])

    async with scripted_cluster(3) as scripted, client_of(scripted) as cluster:
        await cluster.start(soon())
        for number in (1, 3):
            scripted.nodes[number].answers[ApiKey.LIST_GROUPS] = listed
        answers = await request_all_nodes(cluster, LIST, deadline=soon(0.3))
        assert list(answers) == [1, 2, 3]
        assert isinstance(answers[2], KafkaError)
        assert "closed the connection" in answers[2].reason
        for number in (1, 3):
            answer = answers[number]
            assert isinstance(answer, ListGroupsResponse)
            assert answer.groups[0].group_id == "g"


async def test_request_all_nodes_retries_a_loading_coordinator():
    async def loading(_: Any, __: Any) -> Response | None:
        asked.append(1)
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE if len(asked) < 3 else ErrorCode.NONE
        return ListGroupsResponse(error_code=code, groups=[])

    asked: list[int] = []
    async with scripted_cluster(1) as scripted, client_of(scripted) as cluster:
        await cluster.start(soon())
        scripted.nodes[1].answers[ApiKey.LIST_GROUPS] = loading
        answer = (await request_all_nodes(cluster, LIST, deadline=soon()))[1]
        assert isinstance(answer, ListGroupsResponse)
        assert (answer.error_code, len(asked)) == (0, 3)
        asked.clear()
        failure = (await request_all_nodes(cluster, LIST, deadline=anyio.current_time()))[1]
        assert isinstance(failure, KafkaError)


async def test_each_attempt_has_the_request_timeout():
    async def silent(_: Any, __: Any) -> Response | None:
        if len(seen) < 1:
            seen.append(1)
            await anyio.sleep_forever()
        return HeartbeatResponse(error_code=0)

    seen: list[int] = []
    async with scripted_cluster(1) as scripted:
        scripted.nodes[1].answers[ApiKey.HEARTBEAT] = silent
        async with cluster_client(
            bootstrap_servers=scripted.bootstrap, request_timeout_ms=100
        ) as cluster:
            await cluster.start(soon())
            response = await cluster.request(HEARTBEAT, to=ToAnyNode(), deadline=soon())
            assert response.error_code == 0


# --- nodes that come and go -----------------------------------------------------------------


async def test_requests_follow_a_node_to_its_new_address():
    async with scripted_cluster(1) as scripted, client_of(scripted) as cluster:
        await cluster.start(soon())
        before = cluster.broker_client(1)
        moved = ScriptedBroker({ApiKey.HEARTBEAT: heartbeat})
        async with serve(moved) as server:
            scripted.servers[1] = server
            cluster.request_update()
            assert await cluster.wait_update(cluster.metadata.version, soon())
            assert cluster.broker_client(1) is not before
            await cluster.request(HEARTBEAT, to=ToNode(1), deadline=soon())


async def test_rebootstrap_after_all_nodes_are_lost():
    async with contextlib.AsyncExitStack() as stack:
        front = ScriptedCluster(1)
        front_server = await stack.enter_async_context(serve(front.nodes[1]))
        # The bootstrap address stays; the node behind it is lost and comes back elsewhere.
        async with serve(ScriptedBroker()) as gone:
            front.servers[1] = gone
            cluster = await stack.enter_async_context(
                cluster_client(
                    bootstrap_servers=str(front_server.address),
                    metadata_recovery_rebootstrap_trigger_ms=20,
                )
            )
            await cluster.start(soon())
        back = await stack.enter_async_context(serve(ScriptedBroker({ApiKey.HEARTBEAT: heartbeat})))
        front.servers[1] = back
        response = await cluster.request(HEARTBEAT, to=ToNode(1), deadline=soon())
        assert response.error_code == 0
        assert cluster.metadata.nodes[1].address == back.address
