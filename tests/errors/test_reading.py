"""Reaction of a consumer to each error of Fetch and ListOffsets."""

from __future__ import annotations

import logging

import anyio
import pytest

from aiokafkawire.consumer import Consumer
from aiokafkawire.errors import BrokerError, NoOffsetForPartition
from aiokafkawire.wire import ApiKey, ErrorCode
from tests.faults.support import fetch_errors

from .observer import VALUES, WITHIN_S, Observer
from .table import Reaction, Row, rows_of


async def read(consumer: Consumer) -> list[tuple[int, bytes | None]]:
    """Return the records that are delivered, until all are."""
    found: list[tuple[int, bytes | None]] = []
    while len(found) < len(VALUES):
        for records in (await consumer.getmany(timeout_ms=1_000)).values():
            found += [(record.offset, record.value) for record in records]
    return found


@pytest.mark.parametrize("row", rows_of(ApiKey.FETCH), ids=lambda row: row.name)
async def test_fetch(observer: Observer, row: Row, caplog: pytest.LogCaptureFixture) -> None:
    observer.fault(row, fetch_errors(row.code))
    options = observer.options | {"auto_offset_reset": "earliest", "fetch_max_wait_ms": 10}
    async with Consumer(**options) as consumer:
        consumer.assign(observer.partition)
        consumer.seek(observer.partition, 0)
        with anyio.fail_after(WITHIN_S):
            if row.reaction is Reaction.RAISE:
                with pytest.raises(BrokerError) as caught:
                    await consumer.getone()
                observer.check_error(caught.value, row, "broker", "topic", "partition", "offset")
            assert await read(consumer) == list(enumerate(VALUES))
            if row.reaction is not Reaction.RAISE:
                await observer.check_reaction(row)
    if row.code is ErrorCode.UNKNOWN_SERVER_ERROR:
        (line,) = [r for r in caplog.records if r.levelno == logging.WARNING]
        assert observer.topic in line.getMessage()


async def test_fetch_without_a_reset_policy(observer: Observer) -> None:
    (row,) = [row for row in rows_of(ApiKey.FETCH) if row.reaction is Reaction.RESET_POSITION]
    async with Consumer(**observer.options, auto_offset_reset="none") as consumer:
        consumer.assign(observer.partition)
        consumer.seek(observer.partition, 0)
        observer.fault(row, fetch_errors(row.code))
        with anyio.fail_after(WITHIN_S), pytest.raises(NoOffsetForPartition) as caught:
            await consumer.getone()
        assert caught.value.partitions == (observer.partition,)
        assert not observer.requests(ApiKey.LIST_OFFSETS)


@pytest.mark.parametrize("row", rows_of(ApiKey.LIST_OFFSETS), ids=lambda row: row.name)
async def test_list_offsets(observer: Observer, row: Row) -> None:
    async with Consumer(**observer.options) as consumer:
        observer.fault(row)
        with anyio.fail_after(WITHIN_S):
            if row.reaction is Reaction.RAISE:
                with pytest.raises(BrokerError) as caught:
                    await consumer.end_offsets(observer.partition)
                observer.check_error(caught.value, row, "broker", "topic", "partition")
            elif row.reaction is Reaction.TREAT_AS_SUCCESS:
                found = await consumer.offsets_for_times({observer.partition: 1})
                assert found == {observer.partition: None}
                assert len(observer.requests(row.api)) == 1
            else:
                assert await consumer.end_offsets(observer.partition) == {observer.partition: 2}
                await observer.check_reaction(row)


OF_THE_ENDS = [
    row for row in rows_of(ApiKey.LIST_OFFSETS) if row.reaction is not Reaction.TREAT_AS_SUCCESS
]


@pytest.mark.parametrize("row", OF_THE_ENDS, ids=lambda row: row.name)
async def test_list_offsets_for_a_position(observer: Observer, row: Row) -> None:
    observer.fault(row)
    options = observer.options | {"auto_offset_reset": "earliest"}
    async with Consumer(**options) as consumer:
        consumer.assign(observer.partition)
        with anyio.fail_after(WITHIN_S):
            if row.reaction is Reaction.RAISE:
                with pytest.raises(BrokerError) as caught:
                    await consumer.getone()
                observer.check_error(caught.value, row, "broker", "topic", "partition")
            assert await read(consumer) == list(enumerate(VALUES))
