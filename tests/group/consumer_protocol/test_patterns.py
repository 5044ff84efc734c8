"""Patterns of topic names in heartbeats: sent once, kept apart from topics, removed by ""."""

from __future__ import annotations

from typing import Any

from aiokafkawire.errors import KafkaError
from aiokafkawire.group.consumer_protocol import events, states
from aiokafkawire.group.consumer_protocol.effects import RefreshTopics, SendConsumerHeartbeat
from aiokafkawire.group.membership import events as shared
from aiokafkawire.group.membership import states as outside
from aiokafkawire.group.membership.effects import FindCoordinator
from tests.group.consumer_protocol.test_machine import (
    INTERVAL_S,
    ORDERS,
    due,
    joined,
    machine_in,
    only,
)

ERROR = KafkaError("refused")


def sent(heartbeat: Any) -> tuple[Any, Any]:
    return heartbeat.topics, heartbeat.pattern


def test_a_pattern_is_sent_with_the_join_and_not_again() -> None:
    machine = machine_in(outside.Unjoined())
    machine.handle(shared.Subscribed((), "a.*"), 0.0)
    find = only(machine.handle(shared.DeadlineReached(), 0.0), FindCoordinator)
    machine.handle(shared.CoordinatorFound(find.request, 1), 0.0)
    join = due(machine, 0.0)
    assert sent(join) == ((), "a.*")
    nothing = states.TargetAssignment()
    machine.handle(events.HeartbeatResponded(join.request, 2, INTERVAL_S, nothing), 0.0)
    assert sent(due(machine, INTERVAL_S)) == (None, None)


def test_topics_remove_a_pattern_also_after_a_lost_response() -> None:
    machine = joined()
    machine.handle(shared.Subscribed((), "a.*"), 2.0)
    heartbeat = due(machine, 2.0)
    assert sent(heartbeat) == ((), "a.*")
    machine.handle(events.HeartbeatResponded(heartbeat.request, 2, INTERVAL_S, None), 2.0)
    machine.handle(shared.Subscribed(("orders",)), 3.0)
    heartbeat = due(machine, 3.0)
    assert sent(heartbeat) == (("orders",), "")
    machine.handle(shared.CoordinatorLoadInProgress(heartbeat.request), 3.0)
    full = due(machine, 4.0)
    assert (full.full, *sent(full)) == (True, ("orders",), "")


def test_a_member_without_a_pattern_never_sends_one() -> None:
    machine = joined()
    heartbeat = due(machine, 6.0)
    machine.handle(shared.CoordinatorLoadInProgress(heartbeat.request), 6.0)
    assert sent(due(machine, 7.0)) == (("orders",), None)


def test_the_metadata_is_refreshed_until_assigned_topics_are_known() -> None:
    machine = joined()
    heartbeat = due(machine, 6.0)
    target = states.TargetAssignment(unresolved={ORDERS: (0, 1), states.UUID(int=9): (0,)})
    machine.handle(events.HeartbeatResponded(heartbeat.request, 3, INTERVAL_S, target), 6.0)
    for now in (11.0, 16.0):
        effects = machine.handle(shared.DeadlineReached(), now)
        assert [type(effect) for effect in effects] == [SendConsumerHeartbeat, RefreshTopics]
        response = events.HeartbeatResponded(effects[0].request, 3, INTERVAL_S, None)  # type: ignore[attr-defined]
        machine.handle(response, now)
    new = {states.UUID(int=9): "new"}
    machine.handle(events.TopicsResolved(new), 17.0)
    assert isinstance(machine.state, states.ConsumerStable)
    assert [owned.topic for owned in machine.state.owned] == ["orders", "orders", "new"]
