from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from aiokafkawire.broker import Broker, Drop
from aiokafkawire.broker.releases import RELEASES
from aiokafkawire.broker.replication import inter_broker_clients as module
from aiokafkawire.broker.replication.inter_broker_clients import InterBrokerClients
from aiokafkawire.connection import ConnectionKind
from aiokafkawire.errors import ConnectionFailed, RequestTimedOut
from aiokafkawire.runtime import Address, RealRuntime, Supervisor
from aiokafkawire.wire import ApiKey
from aiokafkawire.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse

ASK = ListGroupsRequest()


@pytest.fixture
async def supervisor() -> AsyncIterator[Supervisor]:
    made = Supervisor("peers")
    await made.start()
    yield made
    await made.stop()


@pytest.mark.parametrize(("as_of", "negotiates"), [("0.9", False), ("2.8", True)])
async def test_the_configured_release_is_used_only_without_api_versions(
    supervisor: Supervisor, as_of: str, negotiates: bool
) -> None:
    name = {"0.9": "0.9.0"}.get(as_of, as_of)
    async with Broker(as_of=as_of) as broker:
        peers = InterBrokerClients(7, RealRuntime(), supervisor, lambda node_id: RELEASES[name])
        answer = await peers.request(1, broker.nodes[1], ASK, ConnectionKind.GENERAL)
        assert isinstance(answer, ListGroupsResponse)
        [seen] = broker.requests.of(ApiKey.LIST_GROUPS)
        assert seen.client_id == "broker-7"
        assert bool(broker.requests.of(ApiKey.API_VERSIONS)) is negotiates
        peers.abort()


async def test_a_forgotten_node_is_connected_again(supervisor: Supervisor) -> None:
    async with Broker(as_of="2.8") as broker:
        peers = InterBrokerClients(7, RealRuntime(), supervisor, lambda node_id: RELEASES["2.8"])
        for _ in range(2):
            await peers.request(1, broker.nodes[1], ASK, ConnectionKind.GENERAL)
        peers.forget(1)
        await peers.request(1, broker.nodes[1], ASK, ConnectionKind.GENERAL)
        connections = [seen.connection for seen in broker.requests.of(ApiKey.LIST_GROUPS)]
        assert connections[0] == connections[1] != connections[2]
        peers.abort()


async def test_a_changed_address_is_used(supervisor: Supervisor) -> None:
    async with Broker(nodes=2, as_of="2.8") as broker:
        peers = InterBrokerClients(7, RealRuntime(), supervisor, lambda node_id: RELEASES["2.8"])
        for address in broker.nodes.values():
            await peers.request(1, address, ASK, ConnectionKind.GENERAL)
        assert [seen.node_id for seen in broker.requests.of(ApiKey.LIST_GROUPS)] == [1, 2]
        peers.abort()


@pytest.mark.slow
async def test_a_missing_response_does_not_block_later_requests(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RESPONSE_TIMEOUT_S", 0.2)
    async with Broker(as_of="2.8") as broker:
        peers = InterBrokerClients(7, RealRuntime(), supervisor, lambda node_id: RELEASES["2.8"])
        broker.on(ApiKey.LIST_GROUPS, Drop(), times=1)
        with pytest.raises(RequestTimedOut):
            await peers.request(1, broker.nodes[1], ASK, ConnectionKind.GENERAL)
        await peers.request(1, broker.nodes[1], ASK, ConnectionKind.GENERAL)
        peers.abort()


async def test_an_unreachable_node_is_reported(supervisor: Supervisor) -> None:
    peers = InterBrokerClients(7, RealRuntime(), supervisor, lambda node_id: RELEASES["2.8"])
    with pytest.raises(ConnectionFailed):
        await peers.request(1, Address("127.0.0.1", 1), ASK, ConnectionKind.GENERAL)
    peers.abort()
