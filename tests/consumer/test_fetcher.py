"""Fetches from the embedded broker: versions, limits, malformed responses."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import anyio
import pytest

from aiokafkawire import wire
from aiokafkawire.broker import Answer, Broker, Delay
from aiokafkawire.broker.faults import SeenRequest
from aiokafkawire.cluster.metadata import LeaderAndEpoch
from aiokafkawire.config import ConsumerConfig, make_config
from aiokafkawire.consumer import fetcher
from aiokafkawire.consumer.fetch_buffer import FetchBuffer
from aiokafkawire.consumer.fetch_messages import SHORT_FETCH_WAIT_MS, fetch_request, match_response
from aiokafkawire.consumer.fetch_planner import FetchLimits, FetchPlan
from aiokafkawire.consumer.fetch_session import FetchSession, SessionRequest
from aiokafkawire.consumer.partition import AssignedPartition
from aiokafkawire.consumer.partition_states import Fetching, PositionOutOfRange
from aiokafkawire.errors import BrokerError, ClientClosed, CorruptRecord, RecordTooLarge
from aiokafkawire.records import IsolationLevel, fetched_range
from aiokafkawire.records.batch import batch_crc
from aiokafkawire.runtime import TaskHandle
from aiokafkawire.types import TopicPartition
from aiokafkawire.wire import ApiKey, ErrorCode
from aiokafkawire.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartitionData,
    FetchRequest,
    FetchResponse,
)

from .helpers import TIMEOUT_S, consumer, numbers, orders_broker, produce, read, until
from .record_data import P0, P1, Planner, log

TOPIC_ID = UUID(int=5)
UNCOMMITTED = IsolationLevel.READ_UNCOMMITTED


def plan() -> FetchPlan:
    owned = [AssignedPartition(tp, "earliest", Fetching(FetchBuffer(3))) for tp in (P0, P1)]
    (found,) = Planner(FetchLimits(1_000, 500)).plan(owned, lambda tp: LeaderAndEpoch(1, 4), 0.0)
    return found


def session_request(plan: FetchPlan) -> SessionRequest:
    return FetchSession().request(plan.parts, {"orders": TOPIC_ID})


def test_a_request_has_topic_names_and_ids() -> None:
    config = make_config(ConsumerConfig, {"bootstrap_servers": "b"})
    committed = IsolationLevel.READ_COMMITTED
    request = fetch_request(session_request(plan()), config, committed, 17)
    assert (request.max_wait_ms, request.min_bytes, request.isolation_level) == (500, 1, 1)
    assert (request.session_id, request.session_epoch) == (0, 0)
    (topic,) = request.topics
    assert (topic.topic, topic.topic_id) == ("orders", TOPIC_ID)
    assert [p.partition for p in topic.partitions] == [0, 1]
    assert {p.current_leader_epoch for p in topic.partitions} == {4}
    assert {p.fetch_offset for p in topic.partitions} == {3}
    assert {p.partition_max_bytes for p in topic.partitions} == {500}


@pytest.mark.parametrize("version", range(FetchRequest.min_version, 18))
def test_a_request_can_be_sent_in_every_version(version: int) -> None:
    config = make_config(ConsumerConfig, {"bootstrap_servers": "b", "client_rack": "r"})
    state = Fetching(FetchBuffer(3, leader_epoch=4), LeaderAndEpoch(1, 4))
    positions = [AssignedPartition(P0, "earliest", state)]
    (found,) = Planner(FetchLimits(1_000, 500)).plan(
        positions, lambda tp: LeaderAndEpoch(1, 4), 0.0
    )
    request = fetch_request(session_request(found), config, UNCOMMITTED, version)
    wire.encode(request, version)
    assert request.topics[0].partitions[0].last_fetched_epoch == (4 if version >= 12 else -1)


def data(index: int, **fields: Any) -> FetchPartitionData:
    values = {"error_code": 0, "high_watermark": 9, "records": None}
    return FetchPartitionData(partition_index=index, **values | fields)


def test_a_fetch_that_leaves_out_a_full_partition_has_a_short_max_wait() -> None:
    config = make_config(ConsumerConfig, {"bootstrap_servers": "b"})
    waits = [
        fetch_request(
            session_request(plan()),
            config,
            UNCOMMITTED,
            17,
            short_wait=short_wait,
        ).max_wait_ms
        for short_wait in (True, False)
    ]
    assert waits == [SHORT_FETCH_WAIT_MS, 500]


def test_a_response_is_matched_by_name_or_id_and_each_partition_once() -> None:
    whole = plan()
    for naming in ({"topic": "orders"}, {"topic_id": TOPIC_ID}):
        topic_response = FetchableTopicResponse(
            partitions=[data(1), data(0), data(1), data(7)], **naming
        )
        other = FetchableTopicResponse(topic="payments", partitions=[data(0)])
        response = FetchResponse(responses=[other, topic_response])
        got = [
            (part.partition.tp, data.partition_index)
            for part, data in match_response(whole, response, {"orders": TOPIC_ID})
        ]
        assert got == [(P1, 1), (P0, 0)]


@pytest.mark.parametrize("release", ["0.8.2", "0.9"])
async def test_fetches_before_version_3_grow_for_a_large_message(release: str) -> None:
    async with orders_broker(2) as broker:
        await produce(broker, "orders", 0, [b"a" * 100, b"x" * 50_000, b"b"], each=1)
        await produce(broker, "orders", 1, numbers(0, 3))
        options = {"api_version": release, "max_partition_fetch_bytes": 1_000}
        async with consumer(broker, **options) as reader:
            reader.assign([P0, P1])
            records = await read(reader, 6)
            sizes = [len(r.value or b"") for r in records if r.partition == 0]
            assert sizes == [100, 50_000, 1]
            large = [
                seen.message
                for seen in broker.requests.of(ApiKey.FETCH)
                if seen.message.topics[0].partitions[0].partition_max_bytes > 1_000
            ]
            assert large
            assert all(len(message.topics[0].partitions) == 1 for message in large)


async def test_a_message_larger_than_max_response_bytes_raises() -> None:
    async with orders_broker() as broker:
        await produce(broker, "orders", 0, [b"x" * 500_000])
        options = {
            "api_version": "0.9",
            "max_partition_fetch_bytes": 1_000,
            "max_response_bytes": 200_000,
        }
        async with consumer(broker, **options) as reader:
            reader.assign([P0])
            for _ in range(2):
                with anyio.fail_after(TIMEOUT_S), pytest.raises(RecordTooLarge) as caught:
                    await reader.getone()
                assert (caught.value.topic, caught.value.partition, caught.value.offset) == (*P0, 0)
                assert (caught.value.size_bytes or 0) > 500_000


async def test_versions_with_topic_ids_are_used_if_ids_are_known() -> None:
    async with orders_broker(records=1) as broker:
        async with consumer(broker, "orders") as reader:
            await read(reader, 1)
        assert max(seen.version for seen in broker.requests.of(ApiKey.FETCH)) >= 13


def instead(**fields: Any) -> Any:
    """Return an action that answers each Fetch with this data for its first partition."""

    def respond(seen: SeenRequest) -> FetchResponse:
        topic = seen.message.topics[0]  # type: ignore[attr-defined]
        part = data(topic.partitions[0].partition, **fields)
        topic_response = FetchableTopicResponse(
            topic=topic.topic, topic_id=topic.topic_id, partitions=[part]
        )
        return FetchResponse(responses=[topic_response])

    return respond


async def test_a_response_without_progress_raises() -> None:
    async with orders_broker(records=10) as broker:
        broker.on(ApiKey.FETCH, instead(records=log(2)))
        async with consumer(broker) as reader:
            reader.assign([P0])
            reader.seek(P0, 5)
            with anyio.fail_after(TIMEOUT_S), pytest.raises(CorruptRecord) as caught:
                await reader.getone()
            assert caught.value.offset == 5


async def test_a_truncated_batch_within_the_limit_is_corrupt() -> None:
    async with orders_broker() as broker:
        broker.on(ApiKey.FETCH, instead(records=log(2)[:-1]))
        async with consumer(broker) as reader:
            reader.assign([P0])
            with anyio.fail_after(TIMEOUT_S), pytest.raises(CorruptRecord):
                await reader.getone()


@pytest.mark.parametrize(
    "records",
    [b"\x00" * 40, b"\xff" * 100, log(2)[:-1] + b"\x7f", log(1)[:16] + b"\x09" * 60],
    ids=["zeros", "ones", "bad checksum", "bad format"],
)
async def test_malformed_records_raise(records: bytes) -> None:
    async with orders_broker() as broker:
        broker.on(ApiKey.FETCH, instead(records=records))
        async with consumer(broker) as reader:
            reader.assign([P0])
            with anyio.fail_after(TIMEOUT_S), pytest.raises(CorruptRecord) as caught:
                await reader.getone()
            assert (caught.value.topic, caught.value.partition) == P0


async def test_an_error_of_a_whole_fetch_is_raised_once_and_the_fetch_repeated() -> None:
    async with orders_broker(records=1) as broker:
        broker.on(
            ApiKey.FETCH,
            lambda seen: FetchResponse(error_code=ErrorCode.INVALID_REQUEST, responses=[]),
            times=1,
        )
        async with consumer(broker, "orders") as reader:
            with anyio.fail_after(TIMEOUT_S), pytest.raises(BrokerError, match="INVALID_REQUEST"):
                await reader.getone()
            assert len(await read(reader, 1)) == 1


async def test_a_consumer_closes_while_it_checks_for_a_recreated_topic() -> None:
    async with orders_broker() as broker:
        async with consumer(broker, "orders") as reader:
            await reader.getmany(timeout_ms=50)  # the topic is known then
            session = reader._lifecycle.session
            partition = AssignedPartition(P0, "earliest", Fetching(FetchBuffer(0)))
            part = SimpleNamespace(partition=partition, state=partition.state)
            error = BrokerError("", code=1, name="OFFSET_OUT_OF_RANGE")
            broker.on(ApiKey.METADATA, Delay(30))
            session.fetcher._report_unless_recreated(
                part, PositionOutOfRange(partition.state, error)
            )
            await anyio.sleep(0.05)
            # The task that refreshes metadata ends first, which wakes the others.
            refreshed = session.cluster._metadata_updater._changed

            class Ended(TaskHandle):
                def cancel(self) -> None:
                    refreshed.set_exception(ClientClosed("closed"))

            reader._lifecycle.supervisor._tasks.insert(0, Ended("refresher"))
        assert not partition.failures


async def test_an_offset_out_of_range_during_close_is_ignored() -> None:
    async with orders_broker() as broker:
        async with consumer(broker, "orders") as reader:
            await reader.getmany(timeout_ms=50)  # the topic is known then
            fetcher = reader._lifecycle.session.fetcher
            partition = AssignedPartition(P0, "earliest", Fetching(FetchBuffer(0)))
            part = SimpleNamespace(partition=partition, state=partition.state)
        error = BrokerError("", code=1, name="OFFSET_OUT_OF_RANGE")
        fetcher._report_unless_recreated(part, PositionOutOfRange(partition.state, error))
        assert not partition.failures


async def test_the_new_leader_in_an_error_response_is_used() -> None:
    async with Broker(nodes=2) as broker:
        await broker.create_topic("orders", 1, 2)
        await produce(broker, "orders", 0, numbers(0, 1))
        async with consumer(broker, "orders", metadata_max_age_ms=10_000_000) as reader:
            await read(reader, 1)
            broker.on(ApiKey.METADATA, Answer(ErrorCode.NONE))  # no metadata updates
            broker.move_leader("orders", 0, 3 - broker.leader("orders", 0))
            await produce(broker, "orders", 0, numbers(1, 2))
            assert (await read(reader, 1))[0].offset == 1


# --- followers (KIP-392) ----------------------------------------------------------------------


async def led_elsewhere(broker: Broker) -> None:
    """Create a topic with leader 1 and follower 2, which is in the rack "near"."""
    await broker.create_topic("orders", 1, 2)
    broker.move_leader("orders", 0, 1)
    await produce(broker, "orders", 0, numbers(0, 3))


def sources(broker: Broker) -> list[int]:
    return [seen.node_id for seen in broker.requests.of(ApiKey.FETCH)]


async def test_the_replica_in_the_clients_rack_is_fetched_from() -> None:
    async with Broker(nodes=2, racks=["far", "near"]) as broker:
        await led_elsewhere(broker)
        async with consumer(broker, "orders", client_rack="near") as reader:
            assert len(await read(reader, 3)) == 3
            await produce(broker, "orders", 0, numbers(3, 5))
            assert [record.offset for record in await read(reader, 2)] == [3, 4]
        (first, *rest) = sources(broker)
        assert first == 1
        assert set(rest) == {2}
        racks = {seen.message.rack_id for seen in broker.requests.of(ApiKey.FETCH)}
        assert racks == {"near"}


async def test_without_a_rack_the_leader_is_fetched_from() -> None:
    async with Broker(nodes=2, racks=["far", "near"]) as broker:
        await led_elsewhere(broker)
        async with consumer(broker, "orders") as reader:
            await read(reader, 3)
        assert set(sources(broker)) == {1}


async def test_the_leader_is_fetched_from_again_after_metadata_max_age() -> None:
    async with Broker(nodes=2, racks=["far", "near"]) as broker:
        await led_elsewhere(broker)
        async with consumer(
            broker, "orders", client_rack="near", metadata_max_age_ms=100
        ) as reader:
            await read(reader, 3)
            await broker.wait_for_request(ApiKey.FETCH, count=2, node=1)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
async def test_after_an_error_of_a_follower_the_leader_is_fetched_from(code: ErrorCode) -> None:
    async with Broker(nodes=2, racks=["far", "near"]) as broker:
        await led_elsewhere(broker)
        broker.on(ApiKey.FETCH, instead(error_code=code, high_watermark=-1), node=2, times=1)
        options = {"client_rack": "near", "auto_offset_reset": "none"}
        async with consumer(broker, **options) as reader:
            reader.assign([P0])
            reader.seek(P0, 0)
            assert [record.offset for record in await read(reader, 3)] == [0, 1, 2]
        assert sources(broker)[:3] == [1, 2, 1]


async def test_the_leader_is_fetched_from_when_a_follower_is_down() -> None:
    async with Broker(nodes=2, racks=["far", "near"]) as broker:
        await led_elsewhere(broker)
        async with consumer(broker, "orders", client_rack="near") as reader:
            await read(reader, 3)
            await broker.kill(2)
            await produce(broker, "orders", 0, numbers(3, 5))
            assert [record.offset for record in await read(reader, 2)] == [3, 4]


async def test_a_truncated_log_is_distinguished_from_a_recreated_topic() -> None:
    """Kafka 2.8 fetches by name; only the metadata shows that the topic was recreated."""
    async with orders_broker(records=3, as_of="2.8") as broker:

        async def recreate(seen: SeenRequest) -> None:
            await broker.delete_topic("orders")
            await broker.create_topic("orders", 1)
            await produce(broker, "orders", 0, numbers(5, 7))

        async with consumer(broker, "orders", fetch_max_wait_ms=50) as reader:
            await read(reader, 3)
            broker.on(ApiKey.FETCH, recreate, times=1)
            assert [record.value for record in await read(reader, 2)] == numbers(5, 7)


# --- refusals and damage ----------------------------------------------------------------------


async def test_a_partition_error_is_raised_once_and_the_fetch_repeated() -> None:
    async with orders_broker(records=1) as broker:
        refusal = instead(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        fault = broker.on(ApiKey.FETCH, refusal, times=2)
        async with consumer(broker, "orders") as reader:
            for _ in range(2):
                with anyio.fail_after(TIMEOUT_S), pytest.raises(BrokerError) as caught:
                    await reader.getone()
                assert (caught.value.topic, caught.value.api) == ("orders", "Fetch")
            assert len(await read(reader, 1)) == 1
            assert fault.hits == 2


def lying(offsets: int) -> bytes:
    """Return three valid records and a batch of two that claims to have more offsets."""
    damaged = bytearray(log(2, start=3))
    damaged[23:27] = (offsets - 1).to_bytes(4)
    damaged[17:21] = batch_crc(damaged).to_bytes(4)
    return log(3) + bytes(damaged)


async def test_a_batch_with_offsets_beyond_the_log_is_corrupt() -> None:
    async with orders_broker() as broker:
        broker.on(ApiKey.FETCH, instead(records=lying(1_000), high_watermark=5))
        async with consumer(broker) as reader:
            reader.assign([P0])
            assert len(await read(reader, 3)) == 3
            with anyio.fail_after(TIMEOUT_S), pytest.raises(CorruptRecord, match="1002") as caught:
                await reader.getone()
            assert (caught.value.offset, caught.value.next_offset) == (3, None)
            assert await reader.position(P0) == 3


async def test_a_response_that_starts_with_corrupt_data_names_the_cause() -> None:
    async with orders_broker(records=9) as broker:
        broker.on(ApiKey.FETCH, instead(records=lying(1_000)[len(log(3)) :], high_watermark=5))
        async with consumer(broker) as reader:
            reader.assign([P0])
            reader.seek(P0, 3)
            with anyio.fail_after(TIMEOUT_S), pytest.raises(CorruptRecord, match="1002"):
                await reader.getone()


async def test_other_tasks_run_while_a_long_response_is_handled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fetched_range, "CHUNK_BATCHES", 1)
    monkeypatch.setattr(fetcher, "YIELD_AFTER_S", -1.0)
    turns: list[int] = []
    async with orders_broker() as broker:
        await produce(broker, "orders", 0, numbers(0, 9), each=1)
        async with consumer(broker) as reader:

            async def turn() -> None:
                turns.append(len(turns))
                if len(turns) == 3:
                    reader.seek(P0, 4)
                await anyio.lowlevel.checkpoint()

            monkeypatch.setattr(fetcher, "checkpoint", turn)
            reader.assign([P0])
            reader.seek(P0, 0)
            assert [record.offset for record in await read(reader, 5)] == [4, 5, 6, 7, 8]
    assert len(turns) > 9


async def test_a_seek_past_corrupt_data_continues() -> None:
    async with orders_broker() as broker:
        await produce(broker, "orders", 0, numbers(0, 9), each=3)

        def damaged(seen: SeenRequest) -> FetchResponse | None:
            offset = seen.message.topics[0].partitions[0].fetch_offset  # type: ignore[attr-defined]
            records = bytearray(log(3, start=3) + log(3, start=6))
            records[70] ^= 1
            return instead(records=bytes(records))(seen) if 3 <= offset < 6 else None

        broker.on(ApiKey.FETCH, damaged)
        async with consumer(broker) as reader:
            reader.assign([P0])
            reader.seek(P0, 3)
            with anyio.fail_after(TIMEOUT_S), pytest.raises(CorruptRecord) as caught:
                await reader.getone()
            assert (caught.value.offset, caught.value.next_offset) == (3, 6)
            reader.seek(P0, caught.value.next_offset or 0)
            assert [record.offset for record in await read(reader, 3)] == [6, 7, 8]


async def test_the_session_of_a_removed_broker_is_forgotten() -> None:
    async with Broker(nodes=3) as broker:
        await broker.create_topic("orders", 3, 3)
        async with consumer(broker, metadata_max_age_ms=20) as reader:
            partitions = [TopicPartition("orders", number) for number in range(3)]
            for tp in partitions:
                await produce(broker, *tp, [b"1"])
            reader.assign(partitions)
            await read(reader, 3)
            fetcher = reader._lifecycle.session.fetcher
            assert sorted(fetcher._sessions) == [1, 2, 3]
            await broker.kill(2)
            await until(lambda: 2 not in fetcher._sessions, reader)
            for tp in partitions:
                await produce(broker, *tp, [b"2"])
            await read(reader, 3)
