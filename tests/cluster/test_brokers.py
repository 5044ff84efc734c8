"""Which broker clients there are, as nodes come, move and go."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import anyio
import pytest

from aiokafkawire.cluster.brokers import Brokers
from aiokafkawire.cluster.metadata import NodeInfo
from aiokafkawire.cluster.routing import Load
from aiokafkawire.errors import ClientClosed, ConnectionFailed, ConnectionLost
from aiokafkawire.runtime import Address
from tests.connection.scripted import ScriptedBroker, hosted, make_config, serve

ONE = NodeInfo(1, Address("one", 9092))
ONE_MOVED = NodeInfo(1, Address("uno", 9092))
TWO = NodeInfo(2, Address("two", 9092))


def soon() -> float:
    return anyio.current_time() + 20


@contextlib.asynccontextmanager
async def registry() -> AsyncIterator[Brokers]:
    async with hosted() as (runtime, host):
        yield Brokers(make_config(), runtime, host)


async def test_a_node_has_one_client_until_it_moves():
    async with registry() as brokers:
        client = brokers.of_node(ONE)
        assert brokers.of_node(ONE) is client
        assert client.name == "1 at one:9092"
        moved = brokers.of_node(ONE_MOVED)
        assert moved is not client
        with pytest.raises(ConnectionLost, match="does not list this address"):
            await client.negotiated(soon())


async def test_nodes_that_are_gone_lose_their_client():
    async with registry() as brokers:
        gone, stays = brokers.of_node(ONE), brokers.of_node(TWO)
        brokers.keep({2: TWO})
        assert brokers.of_node(TWO) is stays
        with pytest.raises(ConnectionLost):
            await gone.negotiated(soon())
        brokers.keep({1: ONE, 2: NodeInfo(2, Address("dos", 9092))})
        with pytest.raises(ConnectionLost):
            await stays.negotiated(soon())


async def test_bootstrap_addresses_are_left_behind():
    async with registry() as brokers:
        address = Address("boot", 9092)
        client = brokers.of_address(address)
        assert brokers.of_address(address) is client
        assert client.node_id is None
        brokers.leave_bootstrap()
        assert brokers.of_address(address) is not client


async def test_loads_are_of_all_nodes_whether_connected_or_not():
    async with serve(ScriptedBroker()) as server, registry() as brokers:
        node = NodeInfo(1, server.address)
        assert brokers.loads({1: node, 2: TWO}) == [Load(1, False, 0, 0.0), Load(2, False, 0, 0.0)]
        await brokers.of_node(node).negotiated(soon())
        connected, other = brokers.loads({1: node, 2: TWO})
        assert connected.connected
        assert not other.connected


async def test_nodes_are_unreachable_once_each_was_tried_in_vain():
    async with registry() as brokers, serve(ScriptedBroker()) as server:
        up = NodeInfo(1, server.address)
        assert not brokers.unreachable({1: up})  # nobody has tried
        await brokers.of_node(up).negotiated(soon())
        assert not brokers.unreachable({1: up})
        nowhere = NodeInfo(2, Address("127.0.0.1", 1))
        with pytest.raises(ConnectionFailed):
            await brokers.of_node(nowhere).negotiated(soon())
        assert brokers.unreachable({2: nowhere})
        assert not brokers.unreachable({1: up, 2: nowhere})


async def test_aclose_ends_all_clients():
    async with serve(ScriptedBroker()) as server, registry() as brokers:
        clients = [brokers.of_node(NodeInfo(1, server.address)), brokers.of_address(server.address)]
        for client in clients:
            await client.negotiated(soon())
        await brokers.aclose()
        for client in clients:
            with pytest.raises(ClientClosed):
                await client.negotiated(soon())


async def test_a_feature_has_the_level_that_all_connected_nodes_tell():
    async with registry() as brokers:
        assert brokers.finalized("transaction.version") is None
        brokers.of_node(ONE)
        brokers.of_node(TWO)
        assert brokers.finalized("transaction.version") is None, "nobody is connected"
