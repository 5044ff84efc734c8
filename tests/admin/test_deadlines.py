"""Each call of the admin client ends at its deadline, whatever the brokers do."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

import anyio
import pytest

from aiokafkawire import Admin
from aiokafkawire.broker import ApiKey, Broker, Drop, SeenRequest
from aiokafkawire.errors import ClientClosed, KafkaError, PartialFailure, UnsupportedVersion
from aiokafkawire.wire import Response
from aiokafkawire.wire.messages.describe_cluster import DescribeClusterResponse
from tests.admin.calls import CALLS, Arguments

pytestmark = pytest.mark.slow

TIMEOUT_MS = 200
WITHIN_S = 5.0
"""Longer than any call takes on a busy machine, but shorter than the default of any timeout."""


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker(nodes=2) as broker:
        await broker.create_topic("orders")
        yield broker


def reasons(error: KafkaError) -> list[KafkaError]:
    return list(error.failed.values()) if isinstance(error, PartialFailure) else [error]


def has_requests(name: str) -> bool:
    """Return whether a call sends a request: some have nothing to do here."""
    return name not in {"alter_client_quotas", "alter_user_scram_credentials", "create_acls"}


@pytest.mark.parametrize("name", [*filter(has_requests, CALLS)])
async def test_brokers_that_hang(broker: Broker, name: str) -> None:
    options = broker.client_options()
    async with Admin(**options, default_api_timeout_ms=30_000) as admin:
        await admin.describe_cluster()
        broker.on(None, Drop())
        object.__setattr__(admin.config, "default_api_timeout_ms", TIMEOUT_MS)
        begun = time.monotonic()
        with anyio.fail_after(WITHIN_S), pytest.raises(KafkaError) as caught:
            await CALLS[name](admin, Arguments("orders"))
        assert time.monotonic() - begun < WITHIN_S
        for reason in reasons(caught.value):
            assert reason.retriable or isinstance(reason, UnsupportedVersion), reason


async def test_a_throttled_broker_is_passed_over(broker: Broker) -> None:
    def throttle(seen: SeenRequest) -> Response | None:
        return DescribeClusterResponse(
            throttle_time_ms=2**31 - 1,
            error_code=0,
            cluster_id="c",
            controller_id=1,
            brokers=[],
        )

    async with Admin(**broker.client_options(), default_api_timeout_ms=10_000) as admin:
        broker.on(ApiKey.DESCRIBE_CLUSTER, throttle, times=1)
        await admin.describe_cluster()
        with anyio.fail_after(WITHIN_S):
            for _ in range(5):
                await admin.list_topics()


@pytest.mark.parametrize("name", ["describe_cluster", "list_groups", "describe_topics", "lag"])
async def test_a_client_that_is_closed_meanwhile(broker: Broker, name: str) -> None:
    admin = Admin(**broker.client_options())
    await admin.start()
    broker.on(None, Drop())
    caught: list[KafkaError] = []

    async def call() -> None:
        try:
            await CALLS[name](admin, Arguments("orders"))
        except KafkaError as error:
            caught.extend(reasons(error))

    with anyio.fail_after(WITHIN_S):
        async with anyio.create_task_group() as group:
            group.start_soon(call)
            await anyio.sleep(0.1)
            await admin.stop()
    assert caught
    assert {type(error) for error in caught} == {ClientClosed}
