"""Events recorded for an application's producers and consumers."""

from __future__ import annotations

from collections import Counter
from typing import Any

import anyio
import pytest

from aiokafkawire import Consumer, Producer, TopicPartition
from aiokafkawire.broker import Broker
from verify.invariants import events
from verify.invariants.recorded_producer import RecordedProducer
from verify.invariants.recorder import OwnError, Recorder


class Steps:
    """A clock that goes on by one at each look."""

    def __init__(self) -> None:
        self.time = 0.0

    def __call__(self) -> float:
        self.time += 1
        return self.time


def of(recorder: Recorder, kind: type[Any]) -> list[Any]:
    return [event for event in recorder.history if type(event) is kind]


async def test_an_application_is_written_down() -> None:
    recorder = Recorder(Steps())
    async with Broker() as broker:
        await broker.create_topic("t", partitions=1)
        servers = broker.bootstrap_servers
        producer = recorder.producer(Producer(bootstrap_servers=servers, client_id="p"), "p")
        async with producer:
            values = [producer.value() for _ in range(4)]
            await (await producer.send("t", values[0]))
            await producer.send_and_wait("t", values[1], partition=0)
            await producer.send_many("t", values[2:])
            await producer.flush()
        peak, kept = recorder.peaks
        assert (kept.client, kept.value, kept.limit) == ("p", 0, 0)
        assert (peak.client, peak.limit) == ("p", producer.config.buffer_memory_bytes)
        assert 0 < peak.value <= producer.config.batch_size_bytes  # one batch at a time
        consumer = recorder.consumer(
            Consumer(
                "t",
                bootstrap_servers=servers,
                client_id="c",
                group_id="g",
                auto_offset_reset="earliest",
            ),
            "c",
        )
        async with consumer:
            first = await consumer.getone()
            assert first is not None
            assert first.value == values[0]
            async for record in consumer:
                if record.value == values[2]:
                    break
            batches = await consumer.getmany(timeout_ms=20_000)
            await consumer.commit(next(iter(batches.values())))
            consumer.seek(TopicPartition("t", 0), 1)
            await consumer.seek_to_beginning()
    assert [event.kind for event in of(recorder, events.Opened)] == ["producer", "consumer"]
    assert of(recorder, events.Opened)[0].options["idempotent"] is True
    assert [event.values for event in of(recorder, events.Sending)] == [
        (values[0],),
        (values[1],),
        tuple(values[2:]),
    ]
    assert [event.send for event in of(recorder, events.RecordsBuffered)] == [1, 3]
    acknowledged = [pair for event in of(recorder, events.Acknowledged) for pair in event.records]
    assert acknowledged == list(enumerate(values))
    assert not of(recorder, events.Failed)
    given = [pair for event in of(recorder, events.Polled) for pair in event.records]
    assert given == list(enumerate(values))
    assert of(recorder, events.Polled)[-1].next_offset == 4
    tp = TopicPartition("t", 0)
    assert [event.partitions for event in of(recorder, events.Assigned)] == [(tp,)]
    assert [event.partitions for event in of(recorder, events.Revoked)] == [(tp,)]
    assert of(recorder, events.Subscribed)[0].topics == ("t",)
    assert [event.outcome for event in of(recorder, events.Committed)] == ["ok"]
    assert [event.to for event in of(recorder, events.PositionSought)] == [1, "beginning"]
    assert Counter(event.client for event in of(recorder, events.Closed)) == {"p": 1, "c": 1}
    assert {event.call for event in of(recorder, events.Called) if event.client == "c"} == {
        event.call for event in of(recorder, events.Returned) if event.client == "c"
    }


async def failing(producer: RecordedProducer) -> None:
    async with producer.transaction():
        await producer.send("t", producer.value())
        raise OwnError


async def test_transactions_are_written_down_with_how_they_ended() -> None:
    recorder = Recorder(Steps())
    async with Broker() as broker:
        await broker.create_topic("t", partitions=1)
        servers = broker.bootstrap_servers
        producer = recorder.producer(
            Producer(bootstrap_servers=servers, client_id="p", transactional_id="x"), "p"
        )
        consumer = recorder.consumer(
            Consumer("t", bootstrap_servers=servers, group_id="g", enable_auto_commit=False), "c"
        )
        async with consumer, producer:
            await consumer.getmany(timeout_ms=1)
            async with producer.transaction():
                await producer.send("t", producer.value())
                await producer.send_offsets_to_transaction(consumer)
            with pytest.raises(OwnError):
                await failing(producer)
            await producer.begin_transaction()
            await producer.commit_transaction()
            await producer.begin_transaction()
            await producer.abort_transaction()
    assert [event.transaction for event in of(recorder, events.TransactionBegan)] == [1, 2, 3, 4]
    assert [event.outcome for event in of(recorder, events.TransactionEnded)] == [
        "committed",
        "aborted",
        "committed",
        "aborted",
    ]
    assert [event.transaction for event in of(recorder, events.Sending)] == [1, 2]
    assert [event.error for event in of(recorder, events.Failed)] == ["TransactionAborted"]
    assert [event.group for event in of(recorder, events.OffsetsSent)] == ["g"]


async def test_a_transaction_that_is_given_away_ends_as_its_producers() -> None:
    recorder = Recorder(Steps())
    async with Broker() as broker:
        servers = broker.bootstrap_servers
        producer = recorder.producer(
            Producer(bootstrap_servers=servers, client_id="p", transactional_id="x"), "p"
        )
        async with producer:
            await producer.begin_transaction()
            await producer.send("t", producer.value())
            detached = await producer.detach_transaction()
        await recorder.end_detached_transaction(detached, commit=True, bootstrap_servers=servers)
    assert [(event.client, event.commit) for event in of(recorder, events.EndTxnRequested)] == [
        ("p", True)
    ]
    assert [event.outcome for event in of(recorder, events.TransactionEnded)] == ["committed"]


async def test_errors_are_written_down_with_their_kind() -> None:
    written: list[Any] = []
    recorder = Recorder(Steps(), written.append)
    with pytest.raises(OwnError), recorder.journal("c").call("mine", 1.0):
        raise OwnError("why")
    with pytest.raises(KeyError), recorder.journal("c").call("other", None):
        raise KeyError("k")
    assert recorder.history == []
    returned = [event for event in written if type(event) is events.Returned]
    assert [(event.error, event.typed, event.text) for event in returned] == [
        ("OwnError", True, "why"),
        ("KeyError", False, "'k'"),
    ]


async def test_a_cancelled_call_is_no_error_of_anybody() -> None:
    recorder = Recorder(Steps())
    with anyio.CancelScope() as scope, recorder.journal("c").call("wait", None):
        scope.cancel()
        await anyio.sleep_forever()
    [returned] = of(recorder, events.Returned)
    assert (returned.error, returned.typed) == ("Cancelled", True)


async def test_a_crashed_client_has_no_callbacks() -> None:
    recorder = Recorder(Steps())
    async with Broker() as broker:
        await broker.create_topic("t", partitions=1)
        servers = broker.bootstrap_servers
        consumer = recorder.consumer(
            Consumer("t", bootstrap_servers=servers, client_id="c", group_id="g"), "c"
        )
        async with consumer:
            while not consumer.assignment():
                await consumer.getmany(timeout_ms=100)
            recorder.crashed("c")
    assert len(of(recorder, events.Assigned)) == 1
    assert not of(recorder, events.Revoked)
