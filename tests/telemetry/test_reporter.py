"""Clients push their metrics to the embedded broker."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any
from uuid import UUID

import anyio
import pytest

from aiokafkawire import Admin, Consumer, Producer, ShareConsumer
from aiokafkawire.admin import ConfigResource, ConfigResourceType
from aiokafkawire.broker import Answer, ApiKey, Broker, ClientMetrics, Close, Corrupt, Drop
from aiokafkawire.connection.silence import CHECK_INTERVAL_S, SILENT_AFTER_S
from aiokafkawire.errors import (
    ClientClosed,
    IllegalState,
    KafkaError,
    ProtocolError,
    RequestTimedOut,
    UnsupportedVersion,
)
from aiokafkawire.telemetry import reporter
from aiokafkawire.telemetry.collector import MetricsCollector
from aiokafkawire.wire import ErrorCode, error_for
from aiokafkawire.wire.otlp import Metric

LIMIT_S = 30
SUBSCRIBE, PUSH = ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY
CREATED = "org.apache.kafka.producer.connection.creation.total"


@pytest.fixture(autouse=True)
def long_last_push(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the last push arrive on a machine that is busy."""
    monkeypatch.setattr(reporter, "TERMINATING_PUSH_S", float(LIMIT_S))


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker(client_telemetry=True) as broker:
        await broker.create_topic("orders", 1)
        await subscribe(broker)
        yield broker


async def subscribe(broker: Broker, metrics: str = "*", interval_ms: int = 100) -> None:
    resource = ConfigResource(ConfigResourceType.CLIENT_METRICS, "all")
    configs = {"metrics": metrics, "interval.ms": str(interval_ms)}
    async with Admin(**broker.client_options(), enable_metrics_push=False) as admin:
        await admin.incremental_alter_configs({resource: configs})


async def until(check: Callable[[], bool]) -> None:
    """Wait until a check holds."""
    with anyio.fail_after(LIMIT_S):
        while not check():  # noqa: ASYNC110 - a broker has no event to wait for
            await anyio.sleep(0.01)


async def wait_for_pushes(broker: Broker, count: int = 1, **match: Any) -> list[ClientMetrics]:
    """Return the pushes whose attributes match, as soon as there are `count` of them."""

    def found() -> list[ClientMetrics]:
        return [
            push
            for push in broker.client_metrics
            if all(getattr(push, name) == value for name, value in match.items())
        ]

    await until(lambda: len(found()) >= count)
    return found()


def metrics_of(push: ClientMetrics) -> dict[str, Metric]:
    (resource,) = push.decode()
    return {metric.name: metric for metric in resource.metrics}


async def start(stack: AsyncExitStack, kind: str, broker: Broker, **more: Any) -> Any:
    """Start a client that has an open connection, as long as it reads or sends."""
    options: Any = {**broker.client_options(), "client_id": kind, **more}
    if kind == "producer":
        producer = await stack.enter_async_context(Producer(**options))
        await producer.send_and_wait("orders", b"book")
        return producer
    if kind == "admin":
        admin = await stack.enter_async_context(Admin(**options))
        await admin.list_topics()
        return admin
    if kind == "consumer":
        consumer = Consumer("orders", group_id="billing", client_rack="zone", **options)
        await stack.enter_async_context(consumer)
        await consumer.getmany(timeout_ms=1)
        return consumer
    sharing = await stack.enter_async_context(ShareConsumer("orders", group_id="work", **options))
    await sharing.getmany(timeout_ms=1)
    return sharing


KINDS = {
    "producer": "org.apache.kafka.producer.",
    "consumer": "org.apache.kafka.consumer.",
    "share consumer": "org.apache.kafka.consumer.",
    "admin": "org.apache.kafka.admin.client.",
}


@pytest.mark.parametrize("kind", KINDS)
async def test_each_client_pushes_at_intervals_and_when_it_closes(
    broker: Broker, kind: str
) -> None:
    async with AsyncExitStack() as stack:
        client = await start(stack, kind, broker)
        pushes = await wait_for_pushes(broker, 2, client_id=kind)
        instance_id = await client.client_instance_id()
        assert not any(push.terminating for push in pushes)
    last = [push for push in broker.client_metrics if push.client_id == kind][-1]
    assert last.terminating
    assert {push.client_instance_id for push in (*pushes, last)} == {instance_id}
    for name in (*metrics_of(pushes[0]), *metrics_of(last)):
        assert name.startswith(KINDS[kind])
    created = f"{KINDS[kind]}connection.creation"
    assert metrics_of(pushes[0])[f"{created}.total"].points[0].value >= 1
    assert f"{created}.rate" in metrics_of(pushes[0])
    assert f"{KINDS[kind]}node.request.latency.avg" in metrics_of(pushes[0])


async def test_the_attributes_of_a_consumer(broker: Broker) -> None:
    async with AsyncExitStack() as stack:
        consumer = await start(stack, "consumer", broker)
        while not consumer.assignment():
            await consumer.getmany(timeout_ms=10)
        await until(lambda: "group_member_id" in broker_attributes(broker))
    attributes = broker_attributes(broker)
    assert attributes["group_member_id"].startswith("consumer-")
    assert (attributes["group_id"], attributes["client_rack"]) == ("billing", "zone")
    assert "group_instance_id" not in attributes


def broker_attributes(broker: Broker) -> dict[str, Any]:
    """Return the attributes of the last push."""
    pushes = broker.client_metrics
    return dict(pushes[-1].decode()[0].attributes) if pushes else {}


async def test_deltas_add_up_to_the_total(broker: Broker) -> None:
    async with AsyncExitStack() as stack:
        producer = await start(stack, "producer", broker)
        await wait_for_pushes(broker, 3)
        total = producer.metrics()["connections_made_total"]
    pushed = [metrics_of(push)[CREATED].points[0].value for push in broker.client_metrics]
    assert sum(pushed) == total


async def test_a_changed_subscription_is_asked_for_again(broker: Broker) -> None:
    async with AsyncExitStack() as stack:
        await start(stack, "producer", broker)
        (first, *_) = await wait_for_pushes(broker)
        assert CREATED in metrics_of(first)
        await subscribe(broker, "org.apache.kafka.producer.node.")
        await until(lambda: CREATED not in metrics_of(broker.client_metrics[-1]))
        names = metrics_of(broker.client_metrics[-1])
        assert all(name.startswith("org.apache.kafka.producer.node.") for name in names)


async def test_no_metrics_are_requested(broker: Broker) -> None:
    await subscribe(broker, metrics="")
    async with AsyncExitStack() as stack:
        await start(stack, "producer", broker)
        await broker.wait_for_request(SUBSCRIBE, count=2, timeout_s=LIMIT_S)
    assert not broker.client_metrics


async def test_nothing_is_sent_to_brokers_that_collect_no_metrics() -> None:
    async with Broker() as broker, AsyncExitStack() as stack:
        await broker.create_topic("orders", 1)
        producer = await start(stack, "producer", broker)
        assert producer._lifecycle.session.telemetry._task is None
        with pytest.raises(UnsupportedVersion, match="and a metric reporter"):
            await producer.client_instance_id()


async def test_the_push_can_be_switched_off(broker: Broker) -> None:
    async with AsyncExitStack() as stack:
        producer = await start(stack, "producer", broker, enable_metrics_push=False)
        with pytest.raises(IllegalState, match="enable_metrics_push"):
            await producer.client_instance_id()
    assert not [seen for seen in broker.requests if seen.api_key in {SUBSCRIBE, PUSH}]


@pytest.mark.parametrize("api_key", [SUBSCRIBE, PUSH])
async def test_a_fatal_error_ends_the_pushes_alone(
    broker: Broker, api_key: ApiKey, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "aiokafkawire.telemetry")
    broker.on(api_key, Answer(ErrorCode.INVALID_REQUEST))
    async with AsyncExitStack() as stack:
        producer = await start(stack, "producer", broker)
        await until(lambda: "pushes no metrics any more" in caplog.text)
        await producer.send_and_wait("orders", b"pen")
    (record,) = [each for each in caplog.records if each.name == "aiokafkawire.telemetry"]
    assert record.levelname == "INFO"
    reason = error_for(ErrorCode.INVALID_REQUEST).reason
    assert record.getMessage().endswith(f"{reason} (broker 1 at {broker.bootstrap_servers})")
    assert len([seen for seen in broker.requests if seen.api_key is api_key]) == 1


async def test_a_push_that_is_too_large_is_not_sent(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "aiokafkawire.broker.apis.get_telemetry_subscriptions.TELEMETRY_MAX_BYTES", 9
    )
    async with AsyncExitStack() as stack:
        await start(stack, "producer", broker)
        await broker.wait_for_request(SUBSCRIBE, count=2, timeout_s=LIMIT_S)
    assert not [seen for seen in broker.requests if seen.api_key is PUSH]


async def test_a_push_that_is_too_large_for_the_broker_is_followed_by_another(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.on(PUSH, Answer(ErrorCode.TELEMETRY_TOO_LARGE), times=1)
    async with AsyncExitStack() as stack:
        await start(stack, "producer", broker)
        (first, *_) = await wait_for_pushes(broker)
        assert metrics_of(first)[CREATED].points[0].value >= 1


async def test_a_failure_does_not_end_the_client(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> bytes:
        raise RuntimeError("a bug")

    caplog.set_level(logging.INFO, "aiokafkawire.telemetry")
    monkeypatch.setattr(MetricsCollector, "collect", fail)
    async with AsyncExitStack() as stack:
        producer = await start(stack, "producer", broker)
        await until(lambda: "pushes no metrics any more" in caplog.text)
        await producer.send_and_wait("orders", b"pen")
    assert "collecting the metrics to push failed" in caplog.text


async def test_a_push_that_hangs_holds_up_no_other_request(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    broker.on(PUSH, Drop())
    async with AsyncExitStack() as stack:
        producer = await start(stack, "producer", broker, enable_metrics_push=False)
        consumer = await start(stack, "consumer", broker)
        await until(lambda: bool(consumer.assignment()))
        await broker.wait_for_request(PUSH, timeout_s=LIMIT_S)
        await producer.send_and_wait("orders", b"pen")
        with anyio.fail_after(LIMIT_S / 2):  # request_timeout_ms is 30 s
            await consumer.getone()
            await consumer.commit()
        with anyio.move_on_after(SILENT_AFTER_S + 2 * CHECK_INTERVAL_S):
            await consumer.getone()
    assert "no response to PushTelemetry" not in caplog.text


async def test_closing_does_not_wait_for_a_silent_broker(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reporter, "TERMINATING_PUSH_S", 0.1)
    async with AsyncExitStack() as stack:
        await start(stack, "producer", broker)
        await wait_for_pushes(broker)
        broker.on(PUSH, Drop())
        with anyio.fail_after(LIMIT_S / 2):  # request_timeout_ms is 30 s
            await stack.aclose()


async def test_the_id_is_the_same_for_all_callers(broker: Broker) -> None:
    ids: list[UUID] = []
    async with Admin(**broker.client_options()) as admin, anyio.create_task_group() as tasks:

        async def ask() -> None:
            ids.append(await admin.client_instance_id())

        for _ in range(3):
            tasks.start_soon(ask)
    assert len(ids) == 3
    assert len(set(ids)) == 1


async def test_a_broker_that_assigns_no_id(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "aiokafkawire.telemetry")
    broker.on(SUBSCRIBE, Answer(ErrorCode.NONE))
    async with AsyncExitStack() as stack:
        producer = await start(stack, "producer", broker)
        await until(lambda: "pushes no metrics any more: the broker assigned no" in caplog.text)
        with pytest.raises(ProtocolError, match="no client instance id"):
            await producer.client_instance_id()
        await producer.send_and_wait("orders", b"pen")
    assert not [seen for seen in broker.requests if seen.api_key is PUSH]


async def test_no_id_in_time(broker: Broker) -> None:
    broker.on(SUBSCRIBE, Drop())
    async with Admin(**broker.client_options()) as admin:
        with pytest.raises(RequestTimedOut):
            await admin.client_instance_id(timeout_ms=50)
        for wrong in (-1, "1"):
            with pytest.raises((TypeError, ValueError), match="timeout_ms must be"):
                await admin.client_instance_id(timeout_ms=wrong)  # type: ignore[arg-type]


async def test_a_call_for_the_id_ends_with_the_client(broker: Broker) -> None:
    broker.on(SUBSCRIBE, Drop())
    admin = Admin(**broker.client_options())
    await admin.start()
    await admin.list_topics()
    await broker.wait_for_request(SUBSCRIBE, timeout_s=LIMIT_S)
    errors: list[Exception] = []

    async def ask() -> None:
        try:
            await admin.client_instance_id()
        except KafkaError as error:
            errors.append(error)

    with anyio.fail_after(LIMIT_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await anyio.wait_all_tasks_blocked()
            await admin.stop()
    assert [type(error) for error in errors] == [ClientClosed]


@pytest.mark.parametrize("api_key", [SUBSCRIBE, PUSH])
async def test_a_lost_connection_is_no_failure(broker: Broker, api_key: ApiKey) -> None:
    broker.on(api_key, Close(), times=1)
    async with AsyncExitStack() as stack:
        producer = await start(stack, "producer", broker)
        await broker.wait_for_request(api_key, timeout_s=LIMIT_S)
        await producer.send_and_wait("orders", b"pen")


@pytest.mark.parametrize("api_key", [SUBSCRIBE, PUSH])
async def test_a_damaged_response_is_no_failure(broker: Broker, api_key: ApiKey) -> None:
    broker.on(api_key, Corrupt(), times=1)
    async with AsyncExitStack() as stack:
        producer = await start(stack, "producer", broker)
        await broker.wait_for_request(api_key, timeout_s=LIMIT_S)
        await producer.send_and_wait("orders", b"pen")
