"""Clients with a token provider, on the embedded broker: the provider's bad days, and theirs."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from aiokafkawire import Broker, Consumer, Producer
from aiokafkawire.broker import BrokerSasl, make_unsecured_token
from aiokafkawire.errors import AuthenticationFailed, KafkaError
from aiokafkawire.oauth import OidcTokenProvider
from aiokafkawire.security import token_cache

from .identity_provider import Answer, IdentityProvider, issue, refuse, respond, running

BAD_GATEWAY = respond(502, "<html>", Content_Type="text/html")


def issuing(life_s: float) -> Answer:
    """Issue a new token to each request."""

    def answer(sock: socket.socket, provider: IdentityProvider) -> None:
        issue(make_unsecured_token("billing", life_s), expires_in=life_s)(sock, provider)

    return answer


@asynccontextmanager
async def sasl_broker(**options: Any) -> AsyncIterator[Broker]:
    async with Broker(sasl=BrokerSasl(mechanisms=["OAUTHBEARER"]), **options) as broker:
        yield broker


def client_options(broker: Broker, server: IdentityProvider, **options: Any) -> Any:
    provider = OidcTokenProvider(
        server.url, client_id="billing", client_secret="s3cret-of-billing", timeout_ms=500
    )
    return {
        "bootstrap_servers": broker.bootstrap_servers,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": provider,
    } | options


async def test_one_token_serves_all_connections() -> None:
    with running(issuing(3_600)) as server:
        async with sasl_broker(nodes=3) as broker:
            await broker.create_topic("orders", partitions=6)
            options = client_options(broker, server)
            async with Producer(**options) as producer:
                for number in range(60):
                    await producer.send_and_wait("orders", b"%d" % number, partition=number % 6)
            assert len(server.requests) == 1
            async with Consumer("orders", auto_offset_reset="earliest", **options) as consumer:
                values = [await consumer.getone() for _ in range(60)]
            assert len({record.value for record in values}) == 60
            assert len(server.requests) == 2


@pytest.mark.slow
async def test_tokens_are_renewed_while_records_flow() -> None:
    with running(issuing(3)) as server:
        async with sasl_broker(connections_max_reauth_ms=60_000) as broker:
            await broker.create_topic("orders", partitions=1)
            async with Producer(**client_options(broker, server)) as producer:
                until = time.monotonic() + 9
                sent = 0
                while time.monotonic() < until:
                    await producer.send_and_wait("orders", b"x")
                    sent += 1
                    await anyio.sleep(0.01)
            assert broker.end_offset("orders", 0) == sent
    assert 4 <= len(server.requests) <= 6


async def test_a_refusal_reaches_the_caller_at_once() -> None:
    with running(refuse(401, "invalid_client", "Invalid client credentials")) as server:
        async with sasl_broker() as broker:
            began = time.monotonic()
            with pytest.raises(AuthenticationFailed, match="Invalid client credentials"):
                async with Producer(**client_options(broker, server)):
                    pass
            assert time.monotonic() - began < 5


async def test_an_identity_provider_that_is_down_is_named_and_waited_for() -> None:
    with running(BAD_GATEWAY) as server:
        async with sasl_broker() as broker:
            began = time.monotonic()
            with pytest.raises(
                KafkaError, match="status 502 and text/html of 6 bytes, not JSON: it is down"
            ) as caught:
                async with Producer(**client_options(broker, server, default_api_timeout_ms=4_000)):
                    pass
            assert not isinstance(caught.value, AuthenticationFailed)
            assert caught.value.retriable
            assert time.monotonic() - began < 10
            assert len(server.requests) > 1, "it was not asked again"
            server.answers.append(issuing(3_600))
            server.requests.extend(server.requests[:1] * 100)  # the last answer from now on
            async with Producer(**client_options(broker, server)) as producer:
                await producer.send_and_wait("orders", b"x")


async def test_an_outage_with_a_valid_token_is_not_noticed(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_cache, "REFRESH_WINDOW", (0.05, 0.06))
    with running(issuing(30), BAD_GATEWAY) as server, caplog.at_level(logging.WARNING):
        async with (
            sasl_broker() as broker,
            Producer(**client_options(broker, server)) as producer,
        ):
            while len(server.requests) < 4:
                await producer.send_and_wait("orders", b"x")
                await anyio.sleep(0.05)
            await producer.send_and_wait("orders", b"x")
    lines = [line for line in caplog.messages if "OAUTHBEARER" in line]
    assert len(lines) == 1
    assert "status 502" in lines[0]
