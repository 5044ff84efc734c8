"""Every event in every state."""

from __future__ import annotations

import dataclasses
import random
from typing import Any
from uuid import UUID

import pytest

from aiokafkawire.errors import KafkaError
from aiokafkawire.group.consumer_protocol import events, states
from aiokafkawire.group.consumer_protocol.context import ConsumerProtocolSettings
from aiokafkawire.group.consumer_protocol.effects import (
    ChangeEpoch,
    RefreshTopics,
    SendConsumerHeartbeat,
    SendLeaveEpoch,
)
from aiokafkawire.group.consumer_protocol.machine import ConsumerProtocolMachine
from aiokafkawire.group.consumer_protocol.table import TRANSITIONS
from aiokafkawire.group.membership import events as shared
from aiokafkawire.group.membership import states as outside
from aiokafkawire.group.membership.effects import (
    AssignPartitions,
    EnterGeneration,
    FindCoordinator,
    ForgetCoordinator,
    InterruptPoll,
    LosePartitions,
    MembershipEffect,
    RevokePartitions,
)
from aiokafkawire.group.topic_id_partition import TopicIdPartition
from aiokafkawire.runtime.state_machine import InvalidTransition
from aiokafkawire.types import TopicPartition
from tests import golden

ORDERS, PAYMENTS = UUID(int=1), UUID(int=2)
O0, O1 = (TopicIdPartition(ORDERS, "orders", number) for number in (0, 1))
REQUEST = 7
ERROR = KafkaError("refused")
INTERVAL_S = 5.0
TOPICS = ("orders",)
REPORTED = states.ReportedFields(TOPICS, (O0,))
HEARTBEAT = states.HeartbeatSchedule(1, 3.0, REQUEST, REPORTED, REPORTED)
TARGET = states.TargetAssignment((O0,))

STATES: tuple[outside.MembershipState, ...] = (
    outside.Unjoined(),
    states.ConsumerJoining(HEARTBEAT),
    states.ConsumerStable(HEARTBEAT, 4, (O0,), TARGET),
    states.ConsumerRevocationDue(HEARTBEAT, 4, (O0, O1), TARGET),
    states.ConsumerRevoking(
        HEARTBEAT, 4, (O0, O1), TARGET, (O1,), REQUEST, outside.NextAction.JOIN
    ),
    outside.Leaving(REQUEST, outside.NextAction.CLOSE, 10.0),
    states.LeavingUnpolled(REQUEST, 10.0),
    outside.PollTimedOut(),
    outside.JoinFailed(ERROR),
    outside.Fenced(ERROR),
)

EVENTS: tuple[Any, ...] = (
    shared.Subscribed(("payments",)),
    shared.Unsubscribed(),
    shared.CloseRequested(50.0),
    shared.PollStarted(),
    shared.CommitRejected(),
    shared.GroupErrorReported(),
    shared.DeadlineReached(),
    events.TopicsResolved({PAYMENTS: "payments"}),
    shared.CoordinatorFound(REQUEST, 8),
    shared.CoordinatorNotFound(REQUEST),
    events.HeartbeatResponded(REQUEST, 5, INTERVAL_S, states.TargetAssignment((O0,))),
    events.MemberFenced(REQUEST, ERROR),
    events.InstanceIdUnreleased(REQUEST, ERROR),
    events.ProtocolUnavailable(REQUEST, ERROR),
    events.TopicsUnauthorized(REQUEST, ERROR),
    shared.CoordinatorUnavailable(REQUEST),
    shared.CoordinatorLoadInProgress(REQUEST),
    shared.ProtocolViolation(REQUEST, "nonsense"),
    shared.InstanceFenced(REQUEST, ERROR),
    shared.UnknownServerErrorReceived(REQUEST, ERROR),
    shared.FatalErrorOccurred(REQUEST, ERROR),
    shared.PartitionsRevoked(REQUEST),
    shared.GroupLeft(REQUEST),
)

EXPECTED = golden.read("consumer-protocol")
"""The next state; "=" if the state does not change at all. Other pairs have no transition."""


def machine_in(
    state: outside.MembershipState, *, instance_id: str | None = None, open_polls: int = 0
) -> ConsumerProtocolMachine:
    settings = ConsumerProtocolSettings(
        member_id="me",
        group_instance_id=instance_id,
        max_poll_interval_ms=300_000,
        retry_backoff_ms=100,
        retry_backoff_max_ms=1_000,
        request_timeout_ms=30_000,
        default_api_timeout_ms=60_000,
    )
    machine = ConsumerProtocolMachine(settings, random.Random(1), 0.0)
    machine.context.topics = TOPICS
    machine.context.poll_timer.open_polls = open_polls
    machine.state = state
    return machine


def observed() -> dict[tuple[str, str], str]:
    """Return the next state by state and event."""
    table = {}
    for state in STATES:
        for event in EVENTS:
            if (type(state), type(event)) in TRANSITIONS:
                machine = machine_in(state)
                machine.handle(event, 0.5)
                same = machine.state == state
                then = "=" if same else type(machine.state).__name__
                table[type(state).__name__, type(event).__name__] = then
    return table


def test_each_state_and_event_has_its_next_state() -> None:
    assert observed() == EXPECTED


def test_the_table_has_no_state_or_event_that_is_not_tested() -> None:
    assert {state for state, _ in TRANSITIONS} == {type(state) for state in STATES}
    assert {event for _, event in TRANSITIONS} == {type(event) for event in EVENTS}


@pytest.mark.parametrize("state", STATES, ids=lambda state: type(state).__name__)
def test_other_events_are_impossible(state: outside.MembershipState) -> None:
    for event in EVENTS:
        awaited = not isinstance(event, shared.RequestCompleted) or REQUEST in state.awaited
        if awaited and (type(state), type(event)) not in TRANSITIONS:
            with pytest.raises(InvalidTransition):
                machine_in(state).handle(event, 0.5)


@pytest.mark.parametrize("state", STATES, ids=lambda state: type(state).__name__)
def test_late_results_are_ignored(state: outside.MembershipState) -> None:
    for event in EVENTS:
        if isinstance(event, shared.RequestCompleted):
            machine = machine_in(state)
            late = dataclasses.replace(event, request=99)  # type: ignore[type-var]
            assert machine.handle(late, 0.5) == ()
            assert machine.state is state


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
@pytest.mark.parametrize("state", STATES, ids=lambda state: type(state).__name__)
def test_a_member_leaves_after_the_poll_interval_in_each_state_that_checks_it(
    state: outside.MembershipState, event: Any
) -> None:
    machine = machine_in(state)
    if (type(state), type(event)) in TRANSITIONS:
        machine.handle(event, 299.0)
    before = machine.state
    effects = () if machine.is_closed else machine.handle(shared.DeadlineReached(), 300.0)
    leaves = [effect for effect in effects if isinstance(effect, SendLeaveEpoch)]
    if isinstance(before, states.InHeartbeats) and before.checks_poll_timer:
        assert isinstance(machine.state, states.LeavingUnpolled if leaves else outside.PollTimedOut)
        assert not [effect for effect in effects if isinstance(effect, SendConsumerHeartbeat)]
        assert bool(leaves) or isinstance(before, states.ConsumerJoining)
    else:
        assert not leaves


# --- one conversation -------------------------------------------------------------------------


def only(effects: Any, kind: type[MembershipEffect]) -> Any:
    [found] = [effect for effect in effects if isinstance(effect, kind)]
    return found


def due(machine: ConsumerProtocolMachine, now: float) -> Any:
    """Return the heartbeat that is due now."""
    return only(machine.handle(shared.DeadlineReached(), now), SendConsumerHeartbeat)


def joined(**options: Any) -> ConsumerProtocolMachine:
    """Return a member with epoch 2 that owns partitions 0 and 1, at time 1."""
    machine = machine_in(outside.Unjoined(), **options)
    machine.handle(shared.Subscribed(TOPICS), 0.0)
    find = only(machine.handle(shared.DeadlineReached(), 0.0), FindCoordinator)
    machine.handle(shared.CoordinatorFound(find.request, 1), 0.0)
    join = due(machine, 0.0)
    assert (join.epoch, join.full, join.topics, join.owned) == (0, True, TOPICS, ())
    target = states.TargetAssignment((O0, O1))
    effects = machine.handle(events.HeartbeatResponded(join.request, 2, INTERVAL_S, target), 1.0)
    assert only(effects, ChangeEpoch).epoch == 2
    assert only(effects, AssignPartitions).partitions == topic_partitions(0, 1)
    report = due(machine, 1.0)
    assert (report.epoch, report.full, report.topics, report.owned) == (2, False, None, (O0, O1))
    machine.handle(events.HeartbeatResponded(report.request, 2, INTERVAL_S, None), 1.0)
    return machine


def topic_partitions(*numbers: int) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition("orders", number) for number in numbers)


def test_a_heartbeat_without_changes_has_only_the_epoch() -> None:
    machine = joined()
    assert machine.next_deadline() == 1.0 + INTERVAL_S
    heartbeat = due(machine, 6.0)
    assert (heartbeat.full, heartbeat.topics, heartbeat.owned) == (False, None, None)


def test_partitions_are_released_only_after_they_are_revoked() -> None:
    machine = joined()
    heartbeat = due(machine, 6.0)
    responded = events.HeartbeatResponded(heartbeat.request, 2, INTERVAL_S, TARGET)
    assert isinstance(machine.handle(responded, 6.0)[0], InterruptPoll)
    again = due(machine, 11.0)
    assert again.owned is None
    machine.handle(events.HeartbeatResponded(again.request, 2, INTERVAL_S, None), 11.0)
    revoke = only(machine.handle(shared.PollStarted(), 12.0), RevokePartitions)
    assert revoke.partitions == topic_partitions(1)
    effects = machine.handle(shared.PartitionsRevoked(revoke.request), 12.5)
    assert only(effects, EnterGeneration).owned == topic_partitions(0)
    assert only(effects, AssignPartitions).partitions == ()
    release = due(machine, 12.5)
    assert (release.epoch, release.owned) == (2, (O0,))
    effects = machine.handle(events.HeartbeatResponded(release.request, 3, INTERVAL_S, None), 12.6)
    assert only(effects, ChangeEpoch) == ChangeEpoch(3, (O0,))


def test_partitions_are_revoked_at_once_while_the_application_waits_for_records() -> None:
    machine = joined(open_polls=1)
    heartbeat = due(machine, 6.0)
    responded = events.HeartbeatResponded(heartbeat.request, 2, INTERVAL_S, TARGET)
    assert only(machine.handle(responded, 6.0), RevokePartitions).partitions == topic_partitions(1)


def test_a_newer_target_during_a_revocation_is_followed_after_it() -> None:
    machine = joined(open_polls=1)
    heartbeat = due(machine, 6.0)
    responded = events.HeartbeatResponded(heartbeat.request, 2, INTERVAL_S, TARGET)
    first = only(machine.handle(responded, 6.0), RevokePartitions)
    again = due(machine, 11.0)
    nothing = events.HeartbeatResponded(again.request, 2, INTERVAL_S, states.TargetAssignment())
    assert machine.handle(nothing, 11.0) == ()
    effects = machine.handle(shared.PartitionsRevoked(first.request), 12.0)
    assert only(effects, RevokePartitions).partitions == topic_partitions(0)


def test_after_a_failure_the_next_heartbeat_is_full_and_keeps_the_epoch() -> None:
    machine = joined()
    heartbeat = due(machine, 6.0)
    effects = machine.handle(shared.CoordinatorUnavailable(heartbeat.request), 6.0)
    assert ForgetCoordinator() in effects
    find = only(machine.handle(shared.DeadlineReached(), 7.0), FindCoordinator)
    machine.handle(shared.CoordinatorFound(find.request, 2), 7.0)
    full = due(machine, 7.0)
    assert (full.node, full.epoch, full.full, full.topics, full.owned) == (
        2,
        2,
        True,
        TOPICS,
        (O0, O1),
    )


def test_a_fenced_member_loses_its_partitions_and_joins_again_without_them() -> None:
    machine = joined()
    heartbeat = due(machine, 6.0)
    effects = machine.handle(events.MemberFenced(heartbeat.request, ERROR), 6.0)
    assert only(effects, LosePartitions).partitions == topic_partitions(0, 1)
    assert machine.generation is None
    join = due(machine, 6.0)
    assert (join.epoch, join.full, join.owned) == (0, True, ())


def test_a_member_fenced_during_a_revocation_joins_again_after_it() -> None:
    machine = joined(open_polls=1)
    heartbeat = due(machine, 6.0)
    responded = events.HeartbeatResponded(heartbeat.request, 2, INTERVAL_S, TARGET)
    revoke = only(machine.handle(responded, 6.0), RevokePartitions)
    again = due(machine, 11.0)
    effects = machine.handle(events.MemberFenced(again.request, ERROR), 11.0)
    assert only(effects, LosePartitions).partitions == topic_partitions(0)
    assert machine.generation is None
    machine.handle(shared.PartitionsRevoked(revoke.request), 12.0)
    assert due(machine, 12.0).epoch == 0


def test_a_changed_subscription_is_reported_at_once() -> None:
    machine = joined()
    machine.handle(shared.Subscribed(("orders", "payments")), 2.0)
    heartbeat = due(machine, 2.0)
    assert (heartbeat.topics, heartbeat.owned) == (("orders", "payments"), None)


def test_partitions_of_unknown_topics_are_owned_when_their_names_are_known() -> None:
    machine = joined()
    heartbeat = due(machine, 6.0)
    target = states.TargetAssignment((O0, O1), {PAYMENTS: (0, 1)})
    effects = machine.handle(
        events.HeartbeatResponded(heartbeat.request, 3, INTERVAL_S, target), 6.0
    )
    assert RefreshTopics() in effects
    assert machine.handle(events.TopicsResolved({}), 6.1) == ()
    effects = machine.handle(events.TopicsResolved({PAYMENTS: "payments"}), 6.2)
    added = only(effects, AssignPartitions).partitions
    assert added == (TopicPartition("payments", 0), TopicPartition("payments", 1))


def test_a_deleted_topic_is_revoked_by_its_name_although_the_metadata_lacks_it() -> None:
    machine = joined()
    heartbeat = due(machine, 6.0)
    target = states.TargetAssignment(unresolved={ORDERS: (0,)})
    effects = machine.handle(
        events.HeartbeatResponded(heartbeat.request, 3, INTERVAL_S, target), 6.0
    )
    assert RefreshTopics() not in effects
    assert isinstance(machine.state, states.ConsumerRevocationDue)
    assert machine.state.target.partitions == (O0,)


def test_a_recreated_topic_is_revoked_and_assigned() -> None:
    machine = joined(open_polls=1)
    heartbeat = due(machine, 6.0)
    new = TopicIdPartition(UUID(int=9), "orders", 0)
    target = states.TargetAssignment((new,))
    effects = machine.handle(
        events.HeartbeatResponded(heartbeat.request, 3, INTERVAL_S, target), 6.0
    )
    revoke = only(effects, RevokePartitions)
    assert revoke.partitions == topic_partitions(0, 1)
    effects = machine.handle(shared.PartitionsRevoked(revoke.request), 6.5)
    assert only(effects, AssignPartitions).partitions == topic_partitions(0)


def test_an_error_ends_the_membership_and_a_later_poll_joins_again() -> None:
    machine = joined()
    heartbeat = due(machine, 6.0)
    effects = machine.handle(shared.FatalErrorOccurred(heartbeat.request, ERROR), 6.0)
    assert only(effects, LosePartitions).partitions == topic_partitions(0, 1)
    assert isinstance(effects[-1], SendLeaveEpoch)
    assert machine.error is ERROR
    machine.handle(shared.PollStarted(), 6.1)
    assert machine.error is ERROR
    machine.handle(shared.GroupErrorReported(), 6.2)
    machine.handle(shared.PollStarted(), 6.3)
    only(machine.handle(shared.DeadlineReached(), 6.3), FindCoordinator)


def test_a_rejected_commit_of_an_ended_membership_sends_no_heartbeat() -> None:
    machine = ConsumerProtocolMachine(
        ConsumerProtocolSettings(
            member_id="member",
            group_instance_id="instance",
            max_poll_interval_ms=300_000,
            retry_backoff_ms=100,
            retry_backoff_max_ms=1000,
            request_timeout_ms=30_000,
            default_api_timeout_ms=60_000,
        ),
        random.Random(1),
        0.0,
    )
    heartbeat = dataclasses.replace(HEARTBEAT, request=REQUEST + 1)
    machine.state = states.ConsumerRevoking(
        heartbeat, 4, (O0, O1), TARGET, (O1,), REQUEST, outside.NextAction.JOIN
    )
    machine.handle(shared.InstanceFenced(REQUEST + 1, ERROR), 1.0)
    machine.handle(shared.CommitRejected(), 2.0)
    assert machine.handle(shared.DeadlineReached(), 2.0) == ()
    machine.handle(shared.PartitionsRevoked(REQUEST), 3.0)
    assert isinstance(machine.state, outside.Fenced)
