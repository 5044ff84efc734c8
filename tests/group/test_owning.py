from __future__ import annotations

from typing import Any

import pytest

from aiokafkawire.group import effects as do
from aiokafkawire.group import events as on
from aiokafkawire.group import states as s

from .machines import (
    GENERATION,
    NODE,
    P0,
    P1,
    PULSE,
    PULSE_REQUEST,
    REQUEST,
    beaten,
    machine,
    only,
    stable,
)


def test_heartbeats_come_at_their_interval_one_at_a_time() -> None:
    membership = stable()
    assert membership.handle(on.Tick(), 2.9) == ()
    assert membership.next_deadline() == 3.0
    beat = only(membership.handle(on.Tick(), 3.0), do.SendHeartbeat)
    assert (beat.node, beat.generation.member_id, beat.deadline) == (NODE, "me", 45.0)
    assert membership.handle(on.Tick(), 10.0) == ()
    membership.handle(on.HeartbeatAnswered(beat.request), 10.0)
    assert membership.next_deadline() == 13.0


def test_heartbeats_go_on_at_the_coordinator_that_is_found_anew() -> None:
    membership = stable()
    beat = only(membership.handle(on.Tick(), 3.0), do.SendHeartbeat)
    assert membership.handle(on.CoordinatorLost(beat.request), 3.0) == (do.ForgetCoordinator(),)
    now = membership.next_deadline()
    find = only(membership.handle(on.Tick(), now), do.FindCoordinator)
    membership.handle(on.CoordinatorFound(find.request, 8), now)
    assert only(membership.handle(on.Tick(), now), do.SendHeartbeat).node == 8
    assert isinstance(membership.state, s.Stable)


def test_a_coordinator_that_is_silent_for_a_session_is_looked_for_anew() -> None:
    membership = stable()
    first = only(membership.handle(on.Tick(), 3.0), do.SendHeartbeat)
    assert membership.next_deadline() == 45.0
    effects = membership.handle(on.Tick(), 45.0)
    assert do.ForgetCoordinator() in effects
    only(effects, do.FindCoordinator)
    assert membership.handle(on.MemberUnknown(first.request), 45.0) == ()
    assert isinstance(membership.state, s.Stable)


def test_a_revocation_waits_for_the_application() -> None:
    membership = stable()
    beat = only(membership.handle(on.Tick(), 3.0), do.SendHeartbeat)
    effects = membership.handle(on.RebalanceBegan(beat.request), 3.0)
    assert effects == (do.Interrupt(),)
    assert isinstance(membership.state, s.RevocationDue)
    assert membership.generation is not None
    only(membership.handle(on.Tick(), 6.0), do.SendHeartbeat)  # still at work, still alive
    revoke = only(membership.handle(on.ApplicationEntered(), 6.5), do.RevokePartitions)
    assert revoke.partitions == (P0, P1)
    join = only(membership.handle(on.Revoked(revoke.request), 7.0), do.SendJoin)
    assert join.member_id == "me"
    assert membership.generation is None


def test_a_revocation_begins_at_once_while_the_application_waits() -> None:
    membership = stable()
    membership.presence.enter(1.0)
    beat = only(membership.handle(on.Tick(), 3.0), do.SendHeartbeat)
    effects = membership.handle(on.RebalanceBegan(beat.request), 3.0)
    assert only(effects, do.RevokePartitions).partitions == (P0, P1)


def test_a_member_without_partitions_rejoins_at_once() -> None:
    membership = machine(s.Stable(GENERATION, PULSE, ()))
    effects = membership.handle(on.RebalanceBegan(PULSE_REQUEST), 3.0)
    assert only(effects, do.SendJoin).member_id == "me"


@pytest.mark.parametrize("due", [False, True])
def test_an_application_that_stays_away_loses_its_partitions(due: bool) -> None:
    membership = stable()
    if due:
        membership.handle(on.Rejoin("more partitions"), 0.0)
    beaten(membership, until=290.0)
    assert membership.next_deadline() <= 300.0
    effects = membership.handle(on.Tick(), 300.0)
    assert only(effects, do.LosePartitions).partitions == (P0, P1)
    assert only(effects, do.SendLeave).member_id == "me"
    assert isinstance(membership.state, s.Lapsed)
    assert membership.generation is None
    only(membership.handle(on.ApplicationEntered(), 301.0), do.FindCoordinator)


def test_an_application_inside_a_call_is_never_away() -> None:
    membership = stable()
    membership.presence.enter(1.0)
    beaten(membership, until=1_000.0)
    assert isinstance(membership.state, s.Stable)
    membership.presence.leave(1_000.0)
    assert membership.presence.deadline == 1_300.0


@pytest.mark.parametrize(
    ("event", "member_id"), [(on.MemberUnknown, ""), (on.GenerationOutdated, "me")]
)
def test_a_member_that_is_thrown_out_loses_its_partitions(event: Any, member_id: str) -> None:
    membership = stable()
    beat = only(membership.handle(on.Tick(), 3.0), do.SendHeartbeat)
    effects = membership.handle(event(beat.request), 3.0)
    assert only(effects, do.LosePartitions).partitions == (P0, P1)
    join = only(membership.handle(on.Tick(), membership.next_deadline()), do.SendJoin)
    assert join.member_id == member_id


def test_partitions_lost_while_they_are_revoked_end_with_a_fresh_join() -> None:
    membership = machine(s.Revoking(GENERATION, PULSE, (P0,), (P0,), REQUEST, s.After.JOIN))
    membership.handle(on.MemberUnknown(PULSE_REQUEST), 1.0)
    assert membership.next_deadline() == float("inf")
    join = only(membership.handle(on.Revoked(REQUEST), 2.0), do.SendJoin)
    assert join.member_id == ""


def test_a_refused_commit_brings_the_next_heartbeat_forward() -> None:
    membership = stable()
    membership.handle(on.Doubted(), 1.0)
    assert only(membership.handle(on.Tick(), 1.0), do.SendHeartbeat).node == NODE
