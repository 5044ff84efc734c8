from __future__ import annotations

import time
from typing import Any

import anyio
import pytest

from aiokafkawire.broker import Answer, Close
from aiokafkawire.cluster.metadata import LeaderAndEpoch, MetadataSnapshot
from aiokafkawire.consumer import RebalanceListener
from aiokafkawire.errors import BrokerError, UnknownTopic
from aiokafkawire.types import TopicPartition
from aiokafkawire.wire import ApiKey, ErrorCode

from .helpers import TIMEOUT_S, consumer, numbers, orders_broker, produce, read, until
from .record_data import P0, P1


@pytest.mark.parametrize(
    ("api", "action"),
    [
        (ApiKey.OFFSET_FETCH, Close()),
        (ApiKey.OFFSET_FETCH, Answer(ErrorCode.NOT_COORDINATOR)),
        (ApiKey.OFFSET_FETCH, Answer(ErrorCode.UNSTABLE_OFFSET_COMMIT)),
        (ApiKey.LIST_OFFSETS, Close()),
        (ApiKey.LIST_OFFSETS, Answer(ErrorCode.NOT_LEADER_OR_FOLLOWER)),
    ],
)
async def test_lookups_are_repeated_until_the_position_is_found(api: ApiKey, action: Any) -> None:
    async with orders_broker(records=3) as broker:
        fault = broker.on(api, action, times=2)
        async with consumer(broker, "orders", group_id="g") as reader:
            assert (await read(reader, 3))[0].offset == 0
        assert fault.hits == 2


async def test_a_fatal_error_is_raised_and_the_lookup_repeated() -> None:
    async with orders_broker(records=3) as broker:
        fault = broker.on(ApiKey.OFFSET_FETCH, Answer(ErrorCode.GROUP_AUTHORIZATION_FAILED))
        async with consumer(broker, group_id="g") as reader:
            reader.assign([P0])
            with anyio.fail_after(TIMEOUT_S):
                with pytest.raises(BrokerError, match="GROUP_AUTHORIZATION_FAILED"):
                    await reader.getone()
                with pytest.raises(BrokerError, match="GROUP_AUTHORIZATION_FAILED"):
                    await reader.getmany(timeout_ms=20_000)
                with pytest.raises(BrokerError, match="GROUP_AUTHORIZATION_FAILED"):
                    await reader.position(P0)
            assert fault.hits == 3  # no lookup while an error is pending
            fault.remove()
            assert await reader.position(P0) == 0
            reader.seek(P0, 1)
            assert (await read(reader, 1))[0].offset == 1


async def test_partitions_are_looked_up_in_one_request() -> None:
    async with orders_broker(5) as broker:
        async with consumer(broker, "orders", group_id="g") as reader:
            with anyio.fail_after(TIMEOUT_S):
                while len(reader.assignment()) < 5:
                    await reader.getmany(timeout_ms=5)
                for tp in reader.assignment():
                    assert await reader.position(tp) == 0
        assert len(broker.requests.of(ApiKey.OFFSET_FETCH)) == 1
        assert len(broker.requests.of(ApiKey.LIST_OFFSETS)) == 1


async def test_many_partitions_are_looked_up_in_several_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("aiokafkawire.consumer.position_resolver.MAX_PARTITIONS_PER_REQUEST", 2)
    async with orders_broker(5) as broker:
        async with consumer(broker, "orders", group_id="g") as reader:
            with anyio.fail_after(TIMEOUT_S):
                while len(reader.assignment()) < 5:
                    await reader.getmany(timeout_ms=5)
                for tp in reader.assignment():
                    assert await reader.position(tp) == 0
        assert len(broker.requests.of(ApiKey.OFFSET_FETCH)) == 3
        assert len(broker.requests.of(ApiKey.LIST_OFFSETS)) >= 3


async def test_an_idle_consumer_checks_no_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    async with orders_broker(5) as broker:
        looked_at: list[TopicPartition] = []
        leader = MetadataSnapshot.leader

        def counted(metadata: MetadataSnapshot, tp: TopicPartition) -> LeaderAndEpoch | None:
            looked_at.append(tp)
            return leader(metadata, tp)

        monkeypatch.setattr(MetadataSnapshot, "leader", counted)
        async with consumer(broker, "orders", group_id="g", enable_auto_commit=False) as reader:
            with anyio.fail_after(TIMEOUT_S):
                while len(reader.assignment()) < 5:
                    await reader.getmany(timeout_ms=5)
                for tp in reader.assignment():
                    assert await reader.position(tp) == 0
                await reader.getmany(timeout_ms=200)
                assert looked_at
                looked_at.clear()
                fetches = len(broker.requests.of(ApiKey.FETCH))
                beats = len(broker.requests.of(ApiKey.HEARTBEAT))
                await reader.getmany(timeout_ms=500)
                assert len(broker.requests.of(ApiKey.FETCH)) > fetches
                assert len(broker.requests.of(ApiKey.HEARTBEAT)) > beats
                assert looked_at == []


async def test_a_seek_wins_over_a_later_response() -> None:
    async with orders_broker(2, records=9) as broker, consumer(broker, group_id="g") as reader:
        sought = anyio.Event()

        async def hold(seen: Any) -> None:
            await sought.wait()

        broker.on(ApiKey.OFFSET_FETCH, hold, times=1)
        reader.assign([P0, P1])
        await broker.wait_for_request(ApiKey.OFFSET_FETCH)
        reader.seek(P0, 5)
        sought.set()
        assert await reader.position(P1) == 0
        assert await reader.position(P0) == 5
        assert (await read(reader, 1))[0].offset == 5


@pytest.mark.slow
async def test_a_missing_partition_raises_after_the_timeout_and_is_rarely_requested() -> None:
    absent = TopicPartition("orders", 7)
    async with orders_broker(records=3) as broker:
        async with consumer(broker, default_api_timeout_ms=1_500) as reader:
            reader.assign([absent, P0])
            assert len(await read(reader, 3)) == 3
            for state in ("Resetting", "Fetching"):
                with anyio.fail_after(TIMEOUT_S):
                    with pytest.raises(UnknownTopic, match="no partition 7") as caught:
                        await reader.getone()
                assert (caught.value.topic, caught.value.partition) == absent
                if state == "Resetting":
                    reader.seek(absent, 0)
        assert len(broker.requests.of(ApiKey.METADATA)) < 30


async def test_a_partition_created_later_is_read() -> None:
    absent = TopicPartition("orders", 1)
    async with orders_broker() as broker, consumer(broker) as reader:
        reader.assign([absent])
        assert await reader.getmany(timeout_ms=50) == {}
        await broker.add_partitions("orders", 2)
        await produce(broker, "orders", 1, numbers(0, 3))
        assert len(await read(reader, 3)) == 3


async def test_metadata_in_flight_is_not_requested_again() -> None:
    async with orders_broker(records=3) as broker:

        async def late(seen: Any) -> None:
            if seen.message.topics:
                await anyio.sleep(0.1)

        broker.on(ApiKey.METADATA, late)
        async with consumer(broker) as reader:
            reader.assign([P0])
            reader.seek(P0, 0)
            await read(reader, 3)
            assert await reader.getmany(timeout_ms=200) == {}
        lookups = [seen for seen in broker.requests.of(ApiKey.METADATA) if seen.message.topics]
        assert len(lookups) == 1


async def test_a_reset_by_duration_counts_from_the_request() -> None:
    async with (
        orders_broker() as broker,
        consumer(broker, auto_offset_reset="by_duration:PT1H") as reader,
    ):
        before_ms = time.time_ns() // 1_000_000
        reader.assign([P0])
        assert await reader.position(P0) == 0
        (first, *_) = broker.requests.of(ApiKey.LIST_OFFSETS)
        (lookups,) = first.message.topics[0].partitions
        assert 0 <= lookups.timestamp - (before_ms - 3_600_000) < 60_000


async def test_a_callback_may_wait_for_a_position() -> None:
    class Listener(RebalanceListener):
        async def on_partitions_revoked(self, partitions: Any) -> None:
            loading.remove()
            positions.append(await reader.position(P0))

    positions: list[int] = []
    async with orders_broker() as broker:
        loading = broker.on(ApiKey.OFFSET_FETCH, Answer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
        async with consumer(broker, group_id="g") as reader:
            reader.subscribe(["orders"], listener=Listener())
            await until(lambda: bool(reader.assignment()), reader)
            broker.on(ApiKey.HEARTBEAT, Answer(ErrorCode.REBALANCE_IN_PROGRESS), times=1)
            await until(lambda: bool(positions), reader)
    assert positions[0] == 0
