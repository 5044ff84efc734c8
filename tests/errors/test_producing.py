"""What a producer does about each error."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
import pytest

from aiokafkawire.errors import BrokerError, KafkaError
from aiokafkawire.producer import Producer
from aiokafkawire.records import iter_batches
from aiokafkawire.wire import ApiKey, ErrorCode

from .seeing import WITHIN_S, Seen, answering
from .table import Does, Row, rows_of


@pytest.mark.parametrize("row", rows_of(ApiKey.PRODUCE), ids=lambda row: row.name)
async def test_produce(seen: Seen, row: Row) -> None:
    async with Producer(**seen.options, linger_ms=0) as producer:
        with anyio.fail_after(WITHIN_S):
            await producer.send_and_wait(seen.topic, b"before")
            seen.fault(row)
            deliveries = await producer.send_many(seen.topic, [b"one", b"two"])
            if row.does is Does.FAIL:
                for delivery in deliveries:
                    with pytest.raises(BrokerError) as caught:
                        await delivery
                    seen.says(caught.value, row, "broker", "topic", "partition", "attempt")
                assert len(seen.requests(ApiKey.PRODUCE)) == 1
            else:
                for delivery in deliveries:
                    await delivery
                await SENT_AGAIN[row.does](seen, row)
            await producer.send_and_wait(seen.topic, b"after")
    kept = [b"one", b"two"] if row.does not in {Does.FAIL, Does.AS_NONE} else []
    assert await seen.stored() == [b"before", *kept, b"after"]


async def sent_again(seen: Seen, row: Row) -> None:
    await seen.acts(row)
    first, second = (batches_of(request.message) for request in seen.requests(ApiKey.PRODUCE))
    numbered = row.code is not ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
    assert first == [(1, 2)]
    assert second == [(1 if numbered else -1, 2)], "the same batch under the same number, if any"


@pytest.mark.parametrize("asked", [True, False])
async def test_produce_to_a_log_without_producer_ids(
    seen: Seen, asked: bool, caplog: pytest.LogCaptureFixture
) -> None:
    row = Row(ApiKey.PRODUCE, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, Does.FAIL)
    refused = answering(row.code, lambda message: batches_of(message)[0][0] >= 0)
    seen.fault(row, refused, times=None)
    more = {"enable_idempotence": True} if asked else {}
    async with Producer(**seen.options, linger_ms=0, **more) as producer:
        with anyio.fail_after(WITHIN_S):
            values = [b"%d" % number for number in range(10)]
            deliveries = [await producer.send(seen.topic, value) for value in values]
            for delivery in deliveries:
                if asked:
                    with pytest.raises(BrokerError) as caught:
                        await delivery
                    seen.says(caught.value, row, "broker", "topic", "partition", "attempt")
                else:
                    await delivery
    assert await seen.stored() == ([] if asked else values)
    warned = [line for line in caplog.messages if "idempotence is disabled" in line]
    assert len(warned) == (0 if asked else 1)


async def sent_in_halves(seen: Seen, row: Row) -> None:
    whole, *halves = (batches_of(request.message) for request in seen.requests(ApiKey.PRODUCE))
    assert (whole, halves) == ([(1, 2)], [[(1, 1)], [(2, 1)]])


async def sent_once(seen: Seen, row: Row) -> None:
    assert len(seen.requests(ApiKey.PRODUCE)) == 1


SENT_AGAIN: dict[Does, Callable[[Seen, Row], Awaitable[None]]] = {
    Does.AS_NONE: sent_once,
    Does.REPEAT: sent_again,
    Does.REFRESH: sent_again,
    Does.SPLIT: sent_in_halves,
}


def batches_of(request: object) -> list[tuple[int, int]]:
    """The first sequence number of each batch of a request, and its records."""
    return [
        (batch.base_sequence, batch.count)
        for topic in request.topic_data  # type: ignore[attr-defined]
        for data in topic.partition_data
        for batch in iter_batches(data.records)
    ]


@pytest.mark.parametrize("row", rows_of(ApiKey.INIT_PRODUCER_ID), ids=lambda row: row.name)
async def test_init_producer_id(seen: Seen, row: Row) -> None:
    seen.fault(row)
    producer = Producer(**seen.options)
    with anyio.fail_after(WITHIN_S):
        if row.does is Does.FAIL:
            with pytest.raises(KafkaError) as caught:
                async with producer:
                    await producer.send_and_wait(seen.topic, b"value")
            seen.says(caught.value, row, "broker")
        else:
            async with producer:
                await producer.send_and_wait(seen.topic, b"value")
            assert len(seen.requests(row.api)) == 2
    assert await seen.stored() == ([] if row.does is Does.FAIL else [b"value"])


# --- metadata ---------------------------------------------------------------------------------


TOPICS_ERRORS = [row for row in rows_of(ApiKey.METADATA) if row.does is not Does.IGNORE]


@pytest.mark.parametrize("row", TOPICS_ERRORS, ids=lambda row: row.name)
async def test_metadata(seen: Seen, row: Row) -> None:
    async with Producer(**seen.options) as producer:
        seen.fault(row, seen.metadata(row.code))
        with anyio.fail_after(WITHIN_S):
            if row.does is Does.FAIL:
                with pytest.raises(BrokerError) as caught:
                    await producer.send(seen.topic, b"value")
                seen.says(caught.value, row, "broker", "topic")
                assert not seen.after(ApiKey.METADATA, ApiKey.PRODUCE)
            else:
                await producer.send_and_wait(seen.topic, b"value")
                assert seen.after(ApiKey.METADATA)
    assert await seen.stored() == ([] if row.does is Does.FAIL else [b"value"])


PARTITIONS_ERRORS = [
    Row(ApiKey.METADATA, ErrorCode.REPLICA_NOT_AVAILABLE, Does.IGNORE),
    Row(ApiKey.METADATA, ErrorCode.LEADER_NOT_AVAILABLE, Does.REFRESH),
]


@pytest.mark.parametrize("row", PARTITIONS_ERRORS, ids=lambda row: row.name)
async def test_metadata_of_a_partition(seen: Seen, row: Row) -> None:
    async with Producer(**seen.options) as producer:
        has_leader = row.does is Does.IGNORE
        seen.fault(row, seen.metadata(ErrorCode.NONE, row.code, has_leader=has_leader))
        with anyio.fail_after(WITHIN_S):
            await producer.send_and_wait(seen.topic, b"value")
        asked = [each.api_key for each in seen.after(ApiKey.METADATA, ApiKey.PRODUCE)]
        assert asked[0] is (ApiKey.PRODUCE if has_leader else ApiKey.METADATA)
    assert await seen.stored() == [b"value"]
