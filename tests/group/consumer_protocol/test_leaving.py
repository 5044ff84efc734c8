"""Leaving: on close, without polls, and static members (KIP-345, KIP-1092)."""

from __future__ import annotations

from typing import Any

import pytest

from aiokafkawire.errors import KafkaError
from aiokafkawire.group.consumer_protocol import events, states
from aiokafkawire.group.consumer_protocol.effects import SendLeaveEpoch
from aiokafkawire.group.consumer_protocol.heartbeats import UNRELEASED_LIMIT_S
from aiokafkawire.group.consumer_protocol.machine import ConsumerProtocolMachine
from aiokafkawire.group.membership import events as shared
from aiokafkawire.group.membership import states as outside
from aiokafkawire.group.membership.effects import (
    FindCoordinator,
    LogMessage,
    LosePartitions,
    RevokePartitions,
)
from tests.group.consumer_protocol.test_machine import (
    INTERVAL_S,
    O0,
    TOPICS,
    due,
    joined,
    machine_in,
    only,
    topic_partitions,
)

ERROR = KafkaError("refused")


def joining(**options: Any) -> ConsumerProtocolMachine:
    """Return a member that knows the coordinator and is about to join, at time 0."""
    machine = machine_in(outside.Unjoined(), **options)
    machine.handle(shared.Subscribed(TOPICS), 0.0)
    find = only(machine.handle(shared.DeadlineReached(), 0.0), FindCoordinator)
    machine.handle(shared.CoordinatorFound(find.request, 1), 0.0)
    return machine


# --- close ------------------------------------------------------------------------------------


@pytest.mark.parametrize("owns", [False, True])
def test_closing_revokes_leaves_and_ends(owns: bool) -> None:
    machine = joined()
    if not owns:
        heartbeat = due(machine, 6.0)
        machine.handle(events.MemberFenced(heartbeat.request, ERROR), 6.0)
        due(machine, 6.0)
    effects = machine.handle(shared.CloseRequested(50.0), 7.0)
    if owns:
        revoke = only(effects, RevokePartitions)
        assert revoke.partitions == topic_partitions(0, 1)
        effects = machine.handle(shared.PartitionsRevoked(revoke.request), 8.0)
    leave = only(effects, SendLeaveEpoch)
    machine.handle(shared.GroupLeft(leave.request), 8.1)
    assert machine.is_closed


def test_closing_before_the_first_heartbeat_sends_nothing() -> None:
    machine = machine_in(outside.Unjoined())
    machine.handle(shared.Subscribed(TOPICS), 0.0)
    assert machine.handle(shared.CloseRequested(50.0), 0.0) == ()
    assert machine.is_closed


@pytest.mark.parametrize(
    ("operation", "instance_id", "epoch"),
    [
        ("default", None, -1),
        ("default", "a", -2),
        ("leave_group", None, -1),
        ("leave_group", "a", -1),
        ("remain_in_group", None, None),
        ("remain_in_group", "a", -2),
    ],
)
def test_the_epoch_of_a_close(operation: Any, instance_id: str | None, epoch: int | None) -> None:
    machine = joined(instance_id=instance_id)
    effects = machine.handle(shared.CloseRequested(50.0, operation), 7.0)
    revoke = only(effects, RevokePartitions)
    effects = machine.handle(shared.PartitionsRevoked(revoke.request), 8.0)
    if epoch is None:
        assert effects == ()
    else:
        leave = only(effects, SendLeaveEpoch)
        assert leave.epoch == epoch
        machine.handle(shared.GroupLeft(leave.request), 8.1)
    assert machine.is_closed


# --- without polls ----------------------------------------------------------------------------


def unpolled(**options: Any) -> tuple[ConsumerProtocolMachine, SendLeaveEpoch]:
    """Return a member that has just left because its poll interval was exceeded, at time 301."""
    machine = joined(**options)
    effects = machine.handle(shared.DeadlineReached(), 301.0)
    assert only(effects, LosePartitions).partitions == topic_partitions(0, 1)
    return machine, only(effects, SendLeaveEpoch)


@pytest.mark.parametrize(("instance_id", "epoch"), [(None, -1), ("a", -2)])
def test_a_member_without_polls_leaves_and_the_next_poll_joins_again(
    instance_id: str | None, epoch: int
) -> None:
    machine, leave = unpolled(instance_id=instance_id)
    assert leave.epoch == epoch
    machine.handle(shared.GroupLeft(leave.request), 301.1)
    assert machine.next_deadline() > 1e6
    machine.handle(shared.PollStarted(), 400.0)
    machine.context.poll_timer.last_poll = 400.0
    only(machine.handle(shared.DeadlineReached(), 400.0), FindCoordinator)


@pytest.mark.parametrize("answered", [True, False])
def test_a_join_does_not_overtake_the_leave(answered: bool) -> None:
    machine, leave = unpolled()
    machine.handle(shared.PollStarted(), 301.1)
    assert machine.handle(shared.DeadlineReached(), 301.2) == ()
    assert isinstance(machine.state, states.LeavingUnpolled)
    if answered:
        machine.handle(shared.GroupLeft(leave.request), 302.0)
    else:
        assert machine.next_deadline() == leave.deadline
        machine.handle(shared.DeadlineReached(), leave.deadline)
    assert isinstance(machine.state, states.ConsumerJoining)


def test_other_topics_do_not_make_a_member_rejoin_before_its_application_polls() -> None:
    machine, leave = unpolled()
    machine.handle(shared.Subscribed(("payments",)), 301.1)
    machine.handle(shared.GroupLeft(leave.request), 301.2)
    machine.handle(shared.Subscribed(("orders", "payments")), 301.3)
    assert isinstance(machine.state, outside.PollTimedOut)
    machine.handle(shared.PollStarted(), 302.0)
    assert isinstance(machine.state, states.ConsumerJoining)
    assert machine.context.topics == ("orders", "payments")


@pytest.mark.parametrize("event", [shared.Unsubscribed(), shared.CloseRequested(301.3)])
def test_a_member_without_polls_that_is_stopped_does_not_join_again(event: Any) -> None:
    machine, leave = unpolled()
    assert machine.handle(event, 301.2) == ()
    if isinstance(event, shared.CloseRequested):
        assert machine.next_deadline() == 301.3
    machine.handle(shared.PollStarted(), 301.25)
    machine.handle(shared.GroupLeft(leave.request), 302.0)
    closes = isinstance(event, shared.CloseRequested)
    assert type(machine.state) is (outside.MembershipClosed if closes else outside.Unjoined)


def test_a_joining_member_without_polls_sends_no_join_and_waits_for_a_poll() -> None:
    machine = joining()
    assert machine.next_deadline() == 0.0
    [log] = machine.handle(shared.DeadlineReached(), 300.0)
    assert isinstance(log, LogMessage)
    assert isinstance(machine.state, outside.PollTimedOut)
    machine.handle(shared.Subscribed(("payments",)), 301.0)
    assert isinstance(machine.state, outside.PollTimedOut)
    machine.context.poll_timer.last_poll = 400.0
    machine.handle(shared.PollStarted(), 400.0)
    find = only(machine.handle(shared.DeadlineReached(), 400.0), FindCoordinator)
    machine.handle(shared.CoordinatorFound(find.request, 1), 400.0)
    assert due(machine, 400.0).topics == ("payments",)


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize(("instance_id", "epoch"), [(None, -1), ("a", -2)])
def test_a_joining_member_without_polls_leaves_if_the_coordinator_may_know_it(
    fails: bool, instance_id: str | None, epoch: int
) -> None:
    machine = joining(instance_id=instance_id)
    join = due(machine, 0.0)
    if fails:
        machine.handle(shared.CoordinatorLoadInProgress(join.request), 299.99)
    assert machine.next_deadline() == 300.0
    effects = machine.handle(shared.DeadlineReached(), 300.0)
    leave = only(effects, SendLeaveEpoch)
    assert leave.epoch == epoch
    assert not [effect for effect in effects if isinstance(effect, LosePartitions)]
    late = events.HeartbeatResponded(join.request, 2, INTERVAL_S, states.TargetAssignment((O0,)))
    assert machine.handle(late, 300.1) == ()
    machine.handle(shared.GroupLeft(leave.request), 300.2)
    assert isinstance(machine.state, outside.PollTimedOut)


def test_a_joining_member_without_polls_goes_on_while_it_finds_the_coordinator() -> None:
    machine = machine_in(outside.Unjoined())
    machine.handle(shared.Subscribed(TOPICS), 299.0)
    find = only(machine.handle(shared.DeadlineReached(), 299.0), FindCoordinator)
    assert machine.next_deadline() > 1e6
    machine.handle(shared.CoordinatorNotFound(find.request), 301.0)
    find = only(machine.handle(shared.DeadlineReached(), machine.next_deadline()), FindCoordinator)
    machine.handle(shared.CoordinatorFound(find.request, 1), 302.0)
    only(machine.handle(shared.DeadlineReached(), 302.0), SendLeaveEpoch)


def test_a_fenced_member_without_polls_waits_for_a_poll() -> None:
    machine = joined()
    heartbeat = due(machine, 299.0)
    machine.handle(events.MemberFenced(heartbeat.request, ERROR), 300.5)
    machine.handle(shared.DeadlineReached(), 300.5)
    assert isinstance(machine.state, outside.PollTimedOut)


def test_a_revocation_ends_before_a_member_without_polls_leaves() -> None:
    machine = joined(open_polls=1)
    heartbeat = due(machine, 6.0)
    target = states.TargetAssignment((O0,))
    effects = machine.handle(
        events.HeartbeatResponded(heartbeat.request, 2, INTERVAL_S, target), 6.0
    )
    revoke = only(effects, RevokePartitions)
    machine.context.poll_timer.finish_poll(6.0)
    again = due(machine, 307.0)
    assert again.owned is None
    machine.handle(shared.PartitionsRevoked(revoke.request), 310.0)
    assert machine.next_deadline() == 306.0
    effects = machine.handle(shared.DeadlineReached(), 310.0)
    assert only(effects, LosePartitions).partitions == topic_partitions(0)
    only(effects, SendLeaveEpoch)


# --- static members ---------------------------------------------------------------------------


def test_a_static_member_waits_for_its_predecessor() -> None:
    machine = machine_in(outside.Unjoined(), instance_id="a")
    machine.handle(shared.Subscribed(TOPICS), 0.0)
    find = only(machine.handle(shared.DeadlineReached(), 0.0), FindCoordinator)
    machine.handle(shared.CoordinatorFound(find.request, 1), 0.0)
    now, warnings = 0.0, 0
    while now < UNRELEASED_LIMIT_S:
        join = due(machine, now)
        effects = machine.handle(events.InstanceIdUnreleased(join.request, ERROR), now)
        warnings += sum(isinstance(effect, LogMessage) for effect in effects)
        now = machine.next_deadline()
    assert warnings == 1
    join = due(machine, now)
    machine.handle(events.InstanceIdUnreleased(join.request, ERROR), now)
    assert machine.error is ERROR


def refused(machine: ConsumerProtocolMachine, now: float) -> Any:
    """Return the effects of UNRELEASED_INSTANCE_ID for the join that is due."""
    join = due(machine, now)
    assert join.epoch == 0
    return machine.handle(events.InstanceIdUnreleased(join.request, ERROR), now)


def test_a_static_member_whose_join_response_was_lost_leaves_and_joins_again() -> None:
    machine = joining(instance_id="a")
    lost = due(machine, 0.0)
    machine.handle(shared.CoordinatorUnavailable(lost.request), 30.0)
    now = machine.next_deadline()
    find = only(machine.handle(shared.DeadlineReached(), now), FindCoordinator)
    machine.handle(shared.CoordinatorFound(find.request, 1), now)
    leave = only(refused(machine, now), SendLeaveEpoch)
    assert leave.epoch == -2
    machine.handle(shared.GroupLeft(leave.request), now)
    find = only(machine.handle(shared.DeadlineReached(), now), FindCoordinator)
    machine.handle(shared.CoordinatorFound(find.request, 1), now)
    join = due(machine, now)
    target = states.TargetAssignment((O0,))
    machine.handle(events.HeartbeatResponded(join.request, 2, INTERVAL_S, target), now)
    assert isinstance(machine.state, states.ConsumerStable)
    assert now < 32.0


def test_a_fenced_static_member_releases_its_instance_id_before_it_joins() -> None:
    machine = joined(instance_id="a")
    heartbeat = due(machine, 6.0)
    machine.handle(events.MemberFenced(heartbeat.request, ERROR), 6.0)
    assert only(refused(machine, 6.0), SendLeaveEpoch).epoch == -2


def test_an_instance_id_of_another_member_is_released_only_by_that_one() -> None:
    machine = joining(instance_id="a")
    lost = due(machine, 0.0)
    machine.handle(shared.CoordinatorLoadInProgress(lost.request), 0.0)
    leave = only(refused(machine, machine.next_deadline()), SendLeaveEpoch)
    machine.handle(shared.GroupLeft(leave.request), 1.0)
    find = only(machine.handle(shared.DeadlineReached(), 1.0), FindCoordinator)
    machine.handle(shared.CoordinatorFound(find.request, 1), 1.0)
    for _ in range(3):
        effects = refused(machine, machine.next_deadline())
        assert not [effect for effect in effects if isinstance(effect, SendLeaveEpoch)]
