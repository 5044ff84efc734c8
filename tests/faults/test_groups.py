"""Groups under faults: members return, offsets stay, and no call hangs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import Any

import anyio
import pytest

from aiokafkawire.broker import Answer, Broker, Close, Delay, Drop, SeenRequest
from aiokafkawire.consumer import Consumer, RebalanceListener
from aiokafkawire.errors import BrokerError, ClientClosed, FencedInstanceId, GroupFailed, KafkaError
from aiokafkawire.producer import Producer
from aiokafkawire.types import TopicPartition
from aiokafkawire.wire import APIS, ApiKey, ErrorCode
from tests.behaviour.support import WITHIN_S, committed, fill, numbered, poll_until, take
from tests.elapsed import ends_within
from tests.faults.support import MEMBER

pytestmark = pytest.mark.slow

NewTopic = Callable[..., Awaitable[str]]


def member(broker: Broker, topic: str, group_id: str, **options: object) -> Consumer:
    return Consumer(
        topic, bootstrap_servers=broker.bootstrap_servers, group_id=group_id, **(MEMBER | options)
    )


@pytest.mark.parametrize(
    ("api", "action"),
    [
        (ApiKey.FIND_COORDINATOR, Close()),
        (ApiKey.FIND_COORDINATOR, Drop()),
        (ApiKey.JOIN_GROUP, Close()),
        (ApiKey.SYNC_GROUP, Close()),
        (ApiKey.OFFSET_FETCH, Close()),
        (ApiKey.OFFSET_FETCH, Drop()),
    ],
)
async def test_joining_survives_a_lost_answer(
    broker: Broker, topic: str, group_id: str, api: ApiKey, action: Close | Drop
):
    await fill(broker.bootstrap_servers, topic, numbered(5))
    fault = broker.on(api, action, times=1)
    async with member(broker, topic, group_id) as consumer:
        assert [record.value for record in await take(consumer, 5)] == numbered(5)
    assert fault.hits == 1


@pytest.mark.parametrize(
    ("api", "options"),
    [
        (ApiKey.JOIN_GROUP, {"session_timeout_ms": 500, "max_poll_interval_ms": 500}),
        (ApiKey.SYNC_GROUP, {"max_poll_interval_ms": 500}),
        # The leader's response does not take as long as the members' poll interval.
        (ApiKey.SYNC_GROUP, {"session_timeout_ms": 500, "request_timeout_ms": 500}),
    ],
)
async def test_a_rebalance_that_hangs_is_given_up_some_time_after_its_timeout(
    broker: Broker, topic: str, group_id: str, api: ApiKey, options: dict[str, object]
):
    await fill(broker.bootstrap_servers, topic, numbered(5))
    fault = broker.on(api, Drop(), times=1)
    async with member(broker, topic, group_id, **options) as consumer:
        assert [record.value for record in await take(consumer, 5)] == numbered(5)
    assert fault.hits == 1


@pytest.mark.parametrize(
    ("api", "code"),
    [
        (ApiKey.FIND_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ApiKey.JOIN_GROUP, ErrorCode.NOT_COORDINATOR),
        (ApiKey.JOIN_GROUP, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (ApiKey.JOIN_GROUP, ErrorCode.UNKNOWN_MEMBER_ID),
        (ApiKey.SYNC_GROUP, ErrorCode.REBALANCE_IN_PROGRESS),
        (ApiKey.SYNC_GROUP, ErrorCode.NOT_COORDINATOR),
        (ApiKey.SYNC_GROUP, ErrorCode.ILLEGAL_GENERATION),
        (ApiKey.SYNC_GROUP, ErrorCode.UNKNOWN_MEMBER_ID),
        (ApiKey.OFFSET_FETCH, ErrorCode.NOT_COORDINATOR),
        (ApiKey.OFFSET_FETCH, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (ApiKey.OFFSET_FETCH, ErrorCode.UNSTABLE_OFFSET_COMMIT),
    ],
)
async def test_joining_survives_errors(
    broker: Broker, topic: str, group_id: str, api: ApiKey, code: ErrorCode
):
    await fill(broker.bootstrap_servers, topic, numbered(5))
    fault = broker.on(api, Answer(code), times=2)
    async with member(broker, topic, group_id) as consumer:
        assert [record.value for record in await take(consumer, 5)] == numbered(5)
        await consumer.commit()
    assert fault.hits == 2


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ],
)
async def test_a_member_goes_on_after_an_error_of_its_heartbeat(
    broker: Broker, topic: str, group_id: str, code: ErrorCode
):
    await fill(broker.bootstrap_servers, topic, numbered(5))
    async with member(broker, topic, group_id) as consumer:
        records = await take(consumer, 5)
        await consumer.commit()
        fault = broker.on(ApiKey.HEARTBEAT, Answer(code), times=1)
        await poll_until(consumer, lambda: fault.hits == 1)
        await fill(broker.bootstrap_servers, topic, numbered(5, start=5))
        records += await take(consumer, 5)
        await consumer.commit()
        assert [record.value for record in records] == numbered(10)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
    ],
)
async def test_a_commit_is_repeated_after_a_retriable_error(
    broker: Broker, topic: str, group_id: str, code: ErrorCode
):
    await fill(broker.bootstrap_servers, topic, numbered(5))
    async with member(broker, topic, group_id) as consumer:
        await take(consumer, 5)
        fault = broker.on(ApiKey.OFFSET_COMMIT, Answer(code), times=2)
        await consumer.commit()
        assert fault.hits == 2
        assert await committed(consumer, TopicPartition(topic, 0)) == 5


@pytest.mark.parametrize("action", [Close(carried_out=True), Drop(), Drop(carried_out=True)])
async def test_a_commit_whose_answer_is_lost_is_repeated(
    broker: Broker, topic: str, group_id: str, action: Close | Drop
):
    await fill(broker.bootstrap_servers, topic, numbered(5))
    async with member(broker, topic, group_id) as consumer:
        await take(consumer, 5)
        fault = broker.on(ApiKey.OFFSET_COMMIT, action, times=1)
        with anyio.fail_after(WITHIN_S):
            await consumer.commit()
        assert fault.hits == 1
        assert await committed(consumer, TopicPartition(topic, 0)) == 5


async def test_a_coordinator_that_dies_is_replaced(
    broker: Broker, new_topic: NewTopic, group_id: str
):
    topic = await new_topic(partitions=3)
    for partition in range(3):
        await fill(broker.bootstrap_servers, topic, numbered(10), partition)
    async with member(broker, topic, group_id) as consumer:
        records = await take(consumer, 30)
        await consumer.commit()
        dead = broker.coordinator(group_id)
        await broker.kill(dead)
        for partition in range(3):
            await fill(broker.bootstrap_servers, topic, numbered(10, start=10), partition)
        records += await take(consumer, 30)
        with anyio.fail_after(WITHIN_S):
            await consumer.commit()
        assert broker.coordinator(group_id) != dead
        for partition in range(3):
            assert await committed(consumer, TopicPartition(topic, partition)) == 20
            values = [record.value for record in records if record.partition == partition]
            assert values == numbered(20)


async def test_a_group_outlives_the_whole_cluster(broker: Broker, topic: str, group_id: str):
    await fill(broker.bootstrap_servers, topic, numbered(10))
    async with member(broker, topic, group_id) as consumer:
        await take(consumer, 10)
        await consumer.commit()
        for node in (1, 2, 3):
            await broker.kill(node)
        assert await consumer.getmany(timeout_ms=200) == {}
        for node in (1, 2, 3):
            await broker.restart(node)
        await fill(broker.bootstrap_servers, topic, numbered(10, start=10))
        assert [record.value for record in await take(consumer, 10)] == numbered(10, start=10)
        with anyio.fail_after(WITHIN_S):
            await consumer.commit()


async def test_a_hanging_coordinator_does_not_hold_the_application(
    broker: Broker, topic: str, group_id: str
):
    async with member(
        broker, topic, group_id, default_api_timeout_ms=2_000, close_timeout_ms=300
    ) as consumer:
        for node in (1, 2, 3):
            broker.pause(node)
        with ends_within(2):
            assert await consumer.getmany(timeout_ms=200) == {}
        with ends_within(5), pytest.raises(KafkaError) as caught:
            await consumer.committed(TopicPartition(topic, 0))
        assert isinstance(caught.value, TimeoutError)
    for node in (1, 2, 3):
        broker.resume(node)


async def test_leaving_with_a_hanging_coordinator_ends_by_the_close_timeout(
    broker: Broker, topic: str, group_id: str
):
    await fill(broker.bootstrap_servers, topic, numbered(5))
    consumer = member(broker, topic, group_id, enable_auto_commit=True, close_timeout_ms=300)
    await consumer.__aenter__()
    await take(consumer, 5)
    for node in (1, 2, 3):
        broker.pause(node)
    with ends_within(3):
        await consumer.__aexit__(None, None, None)
    with pytest.raises(ClientClosed):
        await consumer.getone()
    for node in (1, 2, 3):
        broker.resume(node)


FATAL: dict[tuple[ApiKey, ErrorCode], type[KafkaError]] = {
    (ApiKey.JOIN_GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED): KafkaError,
    (ApiKey.JOIN_GROUP, ErrorCode.INCONSISTENT_GROUP_PROTOCOL): GroupFailed,
    (ApiKey.JOIN_GROUP, ErrorCode.GROUP_MAX_SIZE_REACHED): GroupFailed,
    (ApiKey.JOIN_GROUP, ErrorCode.INVALID_SESSION_TIMEOUT): GroupFailed,
    (ApiKey.FIND_COORDINATOR, ErrorCode.GROUP_AUTHORIZATION_FAILED): KafkaError,
    (ApiKey.HEARTBEAT, ErrorCode.FENCED_INSTANCE_ID): FencedInstanceId,
}


@pytest.mark.parametrize("fatal", FATAL, ids=lambda fatal: "-".join(each.name for each in fatal))
async def test_fatal_errors_are_raised_to_the_application(
    broker: Broker, topic: str, group_id: str, fatal: tuple[ApiKey, ErrorCode]
):
    broker.on(fatal[0], Answer(fatal[1]))
    async with member(broker, topic, group_id, group_instance_id="one") as consumer:
        with ends_within(5), pytest.raises(FATAL[fatal]) as caught:
            await consumer.getone()
        assert not caught.value.retriable
        assert caught.value.api == APIS[fatal[0]].name
    broker.clear_faults()


async def test_a_commit_that_is_refused_says_why(broker: Broker, topic: str, group_id: str):
    await fill(broker.bootstrap_servers, topic, numbered(5))
    async with member(broker, topic, group_id) as consumer:
        await take(consumer, 5)
        broker.on(ApiKey.OFFSET_COMMIT, Answer(ErrorCode.OFFSET_METADATA_TOO_LARGE), times=1)
        with ends_within(5), pytest.raises(BrokerError) as caught:
            await consumer.commit()
        assert caught.value.code == ErrorCode.OFFSET_METADATA_TOO_LARGE
        await consumer.commit()


async def test_while_a_join_is_parked_everything_else_is_answered(
    broker: Broker, new_topic: NewTopic, group_id: str
):
    topic = await new_topic(partitions=3)
    parked, release = anyio.Event(), anyio.Event()

    async def park(seen: SeenRequest) -> None:
        if seen.client_id == "parked":
            parked.set()
            await release.wait()

    for partition in range(3):
        await fill(broker.bootstrap_servers, topic, numbered(3), partition)
    broker.on(ApiKey.JOIN_GROUP, park)
    partitions = [TopicPartition(topic, number) for number in range(3)]
    async with (
        member(
            broker,
            topic,
            group_id,
            client_id="parked",
            default_api_timeout_ms=2_000,
            request_timeout_ms=30_000,
        ) as consumer,
        anyio.create_task_group() as group,
    ):
        results: list[object] = []

        async def poll() -> None:
            results.extend(await take(consumer, 9))

        group.start_soon(poll)
        with anyio.fail_after(WITHIN_S):
            await parked.wait()
        with ends_within(2):
            # All of these go to the same broker as the join, from the same client.
            assert set((await consumer.end_offsets(*partitions)).values()) == {3}
            assert await committed(consumer, partitions[0]) is None
            assert list(await consumer.partitions_for(topic)) == [0, 1, 2]
        release.set()
        with anyio.fail_after(WITHIN_S):
            while len(results) < 9:
                await consumer.committed(partitions[0])


async def test_a_connection_that_answers_no_heartbeat_is_left_for_another(
    broker: Broker, topic: str, group_id: str
):
    """The response to one heartbeat is lost, with everything behind it on the connection."""
    options = {"request_timeout_ms": 30_000, "session_timeout_ms": 700}
    async with member(broker, topic, group_id, **options) as consumer:
        await poll_until(consumer, lambda: bool(consumer.assignment()))
        broker.on(ApiKey.HEARTBEAT, Drop(), times=1)
        await poll_until(consumer, lambda: consumer.metrics()["rebalances_total"] >= 2)
        with anyio.fail_after(WITHIN_S):
            await consumer.commit({(topic, 0): 0})


async def test_heartbeats_and_fetches_pass_a_join_of_another_member(
    broker: Broker, new_topic: NewTopic, group_id: str
):
    """One member is stable and works, while the broker delays the other one's JoinGroup."""
    topic = await new_topic(partitions=2)
    parked, release = anyio.Event(), anyio.Event()

    async def park(seen: SeenRequest) -> None:
        if seen.client_id == "second" and not release.is_set():
            parked.set()
            await release.wait()

    broker.on(ApiKey.JOIN_GROUP, park)
    async with member(broker, topic, group_id, client_id="first") as first:
        await poll_until(first, lambda: len(first.assignment()) == 2)
        async with (
            member(
                broker, topic, group_id, client_id="second", request_timeout_ms=30_000
            ) as second,
            anyio.create_task_group() as group,
        ):
            group.start_soon(poll_until, second, lambda: len(second.assignment()) == 1)
            with anyio.fail_after(WITHIN_S):
                await parked.wait()
            before = len(broker.requests.of(ApiKey.HEARTBEAT))
            await fill(broker.bootstrap_servers, topic, numbered(5))
            assert [record.value for record in await take(first, 5)] == numbered(5)
            await first.commit()
            await poll_until(first, lambda: len(broker.requests.of(ApiKey.HEARTBEAT)) >= before + 3)
            release.set()
            await poll_until(first, lambda: len(first.assignment()) == 1)


async def test_a_producer_is_not_held_by_slow_consumers(broker: Broker, topic: str, group_id: str):
    broker.on(ApiKey.JOIN_GROUP, Delay(0.3), times=1)
    async with (
        member(broker, topic, group_id, request_timeout_ms=5_000) as consumer,
        Producer(bootstrap_servers=broker.bootstrap_servers) as producer,
    ):
        await producer.send_and_wait(topic, b"value")
        assert [record.value for record in await take(consumer, 1)] == [b"value"]


async def test_leaving_while_the_join_is_under_way_leaves_no_ghost(
    broker: Broker, topic: str, group_id: str
):
    broker.on(ApiKey.JOIN_GROUP, Delay(0.2), times=1)
    async with member(broker, topic, group_id, session_timeout_ms=30_000) as consumer:
        assert await consumer.getmany(timeout_ms=50) == {}
    # A leftover member would delay the next join until its session expires.
    async with member(broker, topic, group_id) as consumer:
        with ends_within(5):
            await poll_until(consumer, lambda: len(consumer.assignment()) == 1)


# --- members that keep their partitions -------------------------------------------------------

KEEPER: dict[str, Any] = {
    "partition_assignment_strategy": ["cooperative-sticky"],
    "session_timeout_ms": 10_000,
}


class ListenerLog(RebalanceListener):
    """Records the revoked and lost partitions."""

    def __init__(self) -> None:
        self.gone: list[str] = []

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self.gone.append("revoked")

    def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        self.gone.append("lost")


@pytest.mark.parametrize(
    ("api", "action"),
    [
        (ApiKey.HEARTBEAT, Answer(ErrorCode.NOT_COORDINATOR)),
        (ApiKey.HEARTBEAT, Answer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)),
        (ApiKey.HEARTBEAT, Answer(ErrorCode.UNKNOWN_SERVER_ERROR)),
        (ApiKey.HEARTBEAT, Close()),
        (ApiKey.HEARTBEAT, Drop()),
        (ApiKey.JOIN_GROUP, Answer(ErrorCode.NOT_COORDINATOR)),
        (ApiKey.JOIN_GROUP, Answer(ErrorCode.COORDINATOR_NOT_AVAILABLE)),
        (ApiKey.JOIN_GROUP, Answer(ErrorCode.UNKNOWN_SERVER_ERROR)),
        (ApiKey.JOIN_GROUP, Close()),
        (ApiKey.SYNC_GROUP, Answer(ErrorCode.REBALANCE_IN_PROGRESS)),
        (ApiKey.SYNC_GROUP, Answer(ErrorCode.COORDINATOR_NOT_AVAILABLE)),
        (ApiKey.SYNC_GROUP, Close()),
    ],
)
async def test_a_keeper_loses_nothing_by_failures_of_a_rebalance(
    broker: Broker,
    new_topic: NewTopic,
    group_id: str,
    api: ApiKey,
    action: Answer | Close | Drop,
):
    topic, more = await new_topic(partitions=2), await new_topic(partitions=1)
    for partition in range(2):
        await fill(broker.bootstrap_servers, topic, numbered(5), partition)
    async with member(broker, topic, group_id, **KEEPER) as consumer:
        records = await take(consumer, 10)
        notes = ListenerLog()
        fault = broker.on(api, action, times=1)
        consumer.subscribe([topic, more], listener=notes)
        await poll_until(consumer, lambda: len(consumer.assignment()) == 3 and fault.hits == 1)
        for partition in range(2):
            assert await consumer.position(TopicPartition(topic, partition)) == 5
            await fill(broker.bootstrap_servers, topic, numbered(5, start=5), partition)
        records += await take(consumer, 10)
        assert notes.gone == []
        await consumer.commit()
    for partition in range(2):
        values = [record.value for record in records if record.partition == partition]
        assert values == numbered(10)


async def test_a_keeper_loses_nothing_when_its_coordinator_dies(
    broker: Broker, new_topic: NewTopic, group_id: str
):
    topic = await new_topic(partitions=2)
    notes = ListenerLog()
    async with member(broker, topic, group_id, **KEEPER) as consumer:
        consumer.subscribe([topic], listener=notes)
        await poll_until(consumer, lambda: len(consumer.assignment()) == 2)
        await broker.kill(broker.coordinator(group_id))
        for partition in range(2):
            await fill(broker.bootstrap_servers, topic, numbered(5), partition)
        assert len(await take(consumer, 10)) == 10
        with anyio.fail_after(WITHIN_S):
            await consumer.commit()
        assert notes.gone == []
