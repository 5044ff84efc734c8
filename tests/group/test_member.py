"""Groups with the embedded broker: joining, leaving, failing, committing and resuming."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import AsyncExitStack
from typing import Any

import anyio
import pytest

from aiokafkawire.broker import Answer, Broker, Close, Delay, SeenRequest
from aiokafkawire.consumer import Consumer, RebalanceListener
from aiokafkawire.errors import (
    BrokerError,
    ClientClosed,
    CommitFailed,
    FencedInstanceId,
    GroupFailed,
    InvalidOption,
)
from aiokafkawire.group.assignors import RangeAssignor
from aiokafkawire.group.membership import events, states
from aiokafkawire.group.membership.effects import SendHeartbeat
from aiokafkawire.types import GroupMetadata, OffsetAndMetadata, TopicPartition
from aiokafkawire.wire import ApiKey, ErrorCode
from aiokafkawire.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from tests.broker.raw_client import connected
from tests.consumer.helpers import TIMEOUT_S, consumer, numbers, orders_broker, produce, read
from tests.elapsed import ends_within

P0 = TopicPartition("orders", 0)
QUICK_SESSIONS: dict[str, Any] = {"group_min_session_timeout_ms": 100}


class Reader:
    """A group worker that reads until it is stopped and keeps what it read."""

    def __init__(self, reader: Consumer) -> None:
        self.consumer = reader
        self.seen: list[tuple[int, int]] = []
        self._scope = anyio.CancelScope()
        self._ended = anyio.Event()

    async def run(self) -> None:
        with self._scope:
            async for record in self.consumer:
                self.seen.append((record.partition, record.offset))
        self._ended.set()

    async def stop(self) -> None:
        self._scope.cancel()
        await self._ended.wait()

    @property
    def owned(self) -> int:
        return len(self.consumer.assignment())


async def until(condition: Any) -> None:
    with anyio.fail_after(TIMEOUT_S):
        while not condition():
            await anyio.lowlevel.checkpoint()


def state_of(reader: Consumer) -> states.MembershipState:
    return reader._running.require_group().member.state


async def read_nothing_until_assigned(reader: Consumer) -> None:
    await reader.getmany(timeout_ms=0)
    while not reader.assignment():
        await reader.getmany(timeout_ms=10)


@pytest.mark.slow
async def test_partitions_are_reassigned_when_members_join_and_leave() -> None:
    async with Broker() as broker, anyio.create_task_group() as tasks:
        await broker.create_topic("orders", 6)
        async with consumer(broker, "orders", group_id="g") as one:
            first = Reader(one)
            tasks.start_soon(first.run)
            await until(lambda: first.owned == 6)
            async with consumer(broker, "orders", group_id="g") as two:
                second = Reader(two)
                tasks.start_soon(second.run)
                await until(lambda: first.owned == second.owned == 3)
                async with consumer(broker, "orders", group_id="g") as three:
                    third = Reader(three)
                    tasks.start_soon(third.run)
                    await until(lambda: first.owned == second.owned == third.owned == 2)
                    owned = [tp for r in (first, second, third) for tp in r.consumer.assignment()]
                    assert len(set(owned)) == 6
                    await third.stop()
                await until(lambda: first.owned == second.owned == 3)
                await second.stop()
            await until(lambda: first.owned == 6)
            await first.stop()
        assert len(broker.requests.of(ApiKey.LEAVE_GROUP)) == 3


@pytest.mark.slow
async def test_a_member_killed_without_leave_is_replaced_and_no_record_is_skipped() -> None:
    async with Broker(**QUICK_SESSIONS) as broker, anyio.create_task_group() as tasks:
        await broker.create_topic("orders", 4)
        async with AsyncExitStack() as stack:
            options = {"group_id": "g", "session_timeout_ms": 3_000}
            readers = []
            for _ in range(3):
                one = await stack.enter_async_context(consumer(broker, "orders", **options))
                readers.append(Reader(one))
                tasks.start_soon(readers[-1].run)
            await until(lambda: sorted(r.owned for r in readers) == [1, 1, 2])
            for partition in range(4):
                await produce(broker, "orders", partition, numbers(0, 100))
            await until(lambda: sum(len(r.seen) for r in readers) == 400)
            victim = next(r for r in readers if r.owned == 2)
            await victim.stop()
            victim.consumer._lifecycle.abort()
            left = [r for r in readers if r is not victim]
            await until(lambda: [r.owned for r in left] == [2, 2])
            for partition in range(4):
                await produce(broker, "orders", partition, numbers(100, 150))
            everything = {(p, o) for p in range(4) for o in range(150)}
            await until(lambda: {seen for r in readers for seen in r.seen} >= everything)
            assert {seen for r in readers for seen in r.seen} == everything
            for r in left:
                await r.stop()


async def test_requests_that_fail_at_client_close_do_not_affect_the_membership() -> None:
    async with (
        orders_broker() as broker,
        consumer(broker, "orders", group_id="g", heartbeat_interval_ms=10_000) as reader,
    ):
        await read_nothing_until_assigned(reader)
        member = reader._running.require_group().member
        now = member._clock.now() + reader.config.heartbeat_interval_ms / 1_000
        effects = list(member._machine.handle(events.DeadlineReached(), now))
        assert [type(effect) for effect in effects] == [SendHeartbeat]
        member._perform(effects[0])
        # The connections are closed before the heartbeat's task runs.
        reader._lifecycle.abort()
        await reader._lifecycle.supervisor.stop()
        assert member.error is None
        assert isinstance(member.state, states.Stable)


async def test_a_consumer_resumes_from_committed_offsets() -> None:
    async with orders_broker(records=30) as broker:
        async with consumer(broker, "orders", group_id="g", enable_auto_commit=False) as reader:
            await read(reader, 10)
            await reader.commit()
            assert await reader.committed(P0) == {P0: OffsetAndMetadata(10, leader_epoch=0)}
            await read(reader, 5)
        async with consumer(broker, "orders", group_id="g", enable_auto_commit=False) as reader:
            assert (await reader.getone()).offset == 10


async def test_a_rebalance_commits_processed_records_only() -> None:
    async with Broker() as broker, anyio.create_task_group() as tasks:
        await broker.create_topic("orders", 2)
        await produce(broker, "orders", 0, numbers(0, 20))
        await produce(broker, "orders", 1, numbers(0, 20))
        options = {"group_id": "g", "auto_commit_interval_ms": 1_000_000}
        async with consumer(broker, "orders", **options) as one:
            records = await read(one, 7)
            async with consumer(broker, "orders", **options) as two:
                second = Reader(two)
                tasks.start_soon(second.run)
                await until(lambda: isinstance(state_of(one), states.RevocationDue))
                assert one.assignment() == {P0, TopicPartition("orders", 1)}
                assert second.owned == 0
                records += [await one.getone()]  # the partitions are revoked only now
                await until(lambda: second.owned == 1)
                kept = await one.committed(P0, TopicPartition("orders", 1))
                before = records[:-1]
                for tp, offset in kept.items():
                    given = sum(r.partition == tp.partition for r in before)
                    assert (offset.offset if offset else 0) == given
                other = next(iter(two.assignment())).partition
                start = sum(r.partition == other for r in before)
                await until(lambda: len(second.seen) == 20 - start)
                assert second.seen[0] == (other, start)
                await second.stop()


class Notes(RebalanceListener):
    def __init__(self) -> None:
        self.calls: list[tuple[str, list[TopicPartition]]] = []

    async def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        await anyio.lowlevel.checkpoint()
        self.calls.append(("assigned", sorted(partitions)))

    async def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        await anyio.lowlevel.checkpoint()
        self.calls.append(("revoked", sorted(partitions)))

    def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        self.calls.append(("lost", sorted(partitions)))


async def test_a_listener_is_called_in_order() -> None:
    async with Broker() as broker, anyio.create_task_group() as tasks:
        await broker.create_topic("orders", 2)
        notes = Notes()
        both = [P0, TopicPartition("orders", 1)]
        async with consumer(broker, group_id="g") as one:
            one.subscribe(["orders"], listener=notes)
            first = Reader(one)
            tasks.start_soon(first.run)
            await until(lambda: notes.calls == [("assigned", both)])
            async with consumer(broker, "orders", group_id="g") as two:
                second = Reader(two)
                tasks.start_soon(second.run)
                await until(lambda: len(notes.calls) == 3)
                assert notes.calls[1] == ("revoked", both)
                assert notes.calls[2] == ("assigned", sorted(one.assignment()))
                await second.stop()
            await first.stop()
        assert notes.calls[-1][0] == "revoked"


async def test_an_exception_of_a_callback_is_raised_by_the_next_call() -> None:
    class Angry(RebalanceListener):
        def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
            raise LookupError("no cellar for these")

    async with orders_broker(records=3) as broker, consumer(broker, group_id="g") as reader:
        reader.subscribe(["orders"], listener=Angry())
        with anyio.fail_after(TIMEOUT_S), pytest.raises(LookupError, match="cellar"):
            await reader.getone()
        assert [r.offset for r in await read(reader, 3)] == [0, 1, 2]


async def test_a_hanging_callback_is_cancelled() -> None:
    class Hanging(RebalanceListener):
        async def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
            await anyio.sleep_forever()

    async with orders_broker(records=3) as broker:
        options = {"group_id": "g", "rebalance_callback_timeout_ms": 50}
        async with consumer(broker, **options) as reader:
            reader.subscribe(["orders"], listener=Hanging())
            assert len(await read(reader, 3)) == 3


async def test_a_callback_may_seek() -> None:
    async with orders_broker(records=9) as broker, consumer(broker, group_id="g") as reader:

        class ToFive(RebalanceListener):
            async def on_partitions_assigned(self, partitions: Any) -> None:
                assert await reader.position(P0) == 0
                reader.seek(P0, 5)

        reader.subscribe(["orders"], listener=ToFive())
        assert [r.offset for r in await read(reader, 4)] == [5, 6, 7, 8]


@pytest.mark.slow
async def test_an_application_that_does_not_poll_loses_its_partitions_and_cannot_commit() -> None:
    async with orders_broker(records=20) as broker:
        notes = Notes()
        options = {"group_id": "g", "max_poll_interval_ms": 200, "auto_commit_interval_ms": 10}
        async with consumer(broker, **options) as reader:
            reader.subscribe(["orders"], listener=notes)
            batch = (await read_batch(reader))[:4]
            await until(lambda: ("lost", [P0]) in notes.calls)
            assert reader.assignment() == frozenset()
            with pytest.raises(CommitFailed, match="max_poll_interval_ms"):
                await reader.commit(batch)
            again = await read_batch(reader)
            assert again.first_offset == 0
            with pytest.raises(CommitFailed):
                await reader.commit({TopicPartition("other", 0): 3})
            await reader.commit(again)
            assert (await reader.committed(P0))[P0] is not None


async def read_batch(reader: Consumer) -> Any:
    with anyio.fail_after(TIMEOUT_S):
        return await anext(reader.batches())


@pytest.mark.slow
async def test_commit_without_arguments_fails_once_for_lost_partitions() -> None:
    async with orders_broker(records=20) as broker:
        options = {"group_id": "g", "max_poll_interval_ms": 200, "enable_auto_commit": False}
        async with consumer(broker, "orders", **options) as reader:
            await read(reader, 5)
            await until(lambda: not reader.assignment())
            with pytest.raises(CommitFailed, match="orders-0"):
                await reader.commit()
            await reader.commit()  # reported once; nothing is owned now


@pytest.mark.slow
async def test_heartbeats_continue_while_the_application_processes_records() -> None:
    async with (
        orders_broker(records=2, **QUICK_SESSIONS) as broker,
        consumer(
            broker, "orders", group_id="g", session_timeout_ms=2_000, heartbeat_interval_ms=250
        ) as reader,
    ):
        await read(reader, 1)
        broker.requests.clear()
        await broker.wait_for_request(ApiKey.HEARTBEAT, count=9)
        assert reader.assignment() == {P0}
        assert isinstance(state_of(reader), states.Stable)


async def test_commits_and_heartbeats_do_not_wait_for_a_delayed_join() -> None:
    async with Broker() as broker, anyio.create_task_group() as tasks:
        await broker.create_topic("orders", 2)
        await produce(broker, "orders", 0, numbers(0, 20))
        async with consumer(broker, "orders", group_id="g", enable_auto_commit=False) as one:
            await read(one, 5)
            async with consumer(broker, "orders", group_id="g") as two:
                second = Reader(two)
                tasks.start_soon(second.run)
                await until(lambda: isinstance(state_of(one), states.RevocationDue))
                with ends_within(2):
                    await one.commit({P0: 3})
                assert (await one.committed(P0))[P0] == OffsetAndMetadata(3)
                await second.stop()


@pytest.mark.parametrize(
    ("api", "code"),
    [
        (ApiKey.FIND_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ApiKey.JOIN_GROUP, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (ApiKey.JOIN_GROUP, ErrorCode.NOT_COORDINATOR),
        (ApiKey.SYNC_GROUP, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ApiKey.HEARTBEAT, ErrorCode.NOT_COORDINATOR),
        (ApiKey.HEARTBEAT, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (ApiKey.OFFSET_FETCH, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (ApiKey.OFFSET_COMMIT, ErrorCode.NOT_COORDINATOR),
    ],
)
async def test_requests_are_retried_until_the_coordinator_is_ready(api: ApiKey, code: int) -> None:
    async with orders_broker(records=5) as broker:
        fault = broker.on(api, Answer(code), times=2)
        async with consumer(broker, "orders", group_id="g") as reader:
            await read(reader, 5)
            await reader.commit()
            if api == ApiKey.HEARTBEAT:
                await broker.wait_for_request(ApiKey.HEARTBEAT, count=3)
            assert fault.hits == 2
            assert reader.assignment() == {P0}
            assert (await reader.committed(P0))[P0].offset == 5  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "api", [ApiKey.FIND_COORDINATOR, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.OFFSET_COMMIT]
)
async def test_a_lost_connection_is_recovered(api: ApiKey) -> None:
    async with orders_broker(records=5) as broker:
        broker.on(api, Close(carried_out=True), times=1)
        async with consumer(broker, "orders", group_id="g") as reader:
            await read(reader, 5)
            await reader.commit()
            assert (await reader.committed(P0))[P0].offset == 5  # type: ignore[union-attr]


async def test_a_killed_coordinator_does_not_stop_the_group() -> None:
    async with Broker(nodes=3) as broker, anyio.create_task_group() as tasks:
        await broker.create_topic("orders", 3, 3)
        async with consumer(broker, "orders", group_id="g") as one:
            first = Reader(one)
            tasks.start_soon(first.run)
            await until(lambda: first.owned == 3)
            await broker.kill(broker.coordinator("g"))
            for partition in range(3):
                await produce(broker, "orders", partition, numbers(0, 10))
            await until(lambda: len(set(first.seen)) == 30)
            await first.stop()
            await one.commit()
            kept = await one.committed()
            assert {tp.partition: o.offset for tp, o in kept.items() if o} == {0: 10, 1: 10, 2: 10}
        assert len(first.seen) == 30


@pytest.mark.parametrize(
    ("api", "code"),
    [
        (ApiKey.JOIN_GROUP, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (ApiKey.JOIN_GROUP, ErrorCode.GROUP_MAX_SIZE_REACHED),
        (ApiKey.FIND_COORDINATOR, ErrorCode.GROUP_AUTHORIZATION_FAILED),
        (ApiKey.SYNC_GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED),
    ],
)
async def test_errors_that_are_not_retriable_are_raised_by_each_call(
    api: ApiKey, code: int
) -> None:
    async with orders_broker() as broker:
        broker.on(api, Answer(code))
        async with consumer(broker, "orders", group_id="g") as reader:
            for _ in range(2):
                with (
                    anyio.fail_after(TIMEOUT_S),
                    pytest.raises((GroupFailed, BrokerError)) as raised,
                ):
                    await reader.getone()
                assert ErrorCode(code).name in str(raised.value)


async def test_the_default_session_timeout_is_lowered_when_45_s_are_rejected() -> None:
    async with orders_broker(records=1, group_max_session_timeout_ms=30_000) as broker:
        async with consumer(broker, "orders", group_id="g") as reader:
            await read(reader, 1)
        async with consumer(broker, "orders", group_id="h", session_timeout_ms=45_000) as reader:
            with anyio.fail_after(TIMEOUT_S), pytest.raises(GroupFailed, match="session"):
                await reader.getone()


async def test_a_second_member_with_an_instance_id_fences_the_first() -> None:
    async with Broker() as broker, anyio.create_task_group() as tasks:
        await broker.create_topic("orders", 1)
        options = {"group_id": "g", "group_instance_id": "i"}
        async with consumer(broker, "orders", **options) as one:
            with anyio.fail_after(TIMEOUT_S):
                while not one.assignment():
                    await one.getmany(timeout_ms=5)
            async with consumer(broker, "orders", **options) as two:
                second = Reader(two)
                tasks.start_soon(second.run)
                with anyio.fail_after(TIMEOUT_S), pytest.raises(FencedInstanceId, match="'i'"):
                    await one.getone()
                await second.stop()


async def test_added_partitions_cause_a_rebalance() -> None:
    async with orders_broker() as broker:
        options = {"group_id": "g", "metadata_max_age_ms": 50}
        async with consumer(broker, "orders", **options) as reader:
            with anyio.fail_after(TIMEOUT_S):
                while reader.assignment() != {P0}:
                    await reader.getmany(timeout_ms=5)
            await broker.delete_topic("orders")
            await broker.create_topic("orders", 3)
            with anyio.fail_after(TIMEOUT_S):
                while len(reader.assignment()) != 3:
                    await reader.getmany(timeout_ms=5)
            assert {tp.partition for tp in reader.assignment()} == {0, 1, 2}


async def test_a_static_leader_that_came_back_watches_partition_counts() -> None:
    async with orders_broker() as broker:
        options = {"group_id": "g", "group_instance_id": "static", "metadata_max_age_ms": 50}

        async def assigned(reader: Consumer, count: int) -> None:
            with anyio.fail_after(TIMEOUT_S):
                while len(reader.assignment()) != count:
                    await reader.getmany(timeout_ms=5)

        async with consumer(broker, "orders", **options) as reader:
            await assigned(reader, 1)
        async with consumer(broker, "orders", **options) as reader:
            await assigned(reader, 1)
            await broker.delete_topic("orders")
            await broker.create_topic("orders", 3)
            await assigned(reader, 3)
            assert state_of(reader).generation.is_leader  # type: ignore[attr-defined]


async def test_new_topics_of_a_pattern_are_read() -> None:
    async with Broker() as broker:
        await broker.create_topic("orders-eu", 1)
        await broker.create_topic("payments", 1)
        await produce(broker, "orders-eu", 0, numbers(0, 1))
        async with consumer(broker, group_id="g", metadata_max_age_ms=50) as reader:
            reader.subscribe(pattern="orders-.*")
            assert (await read(reader, 1))[0].topic == "orders-eu"
            await broker.create_topic("orders-us", 1)
            await produce(broker, "orders-us", 0, numbers(0, 1))
            assert (await read(reader, 1))[0].topic == "orders-us"
            assert {tp.topic for tp in reader.assignment()} == {"orders-eu", "orders-us"}


async def test_group_metadata_names_the_lost_generation_until_the_next_poll() -> None:
    async with orders_broker(records=3, **QUICK_SESSIONS) as broker:
        options: dict[str, Any] = {"group_id": "g", "enable_auto_commit": False}
        async with consumer(broker, "orders", group_instance_id="i", **options) as reader:
            assert reader.group_metadata() == GroupMetadata("g", group_instance_id="i")
            await read(reader, 3)
            generation = reader._running.require_group().member.generation
            assert generation is not None
            first = GroupMetadata("g", generation.number, generation.member_id, "i")
            assert reader.group_metadata() == first
            broker.on(ApiKey.HEARTBEAT, Answer(ErrorCode.UNKNOWN_MEMBER_ID), times=1)
            await until(lambda: not reader.assignment())
            await until(reader.assignment)
            # Commits for earlier records must be rejected.
            assert reader.group_metadata() == first
            with pytest.raises(CommitFailed, match="orders-0"):
                reader.positions()
            await read(reader, 3)
            assert reader.group_metadata() != first
            assert reader.positions() == {P0: OffsetAndMetadata(3, leader_epoch=0)}
        async with consumer(broker, **options) as reader:
            reader.assign(P0)
            assert reader.group_metadata() == GroupMetadata("g")
        async with consumer(broker, "orders") as reader:
            with pytest.raises(InvalidOption, match="group_id"):
                reader.group_metadata()


async def test_group_metadata_is_current_after_a_poll_in_which_the_member_rejoined() -> None:
    async with orders_broker(records=3, **QUICK_SESSIONS) as broker:
        options: dict[str, Any] = {"group_instance_id": "i", "enable_auto_commit": False}
        async with consumer(broker, "orders", group_id="g", **options) as reader:
            await read(reader, 3)
            first = reader.group_metadata()
            broker.on(ApiKey.HEARTBEAT, Answer(ErrorCode.UNKNOWN_MEMBER_ID), times=1)
            # Nothing is committed, so one call loses the partition, rejoins and reads again.
            assert len(await reader.getmany(timeout_ms=TIMEOUT_S * 1000)) == 1
            generation = reader._running.require_group().member.generation
            assert generation is not None
            now = GroupMetadata("g", generation.number, generation.member_id, "i")
            assert reader.group_metadata() == now != first


async def test_group_metadata_names_the_lost_generation_after_a_poll_outside_of_the_group() -> None:
    async with orders_broker(records=3, **QUICK_SESSIONS) as broker:
        options: dict[str, Any] = {"group_instance_id": "i", "enable_auto_commit": False}
        async with consumer(broker, "orders", group_id="g", **options) as reader:
            await read(reader, 3)
            first = reader.group_metadata()
            polled = anyio.Event()

            async def hold(seen: SeenRequest) -> None:
                await polled.wait()

            broker.on(ApiKey.JOIN_GROUP, hold)
            broker.on(ApiKey.HEARTBEAT, Answer(ErrorCode.UNKNOWN_MEMBER_ID), times=1)
            await until(lambda: not reader.assignment())
            assert not await reader.getmany(timeout_ms=0)
            polled.set()
            await until(reader.assignment)
            assert reader.group_metadata() == first
            await read(reader, 3)
            assert reader.group_metadata() != first


async def test_unsubscribing_leaves_and_subscribing_again_joins() -> None:
    async with orders_broker() as broker:
        await broker.create_topic("payments", 1)
        await produce(broker, "orders", 0, numbers(0, 4))
        await produce(broker, "payments", 0, numbers(0, 4))
        async with consumer(broker, "orders", group_id="g") as reader:
            await read(reader, 4)
            reader.unsubscribe()
            await until(lambda: not reader.assignment())
            await broker.wait_for_request(ApiKey.LEAVE_GROUP)
            reader.subscribe(["payments"])
            assert {r.topic for r in await read(reader, 4)} == {"payments"}


async def test_a_changed_subscription_replaces_the_topics() -> None:
    async with orders_broker() as broker:
        await broker.create_topic("payments", 1)
        await produce(broker, "orders", 0, numbers(0, 4))
        await produce(broker, "payments", 0, numbers(0, 4))
        async with consumer(broker, "orders", group_id="g") as reader:
            await read(reader, 4)
            reader.subscribe(["payments"])
            assert {r.topic for r in await read(reader, 4)} == {"payments"}
            assert (await reader.committed(P0))[P0].offset == 4  # type: ignore[union-attr]


async def test_leaving_during_the_first_join_sends_leave_group() -> None:
    async with orders_broker() as broker:
        broker.on(ApiKey.JOIN_GROUP, Delay(0.05))
        async with consumer(broker, "orders", group_id="g"):
            await broker.wait_for_request(ApiKey.JOIN_GROUP)
        assert len(broker.requests.of(ApiKey.LEAVE_GROUP)) == 1


@pytest.mark.slow
async def test_leaving_without_a_broker_ends_at_the_deadline() -> None:
    async with orders_broker(records=4) as broker:
        async with consumer(broker, "orders", group_id="g", close_timeout_ms=200) as reader:
            await read(reader, 2)
            broker.pause(1)
            with ends_within(5):
                await reader.stop()
        broker.resume(1)
        with pytest.raises(ClientClosed):
            await reader.getone()


@pytest.mark.slow
async def test_a_cancelled_consumer_closes_quickly() -> None:
    async with orders_broker(records=4) as broker:
        with ends_within(3), anyio.CancelScope() as scope:
            async with consumer(broker, "orders", group_id="g") as reader:
                await read(reader, 2)
                broker.pause(1)
                scope.cancel()
                await reader.getone()
        broker.resume(1)
        assert scope.cancelled_caught


async def test_a_revocation_interrupts_reading_of_buffered_records() -> None:
    async with Broker() as broker, anyio.create_task_group() as tasks:
        await broker.create_topic("orders", 2)
        await produce(broker, "orders", 0, numbers(0, 200))
        async with consumer(broker, "orders", group_id="g") as one:
            got = await read(one, 5)
            async with consumer(broker, "orders", group_id="g") as two:
                second = Reader(two)
                tasks.start_soon(second.run)
                await until(lambda: isinstance(state_of(one), states.RevocationDue))
                while second.owned == 0 and len(got) < 200:
                    record = await one.getone(timeout_ms=10)
                    if record is not None:
                        got.append(record)
                assert len(got) < 200
                await until(lambda: second.owned == 1)
                await second.stop()


# --- members that keep their partitions -------------------------------------------------------

COOPERATIVE: dict[str, Any] = {
    "group_id": "g",
    "partition_assignment_strategy": ["cooperative-sticky"],
}


@pytest.mark.slow
async def test_kept_partitions_are_read_while_the_rebalance_waits_for_another_member() -> None:
    held, release = anyio.Event(), anyio.Event()

    async def hold(seen: SeenRequest) -> None:
        if seen.client_id == "second" and holding:
            held.set()
            await release.wait()

    holding = False
    async with Broker() as broker, anyio.create_task_group() as tasks:
        await broker.create_topic("orders", 6)
        broker.on(ApiKey.JOIN_GROUP, hold)
        async with (
            consumer(broker, "orders", **COOPERATIVE) as one,
            consumer(broker, "orders", client_id="second", **COOPERATIVE) as two,
            consumer(broker, **COOPERATIVE) as three,
        ):
            readers = [Reader(each) for each in (one, two)]
            for reader in readers:
                tasks.start_soon(reader.run)
            await until(lambda: [r.owned for r in readers] == [3, 3])
            mine = one.assignment()
            holding = True
            three.subscribe(["orders"])
            readers.append(Reader(three))
            tasks.start_soon(readers[2].run)
            with anyio.fail_after(TIMEOUT_S):
                await held.wait()
            await until(lambda: isinstance(state_of(one), states.Rejoining))
            requests = len(broker.requests.of(ApiKey.OFFSET_FETCH))
            for partition in range(6):
                await produce(broker, "orders", partition, numbers(0, 10))
            # The owners read them all, although the group is between two generations.
            await until(lambda: sum(len(r.seen) for r in readers) == 60)
            await one.commit()
            # The next commits are rejected as if the next generation had begun.
            late = broker.on(ApiKey.OFFSET_COMMIT, Answer(ErrorCode.ILLEGAL_GENERATION), times=1)
            committed: dict[TopicPartition, bool] = {}

            async def commit(tp: TopicPartition) -> None:
                try:
                    await one.commit({tp: 10})
                    committed[tp] = True
                except CommitFailed:
                    committed[tp] = False

            for tp in mine:
                tasks.start_soon(commit, tp)
            await until(lambda: late.hits == 1)
            assert isinstance(state_of(one), states.Rejoining)
            assert isinstance(state_of(two), states.Stable | states.Rejoining)
            assert one.assignment() == mine
            assert len(broker.requests.of(ApiKey.OFFSET_FETCH)) == requests
            release.set()
            await until(lambda: [r.owned for r in readers] == [2, 2, 2])
            assert one.assignment() < mine
            await until(lambda: len(committed) == 3)
            assert all(committed[tp] for tp in one.assignment())
            for partition in range(6):
                await produce(broker, "orders", partition, numbers(10, 20))
            await until(lambda: len({seen for r in readers for seen in r.seen}) == 120)
            for reader in readers:
                await reader.stop()
        assert sum(len(r.seen) for r in readers) == 120


@pytest.mark.slow
async def test_a_commit_rejected_without_a_rebalance_is_retried() -> None:
    async with (
        orders_broker(records=5) as broker,
        consumer(broker, "orders", enable_auto_commit=False, **COOPERATIVE) as one,
    ):
        await read(one, 5)
        fault = broker.on(ApiKey.OFFSET_COMMIT, Answer(ErrorCode.REBALANCE_IN_PROGRESS), times=1)
        with anyio.fail_after(TIMEOUT_S):
            await one.commit({P0: 4})
        assert fault.hits == 1
        assert (await one.committed(P0))[P0].offset == 4  # type: ignore[union-attr]


async def test_joining_and_leaving_give_a_reason() -> None:
    async with orders_broker() as broker:
        async with consumer(broker, "orders", **COOPERATIVE) as reader:
            await until_owned(reader, 1)
            reader.unsubscribe()
            await broker.wait_for_request(ApiKey.LEAVE_GROUP)
            reader.subscribe(["orders"])
            await until_owned(reader, 1)
        joins = [seen.message.reason for seen in broker.requests.of(ApiKey.JOIN_GROUP)]
        leaves = [seen.message.members[0].reason for seen in broker.requests.of(ApiKey.LEAVE_GROUP)]
        assert joins[0] == "the consumer subscribed"
        assert leaves == ["the consumer unsubscribed", "the consumer is being closed"]


async def until_owned(reader: Consumer, count: int) -> None:
    with anyio.fail_after(TIMEOUT_S):
        while len(reader.assignment()) != count:
            await reader.getmany(timeout_ms=5)


@pytest.mark.parametrize("api", [ApiKey.FIND_COORDINATOR, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP])
@pytest.mark.slow
async def test_unknown_server_errors_are_retried(api: ApiKey) -> None:
    async with orders_broker() as broker:
        fault = broker.on(api, Answer(ErrorCode.UNKNOWN_SERVER_ERROR), times=2)
        async with consumer(broker, "orders", group_id="g") as reader:
            await until_owned(reader, 1)
            assert fault.hits == 2
            fault = broker.on(ApiKey.HEARTBEAT, Answer(ErrorCode.UNKNOWN_SERVER_ERROR), times=2)
            await broker.wait_for_request(ApiKey.HEARTBEAT, count=4)
            assert reader.assignment() == {P0}


async def test_the_next_call_retries_a_failed_join() -> None:
    async with orders_broker(records=3) as broker:
        broker.on(ApiKey.JOIN_GROUP, Answer(ErrorCode.GROUP_AUTHORIZATION_FAILED), times=1)
        async with consumer(broker, "orders", group_id="g") as reader:
            with anyio.fail_after(TIMEOUT_S), pytest.raises(BrokerError, match="group g") as raised:
                await reader.getone()
            assert raised.value.group == "g"
            assert len(await read(reader, 3)) == 3


def _settled_in(reader: Consumer, generation: int) -> bool:
    state = state_of(reader)
    return isinstance(state, states.Stable) and state.generation.number >= generation


async def test_a_malformed_subscription_does_not_affect_other_members() -> None:
    async with (
        orders_broker(2) as broker,
        consumer(broker, "orders", group_id="g") as one,
        connected(broker, broker.coordinator("g")) as odd,
    ):
        await until_owned(one, 2)
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            member_id="",
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"\xff")],
        )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(odd.call, request, 3)
            with anyio.fail_after(TIMEOUT_S):
                while not _settled_in(one, 2):
                    await one.getmany(timeout_ms=5)
        assert len(one.assignment()) == 2


@pytest.mark.slow
async def test_leaving_without_brokers_and_commits_takes_less_than_a_second() -> None:
    async with orders_broker(records=4, nodes=2) as broker:
        reader = consumer(broker, "orders", group_id="g", enable_auto_commit=False)
        await reader.start()
        await read(reader, 2)
        for node in (1, 2):
            broker.pause(node)
        with ends_within(1.5):
            await reader.stop()
        for node in (1, 2):
            broker.resume(node)


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
async def test_partitions_that_are_added_are_read_from_their_beginning(strategy: str) -> None:
    async with orders_broker(records=4) as broker:
        options = {"partition_assignment_strategy": [strategy], "metadata_max_age_ms": 50}
        async with consumer(broker, "orders", group_id="g", **options) as reader:
            await read(reader, 4)
            await broker.add_partitions("orders", 3)
            for partition in (1, 2):
                await produce(broker, "orders", partition, numbers(0, 2))
            more = await read(reader, 4)
            assert sorted((r.partition, r.offset) for r in more) == [
                (partition, offset) for partition in (1, 2) for offset in (0, 1)
            ]
            assert len(reader.assignment()) == 3


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
async def test_a_deleted_and_recreated_topic_is_read_from_its_start(strategy: str) -> None:
    async with Broker(auto_create_topics=False) as broker:
        for topic in ("orders", "payments"):
            await broker.create_topic(topic, 1)
            await produce(broker, topic, 0, numbers(0, 4))
        options = {"partition_assignment_strategy": [strategy], "metadata_max_age_ms": 50}
        async with consumer(broker, "orders", "payments", group_id="g", **options) as reader:
            await read(reader, 8)
            await reader.commit()
            await broker.delete_topic("orders")
            await until_owned(reader, 1)
            await broker.create_topic("orders", 1)
            await produce(broker, "orders", 0, numbers(100, 102))
            again = await read(reader, 2)
            assert [r.value for r in again] == numbers(100, 102)
            assert reader.assignment() == {P0, TopicPartition("payments", 0)}


async def test_a_deleted_topic_delays_neither_the_group_nor_leaving() -> None:
    async with Broker(auto_create_topics=False) as broker:
        for topic in ("orders", "payments"):
            await broker.create_topic(topic, 1)
            await produce(broker, topic, 0, numbers(0, 4))
        reader = consumer(broker, "orders", "payments", group_id="g")
        with ends_within(reader.config.close_timeout_ms / 1000 / 3):
            async with reader:
                await read(reader, 8)
                await broker.delete_topic("orders")
                await until_owned(reader, 1)
                await broker.delete_topic("payments")


class Broken(RangeAssignor):
    """An assignor with one method that fails."""

    name = "broken"

    def __init__(self, method: str) -> None:
        setattr(self, method, self._fail)

    def _fail(self, *arguments: object) -> Any:
        raise LookupError("no such rack")


@pytest.mark.parametrize("method", ["user_data", "assign", "on_assignment"])
async def test_an_exception_of_an_assignor_is_raised_as_group_failed(method: str) -> None:
    async with orders_broker() as broker:
        options = {"group_id": "g", "partition_assignment_strategy": [Broken(method)]}
        async with consumer(broker, "orders", **options) as one:
            with pytest.raises(
                GroupFailed, match="assignor 'broken' failed: LookupError"
            ) as caught:
                await one.getone(timeout_ms=20_000)
            assert caught.value.group == "g"
            assert isinstance(caught.value.__cause__, LookupError)
