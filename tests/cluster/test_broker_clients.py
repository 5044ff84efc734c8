"""Creation and retirement of broker clients as nodes are added, move and leave."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import anyio
import pytest

from aiokafkawire.cluster.broker_clients import BrokerClients
from aiokafkawire.cluster.metadata import NodeInfo
from aiokafkawire.cluster.routing import NodeLoad
from aiokafkawire.errors import ClientClosed, ConnectionFailed, ConnectionLost
from aiokafkawire.runtime import Address
from aiokafkawire.wire import ApiKey
from aiokafkawire.wire.messages.api_versions import ApiVersionsResponse, FinalizedFeatureKey
from tests.connection.scripted import ScriptedBroker, hosted, make_config, serve, speaks

ONE = NodeInfo(1, Address("one", 9092))
ONE_MOVED = NodeInfo(1, Address("uno", 9092))
TWO = NodeInfo(2, Address("two", 9092))


def soon() -> float:
    return anyio.current_time() + 20


@contextlib.asynccontextmanager
async def broker_clients() -> AsyncIterator[BrokerClients]:
    async with hosted() as (runtime, supervisor):
        yield BrokerClients(make_config(), runtime, supervisor)


async def test_a_node_has_one_client_until_it_moves():
    async with broker_clients() as brokers:
        client = brokers.for_node(ONE)
        assert brokers.for_node(ONE) is client
        assert client.name == "1 at one:9092"
        moved = brokers.for_node(ONE_MOVED)
        assert moved is not client
        with pytest.raises(ConnectionLost, match="no longer lists this address"):
            await client.get_api_versions(soon())


async def test_the_client_of_a_removed_node_is_retired():
    async with broker_clients() as brokers:
        gone, stays = brokers.for_node(ONE), brokers.for_node(TWO)
        brokers.keep({2: TWO})
        assert brokers.for_node(TWO) is stays
        with pytest.raises(ConnectionLost):
            await gone.get_api_versions(soon())
        brokers.keep({1: ONE, 2: NodeInfo(2, Address("dos", 9092))})
        with pytest.raises(ConnectionLost):
            await stays.get_api_versions(soon())


async def test_clients_of_bootstrap_addresses_are_retired():
    async with broker_clients() as brokers:
        address = Address("boot", 9092)
        client = brokers.for_address(address)
        assert brokers.for_address(address) is client
        assert client.node_id is None
        brokers.retire_bootstrap()
        assert brokers.for_address(address) is not client


async def test_loads_include_disconnected_nodes():
    async with serve(ScriptedBroker()) as server, broker_clients() as brokers:
        node = NodeInfo(1, server.address)
        assert brokers.loads({1: node, 2: TWO}) == [
            NodeLoad(1, False, 0, 0.0),
            NodeLoad(2, False, 0, 0.0),
        ]
        await brokers.for_node(node).get_api_versions(soon())
        connected, other = brokers.loads({1: node, 2: TWO})
        assert connected.connected
        assert not other.connected


async def test_nodes_are_unreachable_once_connecting_to_each_failed():
    async with broker_clients() as brokers, serve(ScriptedBroker()) as server:
        up = NodeInfo(1, server.address)
        assert not brokers.unreachable({1: up})  # nobody has tried
        await brokers.for_node(up).get_api_versions(soon())
        assert not brokers.unreachable({1: up})
        nowhere = NodeInfo(2, Address("127.0.0.1", 1))
        with pytest.raises(ConnectionFailed):
            await brokers.for_node(nowhere).get_api_versions(soon())
        assert brokers.unreachable({2: nowhere})
        assert not brokers.unreachable({1: up, 2: nowhere})


async def test_aclose_ends_all_clients():
    async with serve(ScriptedBroker()) as server, broker_clients() as brokers:
        clients = [
            brokers.for_node(NodeInfo(1, server.address)),
            brokers.for_address(server.address),
        ]
        for client in clients:
            await client.get_api_versions(soon())
        await brokers.aclose()
        for client in clients:
            with pytest.raises(ClientClosed):
                await client.get_api_versions(soon())


def broker_with_feature(level: int, epoch: int) -> ScriptedBroker:
    """Return a broker that reports a level of transaction.version; epoch -1: unknown."""

    async def answer(_: object, __: object) -> ApiVersionsResponse:
        response = speaks()
        response.finalized_features_epoch = epoch
        if epoch >= 0:
            key = FinalizedFeatureKey(
                name="transaction.version", max_version_level=level, min_version_level=level
            )
            response.finalized_features = [key]
        return response

    return ScriptedBroker({ApiKey.API_VERSIONS: answer})


async def test_the_feature_level_with_the_newest_epoch_counts():
    async with contextlib.AsyncExitStack() as stack:
        brokers = await stack.enter_async_context(broker_clients())
        for number, (level, epoch, expected) in enumerate(
            [(0, -1, 0), (1, 5, 1), (2, 7, 2), (0, -1, 2), (1, 6, 2), (0, 9, 0)], start=1
        ):
            server = await stack.enter_async_context(serve(broker_with_feature(level, epoch)))
            client = brokers.for_node(NodeInfo(number, server.address))
            await client.get_api_versions(soon())
            assert brokers.finalized_feature_level("transaction.version") == expected, number
        await brokers.aclose()


async def test_the_features_of_a_bootstrap_address_are_known_once_it_is_retired():
    async with serve(broker_with_feature(2, 7)) as server, broker_clients() as brokers:
        await brokers.for_address(server.address).get_api_versions(soon())
        brokers.retire_bootstrap()
        assert brokers.finalized_feature_level("transaction.version") == 2
        await brokers.aclose()


async def test_a_feature_level_is_kept_after_its_node_left():
    async with (
        serve(broker_with_feature(2, 7)) as one,
        serve(broker_with_feature(0, -1)) as two,
        broker_clients() as brokers,
    ):
        first = NodeInfo(1, one.address)
        second = NodeInfo(2, two.address)
        await brokers.for_node(first).get_api_versions(soon())
        assert brokers.finalized_feature_level("transaction.version") == 2
        brokers.keep({2: second})
        await brokers.for_node(second).get_api_versions(soon())
        assert brokers.finalized_feature_level("transaction.version") == 2
        await brokers.aclose()


async def test_a_feature_has_no_level_before_a_connection():
    async with broker_clients() as brokers:
        assert brokers.finalized_feature_level("transaction.version") is None
        brokers.for_node(ONE)
        brokers.for_node(TWO)
        assert brokers.finalized_feature_level("transaction.version") is None, "nobody is connected"
