"""The producer on an embedded broker, with and without faults."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from aiokafkawire.broker import Answer, Broker, Close, Delay, Drop, SeenRequest
from aiokafkawire.errors import (
    BrokerError,
    BufferFull,
    ClientClosed,
    DeliveriesFailed,
    DeliveryTimedOut,
    DeliveryUnknown,
    InvalidOption,
    NoBrokerAvailable,
    RecordTooLarge,
    RequestTimedOut,
    UnknownTopic,
)
from aiokafkawire.producer import Producer
from aiokafkawire.wire import ApiKey, ErrorCode
from tests.producer.conftest import produced
from tests.producer.short_timeouts import delivery_timeout, max_block
from tests.producer.stored_values import stored

New = Callable[..., Producer]

LONG_MS = 14_000


def numbers(count: int, start: int = 0) -> list[bytes]:
    return [b"%06d" % number for number in range(start, start + count)]


async def failing(producer: Producer, code: int, broker: Broker, count: int = 1) -> None:
    """Send records that fail and that nobody awaits."""
    fault = broker.on(ApiKey.PRODUCE, Answer(code))
    for value in numbers(count):
        await producer.send("t", value, partition=0)
    with pytest.raises(DeliveriesFailed):
        await producer.flush()
    fault.remove()


# --- start and stop ---


def test_the_constructor_checks_the_options():
    with pytest.raises(InvalidOption, match="linger_ms"):
        Producer(bootstrap_servers="b", linger=5)
    with pytest.raises(InvalidOption, match="acks"):
        Producer(bootstrap_servers="b", acks=1, enable_idempotence=True)


async def test_it_must_be_entered(new_producer: New):
    producer = new_producer()
    with pytest.raises(ClientClosed, match="not started"):
        await producer.send("t", b"v")
    await producer.aclose()


async def test_it_cannot_be_used_or_entered_after_closing(new_producer: New):
    async with new_producer() as producer:
        await producer.send_and_wait("t", b"v")
    for _ in range(2):
        with pytest.raises(ClientClosed):
            await producer.send("t", b"v")
    with pytest.raises(ClientClosed):
        producer.send_nowait("t", b"v")
    with pytest.raises(ClientClosed):
        await producer.flush()
    with pytest.raises(ClientClosed, match="new one"):
        await producer.__aenter__()
    await producer.aclose()


async def test_no_broker_fails_by_the_deadline():
    producer = Producer(bootstrap_servers="127.0.0.1:1", default_api_timeout_ms=300)
    with pytest.raises(NoBrokerAvailable):
        await producer.__aenter__()


async def test_stop_sends_the_buffered_records(broker: Broker, new_producer: New):
    async with new_producer(linger_ms=LONG_MS) as producer:
        deliveries = [await producer.send("t", value, partition=0) for value in numbers(10)]
        assert not deliveries[0].done
    assert [delivery.result().offset for delivery in deliveries] == list(range(10))


@pytest.mark.slow
async def test_stop_ends_after_the_close_timeout(broker: Broker, new_producer: New):
    producer = new_producer(close_timeout_ms=200)
    await producer.__aenter__()
    await producer.partitions_for("t")
    broker.on(ApiKey.PRODUCE, Drop())
    sent = await producer.send("t", b"sent", partition=0)
    await broker.wait_for_request(ApiKey.PRODUCE)
    with pytest.raises(DeliveriesFailed) as caught:
        await producer.aclose()
    assert caught.value.count == 1
    with pytest.raises(DeliveryUnknown, match=r"written is unknown: .* was acknowledged"):
        await sent


async def test_unsent_records_raise_client_closed(broker: Broker, new_producer: New):
    producer = new_producer(close_timeout_ms=100)
    await producer.__aenter__()
    await producer.partitions_for("t")
    for node in tuple(broker.nodes):
        await broker.kill(node)
    kept = await producer.send("t", b"kept", partition=0)
    with pytest.raises(DeliveriesFailed):
        await producer.aclose()
    with pytest.raises(ClientClosed, match="before the record was acknowledged"):
        await kept


async def test_a_caller_that_waits_for_buffer_space_raises_client_closed(
    broker: Broker, new_producer: New
):
    broker.on(ApiKey.PRODUCE, Drop())
    producer = new_producer(buffer_memory_bytes=1000, close_timeout_ms=100)
    await producer.__aenter__()
    await producer.send("t", b"x" * 800)
    async with anyio.create_task_group() as group:

        async def send() -> None:
            with pytest.raises(ClientClosed):
                await producer.send("t", b"x" * 800)

        group.start_soon(send)
        await broker.wait_for_request(ApiKey.PRODUCE)
        with pytest.raises(DeliveriesFailed):
            await producer.aclose()


@pytest.mark.slow
async def test_closing_ends_a_send_many_and_every_record_before_has_its_outcome(
    broker: Broker, new_producer: New
):
    broker.on(ApiKey.PRODUCE, Delay(0.05), times=1)
    producer = new_producer()
    await producer.__aenter__()
    notes: list[str] = []

    async def send() -> None:
        with pytest.raises(ClientClosed, match="the producer was closed") as caught:
            await producer.send_many("t", numbers(100_000), partition=0)
        notes.extend(caught.value.__notes__)

    async with anyio.create_task_group() as group:
        group.start_soon(send)
        await broker.wait_for_request(ApiKey.PRODUCE)
        await producer.aclose()
    assert notes == [f"send_many: {broker.end_offset('t', 0)} of 100000 records are in the buffer"]


async def test_closing_at_once_is_no_error_in_the_log(
    new_producer: New, caplog: pytest.LogCaptureFixture
):
    for checkpoints in range(20):
        async with new_producer():
            for _ in range(checkpoints):
                await anyio.lowlevel.checkpoint()
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


@pytest.mark.parametrize("topic", [7, "\ud800", "t" * 32_768])
async def test_a_topic_name_too_long_for_a_request_fails_only_its_caller(
    topic: object, new_producer: New
):
    async with new_producer() as producer:
        with pytest.raises((TypeError, ValueError)):
            await producer.send(topic, b"v")
        with pytest.raises((TypeError, ValueError)):
            await producer.partitions_for(topic)
        assert (await producer.send_and_wait("t", b"v", partition=0)).offset == 0


def test_a_producer_whose_tasks_were_cancelled_raises() -> None:
    async def main() -> None:
        async with Broker() as broker:
            others = asyncio.all_tasks()
            producer = Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=LONG_MS)
            await producer.__aenter__()
            waiting = await producer.send("t", b"v")
            await anyio.wait_all_tasks_blocked()
            for task in asyncio.all_tasks() - others:
                task.cancel()
            with pytest.raises(ClientClosed, match="tasks were cancelled"):
                await waiting
            with pytest.raises(ClientClosed, match="tasks were cancelled"):
                await producer.send("t", b"v")
            with pytest.raises(ClientClosed, match="tasks were cancelled"):
                await producer.flush()
            await producer.aclose()

    asyncio.run(main())


# --- unreported failures ---


async def test_flush_raises_failures_once(broker: Broker, new_producer: New):
    async with new_producer() as producer:
        await failing(producer, ErrorCode.INVALID_RECORD, broker, count=3)
        await producer.flush()


async def test_stop_raises_failures(broker: Broker, new_producer: New):
    broker.on(ApiKey.PRODUCE, Answer(ErrorCode.INVALID_RECORD))

    async def send_and_leave() -> None:
        async with new_producer() as producer:
            for value in numbers(2):
                await producer.send("t", value, partition=0)

    with pytest.raises(DeliveriesFailed, match="2 records") as caught:
        await send_and_leave()
    assert isinstance(caught.value.first, BrokerError)
    assert caught.value.first.code == ErrorCode.INVALID_RECORD


async def test_an_exception_of_the_body_gets_a_note(broker: Broker, new_producer: New):
    broker.on(ApiKey.PRODUCE, Answer(ErrorCode.INVALID_RECORD))

    async def send_and_fail() -> None:
        async with new_producer() as producer:
            await producer.send("t", b"v")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as caught:
        await send_and_fail()
    [note] = caught.value.__notes__
    assert "1 record was not delivered" in note


async def test_a_failure_that_was_awaited_is_not_raised_again(broker: Broker, new_producer: New):
    broker.on(ApiKey.PRODUCE, Answer(ErrorCode.INVALID_RECORD))
    async with new_producer() as producer:
        with pytest.raises(BrokerError):
            await producer.send_and_wait("t", b"v")
        delivery = await producer.send("t", b"v")
        with pytest.raises(BrokerError):
            await delivery
        await producer.flush()


# --- sending ---


async def test_send_nowait_needs_a_topic_that_is_known(new_producer: New):
    async with new_producer() as producer:
        with pytest.raises(UnknownTopic, match="partitions_for"):
            producer.send_nowait("t", b"v")
        assert await producer.partitions_for("t") == (0, 1, 2)
        assert (await producer.send_nowait("t", b"v", partition=2)).partition == 2
        with pytest.raises(UnknownTopic, match="it has 3 partitions"):
            producer.send_nowait("t", b"v", partition=3)


@pytest.mark.slow
async def test_a_missing_partition_is_logged_and_fails_after_max_block(
    new_producer: New, caplog: pytest.LogCaptureFixture
):
    async with new_producer() as producer:
        await producer.partitions_for("t")
        for _ in range(2):
            with max_block(producer, 400), pytest.raises(UnknownTopic, match="it has 3 partitions"):
                await producer.send("t", b"v", partition=7)
    (text,) = [record.getMessage() for record in caplog.records]
    assert "topic 't' has no partition 7: it has 3 partitions; waiting for it" in text


@pytest.mark.slow
async def test_an_unknown_topic_fails_after_max_block(new_producer: New):
    async with new_producer(max_block_ms=400) as producer:
        with pytest.raises(UnknownTopic, match="nowhere"):
            await producer.send("nowhere", b"v")
        with pytest.raises(UnknownTopic, match="nowhere"):
            await producer.partitions_for("nowhere")


@pytest.mark.parametrize("linger_ms", [0, 1])
async def test_a_wrapped_send_sees_all_records(
    new_producer: New, monkeypatch: pytest.MonkeyPatch, linger_ms: int
):
    """Like a tracing library does; on the fast path too."""
    seen: list[bytes] = []
    send = Producer.send

    async def traced(self: Producer, topic: str, value: bytes, *rest: object) -> object:
        seen.append(value)
        return await send(self, topic, value, *rest)

    class Traced(Producer):
        send = traced

    async with new_producer(linger_ms=linger_ms) as producer:
        assert type(producer) is Producer
        await producer.send_and_wait("t", b"before")
        monkeypatch.setattr(Producer, "send", traced)
        for value in numbers(5):
            await producer.send_and_wait("t", value)
        monkeypatch.undo()
        assert seen == numbers(5)
        producer.__class__ = Traced
        for value in numbers(5, 5):
            await producer.send_and_wait("t", value)
    assert seen == numbers(10)


async def test_a_custom_partitioner(broker: Broker, new_producer: New):
    asked = []

    def last(key, every, available):
        asked.append((key, list(every), sorted(available)))
        return every[-1]

    async with new_producer(partitioner=last) as producer:
        assert (await producer.send_and_wait("t", b"v", key=b"k")).partition == 2
        assert (await producer.send_and_wait("t", b"v", partition=0)).partition == 0
    assert asked == [(b"k", [0, 1, 2], [0, 1, 2])]


async def test_a_partitioner_that_returns_no_partition_fails_the_call(new_producer: New):
    async with new_producer(partitioner=lambda *_: 99) as producer:
        with pytest.raises(ValueError, match="99"):
            await producer.send("t", b"v")


async def test_records_without_keys_fill_one_batch_after_the_other(
    broker: Broker, new_producer: New
):
    async with new_producer(batch_size_bytes=500) as producer:
        deliveries = [await producer.send("t", b"x" * 50) for _ in range(60)]
        partitions = [(await delivery).partition for delivery in deliveries]
    changes = sum(a != b for a, b in pairwise(partitions))
    assert 1 <= changes <= 12


@pytest.mark.parametrize("topic", ["bad topic!", "..", "b\xe9b\xe9"])
async def test_an_invalid_topic_name_fails_without_a_request(
    topic: str, broker: Broker, new_producer: New
):
    async with new_producer() as producer:
        await producer.partitions_for("t")
        requests = len(broker.requests.of(ApiKey.METADATA))
        for send in (producer.send, producer.send_and_wait):
            with pytest.raises(ValueError, match="is not a valid topic name: only ASCII letters"):
                await send(topic, b"v")
        with pytest.raises(ValueError, match="is not a valid topic name"):
            await producer.send_many(topic, [b"v"])
        with pytest.raises(ValueError, match="is not a valid topic name"):
            await producer.partitions_for(topic)
        with pytest.raises(ValueError, match="is not a valid topic name"):
            producer.send_nowait(topic, b"v")
        assert len(broker.requests.of(ApiKey.METADATA)) == requests


async def test_send_many_checks_all_before_it_sends_any(broker: Broker, new_producer: New):
    async with new_producer() as producer:
        with pytest.raises(TypeError, match="value"):
            await producer.send_many("t", [b"fine", "text"])
        with pytest.raises(ValueError, match="keys has 1 entries"):
            await producer.send_many("t", [b"a", b"b"], keys=[b"a"])
        await producer.flush()
    assert sum(broker.end_offset("t", partition) for partition in range(3)) == 0


@pytest.mark.slow
async def test_send_many_notes_how_many_records_were_appended(broker: Broker, new_producer: New):
    fault = broker.on(ApiKey.PRODUCE, Drop())
    async with new_producer(buffer_memory_bytes=1000, request_timeout_ms=300) as producer:
        await producer.partitions_for("t")
        with max_block(producer, 200), pytest.raises(BufferFull) as caught:
            await producer.send_many("t", [b"x" * 300] * 5, partition=0)
        assert caught.value.__notes__ == ["send_many: 3 of 5 records are in the buffer"]
        fault.remove()


async def test_columns_of_send_many(broker: Broker, new_producer: New):
    async with new_producer() as producer:
        deliveries = await producer.send_many(
            "t", [b"a", None], [b"k", b"k"], timestamps_ms=[5, 6], headers=[(), [("h", b"1")]]
        )
        got = [await delivery for delivery in deliveries]
    assert [metadata.timestamp_ms for metadata in got] == [5, 6]
    assert got[0].partition == got[1].partition


# --- buffer space ---


async def test_a_full_buffer_blocks_send(broker: Broker, new_producer: New):
    async with new_producer(buffer_memory_bytes=2_000, linger_ms=LONG_MS) as producer:
        for value in numbers(300):
            await producer.send("t", value, partition=0)
        await producer.flush()
    assert await stored(broker, "t") == numbers(300)


async def test_many_blocked_callers_lose_nothing(broker: Broker, new_producer: New):
    async with new_producer(buffer_memory_bytes=1_000) as producer:

        async def send(caller: int) -> None:
            for value in numbers(30, caller * 1_000):
                await producer.send("t", value, partition=0)

        async with anyio.create_task_group() as group:
            for caller in range(6):
                group.start_soon(send, caller)
    values = await stored(broker, "t")
    assert sorted(values) == sorted(n for caller in range(6) for n in numbers(30, caller * 1_000))


@pytest.mark.slow
async def test_a_full_buffer_fails_after_max_block(broker: Broker, new_producer: New):
    fault = broker.on(ApiKey.PRODUCE, Drop())
    async with new_producer(buffer_memory_bytes=1_000, request_timeout_ms=300) as producer:
        await producer.send("t", b"x" * 800)
        with max_block(producer, 200), pytest.raises(BufferFull, match="max_block_ms"):
            await producer.send("t", b"x" * 800)
        with pytest.raises(BufferFull):
            producer.send_nowait("t", b"x" * 800)
        with pytest.raises(RecordTooLarge):
            await producer.send("t", b"x" * 1_200)
        fault.remove()


# --- faults ---


@pytest.mark.parametrize(
    "fault", [Drop(), Drop(carried_out=True), Close(), Close(carried_out=True)]
)
@pytest.mark.slow
async def test_lost_requests_and_lost_responses(broker: Broker, new_producer: New, fault: object):
    async with new_producer(linger_ms=0, batch_size_bytes=70, request_timeout_ms=300) as producer:
        await producer.send_and_wait("t", numbers(1)[0], partition=0)
        rule = broker.on(ApiKey.PRODUCE, fault, times=2)
        deliveries = [await producer.send("t", v, partition=0) for v in numbers(30, 1)]
        assert [(await delivery).offset for delivery in deliveries] == list(range(1, 31))
    assert rule.hits == 2
    assert await stored(broker, "t") == numbers(31)


async def test_five_requests_are_in_flight_and_no_more(broker: Broker, new_producer: New):
    gate = anyio.Event()

    async def hold(_: SeenRequest) -> None:
        await gate.wait()

    async with new_producer(linger_ms=0, batch_size_bytes=1, request_timeout_ms=10_000) as producer:
        await producer.send_and_wait("t", b"warm", partition=0)
        broker.on(ApiKey.PRODUCE, hold, times=1)
        broker.requests.clear()
        deliveries = [await producer.send("t", value, partition=0) for value in numbers(10)]
        appender = producer._lifecycle.session.sender.accumulator.topics["t"].by_partition[0]
        await broker.wait_for_request(ApiKey.PRODUCE)
        while len(appender.in_flight) < 5:
            await anyio.lowlevel.checkpoint()
        assert len(appender.in_flight) == 5
        assert len(appender.waiting) == 5
        gate.set()
        for delivery in deliveries:
            await delivery
    assert await stored(broker, "t") == [b"warm", *numbers(10)]


async def test_batches_of_a_dead_broker_go_to_the_next_leader(broker: Broker, new_producer: New):
    async with new_producer(linger_ms=0, batch_size_bytes=100) as producer:
        for number, value in enumerate(numbers(200)):
            if number == 50:
                await broker.kill(broker.leader("t", 0))
            await producer.send("t", value, partition=0)
        await producer.flush()
    assert await stored(broker, "t") == numbers(200)


async def test_leaders_that_move_all_the_time(broker: Broker, new_producer: New):
    async with new_producer(linger_ms=0, batch_size_bytes=100) as producer:
        for number, value in enumerate(numbers(300)):
            if number % 25 == 0:
                broker.move_leader("t", 0, number // 25 % 3 + 1)
            await producer.send("t", value, partition=0)
        await producer.flush()
    assert await stored(broker, "t") == numbers(300)


async def test_not_leader_requests_new_metadata(broker: Broker, new_producer: New):
    async with new_producer() as producer:
        await producer.send_and_wait("t", b"1", partition=0)
        old = broker.leader("t", 0)
        broker.move_leader("t", 0, old % 3 + 1)
        assert (await producer.send_and_wait("t", b"2", partition=0)).offset == 1


@pytest.mark.slow
async def test_an_unknown_outcome_bumps_the_epoch(broker: Broker, new_producer: New):
    async with new_producer(request_timeout_ms=300) as producer:
        await producer.send_and_wait("t", b"1", partition=0)
        fault = broker.on(ApiKey.PRODUCE, Drop(carried_out=True))
        with delivery_timeout(producer, 200), pytest.raises(DeliveryUnknown) as caught:
            await producer.send_and_wait("t", b"2", partition=0)
        assert (caught.value.topic, caught.value.partition) == ("t", 0)
        fault.remove()
        assert (await producer.send_and_wait("t", b"3", partition=0)).offset == 2
    assert await stored(broker, "t") == [b"1", b"2", b"3"]


@pytest.mark.slow
async def test_a_record_that_no_broker_acknowledged_is_delivery_timed_out(
    broker: Broker, new_producer: New
):
    broker.on(ApiKey.PRODUCE, Answer(ErrorCode.NOT_ENOUGH_REPLICAS))
    # It expires between two attempts; with one in flight the outcome would be unknown.
    patient = {"retry_backoff_ms": 2_000, "retry_backoff_max_ms": 2_000}
    async with new_producer(request_timeout_ms=100, delivery_timeout_ms=500, **patient) as producer:
        with pytest.raises(DeliveryTimedOut, match="the record was not written"):
            await producer.send_and_wait("t", b"v", partition=0)


@pytest.mark.parametrize("idempotent", [True, False])
async def test_cancelled_callers_break_nothing(broker: Broker, new_producer: New, idempotent: bool):
    async with new_producer(linger_ms=0, enable_idempotence=idempotent) as producer:
        await producer.send_and_wait("t", b"first", partition=0)
        broker.on(ApiKey.PRODUCE, Delay(0.1), times=1)
        async with anyio.create_task_group() as group:
            for value in numbers(5):
                group.start_soon(producer.send_and_wait, "t", value, None, 0)
            await broker.wait_for_request(ApiKey.PRODUCE, count=2)
            group.cancel_scope.cancel()
        await producer.send_and_wait("t", b"last", partition=0)
    values = await stored(broker, "t")
    assert (values[0], values[-1]) == (b"first", b"last")
    assert len(values) == len(set(values))


async def test_a_call_cancelled_before_the_buffer_sends_nothing(broker: Broker, new_producer: New):
    async with new_producer() as producer:
        await producer.partitions_for("t")
        with anyio.CancelScope() as scope:
            scope.cancel()
            for _ in range(10_000):
                await producer.send("t", b"v", partition=0)
        sent = producer._lifecycle.session.sender.accumulator.incomplete
        count = sum(future.count for future in sent)
        await producer.flush()
    assert scope.cancelled_caught
    assert broker.end_offset("t", 0) < 10_000
    assert count <= broker.end_offset("t", 0)


@pytest.mark.slow
async def test_flush_gives_up_after_its_timeout(broker: Broker, new_producer: New):
    fault = broker.on(ApiKey.PRODUCE, Drop())
    async with new_producer() as producer:
        delivery = await producer.send("t", b"v")
        with pytest.raises(RequestTimedOut, match="incomplete batches: 1"):
            await producer.flush(0.05)
        assert not delivery.done
        fault.remove()
        assert (await delivery).offset == 0


async def test_a_fatal_error_fails_the_producer(broker: Broker, new_producer: New):
    async with new_producer() as producer:
        rule = broker.on(ApiKey.PRODUCE, Answer(ErrorCode.CLUSTER_AUTHORIZATION_FAILED), times=1)
        with pytest.raises(BrokerError, match="CLUSTER_AUTHORIZATION_FAILED"):
            await producer.send_and_wait("t", b"v")
        with pytest.raises(BrokerError, match="CLUSTER_AUTHORIZATION_FAILED"):
            await producer.send("t", b"v")
        assert rule.hits == 1


async def test_the_metrics_are_those_of_the_documentation(broker: Broker, new_producer: New):
    page = Path(__file__).parents[2].joinpath("docs", "producer.md").read_text()
    table = page.partition("## Metrics")[2]
    documented = re.findall(r"^\| `([a-z_]+)` \|", table, re.MULTILINE)
    async with new_producer() as producer:
        numbers = producer.metrics()
    assert list(numbers) == documented
    assert all(type(number) in {int, float} for number in numbers.values())


async def test_records_of_send_many_share_a_request_without_linger(
    broker: Broker, new_producer: New
):
    async with new_producer(linger_ms=0) as producer:
        await producer.send_and_wait("t", b"first", partition=0)
        await producer.send_many("t", numbers(40), partition=0)
        await producer.flush()
    batches = [b for seen in broker.requests.of(ApiKey.PRODUCE) for b in produced(seen)]
    assert [batch.count for batch in batches] == [1, 40]


async def test_without_linger_the_first_record_is_sent_at_once_and_the_next_ones_together(
    broker: Broker, new_producer: New
):
    async with new_producer(linger_ms=0) as producer:
        await producer.send_and_wait("t", b"first", partition=0)
        for value in numbers(40):
            producer.send_nowait("t", value, partition=0)
        await producer.flush()
    batches = [b for seen in broker.requests.of(ApiKey.PRODUCE) for b in produced(seen)]
    assert [batch.count for batch in batches] == [1, 1, 39]
