from __future__ import annotations

from aiokafkawire.group import effects as do
from aiokafkawire.group import events as on
from aiokafkawire.group import states as s
from aiokafkawire.group import steps

from .machines import (
    GENERATION,
    KNOWN,
    NODE,
    P0,
    PULSE,
    REQUEST,
    TOPICS,
    machine,
    only,
)


def test_attempts_back_off_exponentially() -> None:
    membership = machine()
    membership.handle(on.Subscribed(TOPICS), 0.0)
    now, delays = 0.0, []
    for _ in range(8):
        assert isinstance(membership.state, s.FindingCoordinator)
        membership.handle(on.CoordinatorMissing(membership.state.request), now)
        delays.append(membership.next_deadline() - now)
        assert membership.handle(on.Tick(), now) == ()
        now = membership.next_deadline()
        membership.handle(on.Tick(), now)
    for attempt, delay in enumerate(delays):
        assert 0.8 <= delay / min(0.1 * 2**attempt, 1.0) <= 1.2


def test_as_whom_a_state_would_join_again() -> None:
    assert steps.identity_of(s.Lapsed()) == s.NOBODY
    assert steps.identity_of(s.BackingOff(KNOWN, None, 1.0)) == KNOWN
    assert steps.identity_of(s.Syncing(GENERATION, PULSE, REQUEST, 4)) == s.Identity("me", 5, 4)
    assert steps.identity_of(s.Stable(GENERATION, PULSE, (P0,))) == s.Identity("me", 5, 0)


def test_joining_without_a_coordinator_looks_for_it_first() -> None:
    _, effects = steps.join(machine(), None, KNOWN)
    only(effects, do.FindCoordinator)
    _, effects = steps.join(machine(), NODE, KNOWN)
    assert only(effects, do.SendJoin).member_id == "me"


def test_only_an_owner_can_lose_something() -> None:
    assert steps.lose(s.Lapsed(), "why") == ()
    assert steps.lose(s.Stable(GENERATION, PULSE, ()), "why") == ()
    (lost,) = steps.lose(s.Stable(GENERATION, PULSE, (P0,)), "why")
    assert lost == do.LosePartitions((P0,), "why")
