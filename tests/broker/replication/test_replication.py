"""Nodes that replicate, as their clients and their operators see them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from aiokafkawire import Consumer, Producer
from aiokafkawire.broker import Answer, Broker, Close, Drop, SeenRequest
from aiokafkawire.errors import BrokerError, InvalidOption
from aiokafkawire.records.batch import iter_batches
from aiokafkawire.wire import ApiKey, ErrorCode
from aiokafkawire.wire.messages import create_partitions, create_topics, delete_topics, list_offsets
from aiokafkawire.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic

from ..raw_client import batch, build_update_metadata_request, connected, only, produce_request

pytestmark = pytest.mark.slow

E = ErrorCode
RELEASES = ["0.10", "2.6", None]
"""Releases that truncate to the high watermark, by OffsetForLeaderEpoch, and by the fetch."""

CONSUMER, DEBUG = -1, -2
ALL_IN_SYNC = -1
LEADER, FOLLOWER, THIRD = 1, 2, 3

EARLIEST: Any = {"auto_offset_reset": "earliest"}
QUICK: Any = {"replica_lag_time_max_ms": 500, "replica_fetch_wait_max_ms": 50}


async def settled(broker: Broker) -> None:
    """Wait until every node has the newest state."""
    replication = broker._running.replication
    assert replication is not None
    assert await replication.wait_until_up_to_date(10)


@asynccontextmanager
async def cluster(
    as_of: str | None = "0.10", nodes: int = 3, **options: Any
) -> AsyncIterator[Broker]:
    """A cluster with the topic `t`, led by the first node and replicated by all."""
    options = {"replica_fetch_wait_max_ms": 50, **options}
    async with Broker(nodes=nodes, as_of=as_of, replicate=True, **options) as broker:
        replicas = list(broker.live_nodes)
        broker._running.cluster.create_topic("t", assignments={0: replicas})
        await settled(broker)
        yield broker


async def produce(
    broker: Broker, value: bytes, *, node: int = LEADER, acks: int = -1, timeout_ms: int = 10_000
) -> tuple[int, int]:
    """Return the error code and the offset of one produced record."""
    request = produce_request("t", 0, batch(value, magic=1), acks=acks)
    request.timeout_ms = timeout_ms
    async with connected(broker, node) as client:
        answer = only(await client.call(request, 2))
    return answer.error_code, answer.base_offset


async def fetch(broker: Broker, node: int, replica_id: int = CONSUMER, offset: int = 0) -> Any:
    wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1_000_000)
    request = FetchRequest(
        replica_id=replica_id,
        max_wait_ms=0,
        min_bytes=0,
        topics=[FetchTopic(topic="t", partitions=[wanted])],
    )
    async with connected(broker, node) as client:
        return only(await client.call(request, 3))


async def latest(broker: Broker, node: int, replica_id: int, version: int = 1) -> tuple[int, int]:
    asked = list_offsets.ListOffsetsPartition(partition_index=0, timestamp=-1)
    request = list_offsets.ListOffsetsRequest(
        replica_id=replica_id, topics=[list_offsets.ListOffsetsTopic(name="t", partitions=[asked])]
    )
    async with connected(broker, node) as client:
        answer = only(await client.call(request, version))
    return answer.error_code, answer.old_style_offsets[0] if version == 0 else answer.offset


def values(data: Any) -> list[bytes]:
    return [
        view.columns().value(index) or b""
        for view in iter_batches(data.records)
        for index in range(len(view.columns()))
    ]


def log_of(broker: Broker, node: int) -> list[bytes]:
    """Return the batches that a node has on its disk."""
    replication = broker._running.replication
    assert replication is not None
    replica = replication.managers[node].replicas["t", 0]
    data = replica.log.read(0, 2**30)
    return [view.columns().value(0) or b"" for view in iter_batches(data)]


async def until_ended(broker: Broker, node: int, end: int) -> None:
    """Wait until a node's log ends at the offset."""
    replication = broker._running.replication
    assert replication is not None
    with anyio.fail_after(30):
        replica = replication.managers[node].replicas["t", 0]
        changed = anyio.Event()

        def look() -> None:
            if replica.log.end_offset == end:
                changed.set()

        replica.on_change.add(look)
        look()
        await changed.wait()


async def cut_off(broker: Broker, follower: int) -> None:
    """Drop all further responses to a follower's fetches; return once the last one is out."""

    def drop(seen: SeenRequest) -> Drop | None:
        return Drop() if seen.client_id == f"broker-{follower}" else None

    before = len(fetches_of(broker, follower))
    broker.on(ApiKey.FETCH, drop)
    await broker.wait_for_request(
        ApiKey.FETCH,
        count=before + 1,
        matching=lambda seen: seen.client_id == f"broker-{follower}",
    )


def fetches_of(broker: Broker, follower: int) -> list[SeenRequest]:
    fetches = broker.requests.of(ApiKey.FETCH)
    return [seen for seen in fetches if seen.client_id == f"broker-{follower}"]


# --- what producers and consumers see ------------------------------------------------------------


@pytest.mark.parametrize("as_of", RELEASES)
async def test_records_are_replicated_to_every_node(as_of: str | None) -> None:
    async with cluster(as_of) as broker:
        assert await produce(broker, b"one") == (E.NONE, 0)
        assert await produce(broker, b"two") == (E.NONE, 1)
        assert [broker.end_offset("t", 0, node=node) for node in (1, 2, 3)] == [2, 2, 2]
        assert set(broker.isr("t", 0)) == {1, 2, 3}
        fetched = broker.requests.of(ApiKey.FETCH, node=LEADER)
        assert {seen.client_id for seen in fetched} == {"broker-2", "broker-3"}


@pytest.mark.parametrize("as_of", RELEASES)
async def test_acknowledged_records_survive_the_leader(as_of: str | None) -> None:
    async with cluster(as_of) as broker, Producer(bootstrap_servers=broker.bootstrap_servers) as p:
        sent: list[bytes] = []

        async def send(count: int) -> None:
            for _ in range(count):
                value = b"%d" % len(sent)
                await p.send_and_wait("t", value)
                sent.append(value)

        await send(5)
        delivery = await p.send("t", b"under way")
        await broker.kill(LEADER)
        assert broker.leader("t", 0) != LEADER
        await send(5)
        await delivery
        async with Consumer("t", bootstrap_servers=broker.bootstrap_servers, **EARLIEST) as c:
            with anyio.fail_after(30):
                got = []
                while not set(sent) <= set(got):
                    got.append((await c.getone()).value)
        assert [value for value in got if value in sent] == sent


async def test_acks_all_waits_for_the_isr() -> None:
    async with cluster() as broker:
        broker.pause(FOLLOWER)
        assert await produce(broker, b"v", timeout_ms=50) == (E.REQUEST_TIMED_OUT, -1)
        assert await produce(broker, b"w", acks=1) == (E.NONE, 1)
        broker.resume(FOLLOWER)
        assert await produce(broker, b"x") == (E.NONE, 2)


async def test_consumers_read_up_to_the_high_watermark() -> None:
    async with cluster(nodes=2) as broker:
        await produce(broker, b"seen")
        broker.pause(FOLLOWER)
        await produce(broker, b"hidden", acks=1)
        given = await fetch(broker, LEADER)
        assert (values(given), given.high_watermark) == ([b"seen"], 1)
        # Between the high watermark and the end a fetch returns nothing, and no error.
        beyond = await fetch(broker, LEADER, offset=2)
        assert (beyond.error_code, beyond.records) == (E.NONE, b"")
        for version in (0, 1):
            assert await latest(broker, LEADER, CONSUMER, version) == (E.NONE, 1)
            assert await latest(broker, LEADER, FOLLOWER, version) == (E.NONE, 2)


async def test_a_consumer_waits_for_the_high_watermark() -> None:
    async with cluster(nodes=2) as broker:
        await produce(broker, b"seen")
        async with Consumer(bootstrap_servers=broker.bootstrap_servers) as consumer:
            consumer.assign(("t", 0))
            await consumer.seek_to_beginning()
            assert (await consumer.getone()).value == b"seen"
            await cut_off(broker, FOLLOWER)
            await produce(broker, b"hidden", acks=1)
            assert await consumer.end_offsets(("t", 0)) == {("t", 0): 1}
            broker.clear_faults()
            await broker.kill(FOLLOWER)
            with anyio.fail_after(30):
                assert (await consumer.getone()).value == b"hidden"


async def test_a_debug_consumer_may_ask_any_replica() -> None:
    async with cluster(nodes=3) as broker:
        await produce(broker, b"v")
        await until_watermark(broker, FOLLOWER, 1)
        given = await fetch(broker, FOLLOWER, DEBUG)
        assert (values(given), given.high_watermark) == ([b"v"], 1)
        assert await latest(broker, FOLLOWER, DEBUG) == (E.NONE, 1)
        assert (await fetch(broker, FOLLOWER)).error_code == E.NOT_LEADER_OR_FOLLOWER
        assert await latest(broker, FOLLOWER, CONSUMER) == (E.NOT_LEADER_OR_FOLLOWER, -1)


async def until_watermark(broker: Broker, node: int, offset: int) -> None:
    replication = broker._running.replication
    assert replication is not None
    replica = replication.managers[node].replicas["t", 0]
    reached = anyio.Event()

    def look() -> None:
        if replica.high_watermark >= offset:
            reached.set()

    replica.on_change.add(look)
    look()
    with anyio.fail_after(30):
        await reached.wait()


@pytest.mark.parametrize(
    ("as_of", "at_leader", "at_follower"),
    [
        ("0.11", E.UNKNOWN_SERVER_ERROR, E.UNKNOWN_SERVER_ERROR),
        ("1.1", E.NONE, E.NOT_LEADER_OR_FOLLOWER),
    ],
)
async def test_a_fetch_by_a_non_replica_fails(as_of: str, at_leader: int, at_follower: int) -> None:
    async with cluster(as_of, nodes=2) as broker:
        await produce(broker, b"v")
        for node, code in ((LEADER, at_leader), (FOLLOWER, at_follower)):
            given = await fetch(broker, node, replica_id=THIRD)
            assert (given.error_code, given.records) == (code, b"")
        assert broker.isr("t", 0) == (LEADER, FOLLOWER)


async def test_0_8_waits_for_the_given_number_of_acks() -> None:
    async with cluster("0.8") as broker:
        broker.pause(THIRD)
        async with connected(broker, LEADER) as client:
            for acks, timeout_ms, code in ((2, 10_000, E.NONE), (3, 50, E.REQUEST_TIMED_OUT)):
                request = produce_request("t", 0, batch(b"v", magic=0), acks=acks)
                request.timeout_ms = timeout_ms
                assert only(await client.call(request, 0)).error_code == code


# --- who is in sync ------------------------------------------------------------------------------


async def test_a_hanging_node_leaves_the_isr_and_returns() -> None:
    async with cluster(**QUICK, min_insync_replicas=3) as broker:
        assert await produce(broker, b"a") == (E.NONE, 0)
        broker.pause(THIRD)
        await broker.wait_for_isr("t", 0, LEADER, FOLLOWER)
        assert await produce(broker, b"b") == (E.NOT_ENOUGH_REPLICAS, -1)
        assert await produce(broker, b"c", acks=1) == (E.NONE, 1)
        broker.resume(THIRD)
        await broker.wait_for_isr("t", 0, LEADER, FOLLOWER, THIRD)
        assert await produce(broker, b"d") == (E.NONE, 2)
        assert log_of(broker, THIRD) == [b"a", b"c", b"d"]


async def test_not_enough_replicas_after_append_is_returned() -> None:
    async with cluster(nodes=2, **QUICK, min_insync_replicas=2) as broker:
        broker.pause(FOLLOWER)
        code, _ = await produce(broker, b"v")
        assert code == E.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        assert broker.end_offset("t", 0) == 1


@pytest.mark.parametrize("as_of", RELEASES)
async def test_a_killed_node_catches_up(as_of: str | None) -> None:
    async with cluster(as_of, nodes=2) as broker:
        await produce(broker, b"a")
        await broker.kill(FOLLOWER)
        assert broker.isr("t", 0) == (LEADER,)
        assert await produce(broker, b"b") == (E.NONE, 1)
        await broker.restart(FOLLOWER)
        await broker.wait_for_isr("t", 0, LEADER, FOLLOWER)
        assert log_of(broker, FOLLOWER) == [b"a", b"b"]


async def test_metadata_contains_the_isr() -> None:
    async with cluster(nodes=2, **QUICK) as broker:
        broker.pause(FOLLOWER)
        await broker.wait_for_isr("t", 0, LEADER)
        broker.resume(FOLLOWER)
        await broker.wait_for_isr("t", 0, LEADER, FOLLOWER)
        await settled(broker)
        received = [
            list(state.isr)
            for seen in broker.requests.of(ApiKey.UPDATE_METADATA, node=LEADER)
            for state in seen.message.ungrouped_partition_states
        ]
        assert [LEADER] in received
        assert [LEADER, FOLLOWER] in received


# --- leaders that change -------------------------------------------------------------------------


@pytest.mark.parametrize("as_of", RELEASES)
async def test_a_returning_leader_truncates_unreplicated_records(as_of: str | None) -> None:
    async with cluster(as_of, nodes=2) as broker:
        await produce(broker, b"common")
        await until_watermark(broker, FOLLOWER, 1)
        await cut_off(broker, FOLLOWER)
        assert await produce(broker, b"alone", acks=1) == (E.NONE, 1)
        await broker.kill(LEADER)
        broker.clear_faults()
        await settled(broker)
        assert (broker.leader("t", 0), broker.leader_epoch("t", 0)) == (FOLLOWER, 1)
        assert await produce(broker, b"instead", node=FOLLOWER) == (E.NONE, 1)
        await broker.restart(LEADER)
        await broker.wait_for_isr("t", 0, LEADER, FOLLOWER)
        assert log_of(broker, LEADER) == log_of(broker, FOLLOWER) == [b"common", b"instead"]


async def test_move_leader_sends_inter_broker_requests() -> None:
    async with cluster(nodes=2) as broker:
        epoch = broker.leader_epoch("t", 0)
        broker.move_leader("t", 0, FOLLOWER)
        await settled(broker)
        orders = broker.requests.of(ApiKey.LEADER_AND_ISR)
        received = [
            (seen.node_id, seen.client_id, state.leader, state.leader_epoch)
            for seen in orders
            for state in seen.message.ungrouped_partition_states
        ]
        assert (FOLLOWER, "broker-1", FOLLOWER, epoch + 1) in received
        assert await produce(broker, b"v") == (E.NOT_LEADER_OR_FOLLOWER, -1)
        assert await produce(broker, b"v", node=FOLLOWER) == (E.NONE, 0)
        with pytest.raises(ValueError, match="node 3"):
            broker.move_leader("t", 0, 3)


async def test_an_unanswered_command_is_sent_again() -> None:
    async with cluster(nodes=2) as broker:
        for key in (ApiKey.LEADER_AND_ISR, ApiKey.UPDATE_METADATA, ApiKey.FETCH):
            broker.on(key, Close(), times=2)
        broker.move_leader("t", 0, FOLLOWER)
        await settled(broker)
        assert await produce(broker, b"v", node=FOLLOWER) == (E.NONE, 0)
        assert log_of(broker, LEADER) == [b"v"]


async def test_a_command_of_an_older_controller_is_not_repeated() -> None:
    async with cluster(nodes=2) as broker:
        rule = broker.on(ApiKey.LEADER_AND_ISR, Answer(E.STALE_CONTROLLER_EPOCH), node=FOLLOWER)
        broker.move_leader("t", 0, FOLLOWER)
        await settled(broker)
        assert rule.hits == 1
        assert await produce(broker, b"v", node=FOLLOWER) == (E.NOT_LEADER_OR_FOLLOWER, -1)


async def test_a_new_leader_does_not_return_an_earlier_end() -> None:
    async with cluster("2.8") as broker:
        await produce(broker, b"a")
        await until_watermark(broker, FOLLOWER, 1)
        # The response to its next fetch would advance the high watermark.
        rule = broker.on(ApiKey.FETCH, Drop())
        hung = broker.on(ApiKey.OFFSET_FOR_LEADER_EPOCH, Drop())
        replication = broker._running.replication
        assert replication is not None
        for node in (LEADER, FOLLOWER, THIRD):
            log = replication.managers[node].replicas["t", 0].log
            log.append(data := batch(b"b", base_offset=1), next(iter(iter_batches(data))))
        broker.move_leader("t", 0, FOLLOWER)
        await settled(broker)
        assert await latest(broker, FOLLOWER, CONSUMER) == (E.LEADER_NOT_AVAILABLE, -1)
        assert await latest(broker, FOLLOWER, CONSUMER, 5) == (E.OFFSET_NOT_AVAILABLE, -1)
        assert await latest(broker, FOLLOWER, DEBUG, 5) == (E.NONE, 2)
        rule.remove()
        hung.remove()


async def test_a_node_that_missed_the_command_still_leads() -> None:
    async with cluster(nodes=2) as broker:
        rule = broker.on(ApiKey.LEADER_AND_ISR, Drop(), node=LEADER)
        broker.move_leader("t", 0, FOLLOWER)
        await broker.wait_for_request(
            ApiKey.LEADER_AND_ISR,
            node=FOLLOWER,
            matching=lambda seen: seen.message.ungrouped_partition_states[0].leader == FOLLOWER,
        )
        await produce(broker, b"here", acks=1, node=LEADER)
        # No follower is left, so acks=all cannot be satisfied.
        assert await produce(broker, b"v", timeout_ms=50) == (E.REQUEST_TIMED_OUT, -1)
        rule.remove()


async def test_the_next_controller_continues() -> None:
    async with cluster() as broker:
        assert broker.controller_id == LEADER
        await broker.kill(LEADER)
        assert broker.controller_id == FOLLOWER
        await settled(broker)
        assert broker.leader("t", 0) in {FOLLOWER, THIRD}
        [*_, last] = broker.requests.of(ApiKey.UPDATE_METADATA, node=THIRD)
        assert last.message.controller_epoch == 2
        await broker.create_topic("u", replication_factor=2)
        await broker.restart(LEADER)
        assert broker.controller_id == FOLLOWER
        await broker.wait_for_isr("t", 0, 1, 2, 3)


async def test_all_nodes_may_die() -> None:
    async with cluster(nodes=2) as broker:
        await produce(broker, b"v")
        await broker.kill(LEADER)
        await broker.kill(FOLLOWER)
        assert (broker.leader("t", 0), broker.controller_id) == (-1, -1)
        assert broker.end_offset("t", 0) == -1
        await broker.restart(FOLLOWER)
        await broker.restart(LEADER)
        assert (broker.leader("t", 0), broker.controller_id) == (FOLLOWER, FOLLOWER)
        await broker.wait_for_isr("t", 0, LEADER, FOLLOWER)
        assert values(await fetch(broker, FOLLOWER)) == [b"v"]


async def test_controlled_shutdown_moves_leadership_first() -> None:
    async with cluster() as broker:
        await broker.shut_down(LEADER)
        asked = broker.requests.of(ApiKey.CONTROLLED_SHUTDOWN)
        assert [seen.message.broker_id for seen in asked] == [LEADER]
        assert broker.live_nodes == (FOLLOWER, THIRD)
        assert broker.leader("t", 0) in {FOLLOWER, THIRD}
        await broker.shut_down(LEADER)
        assert len(broker.requests.of(ApiKey.CONTROLLED_SHUTDOWN)) == 1


async def test_a_hanging_node_is_shut_down_without_the_controller() -> None:
    async with cluster(nodes=2) as broker:
        broker.pause(FOLLOWER)
        await broker.shut_down(FOLLOWER)
        assert broker.live_nodes == (LEADER,)
        assert broker.requests.of(ApiKey.CONTROLLED_SHUTDOWN) == []


async def test_a_hanging_controller_does_not_block_a_shutdown() -> None:
    async with cluster(nodes=2) as broker:
        broker.on(ApiKey.CONTROLLED_SHUTDOWN, Close())
        await broker.shut_down(FOLLOWER)
        assert broker.live_nodes == (LEADER,)


async def test_a_shutdown_ends_if_all_nodes_fail_meanwhile() -> None:
    async with cluster(nodes=2) as broker:
        broker.on(ApiKey.CONTROLLED_SHUTDOWN, Answer(ErrorCode.UNKNOWN_SERVER_ERROR))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(broker.shut_down, FOLLOWER)
            await broker.wait_for_request(ApiKey.CONTROLLED_SHUTDOWN)
            await broker.kill(LEADER)
            await broker.kill(FOLLOWER)
        assert broker.live_nodes == ()


async def test_unsynced_loss_needs_a_leader() -> None:
    async with cluster(nodes=2) as broker:
        with pytest.raises(BrokerError) as refused:
            broker.truncate("t", 0, 1)
        assert refused.value.code == E.OFFSET_OUT_OF_RANGE
        for node in (LEADER, FOLLOWER):
            await broker.kill(node)
        with pytest.raises(BrokerError) as refused:
            broker.truncate("t", 0, 0)
        assert refused.value.code == E.LEADER_NOT_AVAILABLE


async def test_a_rejected_controlled_shutdown_still_stops_the_node() -> None:
    async with cluster(nodes=2) as broker:
        broker.on(ApiKey.CONTROLLED_SHUTDOWN, Answer(E.STALE_CONTROLLER_EPOCH))
        await broker.shut_down(LEADER)
        assert len(broker.requests.of(ApiKey.CONTROLLED_SHUTDOWN)) == 3
        assert broker.live_nodes == (FOLLOWER,)


# --- topics --------------------------------------------------------------------------------------


async def test_a_topic_that_is_deleted_is_gone_everywhere() -> None:
    async with cluster(nodes=2) as broker:
        await produce(broker, b"v")
        await broker.delete_topic("t")
        replication = broker._running.replication
        assert replication is not None
        assert all(not manager.replicas for manager in replication.managers.values())
        assert (await fetch(broker, LEADER)).error_code == E.UNKNOWN_TOPIC_OR_PARTITION
        await broker.create_topic("t", replication_factor=2)
        assert broker.end_offset("t", 0) == 0


async def seen(broker: Broker, node: int, topic: str) -> tuple[int, int]:
    """Return a topic's error in a node's metadata, and the number of its partitions with a
    leader."""
    async with connected(broker, node) as client:
        [received] = (await client.call(build_update_metadata_request(topic), 4)).topics
    return received.error_code, sum(each.leader_id != -1 for each in received.partitions)


async def test_the_controller_responds_after_propagation() -> None:
    async with cluster("2.8", nodes=2) as broker:
        made = create_topics.CreatableTopic(
            name="u", num_partitions=4, replication_factor=2, assignments=[], configs=[]
        )
        more = create_partitions.CreatePartitionsTopic(name="u", count=6, assignments=None)
        async with connected(broker, LEADER) as client:
            await client.call(
                create_topics.CreateTopicsRequest(topics=[made], timeout_ms=10_000), 4
            )
            assert await seen(broker, LEADER, "u") == (E.NONE, 4)
            request = create_partitions.CreatePartitionsRequest(
                topics=[more], timeout_ms=10_000, validate_only=False
            )
            await client.call(request, 1)
            assert await seen(broker, LEADER, "u") == (E.NONE, 6)
            await client.call(
                delete_topics.DeleteTopicsRequest(topic_names=["u"], timeout_ms=10_000), 3
            )
            assert await seen(broker, LEADER, "u") == (E.UNKNOWN_TOPIC_OR_PARTITION, 0)


async def test_other_nodes_do_not_forward() -> None:
    async with cluster("2.8", nodes=2) as broker, connected(broker, FOLLOWER) as client:
        request = delete_topics.DeleteTopicsRequest(topic_names=["t"], timeout_ms=0)
        [received] = (await client.call(request, 3)).responses
        assert received.error_code == E.NOT_CONTROLLER


async def test_a_topic_recreated_while_a_node_was_down_is_a_new_one() -> None:
    async with cluster(nodes=2) as broker:
        await produce(broker, b"of the first")
        await broker.kill(FOLLOWER)
        await broker.delete_topic("t")
        broker._running.cluster.create_topic("t", assignments={0: [LEADER, FOLLOWER]})
        await settled(broker)
        assert await produce(broker, b"of the second") == (E.NONE, 0)
        await broker.restart(FOLLOWER)
        await broker.wait_for_isr("t", 0, LEADER, FOLLOWER)
        assert log_of(broker, FOLLOWER) == [b"of the second"]


@pytest.mark.parametrize("as_of", RELEASES)
async def test_records_are_deleted_on_all_nodes(as_of: str | None) -> None:
    async with cluster(as_of, nodes=2) as broker:
        for value in (b"a", b"b", b"c"):
            await produce(broker, value)
        broker.delete_records("t", 0, 2)
        assert (await fetch(broker, LEADER)).error_code == E.OFFSET_OUT_OF_RANGE
        assert (await fetch(broker, FOLLOWER, DEBUG)).error_code == E.OFFSET_OUT_OF_RANGE


async def test_a_follower_that_missed_what_was_deleted_begins_at_the_start() -> None:
    async with cluster(nodes=2) as broker:
        await broker.kill(FOLLOWER)
        for value in (b"a", b"b", b"c"):
            await produce(broker, value)
        broker.delete_records("t", 0, 2)
        await broker.restart(FOLLOWER)
        await broker.wait_for_isr("t", 0, LEADER, FOLLOWER)
        assert broker.end_offset("t", 0, node=FOLLOWER) == 3


@pytest.mark.parametrize("as_of", RELEASES)
async def test_a_log_that_lost_its_end(as_of: str | None) -> None:
    async with cluster(as_of, nodes=2) as broker:
        for value in (b"a", b"b", b"c"):
            await produce(broker, value)
        epoch = broker.leader_epoch("t", 0)
        broker.truncate("t", 0, 1)
        await settled(broker)
        assert broker.leader_epoch("t", 0) == epoch + 1
        assert await produce(broker, b"d") == (E.NONE, 1)
        assert log_of(broker, LEADER) == log_of(broker, FOLLOWER) == [b"a", b"d"]


@pytest.mark.parametrize("as_of", ["1.1", "2.8", "3.9", None])
async def test_transactions_are_replicated(as_of: str | None) -> None:
    async with (
        cluster(as_of) as broker,
        Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id="tx") as producer,
    ):
        async with producer.transaction():
            await producer.send("t", b"kept")
        await producer.begin_transaction()
        await producer.send("t", b"dropped")
        await producer.abort_transaction()
        await broker.kill(LEADER)
        consumer = Consumer(
            "t",
            bootstrap_servers=broker.bootstrap_servers,
            isolation_level="read_committed",
            **EARLIEST,
        )
        async with producer.transaction():
            await producer.send("t", b"after")
        async with consumer:
            with anyio.fail_after(30):
                assert [(await consumer.getone()).value for _ in range(2)] == [b"kept", b"after"]


# --- options -------------------------------------------------------------------------------------


def test_replicated_logs_are_in_memory() -> None:
    with pytest.raises(InvalidOption, match="data_dir"):
        Broker(as_of="2.8", replicate=True, data_dir="anywhere")


def test_lag_options_must_allow_followers_in_the_isr() -> None:
    with pytest.raises(InvalidOption, match="replica_fetch_wait_max_ms"):
        Broker(as_of="2.8", replicate=True, replica_lag_time_max_ms=100)


async def test_a_node_can_be_upgraded_to_another_that_replicates() -> None:
    async with cluster("0.10", nodes=2) as broker:
        await produce(broker, b"v")
        for as_of in ("2.8", "3.9"):
            await broker.restart(FOLLOWER, as_of=as_of)
            await broker.wait_for_isr("t", 0, LEADER, FOLLOWER)
        assert await produce(broker, b"w") == (E.NONE, 1)
