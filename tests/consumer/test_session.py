from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from aiokafkawire.broker import Answer, Broker, Delay, SeenRequest
from aiokafkawire.config import ConsumerConfig, make_config
from aiokafkawire.consumer.partition_states import PositionTarget, Resetting
from aiokafkawire.consumer.session import ConsumerSession
from aiokafkawire.consumer.subscription import ManualAssignment, NoSubscription, SubscribedTopics
from aiokafkawire.consumer.topic_subscription import TopicSubscription
from aiokafkawire.errors import (
    CommitFailed,
    InvalidOption,
    KafkaError,
    RequestTimedOut,
)
from aiokafkawire.group.assignors import RangeAssignor
from aiokafkawire.runtime import RealRuntime, Supervisor
from aiokafkawire.types import OffsetAndMetadata, TopicPartition
from aiokafkawire.wire import ApiKey, ErrorCode
from aiokafkawire.wire.messages.metadata import MetadataResponse, MetadataResponseBroker

from .helpers import QUICK, TIMEOUT_S, consumer, numbers, orders_broker, produce, read, until
from .record_data import P0, P1


@asynccontextmanager
async def session(broker: Broker, **options: Any) -> AsyncIterator[ConsumerSession]:
    supervisor = Supervisor("test")
    await supervisor.start()
    config = make_config(
        ConsumerConfig, {"bootstrap_servers": broker.bootstrap_servers} | QUICK | options
    )
    it = ConsumerSession(config, RealRuntime(), supervisor, [RangeAssignor()])
    try:
        await it.start()
        yield it
        deadline = it.runtime.clock.now() + 20
        await it.close(deadline, deadline)
    finally:
        await supervisor.stop()


async def test_an_error_is_raised_once_and_further_ones_are_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with Broker() as broker, session(broker) as it:
        it.topics.subscribe(ManualAssignment((P0,)), None)
        it.notifier.raise_in_next_call(LookupError("first"))
        with caplog.at_level(logging.WARNING):
            it.notifier.raise_in_next_call(LookupError("second"))
        with pytest.raises(LookupError, match="first"):
            it.raise_errors()
        it.raise_errors()
        assert "second" in caplog.text


async def test_a_partition_added_to_a_topic_is_read_from_its_beginning_without_a_group() -> None:
    async with orders_broker() as broker, session(broker, auto_offset_reset="latest") as it:
        it.topics.subscribe(SubscribedTopics(("orders",)), None)
        while P0 not in it.assignment:
            await it.notifier.wait(it.runtime.clock.now() + TIMEOUT_S)
        it.topics._add(P1)
        it.assignment.remove([p for p in it.assignment.values() if p.tp == P1])
        metadata = it.cluster.metadata
        topic = metadata.topics["orders"]
        grown = type(topic)(
            topic.name,
            topic.topic_id,
            {0: topic.partitions[0], 1: topic.partitions[0]},
        )
        snapshot = type(metadata)(
            version=metadata.version + 1, nodes=metadata.nodes, topics={"orders": grown}
        )
        it.cluster._metadata_updater.metadata = snapshot
        it.topics._apply()
        state = it.assignment.get(P1).state  # type: ignore[union-attr]
        assert isinstance(state, Resetting)
        assert state.timestamp == PositionTarget.EARLIEST


async def test_a_recreated_topic_is_read_from_its_beginning() -> None:
    async with (
        orders_broker(records=9) as broker,
        consumer(broker, metadata_max_age_ms=50) as reader,
    ):
        reader.assign([P0])
        await read(reader, 9)
        await broker.delete_topic("orders")
        await broker.create_topic("orders", 1)
        await produce(broker, "orders", 0, numbers(100, 103))
        assert [r.value for r in await read(reader, 3)] == numbers(100, 103)


@pytest.mark.parametrize("as_of", [None, pytest.param("2.0", id="topics without ids")])
async def test_a_topic_recreated_with_fewer_partitions_is_read_without_a_group(
    as_of: str | None,
) -> None:
    async with orders_broker(2, as_of=as_of) as broker:
        options = {"metadata_max_age_ms": 50, "default_api_timeout_ms": 300}
        async with consumer(broker, **options) as reader:
            reader.subscribe(pattern="orders")
            await produce(broker, "orders", 1, numbers(0, 9))
            await read(reader, 9)
            await broker.delete_topic("orders")
            await broker.create_topic("orders", 1)
            await produce(broker, "orders", 0, numbers(100, 103))
            assert [r.value for r in await read(reader, 3)] == numbers(100, 103)
            await reader.getmany(timeout_ms=600)
            assert reader.assignment() == frozenset({P0})


async def test_assign_adds_and_removes_partitions() -> None:
    async with orders_broker(2) as broker, session(broker, group_id="g") as it:
        it.topics.subscribe(ManualAssignment((P0, P1)), None)
        assert it.assignment.topic_partitions == (P0, P1)
        await it.require_group().commit({P0: OffsetAndMetadata(5)})
        it.topics.subscribe(ManualAssignment((P1,)), None)
        assert it.assignment.topic_partitions == (P1,)
        it.topics.subscribe(NoSubscription(), None)
        assert it.assignment.topic_partitions == ()
        with pytest.raises(CommitFailed, match=r"not assigned to this consumer \(group g"):
            await it.require_group().commit({P0: OffsetAndMetadata(5)})


async def test_an_invalid_subscription_changes_nothing() -> None:
    async with orders_broker(records=9) as broker:
        async with consumer(broker, "orders", group_id="g") as reader:
            await read(reader, 4)
            with pytest.raises(ValueError, match="string"):
                reader.subscribe(["x" * 40_000])
            assert len(await read(reader, 5)) == 5
        async with consumer(broker) as reader:
            reader.assign(P0)
            with pytest.raises(ValueError, match="at most 32767 bytes"):
                reader.assign(("x" * 40_000, 0))
            await read(reader, 4)
            reader.assign(P0, P1)


async def test_partitions_that_stay_assigned_keep_their_position() -> None:
    async with orders_broker(2, records=9) as broker:
        await produce(broker, "orders", 1, numbers(9, 12))
        async with consumer(broker, enable_auto_commit=False) as reader:
            reader.assign(P0)
            first = await read(reader, 4)
            reader.assign(P0, P1)
            rest = await read(reader, 8)
            assert sorted(int(r.value or b"") for r in first + rest) == list(range(12))


@pytest.mark.slow
async def test_manually_assigned_partitions_are_committed_when_removed() -> None:
    async with orders_broker(records=9) as broker, consumer(broker, group_id="g") as reader:
        reader.assign(P0)
        await read(reader, 4)
        broker.on(ApiKey.OFFSET_COMMIT, Delay(0.1))
        reader.unsubscribe()
        reader.assign(P0)
        # The last record delivered was still being processed.
        assert [r.value for r in await read(reader, 1)] == [b"3"]


async def test_manually_assigned_partitions_are_committed_before_joining_the_group() -> None:
    async with orders_broker(records=9) as broker, consumer(broker, group_id="g") as reader:
        reader.assign(P0)
        await read(reader, 4)
        reader.unsubscribe()
        reader.subscribe(["orders"])
        # The last record delivered was still being processed.
        assert [r.value for r in await read(reader, 1)] == [b"3"]


async def test_switching_from_a_group_to_assign_at_once() -> None:
    async with orders_broker(2, records=9) as broker:
        await produce(broker, "orders", 1, numbers(9, 12))
        async with consumer(broker, "orders", group_id="g") as reader:
            await read(reader, 12)
            reader.unsubscribe()
            reader.assign(P0)
            reader.seek(P0, 2)
            with anyio.fail_after(TIMEOUT_S):
                await reader.commit({P0: 1})
                assert [r.value for r in await read(reader, 7)] == numbers(2, 9)
            assert reader.assignment() == {P0}
            offsets = (await reader.committed(P0, P1)).values()
            assert next(offset and offset.offset for offset in offsets) == 1
        assert broker.requests.of(ApiKey.LEAVE_GROUP)


async def test_offsets_of_manually_assigned_partitions_are_fetched_after_leaving_the_group() -> (
    None
):
    async with Broker() as broker, session(broker, group_id="g") as it:
        await broker.create_topic("orders", 1)
        released = anyio.Event()

        async def hold(seen: SeenRequest) -> None:
            await released.wait()

        broker.on(ApiKey.JOIN_GROUP, hold)
        it.topics.subscribe(SubscribedTopics(("orders",)), None)
        await broker.wait_for_request(ApiKey.JOIN_GROUP)
        it.topics.subscribe(NoSubscription(), None)
        it.topics.subscribe(ManualAssignment((P0,)), None)
        with pytest.raises(RequestTimedOut, match="not left") as caught:
            await it.require_group().fetch([P0], it.runtime.clock.now() + 0.02)
        error = caught.value
        assert (error.api, error.group, error.sent) == ("OffsetFetch", "g", False)
        released.set()


async def test_a_commit_waiting_for_a_rebalance_fails_when_the_member_leaves() -> None:
    async with (
        orders_broker(records=9) as broker,
        consumer(broker, "orders", group_id="g", enable_auto_commit=False) as reader,
    ):
        await read(reader, 4)
        broker.on(ApiKey.OFFSET_COMMIT, Answer(ErrorCode.REBALANCE_IN_PROGRESS), times=2)
        async with anyio.create_task_group() as tasks:

            async def commit() -> None:
                with pytest.raises(CommitFailed):
                    await reader.commit()

            tasks.start_soon(commit)
            await broker.wait_for_request(ApiKey.OFFSET_COMMIT)
            reader.unsubscribe()
        reader.assign(P0)
        with anyio.fail_after(TIMEOUT_S):
            await reader.commit({P0: 5})


async def test_commit_without_a_group_raises() -> None:
    async with Broker() as broker, session(broker) as it:
        with pytest.raises(InvalidOption, match="group_id"):
            await it.require_group().commit({})


async def test_positions_return_uncommitted_offsets() -> None:
    async with orders_broker(2, records=9) as broker:
        async with consumer(broker, group_id="g", enable_auto_commit=False) as reader:
            reader.assign([P0])
            assert reader.positions() == {}
            await read(reader, 9)
            assert reader.positions() == {P0: OffsetAndMetadata(9, leader_epoch=0)}
            assert await reader.committed(P0) == {P0: None}
            reader.mark_committed(reader.positions())
            assert reader.positions() == {}
            with pytest.raises(ValueError, match="an offset must be from 0 to"):
                reader.mark_committed({P0: -1})
            await reader.seek_to_beginning()
            assert reader.positions() == {P0: OffsetAndMetadata(0, leader_epoch=0)}
        async with consumer(broker) as reader:
            reader.assign([P0])
            await read(reader, 9)
            assert reader.positions() == {P0: OffsetAndMetadata(9, leader_epoch=0)}


async def test_positions_raise_once_for_partitions_released_uncommitted() -> None:
    async with Broker() as broker, session(broker, group_id="g", enable_auto_commit=False) as it:
        it.require_group().rebalance.released_uncommitted = {P1: "the partition was given back"}
        with pytest.raises(CommitFailed, match=r"orders-1 \(the partition was given back\)"):
            it.positions()
        assert it.positions() == {}


async def test_lost_partitions_are_raised_once() -> None:
    async with Broker() as broker, session(broker, group_id="g") as it:
        group = it.require_group()
        group.raise_uncommitted(group.rebalance.lost_uncommitted)
        group.rebalance.lost_uncommitted[P1] = "the session ended"
        with pytest.raises(CommitFailed, match=r"orders-1 \(the session ended\)"):
            group.raise_uncommitted(group.rebalance.lost_uncommitted)
        group.raise_uncommitted(group.rebalance.lost_uncommitted)


async def test_a_topic_missing_from_one_response_keeps_its_position() -> None:
    async with orders_broker(records=2) as broker:
        options = {"auto_offset_reset": "latest", "metadata_max_age_ms": 50}
        async with consumer(broker, **options) as reader:
            reader.subscribe(pattern="ord.*")
            await until(lambda: bool(reader.assignment()), reader)
            assert await reader.position(P0) == 2
            host, port = broker.bootstrap_servers.split(":")
            node = MetadataResponseBroker(node_id=1, host=host, port=int(port))
            nothing = MetadataResponse(brokers=[node], topics=[])
            stale = broker.on(ApiKey.METADATA, lambda seen: nothing)
            await until(lambda: stale.hits > 1, reader)
            await produce(broker, "orders", 0, numbers(2, 4))
            stale.remove()
            assert [r.value for r in await read(reader, 2)] == numbers(2, 4)


@pytest.mark.parametrize(
    ("error", "what_follows"),
    [
        (
            CommitFailed("the partition was lost"),
            "the new owner reads the uncommitted records again",
        ),
        (RequestTimedOut("no response"), "retrying"),
    ],
)
async def test_a_failed_auto_commit_says_what_follows(
    error: KafkaError, what_follows: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with orders_broker() as broker, consumer(broker, "orders", group_id="g") as reader:
        session = reader._running
        group = session.require_group()

        async def fail(*_: object) -> None:
            raise error

        group.offsets.wait_acknowledged = fail  # type: ignore[method-assign]
        assert group.auto_commit is not None
        await group.auto_commit.wait_and_log([1], 1)
        del group.offsets.wait_acknowledged
    text = f"Group g: auto-commit failed: {error.reason}; {what_follows}"
    assert caplog.messages.count(text) == 1


async def test_auto_commit_skips_deleted_topics() -> None:
    payments = TopicPartition("payments", 0)
    async with Broker(auto_create_topics=False) as broker:
        for topic in ("orders", "payments"):
            await broker.create_topic(topic, 1)
            await produce(broker, topic, 0, numbers(0, 2))
        options = {"auto_commit_interval_ms": 20, "metadata_max_age_ms": 50}
        async with consumer(broker, group_id="g", **options) as reader:
            reader.assign(P0, payments)
            reader.pause(payments)
            assert len((await reader.getmany(timeout_ms=20_000))[P0]) == 2
            await broker.delete_topic("orders")
            cluster = reader._running.cluster
            while "orders" not in cluster.metadata.errors:
                version = cluster.metadata.version
                await cluster.wait_update(version, reader._running.runtime.clock.now() + 20)
            reader.resume(payments)
            await read(reader, 2)
            assert await reader.getmany(timeout_ms=1) == {}

            def is_of_two(seen: SeenRequest) -> bool:
                return bool(seen.message.topics[0].partitions[0].committed_offset == 2)

            await broker.wait_for_request(ApiKey.OFFSET_COMMIT, matching=is_of_two)
            both = [seen for seen in broker.requests.of(ApiKey.OFFSET_COMMIT) if is_of_two(seen)]
            assert all(topic.name != "orders" for seen in both for topic in seen.message.topics)


async def test_a_leader_change_does_not_check_all_topics(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    followed: list[TopicSubscription] = []
    follow = TopicSubscription._apply
    monkeypatch.setattr(
        TopicSubscription, "_apply", lambda self: (followed.append(self), follow(self))
    )
    async with Broker(nodes=2) as broker:
        await broker.create_topic("t", partitions=8)
        async with session(broker) as it:
            it.topics.subscribe(SubscribedTopics(("t",)), None)
            while len(it.assignment.topic_partitions) < 8:
                await it.notifier.wait(it.runtime.clock.now() + TIMEOUT_S)
            before = len(followed)
            for number in range(8):
                tp = TopicPartition("t", number)
                it.cluster.update_leader(tp, 1, 7)
                leader = it.cluster.metadata.leader(tp)
                assert leader is not None
                assert leader == (1, 7)
            assert len(followed) == before
