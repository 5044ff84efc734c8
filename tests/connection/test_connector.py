"""From a name to a ready connection: addresses, time, and versions known before."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from aiokafkawire.connection import BrokerClient, Handshake, NodeApiVersions
from aiokafkawire.connection.channel import Channel
from aiokafkawire.connection.connector import Connector
from aiokafkawire.errors import ClientClosed, ConnectionFailed
from aiokafkawire.runtime import Address, RealRuntime, Supervisor, Transport
from aiokafkawire.security import ClientMechanism, PlainClient, Secret
from aiokafkawire.wire import APIS, ApiKey, ErrorCode
from aiokafkawire.wire.header import RequestHeader
from aiokafkawire.wire.messages.api_versions import ApiVersion, ApiVersionsResponse

from .scripted import ScriptedBroker, ServerConnection, closed_address, hosted, make_config, serve
from .test_broker_client import HEARTBEAT, QUICK, kafka, soon


class Names(RealRuntime):
    """A runtime whose name service says what a test says."""

    def __init__(self, answer: list[Address] | OSError) -> None:
        super().__init__()
        self.answer = answer

    async def resolve(self, host: str, port: int) -> list[Address]:
        await anyio.lowlevel.checkpoint()
        if isinstance(self.answer, OSError):
            raise self.answer
        return self.answer


@contextlib.asynccontextmanager
async def named(answer: list[Address] | OSError) -> AsyncIterator[BrokerClient]:
    supervisor = Supervisor("test")
    await supervisor.start()
    try:
        yield BrokerClient(
            Address("broker.test", 9092), make_config(**QUICK), Names(answer), supervisor
        )
    finally:
        await supervisor.stop()


async def test_an_unknown_host_name_advises_to_check_its_origin():
    async with named(OSError("no such name")) as client:
        with pytest.raises(
            ConnectionFailed, match=r"'broker\.test'.*no such name.*advertised\.listeners"
        ):
            await client.request(HEARTBEAT, deadline=soon())


async def test_every_address_of_a_name_is_tried():
    async with serve(kafka()) as server, named([closed_address(), server.address]) as client:
        assert (await client.request(HEARTBEAT, deadline=soon())).error_code == 0


async def test_the_error_has_the_failure_of_each_address():
    first, second = closed_address(), closed_address()
    async with named([first, second]) as client:
        with pytest.raises(ConnectionFailed) as caught:
            await client.request(HEARTBEAT, deadline=soon())
        refused = "connection refused; nothing listens there: check host and port"
        assert caught.value.reason == "; ".join(
            f"broker.test:9092 ({each.host}): {refused}" for each in (first, second)
        )


class BlackHole(Names):
    """A runtime whose connections to one address never come about."""

    def __init__(self, hole: Address, good: Address) -> None:
        super().__init__([hole, good])
        self.hole = hole

    async def connect(self, address: Address) -> Transport:
        if address == self.hole:
            await anyio.sleep_forever()
        return await super().connect(address)


def connector(runtime: RealRuntime, supervisor: Supervisor, address: Address) -> Connector:
    return Connector(
        address, "1 at test", make_config(**QUICK), runtime=runtime, supervisor=supervisor
    )


@pytest.mark.slow
async def test_an_address_that_does_not_respond_leaves_time_for_the_others():
    async with serve(kafka()) as server, hosted() as (_, supervisor):
        runtime = BlackHole(Address("192.0.2.1", 9092), server.address)
        channel = await connector(runtime, supervisor, Address("name", 1)).connect(None, 0.8, 1)
        assert ApiKey.HEARTBEAT in channel.api_versions.ranges


async def test_the_setup_timeout_is_reported():
    hole = Address("192.0.2.1", 9092)
    async with hosted() as (_, supervisor):
        with pytest.raises(
            ConnectionFailed, match=r"192\.0\.2\.1:9092: no response|within 0\.05 s"
        ) as caught:
            await connector(BlackHole(hole, hole), supervisor, hole).connect(None, 0.05, 3)
        assert caught.value.broker == "1 at test"
        assert caught.value.attempt == 3


async def test_known_versions_are_not_negotiated_again():
    broker = ScriptedBroker()
    async with serve(broker) as server, hosted() as (runtime, supervisor):
        known = NodeApiVersions.for_release("0.9")
        channel = await connector(runtime, supervisor, server.address).connect(known, 1, 1)
        assert channel.api_versions is known
    assert broker.seen == []


async def test_later_connections_ask_in_the_version_that_the_broker_has():
    async def api_versions(header: RequestHeader, _: Any) -> ApiVersionsResponse:
        has_it = header.api_version <= 3
        return ApiVersionsResponse(
            error_code=0 if has_it else ErrorCode.UNSUPPORTED_VERSION,
            api_keys=[ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=0, max_version=3)],
        )

    broker = ScriptedBroker({ApiKey.API_VERSIONS: api_versions})
    async with serve(broker) as server, hosted() as (runtime, supervisor):
        opens = connector(runtime, supervisor, server.address)
        for _ in range(2):
            await opens.connect(None, 1, 1)
    highest = APIS[ApiKey.API_VERSIONS].max_stable_version
    assert [header.api_version for header in broker.seen] == [highest, 3, 3]


async def test_connections_made_for_probing_are_closed():
    async def hangs_up(connection: ServerConnection) -> None:
        await connection.receive()

    async with serve(hangs_up) as server, hosted() as (runtime, supervisor):
        with pytest.raises(ConnectionFailed):
            await connector(runtime, supervisor, server.address).connect(None, 1, 1)
        with anyio.fail_after(20):
            while server.open:
                await anyio.lowlevel.checkpoint()


async def test_a_cancelled_negotiation_leaves_no_connection():
    async def silent(connection: ServerConnection) -> None:
        while await connection.receive() is not None:
            scope.cancel()

    async with serve(silent) as server, hosted() as (runtime, supervisor):
        with anyio.CancelScope() as scope:
            await connector(runtime, supervisor, server.address).connect(None, 60, 1)
        assert scope.cancelled_caught
        with anyio.fail_after(20):
            while server.open:
                await anyio.lowlevel.checkpoint()
        assert server.accepted == 1


async def test_a_client_that_stops_while_connecting_leaves_no_connection():
    class Stopping(RealRuntime):
        async def connect(self, address: Address) -> Transport:
            transport = await super().connect(address)
            supervisor.abort()
            return transport

    async with serve(kafka()) as server, hosted() as (_, supervisor):
        client = BrokerClient(server.address, make_config(**QUICK), Stopping(), supervisor)
        with pytest.raises(ClientClosed):
            await client.request(HEARTBEAT, deadline=soon())
        await supervisor.stop()
        with anyio.fail_after(20):
            while not server.accepted or server.open:
                await anyio.lowlevel.checkpoint()


class StoppingHandshake(Handshake):
    """The client stops just as the broker has accepted it, for a session that ends."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor

    async def new_mechanism(self, _: Address) -> ClientMechanism:
        return PlainClient("alice", Secret("secret"))

    async def authenticate(
        self, channel: Channel, mechanism: ClientMechanism, *, renew: bool = False
    ) -> float:
        self._supervisor.abort()
        return anyio.current_time() + 60


async def test_a_client_that_stops_while_it_authenticates_is_closed():
    supervisor = Supervisor("test")
    await supervisor.start()
    async with serve(kafka()) as server:
        made = Connector(
            server.address,
            "1 at test",
            make_config(**QUICK),
            runtime=RealRuntime(),
            supervisor=supervisor,
            handshake=StoppingHandshake(supervisor),
        )
        with pytest.raises(ClientClosed):
            await made.connect(None, 10, 1)
        await supervisor.stop()
