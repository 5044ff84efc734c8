"""Requests to one broker: their batches and their order."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from aiokafkawire.broker import Answer, Broker, Close, Delay, SeenRequest
from aiokafkawire.errors import AuthenticationFailed, DeliveryUnknown
from aiokafkawire.producer import Producer, broker_sender
from aiokafkawire.producer.broker_sender import BrokerSender
from aiokafkawire.producer.delivery import Delivery
from aiokafkawire.testing import KafkaBroker
from aiokafkawire.wire import ApiKey, ErrorCode
from tests.producer.conftest import produced

New = Callable[..., Producer]


async def test_one_request_takes_a_batch_of_every_partition_of_the_broker(anyio_backend: object):
    async with Broker(nodes=1) as broker:
        await broker.create_topic("wide", partitions=4)
        async with Producer(
            bootstrap_servers=broker.bootstrap_servers, linger_ms=5_000
        ) as producer:
            for partition in range(4):
                await producer.send("wide", b"v", partition=partition)
            await producer.flush()
        [seen] = broker.requests.of(ApiKey.PRODUCE)
    assert len(produced(seen)) == 4


async def test_requests_stay_below_max_request_size(broker: Broker, new_producer: New):
    for partition in range(3):
        broker.move_leader("t", partition, 1)
    async with new_producer(max_request_size_bytes=2_000, linger_ms=5_000) as producer:
        for partition in range(3):
            await producer.send("t", b"x" * 900, partition=partition)
        await producer.flush()
    sizes = [len(produced(seen)) for seen in broker.requests.of(ApiKey.PRODUCE)]
    assert sum(sizes) == 3
    assert max(sizes) == 2


async def test_requests_are_sent_in_the_order_of_their_batches(broker: Broker, new_producer: New):
    broker.on(ApiKey.PRODUCE, Delay(0.002))
    async with new_producer(linger_ms=0, batch_size_bytes=1) as producer:
        for _ in range(60):
            await producer.send("t", b"v", partition=0)
        await producer.flush()
    batches = [b for seen in broker.requests.of(ApiKey.PRODUCE) for b in produced(seen)]
    assert [batch.base_sequence for batch in batches] == list(range(60))


@pytest.mark.parametrize("acks", ["all", 1])
async def test_all_send_paths_write_the_same_requests(
    broker: Broker, new_producer: New, monkeypatch: pytest.MonkeyPatch, acks: object
):
    """The fast path, the queue with templates and the queue without: requests and metrics agree."""
    taken: list[bool] = []
    send_alone = BrokerSender.send_alone

    def watched(self: BrokerSender, *record: Any, **options: Any) -> Delivery | None:
        delivery = send_alone(self, *record, **options)
        taken.append(delivery is not None)
        return delivery

    said: list[object] = []
    for path in ("alone", "queue", "queue without templates"):
        if path == "alone":
            monkeypatch.setattr(BrokerSender, "send_alone", watched)
        else:
            monkeypatch.setattr(BrokerSender, "send_alone", lambda *_, **__: None)
        if path == "queue without templates":
            monkeypatch.setattr(broker_sender, "FIRST_FLEXIBLE_PRODUCE", 99)
        before = len(broker.requests.of(ApiKey.PRODUCE))
        async with new_producer(linger_ms=0, acks=acks) as producer:
            for number in range(6):
                headers = [("h", b"x")] if number % 2 else None
                await producer.send_and_wait("t", b"%d" % number, b"k", 0, number, headers)
            metrics = producer.metrics()
        requests = broker.requests.of(ApiKey.PRODUCE)[before:]
        batches = [batch for request in requests for batch in produced(request)]
        said.append(
            (
                [(request.version, request.size_bytes) for request in requests],
                [batch.base_sequence for batch in batches],
                [
                    [columns.value(0), columns.key(0), columns.headers(0), columns.timestamps[0]]
                    for columns in (batch.columns() for batch in batches)
                ],
                {name: metrics[name] for name in metrics if name.startswith(("batch", "records"))},
            )
        )
    assert sum(taken) >= 4  # The first ones have no connection or no producer id yet.
    assert said[0] == said[1] == said[2]


async def test_a_flush_sends_within_the_call(broker: Broker, new_producer: New):
    async with new_producer(linger_ms=5_000) as producer:
        await warm(producer)
        accumulator = producer._lifecycle.session.sender.accumulator
        delivery = producer.send_nowait("t", b"v", partition=0)
        before = producer.metrics()["requests_total"]
        accumulator.begin_flush()
        producer._lifecycle.session.sender.perform()
        assert producer.metrics()["requests_total"] == before + 1
        accumulator.end_flush()
        with anyio.fail_after(5):
            assert (await delivery).offset == 1


async def warm(producer: Producer) -> None:
    """Open the connection."""
    await producer.send("t", b"0", partition=0)
    await producer.flush()


@pytest.mark.slow
async def test_responses_are_handled_in_order_of_arrival(anyio_backend: object):
    """Also in one read: a batch refused behind a refused one is not a gap."""
    with KafkaBroker() as kafka:
        kafka.create_topic("t")
        async with Producer(
            bootstrap_servers=kafka.bootstrap_servers,
            linger_ms=0,
            batch_size_bytes=1,
            retry_backoff_ms=1,
        ) as producer:
            await warm(producer)
            for _ in range(4):
                await respond_together(kafka, producer)
            assert producer.metrics()["epochs_raised_total"] == 0


async def respond_together(kafka: KafkaBroker, producer: Producer) -> None:
    """Refuse the first of five batches; return the other responses with that of its retry."""
    release = threading.Event()

    async def hold(_: SeenRequest) -> None:
        await anyio.to_thread.run_sync(release.wait)

    def responses() -> int:
        produced = kafka.requests.of(ApiKey.PRODUCE)
        return sum(seen.answered_at is not None for seen in produced)

    kafka.on(ApiKey.PRODUCE, Answer(ErrorCode.NOT_ENOUGH_REPLICAS), times=1)
    holding = kafka.on(ApiKey.PRODUCE, hold)
    resent, before = producer.metrics()["batches_resent_total"], responses()
    with anyio.fail_after(20):
        for _ in range(5):
            await producer.send("t", b"v", partition=0)
        while producer.metrics()["batches_resent_total"] == resent:
            await anyio.lowlevel.checkpoint()
        await anyio.wait_all_tasks_blocked()
        release.set()
        while responses() < before + 6:
            pass  # block the event loop
        holding.remove()
        await producer.flush()


async def test_max_in_flight_requests_of_one(broker: Broker, new_producer: New):
    under_way: list[int] = []

    def count(_: SeenRequest) -> Delay:
        nodes = producer._lifecycle.session.sender.broker_senders.values()
        under_way.append(sum(node._in_flight for node in nodes))
        return Delay(0.002)

    broker.on(ApiKey.PRODUCE, count)
    async with new_producer(
        linger_ms=0,
        batch_size_bytes=1,
        enable_idempotence=False,
        max_in_flight_requests_per_connection=1,
    ) as producer:
        for number in range(20):
            await producer.send("t", b"%02d" % number, partition=0)
        await producer.flush()
    assert broker.end_offset("t", 0) == 20
    assert under_way == [1] * 20


@pytest.mark.parametrize(("release", "at_once"), [("0.11", 1), ("1.0", 4)])
async def test_a_broker_that_deduplicates_one_batch_gets_one_at_a_time(
    anyio_backend: object, release: str, at_once: int
):
    under_way: list[int] = []
    async with Broker(nodes=1, as_of=release) as broker:
        await broker.create_topic("t")
        async with Producer(
            bootstrap_servers=broker.bootstrap_servers, linger_ms=0, batch_size_bytes=1
        ) as producer:
            await producer.send_and_wait("t", b"v")
            session = producer._lifecycle.session
            queue = session.sender.accumulator.topics["t"].by_partition[0]
            broker.on(ApiKey.PRODUCE, lambda _: under_way.append(len(queue.in_flight)))
            for _ in range(4):
                producer.send_nowait("t", b"v")
            await producer.flush()
    assert max(under_way) == at_once


async def test_an_unreachable_broker_is_retried(broker: Broker, new_producer: New):
    async with new_producer() as producer:
        await producer.send_and_wait("t", b"1", partition=0)
        for node in (1, 2, 3):
            await broker.kill(node)
        delivery = await producer.send("t", b"2", partition=0)
        with anyio.move_on_after(0.1):
            await delivery
        assert not delivery.done
        for node in (1, 2, 3):
            await broker.restart(node)
        assert (await delivery).offset == 1


async def test_the_last_error_has_the_attempt_and_the_partition(broker: Broker, new_producer: New):
    broker.on(ApiKey.PRODUCE, Answer(ErrorCode.NOT_ENOUGH_REPLICAS))
    async with new_producer(retries=2) as producer:
        with pytest.raises(Exception, match="NOT_ENOUGH_REPLICAS") as caught:
            await producer.send_and_wait("t", b"v", partition=0)
    assert caught.value.attempt == 3
    assert (caught.value.topic, caught.value.partition) == ("t", 0)


async def test_failed_authentication_fails_the_records_at_once(broker: Broker, new_producer: New):
    async with new_producer() as producer:
        await producer.partitions_for("t")
        cluster = producer._lifecycle.session.cluster

        class RejectingClient:
            name = "1 (localhost:9092)"

            def ready_channel(self, _: object) -> None:
                return None

            async def ready(self, *_: object) -> None:
                raise AuthenticationFailed("wrong password")

        cluster.broker_client = lambda _: RejectingClient()
        with pytest.raises(AuthenticationFailed, match="wrong password"):
            await producer.send_and_wait("t", b"v")


@pytest.mark.slow
async def test_a_large_request_that_causes_disconnects_is_sent_alone_and_fails(
    broker: Broker, new_producer: New
):
    await broker.create_topic("large", partitions=2, configs={"max.message.bytes": "4000000"})
    for partition in range(2):
        broker.move_leader("large", partition, 1)

    def too_large(seen: SeenRequest) -> Close | None:
        return Close() if seen.size_bytes > 2_500_000 else None

    fault = broker.on(ApiKey.PRODUCE, too_large)
    async with new_producer(
        max_request_size_bytes=4_000_000, batch_size_bytes=1, linger_ms=0
    ) as producer:
        await producer.send_and_wait("large", b"warm", partition=0)
        await producer.send_and_wait("large", b"warm", partition=1)
        lost = await producer.send("large", b"x" * 3_000_000, partition=0)
        fits = [await producer.send("large", b"y" * 1_100_000, partition=1) for _ in range(3)]
        with pytest.raises(DeliveryUnknown, match=r"4 times.*300.*socket.request.max.bytes"):
            await lost
        assert [(await delivery).offset for delivery in fits] == [1, 2, 3]
        assert (await producer.send_and_wait("large", b"small", partition=0)).offset == 1
    assert fault.hits >= 4


async def test_a_batch_with_a_leader_hint_is_retried_without_backoff(
    broker: Broker, new_producer: New
):
    async with new_producer(retry_backoff_ms=60_000, retry_backoff_max_ms=60_000) as producer:
        await producer.send_and_wait("t", b"0", partition=0)
        broker.move_leader("t", 0, broker.leader("t", 0) % 3 + 1)
        with anyio.fail_after(20):
            assert (await producer.send_and_wait("t", b"1", partition=0)).offset == 1
