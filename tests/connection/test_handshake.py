"""The seam for encryption and authentication."""

from __future__ import annotations

import anyio
import pytest

from aiokafkawire.connection import PLAINTEXT, BrokerClient
from aiokafkawire.connection.handshake import Exchange
from aiokafkawire.errors import AuthenticationFailed, ConnectionFailed
from aiokafkawire.runtime import Address, Transport
from aiokafkawire.wire import ApiKey
from aiokafkawire.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

from .scripted import ScriptedBroker, hosted, make_config, serve


class Recorded:
    """Notes what it is asked to do, and does what a test says."""

    def __init__(self, wrap: Exception | None = None, authenticate: Exception | None = None):
        self.steps: list[str] = []
        self._wrap = wrap
        self._authenticate = authenticate

    async def wrap(self, transport: Transport, address: Address) -> Transport:
        self.steps.append(f"wrap {address.host}")
        if self._wrap is not None:
            raise self._wrap
        return transport

    async def authenticate(self, exchange: Exchange) -> None:
        if self._authenticate is not None:
            raise self._authenticate
        response = await exchange(ApiVersionsRequest(), 0)
        assert isinstance(response, ApiVersionsResponse)
        self.steps.append("authenticate")


async def connect(address: Address, handshake: Recorded) -> None:
    async with hosted() as (runtime, supervisor):
        client = BrokerClient(address, make_config(), runtime, supervisor, handshake=handshake)
        await client.get_api_versions(anyio.current_time() + 20)


async def test_both_steps_come_before_the_versions():
    broker, handshake = ScriptedBroker(), Recorded()
    async with serve(broker) as server:
        await connect(server.address, handshake)
    assert handshake.steps == ["wrap 127.0.0.1", "authenticate"]
    assert [(header.api_key, header.api_version) for header in broker.seen] == [
        (ApiKey.API_VERSIONS, 0),
        (ApiKey.API_VERSIONS, 4),
    ]


async def test_a_failed_tls_handshake_is_a_failed_connection():
    async with serve(ScriptedBroker()) as server:
        with pytest.raises(ConnectionFailed, match="TLS handshake failed: bad certificate"):
            await connect(server.address, Recorded(wrap=OSError("bad certificate")))


async def test_refused_credentials_are_final():
    async with serve(ScriptedBroker()) as server:
        with pytest.raises(AuthenticationFailed, match="wrong password") as caught:
            await connect(
                server.address, Recorded(authenticate=AuthenticationFailed("wrong password"))
            )
        assert not caught.value.retriable
        assert caught.value.broker == str(server.address)


async def test_an_interrupted_authentication_is_retriable():
    async with serve(ScriptedBroker()) as server:
        with pytest.raises(ConnectionFailed, match="authentication was interrupted") as caught:
            await connect(server.address, Recorded(authenticate=OSError("reset")))
        assert caught.value.retriable


async def test_plaintext_does_nothing():
    transport = object()
    assert await PLAINTEXT.wrap(transport, Address("h", 1)) is transport  # type: ignore[arg-type, comparison-overlap]
    assert await PLAINTEXT.authenticate(None) is None  # type: ignore[arg-type, func-returns-value]
