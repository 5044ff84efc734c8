from __future__ import annotations

from aiokafkawire.group.membership import actions, events, states
from aiokafkawire.group.membership.effects import FindCoordinator, LosePartitions, SendJoin

from .machines import (
    GENERATION,
    HEARTBEAT,
    KNOWN,
    NODE,
    P0,
    REQUEST,
    TOPICS,
    machine,
    only,
)


def test_attempts_back_off_exponentially() -> None:
    membership = machine()
    membership.handle(events.Subscribed(TOPICS), 0.0)
    now, delays = 0.0, []
    for _ in range(8):
        assert isinstance(membership.state, states.FindingCoordinator)
        membership.handle(events.CoordinatorNotFound(membership.state.request), now)
        delays.append(membership.next_deadline() - now)
        assert membership.handle(events.DeadlineReached(), now) == ()
        now = membership.next_deadline()
        membership.handle(events.DeadlineReached(), now)
    for attempt, delay in enumerate(delays):
        assert 0.8 <= delay / min(0.1 * 2**attempt, 1.0) <= 1.2


def test_a_state_rejoins_with_its_member_id_and_generation() -> None:
    assert actions.join_identity(states.BackingOff(KNOWN, None, 1.0)) == KNOWN
    attempt = states.JoinAttempt("why", failures=4)
    assert actions.join_identity(
        states.Syncing(GENERATION, HEARTBEAT, REQUEST, attempt)
    ) == states.JoinIdentity(attempt, "me", 5)


def test_joining_without_a_coordinator_finds_it_first() -> None:
    _, effects = actions.join(machine().context, None, KNOWN)
    only(effects, FindCoordinator)
    _, effects = actions.join(machine().context, NODE, KNOWN)
    assert only(effects, SendJoin).member_id == "me"


def test_only_a_member_with_partitions_loses_partitions() -> None:
    assert actions.lose_partitions(states.PollTimedOut(), "why") == ()
    assert actions.lose_partitions(states.Stable(GENERATION, HEARTBEAT, ()), "why") == ()
    (lost,) = actions.lose_partitions(states.Stable(GENERATION, HEARTBEAT, (P0,)), "why")
    assert lost == LosePartitions((P0,), "why")
