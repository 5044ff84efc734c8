"""Finished records above the committed offset: their metadata, and what is skipped."""

from __future__ import annotations

import base64
import random
import zlib
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafkawire.broker import Broker
from aiokafkawire.consumer import Consumer
from aiokafkawire.errors import InvalidOption
from aiokafkawire.producer import Producer
from aiokafkawire.records import Record
from aiokafkawire.types import OffsetAndMetadata, TopicPartition
from aiokafkawire.wire.primitives import encode_varlong
from aiokafkawire.worker import Worker
from aiokafkawire.worker.finished_records import (
    MAX_METADATA,
    PREFIX,
    FinishedRecords,
    decode_metadata,
    encode_metadata,
)
from aiokafkawire.worker.offset_tracker import OffsetTracker

TP = TopicPartition("orders", 0)
WITHIN_S = 20.0


def records(*offsets: int, leader_epoch: int = 3) -> list[Record]:
    return [Record("orders", 0, offset, leader_epoch=leader_epoch) for offset in offsets]


def offsets_of(found: Any) -> list[int]:
    return [record.offset for record in found]


@st.composite
def finished_records(draw: st.DrawFn) -> FinishedRecords:
    end = offset = draw(st.integers(0, 2**62))
    ranges: list[tuple[int, int]] = []
    for unfinished, length in draw(
        st.lists(st.tuples(st.integers(1, 2**32 - 1), st.integers(1, 2**32 - 1)), min_size=1)
    ):
        ranges.append((end + unfinished, end + unfinished + length))
        end += unfinished + length
    return FinishedRecords(offset, draw(st.integers(-1, 2**31 - 1)), tuple(ranges))


# --- the metadata ---


@given(finished_records())
def test_metadata_is_read_as_it_was_written(finished: FinishedRecords):
    metadata = encode_metadata(finished)
    assert len(metadata) <= MAX_METADATA
    assert metadata.isascii()
    assert decode_metadata(finished.offset, metadata) == finished
    assert decode_metadata(finished.offset + 1, metadata) is None


@pytest.mark.parametrize("distance", [1, 200, 2**20])
def test_ranges_that_do_not_fit_are_left_out(distance: int):
    every = range(100 + distance, 100 + distance * 10_000, 2 * distance)
    finished = FinishedRecords(100, 3, tuple((first, first + distance) for first in every))
    metadata = encode_metadata(finished)
    assert MAX_METADATA - 20 < len(metadata) <= MAX_METADATA
    read = decode_metadata(100, metadata)
    assert read is not None
    assert read.ranges == finished.ranges[: len(read.ranges)]
    assert len(read.ranges) < len(finished.ranges)


def test_nothing_finished_needs_no_metadata():
    assert encode_metadata(FinishedRecords(5, 3, ())) == ""
    assert encode_metadata(FinishedRecords(5, 3, ((2**40, 2**40 + 1),))) == ""


@given(st.text() | st.text("ABCDabcd0123+/=").map(PREFIX.__add__))
def test_metadata_of_other_programs_is_ignored(metadata: str):
    assert decode_metadata(5, metadata) is None


@given(finished_records(), st.data())
def test_damaged_metadata_is_ignored(finished: FinishedRecords, data: st.DataObject):
    metadata = encode_metadata(finished)
    place = data.draw(st.integers(0, len(metadata) - 1))
    character = data.draw(st.sampled_from("Aa0+=\x00é"))
    damaged = metadata[:place] + character + metadata[place + 1 :]
    # Spare bits of the last character do not count.
    assert decode_metadata(finished.offset, damaged) in (None, finished)
    assert decode_metadata(finished.offset, metadata[:place]) is None


@given(st.binary(max_size=40))
def test_any_body_with_the_right_checksum_is_read_or_ignored(body: bytes):
    body = encode_varlong(5) + body
    metadata = PREFIX + base64.b64encode(body + zlib.crc32(body).to_bytes(4, "big")).decode()
    finished = decode_metadata(5, metadata)
    if finished is not None:
        assert all(5 <= first <= end for first, end in finished.ranges)


def test_metadata_that_is_too_long_is_ignored():
    body = encode_varlong(5) + encode_varlong(3) + b"\x01\x01" * 4_000
    encoded = base64.b64encode(body + zlib.crc32(body).to_bytes(4, "big")).decode()
    assert decode_metadata(5, PREFIX + encoded) is None


# --- the tracker ---


@given(st.sets(st.integers(0, 60), min_size=1).map(sorted), st.randoms(use_true_random=False))
def test_the_next_owner_gets_exactly_the_unfinished_records(offsets: list[int], rng: random.Random):
    log, finished = records(*offsets), set(rng.sample(offsets, rng.randint(0, len(offsets))))
    tracker = OffsetTracker()
    tracker.add(log)
    tracker.finish([record for record in log if record.offset in finished])
    for _ in range(3):  # assignments that finish nothing more
        committed, named = tracker.committable, tracker.finished_records
        assert committed is not None
        assert named is not None
        read = decode_metadata(committed.offset, encode_metadata(named))
        tracker = OffsetTracker()
        if read is not None:
            tracker.restore(read)
        fetched = [record for record in log if record.offset >= committed.offset]
        left = []
        middle = rng.randint(0, len(fetched))
        for part in (fetched[:middle], fetched[middle:]):
            if part:
                left += offsets_of(tracker.add(part))
                assert tracker.committable is not None
        assert left == [offset for offset in offsets if offset not in finished]
        if not fetched:
            return


def test_finished_records_that_are_not_fetched_yet_are_committed_again():
    tracker = OffsetTracker()
    tracker.restore(FinishedRecords(5, 3, ((6, 8), (20, 30))))
    assert tracker.finished_records is None
    assert offsets_of(tracker.add(records(5, 6, 7, 8, leader_epoch=2))) == [5, 8]
    assert tracker.finished_records == FinishedRecords(5, 3, ((6, 8), (20, 30)))
    tracker.finish(records(5, 8))
    assert tracker.finished_records == FinishedRecords(9, 3, ((20, 30),))
    assert offsets_of(tracker.add(records(*range(9, 40)))) == [*range(9, 20), *range(30, 40)]
    assert tracker.finished_records == FinishedRecords(9, 3, ((20, 30),))


def test_records_that_are_written_after_a_truncation_are_processed():
    tracker = OffsetTracker()
    tracker.restore(FinishedRecords(5, 3, ((6, 10),)))
    log = [*records(5, 6), *records(7, leader_epoch=4)]
    assert offsets_of(tracker.add(log)) == [5, 7]
    assert offsets_of(tracker.add(records(8, 9, leader_epoch=4))) == [8, 9]
    assert tracker.finished_records == FinishedRecords(5, 4, ((6, 7),))


def test_records_before_the_committed_offset_are_of_another_topic():
    tracker = OffsetTracker()
    tracker.restore(FinishedRecords(5, 3, ((6, 10),)))
    assert offsets_of(tracker.add(records(0, 5, 6))) == [0, 5, 6]
    assert offsets_of(tracker.add(records(7))) == [7]


# --- the worker ---


def make_worker(broker: Broker, **options: Any) -> Worker:
    return Worker(
        bootstrap_servers=broker.bootstrap_servers,
        group_id="billing",
        commit_interval_ms=20,
        drain_timeout_ms=0,
        **({"commit_finished_records": True} | options),
    )


async def produce(broker: Broker, numbers: range) -> None:
    async with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in numbers:
            await producer.send("orders", b"%d" % number)


async def committed(broker: Broker) -> OffsetAndMetadata | None:
    async with Consumer(bootstrap_servers=broker.bootstrap_servers, group_id="billing") as consumer:
        return (await consumer.committed(TP))[TP]


async def process_all_but(unfinished: set[int], broker: Broker, worker: Worker) -> None:
    """Let a worker process records, and end it while some of them are not finished."""
    is_committed = anyio.Event()

    @worker.on("orders", order_by=None)
    async def process(record: Any) -> None:
        if record.offset in unfinished:
            await anyio.sleep_forever()

    async def watch() -> None:
        expected = {*range(10)} - unfinished
        while True:
            offset = await committed(broker)
            if offset is not None and offset.offset == min(unfinished):
                finished = decode_metadata(offset.offset, offset.metadata)
                named = {*range(offset.offset)} | {
                    number
                    for first, end in (finished.ranges if finished else ())
                    for number in range(first, end)
                }
                if named == expected or not worker.config.commit_finished_records:
                    is_committed.set()
                    return
            await anyio.sleep(0.02)

    with anyio.fail_after(WITHIN_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(worker.run)
            tasks.start_soon(watch)
            await is_committed.wait()
            tasks.cancel_scope.cancel()


@pytest.fixture
async def broker() -> Any:
    async with Broker() as broker:
        await broker.create_topic("orders", partitions=1)
        await produce(broker, range(10))
        yield broker


async def processed_after(broker: Broker, worker: Worker) -> list[int]:
    worker.on("orders", order_by=None)(_ignore)
    results = await worker.run_until_idle(timeout_ms=WITHIN_S * 1_000)
    return sorted(result.record.offset for result in results.processed)


async def _ignore(record: Any) -> None:
    pass


async def test_after_an_abrupt_end_only_unfinished_records_are_processed(broker: Broker):
    await process_all_but({2, 5}, broker, make_worker(broker))
    await process_all_but({5}, broker, make_worker(broker))
    assert await processed_after(broker, make_worker(broker)) == [5]
    assert await committed(broker) == OffsetAndMetadata(10, leader_epoch=0)


async def test_a_worker_without_the_option_processes_finished_records_again(broker: Broker):
    await process_all_but({2, 5}, broker, make_worker(broker))
    worker = make_worker(broker, commit_finished_records=False)
    assert await processed_after(broker, worker) == [*range(2, 10)]


@pytest.mark.parametrize("metadata", ["mine", PREFIX + "AAAA"])
async def test_metadata_of_other_programs_skips_no_record(broker: Broker, metadata: str):
    async with Consumer(bootstrap_servers=broker.bootstrap_servers, group_id="billing") as consumer:
        consumer.assign(TP)
        await consumer.commit({TP: OffsetAndMetadata(3, metadata)})
    assert await processed_after(broker, make_worker(broker)) == [*range(3, 10)]


async def test_a_broker_that_allows_less_metadata_gets_none(caplog: pytest.LogCaptureFixture):
    async with Broker(offset_metadata_max_bytes=10) as broker:
        await broker.create_topic("orders", partitions=1)
        await produce(broker, range(10))
        worker = make_worker(broker)
        seen: list[int] = []

        @worker.on("orders", order_by=None)
        async def process(record: Any) -> None:
            seen.append(record.offset)
            if record.offset == 2:
                await anyio.sleep_forever()

        with anyio.fail_after(WITHIN_S):
            async with worker:
                while await committed(broker) != OffsetAndMetadata(2, leader_epoch=0):  # noqa: ASYNC110
                    await anyio.sleep(0.02)
                assert worker.metrics()["commit_failures_total"] == 0
    assert "offset.metadata.max.bytes" in caplog.text


def test_finished_records_are_not_committed_without_their_output():
    with pytest.raises(InvalidOption, match="commit_finished_records"):
        Worker(
            bootstrap_servers="localhost:1",
            group_id="billing",
            commit_finished_records=True,
            processing_guarantee="exactly_once_v2",
        )
