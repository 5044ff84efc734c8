"""The broker for its users: lifecycle, nodes, leaders."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from aiokafkawire.broker import Broker
from aiokafkawire.errors import BrokerError, InvalidOption, KafkaError
from aiokafkawire.runtime import RealRuntime
from aiokafkawire.wire import ApiKey, ErrorCode
from aiokafkawire.wire.messages.api_versions import ApiVersionsRequest

from .raw_client import batch, build_update_metadata_request, connected, only, produce_request

VERSIONS = ApiVersionsRequest()


async def test_every_node_listens_and_names_all_nodes() -> None:
    async with Broker(nodes=3) as broker:
        assert list(broker.nodes) == [1, 2, 3]
        assert broker.bootstrap_servers.count(",") == 2
        for node in broker.nodes:
            async with connected(broker, node) as client:
                response = await client.call(build_update_metadata_request(), 12)
            assert [(n.node_id, n.port) for n in response.brokers] == [
                (node_id, address.port) for node_id, address in broker.nodes.items()
            ]


async def test_leaders_are_spread() -> None:
    async with Broker(nodes=3) as broker:
        await broker.create_topic("t", partitions=6)
        leaders = [broker.leader("t", p) for p in range(6)]
        assert sorted(leaders) == [1, 1, 2, 2, 3, 3]


async def test_a_killed_node_is_gone_and_its_leaders_move_with_a_new_epoch() -> None:
    async with Broker(nodes=3) as broker:
        await broker.create_topic("t", partitions=3)
        led = next(p for p in range(3) if broker.leader("t", p) == 2)
        async with connected(broker, 2) as client:
            await broker.kill(2)
            assert await client.closed()
        with pytest.raises(OSError):
            await RealRuntime().connect(broker.nodes[2])
        assert broker.live_nodes == (1, 3)
        assert broker.leader("t", led) in {1, 3}
        async with connected(broker, 1) as client:
            response = await client.call(build_update_metadata_request("t"), 12)
        assert [n.node_id for n in response.brokers] == [1, 3]
        found = {p.partition_index: p for p in response.topics[0].partitions}
        assert found[led].leader_epoch == 1
        assert found[led].offline_replicas == [2]
        assert 2 not in found[led].isr_nodes


async def test_a_restarted_node_takes_its_port_and_the_log_is_whole() -> None:
    async with Broker(nodes=2) as broker:
        await broker.create_topic("t", partitions=1)
        first = broker.leader("t", 0)
        async with connected(broker, first) as client:
            response = await client.call(produce_request("t", 0, batch(b"a")), 9)
            assert only(response).error_code == ErrorCode.NONE
        port = broker.nodes[first].port
        await broker.kill(first)
        await broker.restart(first)
        assert broker.nodes[first].port == port
        assert broker.leader("t", 0) != first
        broker.move_leader("t", 0, first)
        async with connected(broker, first) as client:
            response = await client.call(produce_request("t", 0, batch(b"b")), 9)
        assert (only(response).error_code, only(response).base_offset) == (ErrorCode.NONE, 1)


async def test_without_a_living_replica_there_is_no_leader_until_it_is_back() -> None:
    async with Broker(nodes=2) as broker:
        await broker.create_topic("t", partitions=1, replication_factor=1)
        (home,) = {broker.leader("t", 0)}
        other = 3 - home
        await broker.kill(home)
        async with connected(broker, other) as client:
            response = await client.call(build_update_metadata_request("t"), 12)
        assert response.topics[0].partitions[0].leader_id == -1
        assert response.topics[0].partitions[0].error_code == ErrorCode.LEADER_NOT_AVAILABLE
        await broker.restart(home)
        assert broker.leader("t", 0) == home


async def test_a_paused_node_answers_when_it_is_resumed() -> None:
    async with Broker() as broker, connected(broker) as client:
        broker.pause(1)
        await client.send(VERSIONS, 0)
        with anyio.move_on_after(0.05) as scope:
            await client.frame()
        assert scope.cancelled_caught
        broker.resume(1)
        _, response = await client.receive(ApiKey.API_VERSIONS, 0)
        assert response.error_code == ErrorCode.NONE


async def test_two_brokers_can_be_closed_in_any_order() -> None:
    first, second = Broker(), Broker(nodes=2)
    await first.__aenter__()
    await second.__aenter__()
    async with connected(first) as one, connected(second) as two:
        await first.aclose()
        assert await one.closed()
        await two.call(VERSIONS, 0)
        await second.aclose()
        assert await two.closed()
        await second.aclose()


async def test_a_port_in_use_is_reported() -> None:
    async with Broker() as broker:
        port = broker.nodes[1].port
        taken = f"node 1 cannot listen on port {port} of 127.0.0.1: the port is in use"
        with pytest.raises(KafkaError, match=taken):
            async with Broker(ports=[port]):
                pass


async def test_a_foreign_address_is_reported() -> None:
    with pytest.raises(KafkaError, match=r"cannot listen on port 0 of 192\.0\.2\.1: .*assign"):
        async with Broker(host="192.0.2.1"):
            pass


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"nodes": 0}, "nodes must be at least 1"),
        ({"nodes": 2, "ports": [1]}, "2 nodes need 2 ports"),
        ({"default_partition": 3}, "unknown broker option 'default_partition'"),
        ({"default_partitions": 0}, "default_partitions must be"),
    ],
)
def test_wrong_options_are_named(options: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        Broker(**options)  # type: ignore[arg-type]


async def test_topics_can_be_made_and_deleted_by_hand() -> None:
    async with Broker() as broker:
        await broker.create_topic("t", partitions=4)
        assert broker.topics == {"t": 4}
        with pytest.raises(BrokerError) as caught:
            await broker.create_topic("t")
        assert caught.value.code == ErrorCode.TOPIC_ALREADY_EXISTS
        await broker.delete_topic("t")
        assert broker.topics == {}


async def test_a_directory_survives_a_restart(tmp_path: Path) -> None:
    async with Broker(nodes=2, data_dir=tmp_path) as broker:
        await broker.create_topic("t", partitions=2)
        cluster_id = broker.cluster_id
        async with connected(broker, broker.leader("t", 1)) as client:
            await client.call(produce_request("t", 1, batch(b"a", b"b")), 9)
    async with Broker(nodes=2, data_dir=tmp_path) as broker:
        assert broker.cluster_id == cluster_id
        assert broker.topics == {"t": 2}
        assert (broker.end_offset("t", 0), broker.end_offset("t", 1)) == (0, 2)
        async with connected(broker, broker.leader("t", 1)) as client:
            response = await client.call(produce_request("t", 1, batch(b"c")), 9)
        assert only(response).base_offset == 2


async def test_wait_for_request_names_the_missing_request() -> None:
    async with Broker() as broker, connected(broker) as client:
        await client.call(VERSIONS, 0)
        seen = await broker.wait_for_request(ApiKey.API_VERSIONS)
        assert (seen.node_id, seen.client_id, seen.version) == (1, "raw", 0)
        with pytest.raises(TimeoutError, match="0 of 1 FETCH"):
            await broker.wait_for_request(ApiKey.FETCH, timeout_s=0.01)


async def test_stopping_raises_the_error_of_a_failed_task() -> None:
    async def fail() -> None:
        raise RuntimeError("a defect")

    broker = Broker()
    await broker.start()
    await broker._lifecycle.supervisor.spawn(fail, name="groups").wait()
    with pytest.raises(KafkaError, match=r"the broker is broken.*a defect"):
        await broker.stop()
    await broker.stop()
