"""Coordinators that move, die, and load."""

from __future__ import annotations

import random
from typing import Any

import pytest

from aiokafkawire import Consumer, Producer
from aiokafkawire.broker import Broker
from aiokafkawire.broker.cluster_state import ClusterState
from aiokafkawire.broker.coordinator_loading import CoordinatorLoader
from aiokafkawire.broker.groups import GroupCoordinator, OffsetStore
from aiokafkawire.broker.groups.events import Join
from aiokafkawire.broker.options import BrokerConfig
from aiokafkawire.broker.storage import MemoryStore
from aiokafkawire.broker.transactions import TransactionCoordinator
from aiokafkawire.runtime import Future
from aiokafkawire.wire import ErrorCode, Request
from aiokafkawire.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from aiokafkawire.wire.messages.end_txn import EndTxnRequest
from aiokafkawire.wire.messages.find_coordinator import FindCoordinatorRequest
from aiokafkawire.wire.messages.init_producer_id import InitProducerIdRequest
from aiokafkawire.wire.messages.leave_group import LeaveGroupRequest
from aiokafkawire.wire.messages.list_groups import ListGroupsRequest
from aiokafkawire.wire.messages.list_transactions import ListTransactionsRequest

from .group_requests import commit, heartbeat, join, sync
from .raw_client import connected
from .test_apis import codes
from .transactional_client import CLASSIC, NEWEST, TransactionalClient

E = ErrorCode
LOAD_S = 5.0
SESSION_S = 10.0


class Clock:
    def __init__(self) -> None:
        self.seconds = 1_000.0

    def now(self) -> float:
        return self.seconds

    def wall_ms(self) -> int:
        return int(self.seconds * 1_000)

    async def sleep_until(self, deadline: float) -> None:
        raise AssertionError("nothing here sleeps")


class Given:
    """Two nodes, and the group `g` with one member."""

    def __init__(self) -> None:
        self.clock = clock = Clock()
        options, store, rng = BrokerConfig(), MemoryStore(), random.Random(1)
        self.cluster = ClusterState([1, 2], store, options, rng)
        offsets = OffsetStore(store)
        self.groups = GroupCoordinator(options, clock, rng, offsets)
        self.transactions = TransactionCoordinator(
            options, clock, self.cluster, offsets, store, bumps_epoch=lambda: True
        )
        self.coordinator_loader = CoordinatorLoader(
            self.cluster, self.groups, self.transactions, clock, load_s=LOAD_S
        )
        self.group = self.groups.create("g")
        join = Join(
            reply=Future[Any](),
            member_id="",
            new_member_id="m",
            protocol_type="consumer",
            protocols=(("range", b""),),
            session_timeout_s=SESSION_S,
            rebalance_timeout_s=SESSION_S,
        )
        self.groups.handle(self.group, join)
        self.first = self.cluster.coordinator("g")
        self.second = 3 - self.first

    def move(self) -> None:
        with self.coordinator_loader.coordinator_changes():
            self.cluster.move_coordinator("g", self.second)


def test_a_new_coordinator_has_to_load() -> None:
    given = Given()
    assert not given.coordinator_loader.is_loading("g")
    given.move()
    assert given.cluster.coordinator("g") == given.second
    assert given.coordinator_loader.is_loading("g")
    assert given.coordinator_loader.is_loading_any(given.second)
    assert not given.coordinator_loader.is_loading_any(given.first)
    given.clock.seconds += LOAD_S
    assert not given.coordinator_loader.is_loading("g")
    assert not given.coordinator_loader.is_loading_any(given.second)


def test_unmoved_coordinators_are_not_loaded() -> None:
    given = Given()
    other = next(
        name for name in map(str, range(99)) if given.cluster.coordinator(name) == given.second
    )
    epoch = given.transactions.coordinator_epoch
    with given.coordinator_loader.coordinator_changes():
        given.cluster.on_node_failure(given.first)
    assert given.coordinator_loader.is_loading("g")
    assert not given.coordinator_loader.is_loading(other)
    assert given.transactions.coordinator_epoch == epoch + 1
    with given.coordinator_loader.coordinator_changes():
        given.cluster.on_node_startup(given.first)
    assert given.transactions.coordinator_epoch == epoch + 1, "nothing moved back"


def test_what_has_not_moved_is_left_alone() -> None:
    given = Given()
    with given.coordinator_loader.coordinator_changes():
        given.cluster.move_coordinator("g", given.first)
    assert list(given.group.members) == ["m"]
    assert not given.coordinator_loader.is_loading("g")


def test_a_dead_node_coordinates_nothing() -> None:
    given = Given()
    given.cluster.on_node_failure(given.second)
    with pytest.raises(ValueError, match="is not up"):
        given.cluster.move_coordinator("g", given.second)


# --- over the wire -------------------------------------------------------------------------------


WHILE_LOADING: list[tuple[Request[Any], int, ErrorCode]] = [
    (join(), 3, E.COORDINATOR_LOAD_IN_PROGRESS),
    (sync(), 3, E.REBALANCE_IN_PROGRESS),
    (heartbeat(), 3, E.NONE),
    (LeaveGroupRequest(group_id="g", member_id="m"), 2, E.COORDINATOR_LOAD_IN_PROGRESS),
    (commit("t"), 2, E.COORDINATOR_LOAD_IN_PROGRESS),
    (ListGroupsRequest(), 2, E.COORDINATOR_LOAD_IN_PROGRESS),
    (
        ListTransactionsRequest(state_filters=[], producer_id_filters=[]),
        0,
        E.COORDINATOR_LOAD_IN_PROGRESS,
    ),
    (
        InitProducerIdRequest(transactional_id="g", transaction_timeout_ms=1_000),
        1,
        E.COORDINATOR_LOAD_IN_PROGRESS,
    ),
    (
        AddOffsetsToTxnRequest(transactional_id="g", producer_id=1, producer_epoch=0, group_id="g"),
        1,
        E.COORDINATOR_LOAD_IN_PROGRESS,
    ),
    (
        EndTxnRequest(transactional_id="g", producer_id=1, producer_epoch=0, committed=True),
        1,
        E.COORDINATOR_LOAD_IN_PROGRESS,
    ),
    (FindCoordinatorRequest(key="g"), 0, E.NONE),
]


async def test_what_is_answered_while_a_coordinator_loads() -> None:
    async with Broker(nodes=2, coordinator_load_ms=600_000) as broker:
        await broker.create_topic("t")
        before = broker.coordinator("g")
        broker.move_coordinator("g", 3 - before)
        assert broker.coordinator("g") == 3 - before
        async with connected(broker, 3 - before) as client:
            for request, version, code in WHILE_LOADING:
                answer = await client.call(request, version)
                assert set(codes(answer)) == {code}, request
        async with connected(broker, before) as client:
            assert (await client.call(join(), 3)).error_code == E.NOT_COORDINATOR


async def test_a_waiting_member_gets_not_coordinator() -> None:
    async with Broker(nodes=2, group_initial_rebalance_delay_ms=60_000) as broker:
        before = broker.coordinator("g")
        async with connected(broker, before) as client:
            await client.send(join(), 3)
            await broker.wait_for_request(join().api_key)
            broker.move_coordinator("g", 3 - before)
            _, answer = await client.receive(join().api_key, 3)
            assert answer.error_code == E.NOT_COORDINATOR


@pytest.mark.parametrize("versions", [CLASSIC, NEWEST], ids=["classic", "newest"])
async def test_a_loading_coordinator_returns_load_in_progress(
    versions: dict[str, int],
) -> None:
    async with Broker(nodes=2, coordinator_load_ms=600_000) as broker:
        await broker.create_topic("t")
        mine, group = broker.coordinator("tx"), "g"
        while broker.coordinator(group) != mine:
            group += "g"
        broker.move_leader("t", 0, mine)
        async with connected(broker, mine) as client:
            producer = TransactionalClient(client, versions=versions)
            assert await producer.init() == E.NONE
            broker.move_coordinator("tx", 3 - mine)
            answer = await producer.produce(b"v")
            assert answer.error_code == E.NOT_ENOUGH_REPLICAS
            assert broker.end_offset("t", 0) == 0
            code = await producer.commit_offsets(group, 1)
            assert code == E.COORDINATOR_LOAD_IN_PROGRESS


@pytest.mark.parametrize("lost", [True, False])
async def test_a_group_and_a_transaction_go_on_after_a_move(lost: bool) -> None:
    async with Broker(nodes=2, coordinator_load_ms=30) as broker:
        servers: Any = {"bootstrap_servers": broker.bootstrap_servers}
        async with (
            Producer(transactional_id="g", **servers) as producer,
            Consumer(
                "t",
                group_id="g",
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                isolation_level="read_committed",
                **servers,
            ) as consumer,
        ):
            for number in range(3):
                async with producer.transaction():
                    await producer.send("t", b"%d" % number)
                    before = broker.coordinator("g")
                    if lost:
                        await broker.kill(before)
                        await broker.restart(before)
                    else:
                        broker.move_coordinator("g", 3 - before)
                    assert broker.coordinator("g") == 3 - before
                assert (await consumer.getone()).value == b"%d" % number
                await consumer.commit()
