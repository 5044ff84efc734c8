"""Reaction of a producer to each error."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
import pytest

from aiokafkawire.errors import BrokerError, KafkaError
from aiokafkawire.producer import Producer
from aiokafkawire.records import iter_batches
from aiokafkawire.wire import ApiKey, ErrorCode

from .observer import WITHIN_S, Observer, respond_with
from .table import Reaction, Row, rows_of


@pytest.mark.parametrize("row", rows_of(ApiKey.PRODUCE), ids=lambda row: row.name)
async def test_produce(observer: Observer, row: Row) -> None:
    async with Producer(**observer.options, linger_ms=0) as producer:
        with anyio.fail_after(WITHIN_S):
            await producer.send_and_wait(observer.topic, b"before")
            observer.fault(row)
            deliveries = await producer.send_many(observer.topic, [b"one", b"two"])
            if row.reaction is Reaction.RAISE:
                for delivery in deliveries:
                    with pytest.raises(BrokerError) as caught:
                        await delivery
                    observer.check_error(
                        caught.value, row, "broker", "topic", "partition", "attempt"
                    )
                assert len(observer.requests(ApiKey.PRODUCE)) == 1
            else:
                for delivery in deliveries:
                    await delivery
                await SENT_AGAIN[row.reaction](observer, row)
            await producer.send_and_wait(observer.topic, b"after")
    kept = (
        [b"one", b"two"] if row.reaction not in {Reaction.RAISE, Reaction.TREAT_AS_SUCCESS} else []
    )
    assert await observer.stored() == [b"before", *kept, b"after"]


async def sent_again(observer: Observer, row: Row) -> None:
    await observer.check_reaction(row)
    first, second = (batches_of(request.message) for request in observer.requests(ApiKey.PRODUCE))
    numbered = row.code is not ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
    assert first == [(1, 2)]
    assert second == [(1 if numbered else -1, 2)], "the same batch with the same sequence, if any"


@pytest.mark.parametrize("asked", [True, False])
async def test_produce_to_a_log_without_producer_ids(
    observer: Observer, asked: bool, caplog: pytest.LogCaptureFixture
) -> None:
    row = Row(ApiKey.PRODUCE, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, Reaction.RAISE)
    refused = respond_with(row.code, lambda message: batches_of(message)[0][0] >= 0)
    observer.fault(row, refused, times=None)
    more = {"enable_idempotence": True} if asked else {}
    async with Producer(**observer.options, linger_ms=0, **more) as producer:
        with anyio.fail_after(WITHIN_S):
            values = [b"%d" % number for number in range(10)]
            deliveries = [await producer.send(observer.topic, value) for value in values]
            for delivery in deliveries:
                if asked:
                    with pytest.raises(BrokerError) as caught:
                        await delivery
                    observer.check_error(
                        caught.value, row, "broker", "topic", "partition", "attempt"
                    )
                else:
                    await delivery
    assert await observer.stored() == ([] if asked else values)
    warned = [line for line in caplog.messages if "idempotence is disabled" in line]
    assert len(warned) == (0 if asked else 1)


async def sent_in_halves(observer: Observer, row: Row) -> None:
    whole, *halves = (batches_of(request.message) for request in observer.requests(ApiKey.PRODUCE))
    assert (whole, halves) == ([(1, 2)], [[(1, 1)], [(2, 1)]])


async def sent_once(observer: Observer, row: Row) -> None:
    assert len(observer.requests(ApiKey.PRODUCE)) == 1


SENT_AGAIN: dict[Reaction, Callable[[Observer, Row], Awaitable[None]]] = {
    Reaction.TREAT_AS_SUCCESS: sent_once,
    Reaction.RETRY: sent_again,
    Reaction.REFRESH_METADATA: sent_again,
    Reaction.SPLIT_BATCH: sent_in_halves,
}


def batches_of(request: object) -> list[tuple[int, int]]:
    """Return the first sequence and the number of records of each batch of a request."""
    return [
        (batch.base_sequence, batch.count)
        for topic in request.topic_data  # type: ignore[attr-defined]
        for data in topic.partition_data
        for batch in iter_batches(data.records)
    ]


@pytest.mark.parametrize("row", rows_of(ApiKey.INIT_PRODUCER_ID), ids=lambda row: row.name)
async def test_init_producer_id(observer: Observer, row: Row) -> None:
    observer.fault(row)
    producer = Producer(**observer.options)
    with anyio.fail_after(WITHIN_S):
        if row.reaction is Reaction.RAISE:
            with pytest.raises(KafkaError) as caught:
                async with producer:
                    await producer.send_and_wait(observer.topic, b"value")
            observer.check_error(caught.value, row, "broker")
        else:
            async with producer:
                await producer.send_and_wait(observer.topic, b"value")
            assert len(observer.requests(row.api)) == 2
    assert await observer.stored() == ([] if row.reaction is Reaction.RAISE else [b"value"])


# --- metadata ---------------------------------------------------------------------------------


TOPICS_ERRORS = [row for row in rows_of(ApiKey.METADATA) if row.reaction is not Reaction.IGNORE]


@pytest.mark.parametrize("row", TOPICS_ERRORS, ids=lambda row: row.name)
async def test_metadata(observer: Observer, row: Row) -> None:
    async with Producer(**observer.options) as producer:
        observer.fault(row, observer.metadata(row.code))
        with anyio.fail_after(WITHIN_S):
            if row.reaction is Reaction.RAISE:
                with pytest.raises(BrokerError) as caught:
                    await producer.send(observer.topic, b"value")
                observer.check_error(caught.value, row, "broker", "topic")
                assert not observer.after(ApiKey.METADATA, ApiKey.PRODUCE)
            else:
                await producer.send_and_wait(observer.topic, b"value")
                assert observer.after(ApiKey.METADATA)
    assert await observer.stored() == ([] if row.reaction is Reaction.RAISE else [b"value"])


PARTITIONS_ERRORS = [
    Row(ApiKey.METADATA, ErrorCode.REPLICA_NOT_AVAILABLE, Reaction.IGNORE),
    Row(ApiKey.METADATA, ErrorCode.LEADER_NOT_AVAILABLE, Reaction.REFRESH_METADATA),
]


@pytest.mark.parametrize("row", PARTITIONS_ERRORS, ids=lambda row: row.name)
async def test_metadata_of_a_partition(observer: Observer, row: Row) -> None:
    async with Producer(**observer.options) as producer:
        has_leader = row.reaction is Reaction.IGNORE
        observer.fault(row, observer.metadata(ErrorCode.NONE, row.code, has_leader=has_leader))
        with anyio.fail_after(WITHIN_S):
            await producer.send_and_wait(observer.topic, b"value")
        asked = [each.api_key for each in observer.after(ApiKey.METADATA, ApiKey.PRODUCE)]
        assert asked[0] is (ApiKey.PRODUCE if has_leader else ApiKey.METADATA)
    assert await observer.stored() == [b"value"]
