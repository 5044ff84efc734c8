"""What a consumer does about each error of the logs it reads."""

from __future__ import annotations

import logging

import anyio
import pytest

from aiokafkawire.broker import SeenRequest
from aiokafkawire.consumer import Consumer
from aiokafkawire.errors import BrokerError, NoOffsetForPartition
from aiokafkawire.wire import ApiKey, ErrorCode
from aiokafkawire.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartitionData,
    FetchRequest,
    FetchResponse,
)

from .seeing import VALUES, WITHIN_S, Answering, Seen
from .table import Does, Row, rows_of


def of_partitions(code: ErrorCode) -> Answering:
    """Answer a Fetch with a code of each partition; the answer itself has none."""

    def answer(seen: SeenRequest) -> FetchResponse:
        assert isinstance(seen.message, FetchRequest)
        return FetchResponse(
            responses=[
                FetchableTopicResponse(
                    topic=topic.topic,
                    topic_id=topic.topic_id,
                    partitions=[
                        FetchPartitionData(
                            partition_index=each.partition,
                            error_code=code,
                            high_watermark=-1,
                            records=None,
                        )
                        for each in topic.partitions
                    ],
                )
                for topic in seen.message.topics
            ]
        )

    return answer


async def read(consumer: Consumer) -> list[tuple[int, bytes | None]]:
    """What is given until all is there."""
    found: list[tuple[int, bytes | None]] = []
    while len(found) < len(VALUES):
        for records in (await consumer.getmany(timeout_ms=1_000)).values():
            found += [(record.offset, record.value) for record in records]
    return found


@pytest.mark.parametrize("row", rows_of(ApiKey.FETCH), ids=lambda row: row.name)
async def test_fetch(seen: Seen, row: Row, caplog: pytest.LogCaptureFixture) -> None:
    seen.fault(row, of_partitions(row.code))
    options = seen.options | {"auto_offset_reset": "earliest", "fetch_max_wait_ms": 10}
    async with Consumer(**options) as consumer:
        consumer.assign(seen.partition)
        consumer.seek(seen.partition, 0)
        with anyio.fail_after(WITHIN_S):
            if row.does is Does.FAIL:
                with pytest.raises(BrokerError) as caught:
                    await consumer.getone()
                seen.says(caught.value, row, "broker", "topic", "partition", "offset")
            assert await read(consumer) == list(enumerate(VALUES))
            if row.does is not Does.FAIL:
                await seen.acts(row)
    if row.code is ErrorCode.UNKNOWN_SERVER_ERROR:
        (line,) = [r for r in caplog.records if r.levelno == logging.WARNING]
        assert seen.topic in line.getMessage()


async def test_fetch_without_a_policy(seen: Seen) -> None:
    (row,) = [row for row in rows_of(ApiKey.FETCH) if row.does is Does.RESET]
    async with Consumer(**seen.options, auto_offset_reset="none") as consumer:
        consumer.assign(seen.partition)
        consumer.seek(seen.partition, 0)
        seen.fault(row, of_partitions(row.code))
        with anyio.fail_after(WITHIN_S), pytest.raises(NoOffsetForPartition) as caught:
            await consumer.getone()
        assert caught.value.partitions == (seen.partition,)
        assert not seen.requests(ApiKey.LIST_OFFSETS)


@pytest.mark.parametrize("row", rows_of(ApiKey.LIST_OFFSETS), ids=lambda row: row.name)
async def test_list_offsets(seen: Seen, row: Row) -> None:
    async with Consumer(**seen.options) as consumer:
        seen.fault(row)
        with anyio.fail_after(WITHIN_S):
            if row.does is Does.FAIL:
                with pytest.raises(BrokerError) as caught:
                    await consumer.end_offsets(seen.partition)
                seen.says(caught.value, row, "broker", "topic", "partition")
            elif row.does is Does.AS_NONE:
                found = await consumer.offsets_for_times({seen.partition: 1})
                assert found == {seen.partition: None}
                assert len(seen.requests(row.api)) == 1
            else:
                assert await consumer.end_offsets(seen.partition) == {seen.partition: 2}
                await seen.acts(row)


OF_THE_ENDS = [row for row in rows_of(ApiKey.LIST_OFFSETS) if row.does is not Does.AS_NONE]


@pytest.mark.parametrize("row", OF_THE_ENDS, ids=lambda row: row.name)
async def test_list_offsets_for_a_position(seen: Seen, row: Row) -> None:
    seen.fault(row)
    options = seen.options | {"auto_offset_reset": "earliest"}
    async with Consumer(**options) as consumer:
        consumer.assign(seen.partition)
        with anyio.fail_after(WITHIN_S):
            if row.does is Does.FAIL:
                with pytest.raises(BrokerError) as caught:
                    await consumer.getone()
                seen.says(caught.value, row, "broker", "topic", "partition")
            assert await read(consumer) == list(enumerate(VALUES))
