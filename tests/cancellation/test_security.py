"""Connecting with TLS and SCRAM, and sending during a re-authentication, cancelled everywhere."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from unittest import mock

import anyio
import pytest

from aiokafkawire.broker import ApiKey, Broker, BrokerSasl, Delay
from aiokafkawire.broker.authentication import authenticator
from aiokafkawire.connection.in_flight_requests import InFlightRequests
from tests.cancellation.cancellation_case import (
    CancellationCase,
    cancel_at_each_suspension,
    parametrize_cases,
)
from tests.cancellation.test_producer import AsyncWith, SendAndWait, Start

pytestmark = pytest.mark.slow

SESSION_MS = 200
HANDSHAKE_S = 0.01


@pytest.fixture(scope="module")
async def secure_broker(anyio_backend: object) -> AsyncIterator[Broker]:
    sasl = BrokerSasl(users={"alice": "alice-password"}, mechanisms=["SCRAM-SHA-512"])
    # Brokers refuse to authenticate again within a second.
    with mock.patch.object(authenticator, "MIN_REAUTHENTICATION_INTERVAL_S", 0.0):
        async with Broker(tls=True, sasl=sasl, connections_max_reauth_ms=SESSION_MS) as broker:
            yield broker


class StartSecurely(Start):
    """Connect with TLS and SCRAM."""


class AsyncWithSecurely(AsyncWith):
    """Connect, send and close."""


class SendDuringReauthentication(SendAndWait):
    """Send while the connection waits for the response to SaslHandshake."""

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        self.held: InFlightRequests | None = None
        self.started = anyio.Event()
        self.during = 0
        hold = InFlightRequests.hold

        def remember(requests: InFlightRequests) -> None:
            hold(requests)
            self.held = requests
            self.started.set()

        rule = self.broker.on(ApiKey.SASL_HANDSHAKE, Delay(HANDSHAKE_S))
        with mock.patch.object(InFlightRequests, "hold", remember):
            async with super().open():
                yield
        rule.remove()

    async def prepare(self) -> None:
        """Wait for the start of the next re-authentication."""
        if self.held is None or not self.held.is_held:
            self.started = anyio.Event()
            await self.started.wait()

    async def call(self) -> object:  # type: ignore[override]
        assert self.held is not None
        self.during += self.held.is_held
        return await super().call()

    async def finish(self) -> None:
        await super().finish()
        assert self.during > 1


CASE_CLASSES: list[type[CancellationCase]] = [
    StartSecurely,
    AsyncWithSecurely,
    SendDuringReauthentication,
]


@parametrize_cases(CASE_CLASSES)
async def test_cancelled_at_each_suspension(
    world_class: type[CancellationCase], secure_broker: Broker
) -> None:
    assert await cancel_at_each_suspension(world_class(secure_broker)) > 1
