from __future__ import annotations

from typing import Any, cast

import anyio
import pytest

from aiokafkawire.broker.apis.acks import ACKS_ALL, ProducePartitionStatus, wait_for_acks
from aiokafkawire.broker.replication.controller_commands import LeaderAndIsr
from aiokafkawire.broker.replication.replica import (
    BecomeFollower,
    BecomeLeader,
    FollowerFetched,
    IsrRecorded,
    Replica,
)
from aiokafkawire.broker.request_context import ClientConnection, RequestContext
from aiokafkawire.runtime import RealRuntime
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.produce import PartitionProduceResponse

from .replication.logs import NODE, assignment, replica, write

E = ErrorCode
FOLLOWER, THIRD = 2, 3
LONG_MS = 10_000


class AckHarness:
    """A partition led by this node, with one record that is not replicated yet."""

    def __init__(self) -> None:
        self.clock = RealRuntime().clock
        self.connection = ClientConnection("somewhere")
        self.replica: Replica = replica()
        self.become(assignment())
        write(self.replica.log)
        self.replica.on_append()

    def become(self, assignment: LeaderAndIsr) -> None:
        leads = assignment.leader == NODE
        event = BecomeLeader(assignment) if leads else BecomeFollower(assignment)
        self.replica.handle(event, self.clock.now())

    def fetched(self, *followers: int) -> None:
        for follower in followers:
            self.replica.handle(FollowerFetched(follower, 1), self.clock.now())

    async def outcome(
        self,
        *meanwhile: Any,
        acks: int = ACKS_ALL,
        timeout_ms: int = LONG_MS,
        min_in_sync: int = 1,
    ) -> tuple[int, int]:
        """Return the response if these actions happen during the wait."""
        response = PartitionProduceResponse(index=0, error_code=E.NONE, base_offset=0)
        statuses = ProducePartitionStatus(self.replica, 1, min_in_sync, response)
        call = cast("RequestContext", _Call(self))
        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(wait_for_acks, call, acks, timeout_ms, [statuses])
                for step in meanwhile:
                    await anyio.wait_all_tasks_blocked()
                    step()
        assert len(self.replica.on_change) == len(self.connection.on_close) == 0
        return response.error_code, response.base_offset


class _Call:
    """The parts of a request context that are used."""

    def __init__(self, world: AckHarness) -> None:
        self.state = world
        self.node_id = NODE
        self.connection = world.connection


@pytest.fixture
async def world() -> AckHarness:
    return AckHarness()


async def test_acks_all_needs_the_whole_isr(world: AckHarness) -> None:
    assert await world.outcome(lambda: world.fetched(FOLLOWER), lambda: world.fetched(THIRD)) == (
        E.NONE,
        0,
    )


async def test_acks_all_ignores_replicas_that_left_the_isr(world: AckHarness) -> None:
    def shrink() -> None:
        world.replica.handle(IsrRecorded((NODE, FOLLOWER)), 0.0)

    assert await world.outcome(lambda: world.fetched(FOLLOWER), shrink) == (E.NONE, 0)


async def test_not_enough_replicas_is_returned_when_the_isr_shrinks(world: AckHarness) -> None:
    def shrink() -> None:
        world.replica.handle(IsrRecorded((NODE,)), 0.0)

    assert await world.outcome(shrink, min_in_sync=2) == (E.NOT_ENOUGH_REPLICAS_AFTER_APPEND, -1)


async def test_acks_above_1_wait_for_that_many_replicas(world: AckHarness) -> None:
    assert await world.outcome(lambda: world.fetched(THIRD), acks=2) == (E.NONE, 0)


@pytest.mark.parametrize("acks", [ACKS_ALL, 2])
async def test_the_request_timeout_ends_the_wait(world: AckHarness, acks: int) -> None:
    assert await world.outcome(acks=acks, timeout_ms=20) == (E.REQUEST_TIMED_OUT, -1)


async def test_a_former_leader_cannot_acknowledge(world: AckHarness) -> None:
    assert await world.outcome(lambda: world.become(assignment(FOLLOWER, 1))) == (
        E.NOT_LEADER_OR_FOLLOWER,
        -1,
    )


async def test_a_deleted_partition_ends_the_wait(world: AckHarness) -> None:
    def delete() -> None:
        world.replica.deleted = True
        world.replica.on_change.notify()

    assert await world.outcome(delete) == (E.UNKNOWN_TOPIC_OR_PARTITION, -1)


async def test_a_disconnected_client_ends_the_wait(world: AckHarness) -> None:
    await world.outcome(world.connection.mark_closed)


async def test_replicated_records_are_acknowledged_at_once(world: AckHarness) -> None:
    world.fetched(FOLLOWER, THIRD)
    assert await world.outcome(timeout_ms=0) == (E.NONE, 0)
