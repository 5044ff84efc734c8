"""Every event in every state of a member of a share group, and its conversations."""

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
    RefreshTopics,
    SendConsumerHeartbeat,
    SendLeaveEpoch,
)
from aiokafkawire.group.membership import events as shared
from aiokafkawire.group.membership import states as outside
from aiokafkawire.group.membership.effects import (
    FindCoordinator,
    LosePartitions,
    MembershipEffect,
)
from aiokafkawire.group.share_protocol.assigning import UNASSIGNED_INTERVAL_S
from aiokafkawire.group.share_protocol.effects import ReplaceAssignment
from aiokafkawire.group.share_protocol.machine import ShareProtocolMachine
from aiokafkawire.group.share_protocol.table import TRANSITIONS
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
REPORTED = states.ReportedFields(TOPICS, ())
HEARTBEAT = states.HeartbeatSchedule(1, 3.0, REQUEST, REPORTED, REPORTED)
TARGET = states.TargetAssignment((O0,))

STATES: tuple[outside.MembershipState, ...] = (
    outside.Unjoined(),
    states.ConsumerJoining(HEARTBEAT),
    states.ConsumerStable(HEARTBEAT, 4, (O0,), TARGET),
    outside.Leaving(REQUEST, outside.NextAction.CLOSE, 10.0),
    states.LeavingUnpolled(REQUEST, 10.0),
    outside.PollTimedOut(),
    outside.JoinFailed(ERROR),
)

EVENTS: tuple[Any, ...] = (
    shared.Subscribed(("payments",)),
    shared.Unsubscribed(),
    shared.CloseRequested(50.0),
    shared.PollStarted(),
    shared.GroupErrorReported(),
    shared.DeadlineReached(),
    events.TopicsResolved({PAYMENTS: "payments"}),
    shared.CoordinatorFound(REQUEST, 8),
    shared.CoordinatorNotFound(REQUEST),
    events.HeartbeatResponded(REQUEST, 5, INTERVAL_S, states.TargetAssignment((O1,))),
    events.MemberFenced(REQUEST, ERROR),
    events.TopicsUnauthorized(REQUEST, ERROR),
    events.ProtocolUnavailable(REQUEST, ERROR),
    shared.CoordinatorUnavailable(REQUEST),
    shared.CoordinatorLoadInProgress(REQUEST),
    shared.ProtocolViolation(REQUEST, "nonsense"),
    shared.UnknownServerErrorReceived(REQUEST, ERROR),
    shared.FatalErrorOccurred(REQUEST, ERROR),
    shared.GroupLeft(REQUEST),
)

EXPECTED = golden.read("share-protocol")
"""The next state; "=" if the state does not change at all. Other pairs have no transition."""


def machine_in(state: outside.MembershipState) -> ShareProtocolMachine:
    settings = ConsumerProtocolSettings(
        member_id="me",
        group_instance_id=None,
        max_poll_interval_ms=300_000,
        retry_backoff_ms=100,
        retry_backoff_max_ms=1_000,
        request_timeout_ms=30_000,
        default_api_timeout_ms=60_000,
    )
    machine = ShareProtocolMachine(settings, random.Random(1), 0.0)
    machine.context.topics = TOPICS
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
                then = "=" if machine.state == state else type(machine.state).__name__
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


# --- conversations ----------------------------------------------------------------------------


def only(effects: Any, kind: type[MembershipEffect]) -> Any:
    [found] = [effect for effect in effects if isinstance(effect, kind)]
    return found


def heartbeat(machine: ShareProtocolMachine, now: float) -> SendConsumerHeartbeat:
    effects = machine.handle(shared.DeadlineReached(), now)
    sent = only(effects, SendConsumerHeartbeat)
    assert isinstance(sent, SendConsumerHeartbeat)
    return sent


def joining() -> tuple[ShareProtocolMachine, SendConsumerHeartbeat]:
    machine = machine_in(outside.Unjoined())
    machine.handle(shared.Subscribed(TOPICS), 0.0)
    find = only(machine.handle(shared.DeadlineReached(), 0.0), FindCoordinator)
    machine.handle(shared.CoordinatorFound(find.request, 1), 0.0)
    return machine, heartbeat(machine, 0.0)


def stable() -> ShareProtocolMachine:
    machine, sent = joining()
    responded(machine, sent, 2, states.TargetAssignment((O0, O1)))
    return machine


def responded(
    machine: ShareProtocolMachine,
    sent: SendConsumerHeartbeat,
    epoch: int,
    target: states.TargetAssignment | None = None,
    now: float = 0.0,
) -> Any:
    event = events.HeartbeatResponded(sent.request, epoch, INTERVAL_S, target)
    return machine.handle(event, now)


def test_the_first_heartbeat_joins_with_the_topics() -> None:
    _, sent = joining()
    assert (sent.epoch, sent.topics, sent.full) == (0, TOPICS, True)


def test_an_assignment_replaces_the_former_one_at_once() -> None:
    machine = stable()
    sent = heartbeat(machine, INTERVAL_S)
    assert (sent.epoch, sent.topics) == (2, None)
    effects = responded(machine, sent, 3, states.TargetAssignment((O1,)), INTERVAL_S)
    assert only(effects, ReplaceAssignment).partitions == (O1,)
    assert machine.next_deadline() == 2 * INTERVAL_S


def test_no_assignment_in_a_response_changes_nothing() -> None:
    machine = stable()
    assert responded(machine, heartbeat(machine, INTERVAL_S), 2) == ()
    assert machine.state.owned == (O0, O1)  # type: ignore[attr-defined]


def test_without_partitions_heartbeats_are_frequent() -> None:
    """The coordinator assigns partitions after it has initialized them."""
    machine, sent = joining()
    responded(machine, sent, 2, states.NOTHING_ASSIGNED)
    assert machine.next_deadline() == UNASSIGNED_INTERVAL_S


def test_a_fenced_member_reads_nothing_and_joins_again_with_its_id() -> None:
    machine = stable()
    sent = heartbeat(machine, INTERVAL_S)
    effects = machine.handle(events.MemberFenced(sent.request, ERROR), INTERVAL_S)
    lost = only(effects, LosePartitions).partitions
    assert lost == (TopicPartition("orders", 0), TopicPartition("orders", 1))
    again = heartbeat(machine, INTERVAL_S)
    assert (again.epoch, again.topics) == (0, TOPICS)


def test_after_a_failure_the_next_heartbeat_is_full_and_keeps_the_epoch() -> None:
    machine = stable()
    sent = heartbeat(machine, INTERVAL_S)
    machine.handle(shared.CoordinatorLoadInProgress(sent.request), INTERVAL_S)
    again = heartbeat(machine, machine.next_deadline())
    assert (again.epoch, again.topics, again.full) == (2, TOPICS, True)


def test_unknown_topics_are_read_once_their_names_are_known() -> None:
    machine, sent = joining()
    target = states.TargetAssignment((O0,), {PAYMENTS: (3,)})
    effects = responded(machine, sent, 2, target)
    only(effects, RefreshTopics)
    assert only(effects, ReplaceAssignment).partitions == (O0,)
    effects = machine.handle(events.TopicsResolved({PAYMENTS: "payments"}), 1.0)
    payment = TopicIdPartition(PAYMENTS, "payments", 3)
    assert only(effects, ReplaceAssignment).partitions == (O0, payment)


def test_closing_leaves_with_the_partitions() -> None:
    machine = stable()
    effects = machine.handle(shared.CloseRequested(50.0), 1.0)
    assert only(effects, ReplaceAssignment).partitions == ()
    leave = only(effects, SendLeaveEpoch)
    machine.handle(shared.GroupLeft(leave.request), 1.0)
    assert machine.is_closed


def test_a_member_without_polls_leaves_and_the_next_poll_joins_again() -> None:
    machine = stable()
    machine.context.poll_timer.last_poll = 0.0
    effects = machine.handle(shared.DeadlineReached(), 300.0)
    only(effects, LosePartitions)
    leave = only(effects, SendLeaveEpoch)
    machine.handle(shared.PollStarted(), 301.0)
    machine.handle(shared.GroupLeft(leave.request), 301.0)
    assert isinstance(machine.state, states.ConsumerJoining)
