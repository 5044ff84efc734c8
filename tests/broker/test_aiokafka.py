"""aiokafka against the embedded broker, in one event loop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import aiokafka
import anyio
import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

from aiokafkawire.broker import Broker, Close, Delay
from aiokafkawire.wire import ApiKey

from ..conftest import BACKENDS

pytestmark = pytest.mark.slow

DEADLINE_S = 40


@pytest.fixture(params=["asyncio", "uvloop"], scope="module")
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    return BACKENDS[request.param]


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker(nodes=3) as broker:
        await broker.create_topic("t", partitions=4)
        yield broker


async def produce(broker: Broker, values: Sequence[bytes], **options: Any) -> list[Any]:
    async with aiokafka.AIOKafkaProducer(
        bootstrap_servers=broker.bootstrap_servers, **options
    ) as producer:
        sent = [await producer.send("t", value, key=value) for value in values]
        return [await future for future in sent]


def consumer(broker: Broker, **options: Any) -> aiokafka.AIOKafkaConsumer:
    return aiokafka.AIOKafkaConsumer(
        "t",
        bootstrap_servers=broker.bootstrap_servers,
        **{
            "group_id": "g",
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "heartbeat_interval_ms": 100,
            "fetch_max_wait_ms": 100,
            **options,
        },
    )


async def read(*consumers: aiokafka.AIOKafkaConsumer, count: int) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < count:
        for each in consumers:
            for records in (await each.getmany(timeout_ms=50)).values():
                found += [record.value for record in records]
    return sorted(found)


async def shared(*consumers: aiokafka.AIOKafkaConsumer, each: int) -> None:
    while any(len(consumer.assignment()) != each for consumer in consumers):
        for consumer in consumers:
            await consumer.getmany(timeout_ms=50)


@pytest.mark.parametrize(
    "options",
    [
        {"enable_idempotence": True},
        {"acks": 1},
        {"compression_type": "gzip"},
        {"compression_type": "lz4", "enable_idempotence": True},
        {"compression_type": "zstd"},
        {"compression_type": "snappy"},
    ],
    ids=str,
)
async def test_what_is_produced_is_consumed(broker: Broker, options: dict[str, Any]) -> None:
    values = [b"%03d" % number for number in range(200)]
    with anyio.fail_after(DEADLINE_S):
        receipts = await produce(broker, values, **options)
        assert {receipt.topic for receipt in receipts} == {"t"}
        async with consumer(broker) as reader:
            assert await read(reader, count=200) == values


@pytest.mark.parametrize("sticky", [False, True], ids=["roundrobin", "sticky"])
async def test_a_group_of_two_rebalances_commits_and_resumes(broker: Broker, sticky: bool) -> None:
    options = {"partition_assignment_strategy": (StickyPartitionAssignor,)} if sticky else {}
    before, after = ([b"%s%d" % (name, n) for n in range(50)] for name in (b"a", b"b"))
    with anyio.fail_after(DEADLINE_S):
        await produce(broker, before, enable_idempotence=True)
        async with consumer(broker, **options) as first:
            assert await read(first, count=50) == sorted(before)
            await first.commit()
            async with consumer(broker, **options) as second:
                await shared(first, second, each=2)
                await produce(broker, after, enable_idempotence=True)
                assert await read(first, second, count=50) == sorted(after)
                await first.commit()
                await second.commit()
            await shared(first, each=4)
        await produce(broker, [b"last"])
        async with consumer(broker, **options) as third:
            assert await read(third, count=1) == [b"last"]


async def test_a_static_member_comes_back_to_what_it_had(broker: Broker) -> None:
    static = {"group_instance_id": "one", "session_timeout_ms": 30_000}
    with anyio.fail_after(DEADLINE_S):
        async with consumer(broker, **static) as first:
            await shared(first, each=4)
        generation = broker._running.group_coordinator.get("g").generation  # type: ignore[union-attr]
        async with consumer(broker, **static) as again:
            await shared(again, each=4)
        assert broker._running.group_coordinator.get("g").generation >= generation  # type: ignore[union-attr]


async def test_an_idempotent_producer_survives_a_killed_leader_and_lost_answers(
    broker: Broker,
) -> None:
    with anyio.fail_after(DEADLINE_S):
        async with aiokafka.AIOKafkaProducer(
            bootstrap_servers=broker.bootstrap_servers, enable_idempotence=True
        ) as producer:
            await producer.send_and_wait("t", b"before", partition=0)
            broker.on(ApiKey.PRODUCE, Close(carried_out=True), times=1)
            await producer.send_and_wait("t", b"during", partition=0)
            await broker.kill(broker.leader("t", 0))
            await producer.send_and_wait("t", b"after", partition=0)
    assert broker.end_offset("t", 0) == 3


async def test_a_slow_broker(broker: Broker) -> None:
    broker.on(None, Delay(0.02))
    with anyio.fail_after(DEADLINE_S):
        await produce(broker, [b"v"])
        async with consumer(broker) as reader:
            assert await read(reader, count=1) == [b"v"]


async def test_the_admin_client(broker: Broker) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    with anyio.fail_after(DEADLINE_S):
        await admin.start()
        try:
            await admin.create_topics([NewTopic("u", 2, 1)])
            await admin.create_partitions({"u": NewPartitions(3)})
            assert broker.topics["u"] == 3
            await admin.delete_topics(["u"])
            assert "u" not in broker.topics
        finally:
            await admin.close()


@pytest.fixture(params=["0.11", "3.9", "4.3", None])
async def broker_as_of(request: pytest.FixtureRequest) -> AsyncIterator[Broker]:
    async with Broker(nodes=3, as_of=request.param) as broker:
        await broker.create_topic("t", partitions=4)
        yield broker


def transactional(broker: Broker, **options: Any) -> aiokafka.AIOKafkaProducer:
    return aiokafka.AIOKafkaProducer(
        bootstrap_servers=broker.bootstrap_servers, transactional_id="tx", **options
    )


async def committed(broker: Broker, count: int, **options: Any) -> list[bytes]:
    async with consumer(broker, isolation_level="read_committed", **options) as reader:
        return await read(reader, count=count)


async def test_a_reader_of_committed_records_sees_no_others(broker_as_of: Broker) -> None:
    with anyio.fail_after(DEADLINE_S):
        async with transactional(broker_as_of) as producer:
            for name, commit in ((b"a", True), (b"x", False), (b"b", True)):
                await producer.begin_transaction()
                for number in range(20):
                    await producer.send("t", b"%s%02d" % (name, number), partition=number % 4)
                if commit:
                    await producer.commit_transaction()
                else:
                    await producer.abort_transaction()
        kept = [b"%s%02d" % (name, number) for name in (b"a", b"b") for number in range(20)]
        assert await committed(broker_as_of, 40) == kept
        async with consumer(broker_as_of, group_id="h") as reader:
            assert len(await read(reader, count=60)) == 60


async def test_what_is_read_and_written_in_one_transaction(broker_as_of: Broker) -> None:
    values = [b"%02d" % number for number in range(20)]
    await broker_as_of.create_topic("u")
    with anyio.fail_after(DEADLINE_S):
        await produce(broker_as_of, values)
        async with transactional(broker_as_of) as producer:
            for commit in (False, True):
                async with consumer(broker_as_of) as reader:
                    assert await read(reader, count=20) == values
                    await producer.begin_transaction()
                    for value in values:
                        await producer.send("u", value)
                    offsets = {tp: await reader.position(tp) for tp in reader.assignment()}
                    await producer.send_offsets_to_transaction(offsets, "g")
                    if commit:
                        await producer.commit_transaction()
                    else:
                        await producer.abort_transaction()
        await produce(broker_as_of, [b"new"])
        assert await committed(broker_as_of, 1) == [b"new"]


async def test_the_older_of_two_producers_is_fenced(broker_as_of: Broker) -> None:
    with anyio.fail_after(DEADLINE_S):
        older, newer = transactional(broker_as_of), transactional(broker_as_of)
        await older.start()
        await older.begin_transaction()
        await older.send_and_wait("t", b"lost")
        async with newer, newer.transaction():
            await newer.send("t", b"kept")
        with pytest.raises(aiokafka.errors.ProducerFenced):
            await older.commit_transaction()
        await older.stop()
        assert await committed(broker_as_of, 1) == [b"kept"]


async def test_a_transaction_goes_on_when_its_coordinator_is_killed(broker: Broker) -> None:
    with anyio.fail_after(DEADLINE_S):
        async with transactional(broker) as producer, producer.transaction():
            await producer.send_and_wait("t", b"a", partition=0)
            await broker.kill(broker.coordinator("tx"))
            await producer.send("t", b"b", partition=1)
        assert await committed(broker, 2) == [b"a", b"b"]
