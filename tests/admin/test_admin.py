"""Construction, options and timeouts of the admin client."""

from __future__ import annotations

from collections.abc import AsyncIterator
from uuid import UUID

import pytest

import aiokafkawire
from aiokafkawire import Admin, BrokerError, ClientClosed, InvalidOption
from aiokafkawire.admin import OffsetSpec
from aiokafkawire.broker import Broker
from aiokafkawire.connection import BrokerClient, VersionedRequest
from aiokafkawire.errors import UnsupportedVersion
from aiokafkawire.wire import ApiKey
from aiokafkawire.wire.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsResponse,
)


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker() as broker:
        yield broker


def test_wrong_options() -> None:
    with pytest.raises(TypeError, match="Admin takes keyword arguments only, not a str"):
        Admin("localhost:9092")  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match="is a producer option, not one of an admin client"):
        Admin(bootstrap_servers="h:1", linger_ms=5)  # type: ignore[call-arg]
    with pytest.raises(InvalidOption, match="bootstrap_servers is missing"):
        Admin()
    assert "client_id='aiokafkawire'" in repr(Admin(bootstrap_servers="h:1"))


def test_names_of_other_admin_clients() -> None:
    admin = Admin(bootstrap_servers="h:1")
    with pytest.raises(AttributeError, match="incremental_alter_configs"):
        admin.alter_configs  # noqa: B018
    assert "alter_configs" not in dir(admin)
    with pytest.raises(AttributeError, match="use Admin"):
        aiokafkawire.AdminClient  # noqa: B018


async def test_a_client_that_is_not_started() -> None:
    with pytest.raises(ClientClosed, match="the admin client is not started yet"):
        await Admin(bootstrap_servers="h:1").list_topics()


@pytest.mark.parametrize(
    ("timeout_ms", "error"), [(-1, ValueError), ("1", TypeError), (float("nan"), ValueError)]
)
async def test_wrong_timeouts(broker: Broker, timeout_ms: int, error: type[Exception]) -> None:
    async with Admin(**broker.client_options()) as admin:
        with pytest.raises(error, match="timeout_ms must be"):
            await admin.list_topics(timeout_ms=timeout_ms)


async def test_metrics_of_the_connections(broker: Broker) -> None:
    async with Admin(**broker.client_options()) as admin:
        before = admin.metrics()["requests_total"]
        await admin.list_topics()
        assert admin.metrics()["requests_total"] > before


async def test_one_offset_of_a_topic_that_is_created_at_that_moment(broker: Broker) -> None:
    async with Admin(**broker.client_options()) as admin:
        await admin.create_topics(["orders"])
        listed = await admin.list_offsets({("orders", 0): OffsetSpec.LATEST})
        assert [each.offset for each in listed.values()] == [0]
        with pytest.raises(aiokafkawire.PartialFailure) as caught:
            await admin.list_offsets({("orders", 9): OffsetSpec.LATEST})
        assert isinstance(caught.value.failed["orders", 9], BrokerError)


async def test_the_client_instance_id_is_assigned_once(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[UUID] = []
    request = BrokerClient.request

    async def answer(client: BrokerClient, message: object, **options: object) -> object:
        if getattr(message, "api_key", None) != ApiKey.GET_TELEMETRY_SUBSCRIPTIONS:
            return await request(client, message, **options)  # type: ignore[arg-type]
        assert not isinstance(message, VersionedRequest)
        asked.append(message.client_instance_id)  # type: ignore[attr-defined]
        return GetTelemetrySubscriptionsResponse(
            throttle_time_ms=0,
            error_code=0,
            client_instance_id=UUID(int=9),
            subscription_id=1,
            accepted_compression_types=[],
            push_interval_ms=1_000,
            telemetry_max_bytes=1,
            delta_temporality=True,
            requested_metrics=[],
        )

    monkeypatch.setattr(BrokerClient, "request", answer)
    async with Admin(**broker.client_options()) as admin:
        assert await admin.client_instance_id() == UUID(int=9)
        assert await admin.client_instance_id() == UUID(int=9)
    assert asked == [UUID(int=0)]


async def test_brokers_that_collect_no_client_metrics() -> None:
    async with Broker(as_of="3.6") as broker, Admin(**broker.client_options()) as admin:
        with pytest.raises(UnsupportedVersion, match=r"needs Kafka 3\.7 or later, and a metric"):
            await admin.client_instance_id()
