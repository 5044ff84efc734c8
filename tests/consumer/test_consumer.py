"""The public interface over the embedded broker, on all backends."""

from __future__ import annotations

import asyncio
import logging
import threading
from itertools import count
from typing import Any

import anyio
import pytest
import sniffio

from aiokafkawire.broker import Answer, Broker, Close, Delay, Drop
from aiokafkawire.consumer import Consumer, RebalanceListener
from aiokafkawire.consumer.assignment import offsets_to_commit
from aiokafkawire.consumer.fetcher import INLINE_BYTES
from aiokafkawire.errors import (
    BrokerError,
    ClientClosed,
    CommitFailed,
    CorruptRecord,
    IllegalState,
    InvalidOption,
    KafkaError,
    NoBrokerAvailable,
    NoOffsetForPartition,
    RequestTimedOut,
    UnknownTopic,
    UnsupportedVersion,
)
from aiokafkawire.producer import Producer
from aiokafkawire.records import Records, compression
from aiokafkawire.records import batch as batch_module
from aiokafkawire.runtime import lifecycle
from aiokafkawire.testing.simulation import World, with_runtime
from aiokafkawire.types import OffsetAndMetadata, TopicPartition
from aiokafkawire.wire import ApiKey, ErrorCode
from tests.elapsed import ends_within

from .helpers import TIMEOUT_S, consumer, numbers, orders_broker, parts, produce, read, until

P0 = TopicPartition("orders", 0)
P1 = TopicPartition("orders", 1)


async def test_a_group_member_reads_everything() -> None:
    async with orders_broker(3) as broker:
        for partition in range(3):
            await produce(broker, "orders", partition, numbers(0, 50))
        async with consumer(broker, "orders", group_id="g") as reader:
            records = await read(reader, 150)
            assert reader.assignment() == set(parts("orders", 3))
    for partition in range(3):
        mine = [r for r in records if r.partition == partition]
        assert [r.value for r in mine] == numbers(0, 50)
        assert [r.offset for r in mine] == list(range(50))


async def test_without_a_group_all_partitions_are_read() -> None:
    async with orders_broker(2, records=5) as broker:
        await produce(broker, "orders", 1, numbers(0, 5))
        async with consumer(broker, "orders") as reader:
            assert len(await read(reader, 10)) == 10
            with pytest.raises(InvalidOption, match="group_id"):
                await reader.commit()


async def test_getone_can_be_limited_to_partitions() -> None:
    async with orders_broker(2, records=5) as broker:
        await produce(broker, "orders", 1, numbers(0, 5))
        async with consumer(broker, "orders", group_id="g") as reader:
            with anyio.fail_after(TIMEOUT_S):
                for offset in range(5):
                    record = await reader.getone(P1)
                    assert (record.partition, record.offset) == (1, offset)
            assert await reader.getone(P1, timeout_ms=50) is None
            assert await reader.getone([P1], timeout_ms=0) is None
            rest = [(one.partition, one.offset) for one in await read(reader, 5)]
            assert rest == [(0, offset) for offset in range(5)]
            await reader.commit()
            committed = await reader.committed()
            assert {tp: found and found.offset for tp, found in committed.items()} == {P0: 5, P1: 5}


async def until_committed(reader: Consumer, offset: int) -> None:
    """Block until the group has committed `offset` for P0."""
    found: OffsetAndMetadata | None = None
    while found is None or found.offset != offset:
        await anyio.sleep(0.01)
        found = (await reader.committed(P0))[P0]


async def test_a_record_of_getone_counts_as_processed_at_the_next_call() -> None:
    async with orders_broker(records=5) as broker:
        options: dict[str, Any] = {"group_id": "g", "auto_commit_interval_ms": 10}
        async with consumer(broker, "orders", **options) as reader:
            with anyio.fail_after(TIMEOUT_S):
                await reader.getone(P0)
                await anyio.sleep(0.1)
                first = (await reader.committed(P0))[P0]
                assert first is None or first.offset == 0
                await reader.getone(("orders", 0))
                await until_committed(reader, 1)
                await anyio.sleep(0.1)
                await until_committed(reader, 1)


async def test_iteration_returns_all_records_in_order_and_yields_to_other_tasks() -> None:
    async with orders_broker() as broker:
        await produce(broker, "orders", 0, numbers(0, 2_000), each=500)
        async with consumer(broker, group_id="g") as reader:
            reader.assign([P0])
            turns = 0

            async def other() -> None:
                nonlocal turns
                while True:
                    turns += 1
                    await anyio.lowlevel.checkpoint()

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(other)
                got: list[bytes | None] = []
                async for record in reader:
                    if not got:
                        turns = 0
                    got.append(record.value)
                    if len(got) == 2_000:
                        break
                    assert await reader.position(P0) == record.offset + 1 or len(got) % 97
                tasks.cancel_scope.cancel()
            assert got == numbers(0, 2_000)
            assert turns >= 2_000 // 256


async def test_breaking_an_iteration_loses_no_record() -> None:
    async with orders_broker(records=10) as broker, consumer(broker) as reader:
        reader.assign([P0])
        with anyio.fail_after(TIMEOUT_S):
            async for record in reader:
                if record.offset == 3:
                    break
        assert await reader.position(P0) == 4
        assert (await reader.getone()).offset == 4
        rest = await reader.getmany(timeout_ms=1_000)
        assert rest[P0].first_offset == 5


async def test_getmany_obeys_timeout_max_records_and_partitions() -> None:
    async with orders_broker(2) as broker, consumer(broker) as reader:
        reader.assign([P0, P1])
        assert await reader.getmany() == {}
        assert await reader.getmany(timeout_ms=20) == {}
        assert await reader.getone(timeout_ms=20) is None
        await produce(broker, "orders", 0, numbers(0, 30))
        await produce(broker, "orders", 1, numbers(0, 30))
        with anyio.fail_after(TIMEOUT_S):
            only = await reader.getmany(P1, timeout_ms=20_000)
            assert list(only) == [P1]
            few = await reader.getmany(timeout_ms=20_000, max_records=7)
            assert sum(map(len, few.values())) == 7
        with pytest.raises(ValueError, match="max_records") as caught:
            await reader.getmany(max_records=0)
        assert type(caught.value) is ValueError


async def test_batches_are_of_one_partition_and_can_be_committed() -> None:
    async with orders_broker(2, records=30) as broker:
        await produce(broker, "orders", 1, numbers(0, 30))
        options: dict[str, Any] = {"group_id": "g", "enable_auto_commit": False}
        async with consumer(broker, "orders", max_poll_records=20, **options) as reader:
            seen = {P0: 0, P1: 0}
            with anyio.fail_after(TIMEOUT_S):
                async for batch in reader.batches():
                    assert isinstance(batch, Records)
                    assert 0 < len(batch) <= 20
                    seen[batch.topic_partition] += len(batch)
                    await reader.commit(batch)
                    kept = await reader.committed(batch.topic_partition)
                    assert kept[batch.topic_partition] == OffsetAndMetadata(
                        batch.next_offset, leader_epoch=0
                    )
                    if sum(seen.values()) == 60:
                        break
            assert seen == {P0: 30, P1: 30}


async def test_partitions_are_delivered_in_turn() -> None:
    async with orders_broker(3) as broker:
        for partition in range(3):
            await produce(broker, "orders", partition, numbers(0, 100))
        async with consumer(broker, "orders", max_poll_records=10) as reader:
            with anyio.fail_after(TIMEOUT_S):
                while any(reader.lag(tp) is None for tp in reader.assignment()) or not (
                    reader.assignment()
                ):
                    await reader.getone(timeout_ms=1)
                firsts = [next(iter(await reader.getmany(timeout_ms=1_000))) for _ in range(6)]
            assert set(firsts) == set(parts("orders", 3))


# --- what counts as processed -----------------------------------------------------------------


async def test_auto_commit_never_passes_unprocessed_records() -> None:
    async with (
        orders_broker(records=20) as broker,
        consumer(broker, "orders", group_id="g", auto_commit_interval_ms=5) as reader,
    ):
        async for record in reader:
            if record.offset == 9:
                break
        await broker.wait_for_request(ApiKey.OFFSET_COMMIT)
        while (kept := (await reader.committed(P0))[P0]) is None or kept.offset < 9:
            await anyio.lowlevel.checkpoint()
        broker.requests.clear()
        await broker.wait_for_request(ApiKey.HEARTBEAT, count=2)
        assert (await reader.committed(P0))[P0].offset == 9  # type: ignore[union-attr]


async def test_close_commits_delivered_records_unless_an_exception_was_raised() -> None:
    async with orders_broker(records=20) as broker:

        async def fail() -> None:
            async with consumer(broker, "orders", group_id="g") as reader:
                await read(reader, 5)
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await fail()
        async with consumer(broker, "orders", group_id="g") as reader:
            assert (await reader.getone()).offset == 4  # processing it fails
        async with consumer(broker, "orders", group_id="g") as reader:
            assert (await reader.getone()).offset == 5


async def test_records_of_another_task_wait_until_that_task_calls_again() -> None:
    async with (
        orders_broker(records=20) as broker,
        consumer(broker, "orders", group_id="g") as reader,
    ):
        took = anyio.Event()
        go_on = anyio.Event()

        async def worker() -> None:
            await read(reader, 3)
            took.set()
            await go_on.wait()
            await reader.getone(timeout_ms=0)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(worker)
            await took.wait()
            await read(reader, 5)
            await reader.getone(timeout_ms=0)
            assignment = reader._running.assignment
            assert offsets_to_commit(assignment.values())[P0].offset == 2
            go_on.set()
        assert offsets_to_commit(assignment.values())[P0].offset == 8


async def test_commit_accepts_offsets_and_refuses_unassigned_partitions() -> None:
    async with (
        orders_broker(records=20) as broker,
        consumer(broker, "orders", group_id="g", enable_auto_commit=False) as reader,
    ):
        await read(reader, 5)
        await reader.commit({P0: OffsetAndMetadata(3, "note")})
        assert await reader.committed() == {P0: OffsetAndMetadata(3, "note")}
        await reader.commit({P0: 2})
        assert (await reader.committed(P0))[P0].offset == 2  # type: ignore[union-attr]
        with pytest.raises(CommitFailed) as caught:
            await reader.commit({TopicPartition("orders", 7): 1})
        assert (caught.value.topic, caught.value.partition) == ("orders", 7)
        with pytest.raises(BrokerError, match="OFFSET_METADATA_TOO_LARGE"):
            await reader.commit({P0: OffsetAndMetadata(3, "x" * 5_000)})


@pytest.mark.parametrize(("as_of", "refused"), [("2.4", True), ("2.5", False)])
async def test_committed_with_stable_refuses_brokers_before_2_5(as_of: str, refused: bool) -> None:
    async with orders_broker(as_of=as_of) as broker, consumer(broker, group_id="g") as reader:
        assert await reader.committed(P0) == {P0: None}
        if refused:
            with pytest.raises(UnsupportedVersion, match=r"OffsetFetch .* from 2\.5 exclude"):
                await reader.committed(P0, stable=True)
        else:
            assert await reader.committed(P0, stable=True) == {P0: None}


async def test_manually_assigned_partitions_are_committed_without_membership() -> None:
    async with orders_broker(records=20) as broker:
        for expected in (0, 4):
            async with consumer(broker, group_id="g") as reader:
                reader.assign([("orders", 0)])
                assert (await read(reader, 4))[0].offset == expected
        assert not broker.requests.of(ApiKey.JOIN_GROUP)


async def test_anext_of_the_consumer_returns_the_next_record() -> None:
    async with (
        orders_broker(records=20) as broker,
        consumer(broker, "orders", group_id="g") as reader,
    ):
        assert [(await anext(reader)).offset for _ in range(3)] == [0, 1, 2]
        assert offsets_to_commit(reader._running.assignment.values())[P0].offset == 2


# --- positions --------------------------------------------------------------------------------


async def test_nothing_is_committed_for_no_partitions() -> None:
    async with orders_broker() as broker, consumer(broker, group_id="g") as reader:
        assert await reader.committed() == {}
        assert not broker.requests.of(ApiKey.OFFSET_FETCH)


async def test_a_position_that_is_not_found_in_time_raises() -> None:
    async with orders_broker() as broker:
        broker.on(ApiKey.LIST_OFFSETS, Answer(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        async with consumer(broker, default_api_timeout_ms=500) as reader:
            reader.assign([P0])
            with pytest.raises(RequestTimedOut, match="was not found before the deadline"):
                await reader.position(P0)


async def test_positions_follow_the_reset_policy() -> None:
    async with orders_broker(records=5) as broker:
        async with consumer(broker, auto_offset_reset="earliest") as reader:
            reader.assign([P0])
            assert await reader.position(P0) == 0
        async with consumer(broker, auto_offset_reset="latest") as reader:
            reader.assign([P0])
            assert await reader.position(P0) == 5
        async with consumer(broker, auto_offset_reset="none", group_id="g") as reader:
            reader.assign([P0])
            for _ in range(2):
                with anyio.fail_after(TIMEOUT_S), pytest.raises(NoOffsetForPartition) as caught:
                    await reader.getone()
            assert caught.value.partitions == (P0,)
            reader.seek(P0, 2)
            assert (await reader.getone()).offset == 2


@pytest.mark.parametrize(("policy", "expected"), [("earliest", 10), ("latest", 20)])
async def test_an_offset_out_of_range_is_reset_by_the_policy(policy: str, expected: int) -> None:
    async with orders_broker() as broker:
        await produce(broker, "orders", 0, numbers(0, 20), each=10)
        broker.delete_records("orders", 0, 10)
        async with consumer(broker, auto_offset_reset=policy) as reader:
            reader.assign([P0])
            reader.seek(P0, 3)
            with anyio.fail_after(TIMEOUT_S):
                while await reader.position(P0) == 3:
                    await reader.getone(timeout_ms=1)
                await produce(broker, "orders", 0, numbers(20, 21))
                assert (await reader.getone()).offset in {expected, expected + 1}


async def test_an_offset_out_of_range_raises_with_policy_none() -> None:
    async with (
        orders_broker(records=20) as broker,
        consumer(broker, auto_offset_reset="none") as reader,
    ):
        reader.assign([P0])
        reader.seek(P0, 100)
        with (
            anyio.fail_after(TIMEOUT_S),
            pytest.raises(NoOffsetForPartition, match="no offset 100"),
        ):
            await reader.getone()


async def test_a_seek_during_a_fetch_discards_its_response() -> None:
    async with orders_broker(records=20) as broker, consumer(broker) as reader:
        broker.on(ApiKey.FETCH, Delay(0.02), times=1)
        reader.assign([P0])
        await broker.wait_for_request(ApiKey.FETCH)
        reader.seek(P0, 15)
        assert [r.offset for r in await read(reader, 5)] == [15, 16, 17, 18, 19]
        reader.seek(P0, 2)
        assert (await reader.getone()).offset == 2
        await reader.seek_to_beginning(P0)
        assert await reader.position(P0) == 0
        await reader.seek_to_end()
        assert await reader.position(P0) == 20
        assert await reader.getmany(timeout_ms=10) == {}


async def test_seek_to_committed() -> None:
    async with (
        orders_broker(records=20) as broker,
        consumer(broker, "orders", group_id="g", enable_auto_commit=False) as reader,
    ):
        await read(reader, 5)
        await reader.commit({P0: 3})
        await reader.seek_to_committed()
        assert (await reader.getone()).offset == 3


@pytest.mark.slow
async def test_a_partition_lost_during_seek_to_committed_is_skipped() -> None:
    async with orders_broker(records=3, group_min_session_timeout_ms=100) as broker:
        options: dict[str, Any] = {"group_id": "g", "enable_auto_commit": False}
        for named in ((), (P0,)):
            async with consumer(broker, "orders", max_poll_interval_ms=300, **options) as reader:
                await read(reader, 3)
                fault = broker.on(ApiKey.OFFSET_FETCH, Drop())
                with anyio.fail_after(TIMEOUT_S):
                    if named:
                        with pytest.raises(KafkaError, match="not assigned"):
                            await reader.seek_to_committed(*named)
                    else:
                        await reader.seek_to_committed()
                assert reader.assignment() == set()
                fault.remove()


@pytest.mark.parametrize("how", ["pause", "seek"])
async def test_iterators_woken_together_deliver_no_old_records(how: str) -> None:
    async with orders_broker(2, records=50) as broker:
        await produce(broker, "orders", 1, numbers(0, 50))
        async with consumer(broker) as reader:
            reader.assign([P0, P1])
            for partition in (P0, P1):
                with anyio.fail_after(TIMEOUT_S):
                    await reader.getmany(partition, timeout_ms=5_000, max_records=1)
            reader.pause(P0, P1)
            iterators = [aiter(reader), aiter(reader)]
            with anyio.fail_after(TIMEOUT_S):
                async with anyio.create_task_group() as tasks:
                    for iterator in iterators:
                        tasks.start_soon(anext, iterator)
                    await anyio.wait_all_tasks_blocked()
                    reader.resume(P0, P1)
            if how == "pause":
                reader.pause(P0, P1)
                for iterator in iterators:
                    with anyio.move_on_after(0.1):
                        pytest.fail(f"of a paused partition: {await anext(iterator)}")
            else:
                reader.seek(P0, 40)
                reader.seek(P1, 40)
                for iterator in iterators:
                    with anyio.fail_after(TIMEOUT_S):
                        assert (await anext(iterator)).offset >= 40


async def test_pause_keeps_fetched_records() -> None:
    async with orders_broker(2, records=20) as broker:
        await produce(broker, "orders", 1, numbers(0, 20))
        async with consumer(broker) as reader:
            reader.assign([P0])
            await read(reader, 5)
            reader.pause(P0)
            assert reader.paused() == {P0}
            broker.requests.clear()
            assert await reader.getmany(timeout_ms=20) == {}
            broker.on(ApiKey.FETCH, Drop())  # no more records can be fetched
            reader.resume(P0)
            assert reader.paused() == frozenset()
            assert [r.offset for r in await read(reader, 15)] == list(range(5, 20))


async def test_wrong_use_raises() -> None:
    async with orders_broker() as broker:
        async with consumer(broker) as reader:
            with pytest.raises(IllegalState, match="not assigned"):
                reader.seek(P0, 1)
            reader.assign([P0])
            with pytest.raises(ValueError, match="an offset must be from 0 to") as caught:
                reader.seek(P0, -1)
            assert type(caught.value) is ValueError
            with pytest.raises(TypeError):
                reader.seek(P0, "5")  # type: ignore[arg-type]
            with pytest.raises(IllegalState, match="unsubscribe"):
                reader.subscribe(["orders"])
            reader.unsubscribe()
            with pytest.raises(ValueError, match="pattern"):
                reader.subscribe()
            reader.subscribe("orders")
            with pytest.raises(IllegalState, match="unsubscribe"):
                reader.assign([P0])
            with pytest.raises(TypeError):
                reader.subscribe([3])  # type: ignore[list-item]
            with pytest.raises(ValueError, match="max_records must be at least 1"):
                await reader.getmany(max_records=0)
            for limit in (True, 1.5):
                with pytest.raises(TypeError, match="max_records must be a whole number"):
                    await reader.getmany(max_records=limit)  # type: ignore[arg-type]
            with pytest.raises(ValueError, match="'leave_group' or 'remain_in_group', not 'stay'"):
                await reader.stop(group_membership_operation="stay")  # type: ignore[arg-type]
        with pytest.raises(ClientClosed):
            await reader.getone()
    with pytest.raises(InvalidOption, match="auto_offset_reset"):
        Consumer(bootstrap_servers="localhost", auto_offset_reset="earlier")
    with pytest.raises(InvalidOption, match="group_id"):
        Consumer(bootstrap_servers="localhost", gruop_id="g")  # type: ignore[call-arg]


# --- what the cluster has ---------------------------------------------------------------------


async def test_subscription_returns_topics_and_pattern_matches() -> None:
    async with Broker() as broker:
        for name in ("orders", "orders-old", "refunds"):
            await broker.create_topic(name, 1)
        reader = consumer(broker, "orders", "later")
        assert reader.subscription() == {"orders", "later"}
        async with reader:
            assert reader.subscription() == {"orders", "later"}
            reader.subscribe(pattern="orders.*")
            await until(lambda: reader.subscription() == {"orders", "orders-old"}, reader)
            reader.unsubscribe()
            assert reader.subscription() == frozenset()
            reader.assign(P0)
            assert reader.subscription() == frozenset()


async def test_offsets_topics_and_partitions_of_the_cluster() -> None:
    async with orders_broker(2, nodes=2) as broker:
        await broker.create_topic("payments", 1)
        await produce(broker, "orders", 0, numbers(0, 10), each=5)
        await produce(broker, "orders", 1, numbers(0, 4))
        broker.delete_records("orders", 0, 5)
        async with consumer(broker, "orders") as reader:
            assert await reader.topics() == ("orders", "payments")
            assert await reader.partitions_for("orders") == (0, 1)
            assert await reader.beginning_offsets(P0, P1) == {P0: 5, P1: 0}
            assert await reader.end_offsets(P0, P1) == {P0: 10, P1: 4}
            times = await reader.offsets_for_times({P1: 1_002, P0: 999_999})
            assert times[P0] is None
            assert times[P1] is not None
            assert (times[P1].offset, times[P1].timestamp_ms) == (2, 1_002)
            await read(reader, 9)
            assert (reader.lag(P0), reader.lag(P1)) == (0, 0)
            with pytest.raises(ValueError, match="a timestamp must not be negative, but is -1"):
                await reader.offsets_for_times({P0: -1})


# --- bad days ---------------------------------------------------------------------------------


@pytest.mark.slow
async def test_a_missing_topic_raises_after_the_timeout() -> None:
    async with Broker(auto_create_topics=False) as broker:
        for group_id in (None, "g"):
            options = {"group_id": group_id, "default_api_timeout_ms": 200}
            async with consumer(broker, "nowhere", **options) as reader:
                with anyio.fail_after(TIMEOUT_S), pytest.raises(UnknownTopic, match="nowhere"):
                    await reader.getone()


async def test_an_invalid_topic_raises_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    # A name that the client accepts and the broker refuses.
    monkeypatch.setattr("aiokafkawire.types.MAX_TOPIC_NAME_LENGTH", 250)
    async with Broker() as broker, consumer(broker, "x" * 250, group_id="g") as reader:
        with anyio.fail_after(TIMEOUT_S), pytest.raises(BrokerError, match="INVALID_TOPIC"):
            await reader.getone()


async def test_start_raises_without_a_broker() -> None:
    reader = Consumer(
        "orders", bootstrap_servers="127.0.0.1:1", default_api_timeout_ms=200, client_id="c"
    )
    with pytest.raises(NoBrokerAvailable):
        async with reader:
            raise AssertionError("entered")


async def test_a_leader_that_moves_is_followed() -> None:
    async with Broker(nodes=3) as broker:
        await broker.create_topic("orders", 1, 3)
        await produce(broker, "orders", 0, numbers(0, 10))
        async with consumer(broker, "orders") as reader:
            await read(reader, 10)
            leader = broker.leader("orders", 0)
            broker.move_leader("orders", 0, leader % 3 + 1)
            await produce(broker, "orders", 0, numbers(10, 20))
            assert [r.offset for r in await read(reader, 10)] == list(range(10, 20))
            await broker.kill(broker.leader("orders", 0))
            await produce(broker, "orders", 0, numbers(20, 30))
            assert [r.offset for r in await read(reader, 10)] == list(range(20, 30))


@pytest.mark.parametrize(
    "action",
    [
        Close(),
        Answer(ErrorCode.NOT_LEADER_OR_FOLLOWER),
        Answer(ErrorCode.KAFKA_STORAGE_ERROR),
        Answer(ErrorCode.UNKNOWN_TOPIC_ID),
        Answer(ErrorCode.FENCED_LEADER_EPOCH),
    ],
)
async def test_a_fetch_that_fails_is_repeated(action: Any) -> None:
    async with orders_broker(records=10) as broker:
        fault = broker.on(ApiKey.FETCH, action, times=2)
        async with consumer(broker, "orders") as reader:
            assert len(await read(reader, 10)) == 10
        assert fault.hits == 2


async def test_an_unauthorised_topic_raises() -> None:
    async with orders_broker() as broker:
        broker.on(ApiKey.FETCH, Answer(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        async with consumer(broker, "orders") as reader:
            with anyio.fail_after(TIMEOUT_S), pytest.raises(BrokerError) as caught:
                await reader.getone()
            assert caught.value.code in {
                ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            }


async def test_corrupt_records_raise_until_a_seek() -> None:
    async with orders_broker() as broker:
        await produce(broker, "orders", 0, numbers(0, 10), each=5)
        damage(broker, offset=5)
        async with consumer(broker, "orders") as reader:
            assert [r.offset for r in await read(reader, 5)] == list(range(5))
            for _ in range(2):
                with anyio.fail_after(TIMEOUT_S), pytest.raises(CorruptRecord) as caught:
                    await reader.getone()
                assert (caught.value.topic, caught.value.partition) == P0
                assert caught.value.offset == 5
            await produce(broker, "orders", 0, numbers(10, 12))
            reader.seek(P0, 10)
            assert [r.offset for r in await read(reader, 2)] == [10, 11]


def damage(broker: Broker, offset: int) -> None:
    """Flip a bit in the stored batch that begins at an offset."""
    log = broker._partition("orders", 0).log
    read_before = log.read

    def read(at: int, max_bytes: int, before: int | None = None) -> bytes:
        data = bytearray(read_before(at, max_bytes, before))
        position = 0
        while position < len(data):
            if int.from_bytes(data[position : position + 8]) == offset:
                data[position + 70] ^= 1
            position += 12 + int.from_bytes(data[position + 8 : position + 12])
        return bytes(data)

    log.read = read  # type: ignore[method-assign]


@pytest.mark.slow
async def test_a_cancellation_at_any_point_loses_no_record() -> None:
    async with (
        orders_broker(2) as broker,
        consumer(broker, "orders", group_id="g", max_poll_records=3) as reader,
    ):
        got: list[tuple[int, int]] = []
        sent = 0
        with anyio.fail_after(TIMEOUT_S):
            while len(got) < 120:
                if sent < 120:
                    await produce(broker, "orders", sent // 4 % 2, numbers(0, 4))
                    sent += 4
                for wait in range(4):
                    with anyio.CancelScope() as scope, anyio.CancelScope(shield=wait == 3):
                        async with anyio.create_task_group() as tasks:
                            tasks.start_soon(cancel_after, scope, wait)
                            if wait % 2:
                                found = await reader.getone(timeout_ms=10)
                                if found is not None:
                                    got.append((found.partition, found.offset))
                            else:
                                many = await reader.getmany(timeout_ms=10)
                                for records in many.values():
                                    got += [(r.partition, r.offset) for r in records]
                            tasks.cancel_scope.cancel()
        assert sorted(got) == [(p, o) for p in range(2) for o in range(60)]


async def cancel_after(scope: anyio.CancelScope, turns: int) -> None:
    for _ in range(turns):
        await anyio.lowlevel.checkpoint()
    scope.cancel()


async def test_close_wakes_waiting_calls_and_can_be_repeated() -> None:
    async with orders_broker() as broker, consumer(broker, "orders", group_id="g") as reader:
        waiting = anyio.Event()

        async def wait() -> None:
            waiting.set()
            with pytest.raises(ClientClosed):
                await reader.getone()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await waiting.wait()
            await anyio.lowlevel.checkpoint()
            with anyio.fail_after(TIMEOUT_S):
                await reader.aclose()
        await reader.aclose()


async def test_a_failed_background_task_is_raised(caplog: pytest.LogCaptureFixture) -> None:
    async with orders_broker() as broker, consumer(broker, "orders") as reader:

        async def fail() -> None:
            raise LookupError("a defect")

        with caplog.at_level(logging.CRITICAL, "aiokafkawire.consumer"):
            reader._lifecycle.supervisor.spawn(fail, name="defect")
            with anyio.fail_after(TIMEOUT_S), pytest.raises(KafkaError, match="a defect"):
                await reader.getone()


@pytest.mark.slow
async def test_close_is_fast_after_a_background_task_has_failed() -> None:
    async with orders_broker(records=3) as broker:
        reader = consumer(broker, "orders", group_id="g", auto_commit_interval_ms=60_000)
        await reader.start()
        await read(reader, 3)
        broker.on(ApiKey.OFFSET_COMMIT, Drop())
        broker.on(ApiKey.LEAVE_GROUP, Drop())

        async def fail() -> None:
            raise LookupError("a defect")

        await reader._lifecycle.supervisor.spawn(fail, name="defect").wait()
        with ends_within(5), pytest.raises(KafkaError, match="a defect"):
            await reader.stop()


async def test_a_listener_cannot_stop_its_consumer() -> None:
    class Stopping(RebalanceListener):
        async def on_partitions_assigned(self, partitions: object) -> None:
            await reader.stop()

    async with orders_broker(records=1) as broker, consumer(broker, group_id="g") as reader:
        reader.subscribe(["orders"], listener=Stopping())
        with anyio.fail_after(TIMEOUT_S):
            with pytest.raises(KafkaError, match="a rebalance listener cannot stop its"):
                await reader.getone()
            # The consumer continues, as after any other exception of the listener.
            assert [record.value for record in await read(reader, 1)] == numbers(0, 1)


async def test_a_slow_stop_names_the_listener(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(lifecycle, "SLOW_CLOSE_S", 0.02)

    class Slow(RebalanceListener):
        async def on_partitions_revoked(self, partitions: object) -> None:
            while "still closing" not in caplog.text:  # noqa: ASYNC110 - a log has no event
                await anyio.sleep(0.01)

    with anyio.fail_after(TIMEOUT_S):
        async with orders_broker(records=1) as broker, consumer(broker, group_id="g") as reader:
            reader.subscribe(["orders"], listener=Slow())
            await reader.getone()
    (message,) = [message for message in caplog.messages if "still closing" in message]
    assert message.endswith("s more for the rebalance listener; Ctrl-C stops the wait")


def test_a_slow_stop_names_the_time_that_a_commit_may_take(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The time of a rebalance callback is added only while one runs."""
    world = World(seed=1)

    async def main() -> None:
        async with Broker(host="10.0.0.1", runtime=world.runtime("10.0.0.1")) as broker:
            await broker.create_topic("orders", partitions=1)
            servers, runtime = broker.bootstrap_servers, world.runtime("10.0.0.2")
            async with with_runtime(Producer(bootstrap_servers=servers), runtime) as producer:
                await producer.send_and_wait("orders", b"0")
            reader = Consumer(bootstrap_servers=servers, group_id="g", auto_offset_reset="earliest")
            async with with_runtime(reader, runtime) as reader:
                reader.subscribe(["orders"], listener=RebalanceListener())
                await reader.getone()
                broker.on(ApiKey.OFFSET_COMMIT, Drop())

    world.run(main)
    (message,) = [message for message in caplog.messages if "still closing" in message]
    assert message.endswith("waiting up to 28 s more for brokers; Ctrl-C stops the wait")


async def test_reading_without_a_subscription_raises_at_once():
    async with Broker() as broker, Consumer(bootstrap_servers=broker.bootstrap_servers) as consumer:
        with pytest.raises(KafkaError, match="call subscribe"):
            await consumer.getone()
        with pytest.raises(KafkaError, match="call subscribe"):
            await consumer.getmany(timeout_ms=0)
        with pytest.raises(KafkaError, match="call subscribe"):
            await anext(consumer.batches())
        consumer.subscribe(["t"])
        assert await consumer.getone(timeout_ms=1) is None
        consumer.unsubscribe()
        with pytest.raises(KafkaError, match="call subscribe"):
            await consumer.getone()


async def test_waiting_calls_raise_when_the_consumers_tasks_are_cancelled():
    if sniffio.current_async_library() != "asyncio":
        return  # Only asyncio lets a task cancel the tasks of others.
    async with Broker() as broker, consumer(broker, "t") as reader:
        raised: list[type[BaseException]] = []

        async def read() -> None:
            try:
                await reader.getone()
            except ClientClosed as error:
                raised.append(type(error))

        async with anyio.create_task_group() as group:
            group.start_soon(read)
            await anyio.wait_all_tasks_blocked()
            for task in asyncio.all_tasks():
                if task.get_name() == reader._lifecycle.supervisor.name:
                    task.cancel()
        assert raised == [ClientClosed]
        with pytest.raises(ClientClosed):
            await reader.getone()


@pytest.mark.slow
async def test_full_buffers_of_excluded_partitions_do_not_block_others() -> None:
    async with orders_broker(4) as broker:
        for partition in range(1, 4):
            await produce(broker, "orders", partition, [b"x" * 3_000])
        async with consumer(
            broker, fetch_max_bytes=5_000, max_partition_fetch_bytes=2_000
        ) as reader:
            reader.assign(parts("orders", 4))
            assert await reader.getmany(P0, timeout_ms=200) == {}
            await produce(broker, "orders", 0, numbers(0, 3))
            assert list(await reader.getmany(P0, timeout_ms=20_000)) == [P0]
            assert {record.partition for record in await read(reader, 3)} == {1, 2, 3}


async def test_large_batches_are_decompressed_in_a_worker_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = threading.get_ident()
    unpacked: list[tuple[int, bool]] = []
    decompress = compression.decompress

    def watched(codec: int, data: Any, max_bytes: int, magic: int = 2) -> Any:
        found = decompress(codec, data, max_bytes, magic)
        unpacked.append((len(found), threading.get_ident() == here))
        return found

    monkeypatch.setattr(batch_module, "decompress", watched)
    sizes = [100, 1_000_000, 50_000, 400_000, INLINE_BYTES + 1]
    async with Broker() as broker, Producer(
        bootstrap_servers=broker.bootstrap_servers, compression_type="zstd", linger_ms=0
    ) as producer:  # fmt: skip
        await broker.create_topic("orders", 1)
        for size in sizes * 2:
            await producer.send_and_wait("orders", bytes(size))
        unpacked.clear()
        async with consumer(broker, "orders") as reader:
            with anyio.fail_after(TIMEOUT_S):
                ours = [len((await anext(reader)).value or b"") for _ in range(5)]
                iterator = reader.batches()
                while len(ours) < 10:
                    ours += [len(record.value or b"") for record in await anext(iterator)]
    assert ours == sizes * 2
    assert [on_the_loop for size, on_the_loop in unpacked if size > INLINE_BYTES] == [False] * 6
    assert all(on_the_loop for size, on_the_loop in unpacked if size < 100_000)


async def test_a_timeout_during_decompression_loses_no_record() -> None:
    async with Broker() as broker, Producer(
        bootstrap_servers=broker.bootstrap_servers, compression_type="zstd", linger_ms=0
    ) as producer:  # fmt: skip
        await broker.create_topic("orders", 1)
        for number in range(20):
            await producer.send_and_wait("orders", bytes((number,)) * 400_000)
        async with consumer(broker, "orders", group_id="g") as reader:
            seen: list[int] = []
            with anyio.fail_after(TIMEOUT_S):
                for attempt in count():
                    if len(seen) == 20:
                        break
                    with anyio.move_on_after(0.001 * (attempt % 7)):
                        found = await reader.getmany(timeout_ms=1_000, max_records=3)
                        for records in found.values():
                            seen += [(record.value or b"?")[0] for record in records]
    assert seen == list(range(20))


async def test_a_busy_partition_does_not_starve_the_others() -> None:
    async with orders_broker(2) as broker:
        await produce(broker, "orders", 0, [b"x" * 100] * 20_000, each=1_000)
        await produce(broker, "orders", 1, numbers(0, 50))
        async with consumer(broker, "orders", max_partition_fetch_bytes=100_000) as reader:
            with anyio.fail_after(TIMEOUT_S):
                calls = since = 0
                while calls < 60:
                    found = await reader.getmany(timeout_ms=1_000, max_records=50)
                    calls += 1
                    since += 1
                    if P1 in found:
                        since = 0
                        await produce(broker, "orders", 1, numbers(0, 50))
                    # Its records are fetched while the other partition's are buffered.
                    assert since * 50 * 170 < 3 * 100_000
                iterator = aiter(reader)
                await produce(broker, "orders", 1, numbers(0, 50))
                seen = [(await anext(iterator)).partition for _ in range(3_000)]
    assert seen.count(1) >= 50


async def test_a_stalled_application_buffers_no_more_than_its_limits() -> None:
    async with orders_broker(4) as broker:
        for partition in range(4):
            await produce(broker, "orders", partition, [b"x" * 1_000] * 500, each=50)
        limits = {"fetch_max_bytes": 300_000, "max_partition_fetch_bytes": 100_000}
        async with consumer(broker, "orders", **limits) as reader:
            with anyio.fail_after(TIMEOUT_S):
                first = await reader.getmany(timeout_ms=5_000, max_records=1)
                assert first
                fetches = -1.0  # until no more are in flight
                while fetches != (fetches := reader.metrics()["fetches_total"]):  # noqa: ASYNC110
                    await anyio.sleep(0.3)
                most = sum(limits.values()) + 4 * 60_000  # plus one batch per partition
                assert 100_000 < reader.metrics()["buffered_bytes"] <= most
                seen = 1
                while seen < 2_000:
                    seen += sum(map(len, (await reader.getmany(timeout_ms=5_000)).values()))
                    assert reader.metrics()["buffered_bytes"] <= most
