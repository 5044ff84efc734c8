"""Errors of heartbeats: which are retried, for how long, and which end the membership."""

from __future__ import annotations

import pytest

from aiokafkawire.errors import KafkaError
from aiokafkawire.group.consumer_protocol import events, states
from aiokafkawire.group.consumer_protocol.effects import RaiseError, UseClassicProtocol
from aiokafkawire.group.consumer_protocol.machine import ConsumerProtocolMachine
from aiokafkawire.group.membership import events as shared
from aiokafkawire.group.membership import states as outside
from aiokafkawire.group.membership.effects import FindCoordinator, LogMessage, LosePartitions
from tests.group.consumer_protocol.test_machine import (
    INTERVAL_S,
    O0,
    O1,
    TOPICS,
    due,
    joined,
    machine_in,
    only,
    topic_partitions,
)

ERROR = KafkaError("refused")


def joining() -> ConsumerProtocolMachine:
    """Return a member that knows the coordinator and is about to join, at time 0."""
    machine = machine_in(outside.Unjoined())
    machine.handle(shared.Subscribed(TOPICS), 0.0)
    find = only(machine.handle(shared.DeadlineReached(), 0.0), FindCoordinator)
    machine.handle(shared.CoordinatorFound(find.request, 1), 0.0)
    return machine


@pytest.mark.parametrize("member", [joining, joined], ids=["joining", "member"])
def test_an_unknown_server_error_is_retried_for_the_api_timeout(member: object) -> None:
    machine = joining() if member is joining else joined()
    start = now = machine.next_deadline()
    logged = []
    while machine.error is None:
        heartbeat = due(machine, now)
        event = shared.UnknownServerErrorReceived(heartbeat.request, ERROR)
        effects = machine.handle(event, now)
        logged += [effect for effect in effects if isinstance(effect, LogMessage)]
        if machine.error is None:
            now = machine.next_deadline()
    assert 60.0 <= now - start < 63.0
    assert [message.text for message in logged] == [
        "heartbeat failed: refused; retrying for up to 60 s"
    ]
    assert machine.error is ERROR
    lost = [effect for effect in effects if isinstance(effect, LosePartitions)]
    assert bool(lost) == (member is joined)


def test_a_success_ends_a_series_of_unknown_server_errors() -> None:
    machine = joined()
    for now in (6.0, 70.0):
        heartbeat = due(machine, now)
        machine.handle(shared.UnknownServerErrorReceived(heartbeat.request, ERROR), now)
        again = due(machine, now + 1)
        machine.handle(events.HeartbeatResponded(again.request, 2, INTERVAL_S, None), now + 1)
    assert machine.error is None


def test_a_member_stays_when_it_may_not_see_a_topic() -> None:
    machine = joined()
    machine.handle(shared.Subscribed(("orders", "secret")), 2.0)
    for now in (2.0, 8.0):
        reported = due(machine, now)
        assert reported.topics == ("orders", "secret")
        effects = machine.handle(events.TopicsUnauthorized(reported.request, ERROR), now)
        assert effects == (RaiseError(ERROR),)
        assert machine.generation is not None
        alive = due(machine, now + 1)
        assert (alive.full, alive.topics, alive.owned) == (False, None, None)
        machine.handle(events.HeartbeatResponded(alive.request, 2, INTERVAL_S, None), now + 1)
        assert machine.next_deadline() == now + 1 + INTERVAL_S
    assert isinstance(machine.state, states.ConsumerStable)
    assert machine.state.owned == (O0, O1)


def test_a_corrected_subscription_is_reported_at_once() -> None:
    machine = joined()
    machine.handle(shared.Subscribed(("orders", "secret")), 2.0)
    refused = due(machine, 2.0)
    machine.handle(events.TopicsUnauthorized(refused.request, ERROR), 2.0)
    machine.handle(shared.Subscribed(TOPICS), 2.01)
    assert due(machine, 2.01).topics == TOPICS


def test_a_joining_member_that_may_not_see_a_topic_keeps_joining() -> None:
    machine = joining()
    join = due(machine, 0.0)
    effects = machine.handle(events.TopicsUnauthorized(join.request, ERROR), 0.0)
    assert effects == (RaiseError(ERROR),)
    again = due(machine, machine.next_deadline())
    assert (again.epoch, again.full, again.topics) == (0, True, TOPICS)


def test_only_a_member_that_never_joined_uses_the_classic_protocol() -> None:
    first, second = joining(), joined()
    for machine in (first, second):
        machine.context.may_fall_back = machine is first
        heartbeat = due(machine, 6.0)
        effects = machine.handle(events.ProtocolUnavailable(heartbeat.request, ERROR), 6.0)
        if machine is first:
            assert effects == (UseClassicProtocol(ERROR),)
            assert machine.is_closed
        else:
            assert only(effects, LosePartitions).partitions == topic_partitions(0, 1)
            assert machine.error is ERROR
