from __future__ import annotations

from typing import Any

import pytest

from aiokafkawire.errors import FencedInstanceId
from aiokafkawire.group import effects as do
from aiokafkawire.group import events as on
from aiokafkawire.group import states as s
from aiokafkawire.group.leaving import MAX_SETTLING_S

from .machines import (
    ERROR,
    GENERATION,
    MEMBERS,
    P0,
    P1,
    PULSE,
    PULSE_REQUEST,
    REQUEST,
    TOPICS,
    addressed,
    joining,
    keeper,
    machine,
    only,
    resyncing,
    stable,
)


def test_a_fenced_instance_is_told_apart() -> None:
    membership = stable(group_instance_id="static")
    beat = only(membership.handle(on.Tick(), 3.0), do.SendHeartbeat)
    effects = membership.handle(on.InstanceFenced(beat.request, ERROR), 3.0)
    only(effects, do.LosePartitions)
    assert isinstance(membership.error, FencedInstanceId)
    assert "'static'" in str(membership.error)


def test_closing_revokes_then_leaves() -> None:
    membership = stable()
    revoke = only(membership.handle(on.Closing(20.0), 1.0), do.RevokePartitions)
    leave = only(membership.handle(on.Revoked(revoke.request), 2.0), do.SendLeave)
    assert leave.member_id == "me"
    membership.handle(on.LeftGroup(leave.request), 3.0)
    assert membership.done


def test_a_static_member_does_not_leave() -> None:
    membership = stable(group_instance_id="static")
    revoke = only(membership.handle(on.Closing(20.0), 1.0), do.RevokePartitions)
    assert membership.handle(on.Revoked(revoke.request), 2.0) == ()
    assert membership.done


@pytest.mark.parametrize(
    "answer",
    [
        on.MemberIdAssigned(0, "me"),
        on.JoinedAsFollower(0, "me", 1, "range"),
        on.JoinedAsLeader(0, "me", 1, "range", MEMBERS),
    ],
)
def test_closing_before_the_member_id_is_known_waits_for_it(answer: Any) -> None:
    membership, _ = joining()
    assert membership.handle(on.Closing(20.0), 1.0) == ()
    assert membership.next_deadline() == 20.0
    leave = only(membership.handle(addressed(answer, membership.state), 2.0), do.SendLeave)
    assert leave.member_id == "me"


def test_closing_ends_at_its_deadline() -> None:
    for state in (s.AwaitingIdentity(1, s.After.CLOSE, 20.0), s.Leaving(1, s.After.CLOSE, 20.0)):
        membership = machine(state)
        membership.handle(on.Tick(), 19.9)
        assert not membership.done
        membership.handle(on.Tick(), 20.0)
        assert membership.done


def test_subscribing_again_while_leaving_joins_afterwards() -> None:
    membership = stable()
    revoke = only(membership.handle(on.Unsubscribed(), 1.0), do.RevokePartitions)
    leave = only(membership.handle(on.Revoked(revoke.request), 2.0), do.SendLeave)
    membership.handle(on.Subscribed(("payments",)), 2.0)
    only(membership.handle(on.LeftGroup(leave.request), 3.0), do.FindCoordinator)
    assert membership.topics == ("payments",)


def test_unsubscribing_after_a_failure_allows_another_try() -> None:
    membership = machine(s.Failed(ERROR))
    membership.handle(on.Unsubscribed(), 0.0)
    assert membership.error is None
    only(membership.handle(on.Subscribed(TOPICS), 0.0), do.FindCoordinator)


def test_a_call_after_the_failure_was_told_tries_anew() -> None:
    membership = machine(s.Failed(ERROR))
    assert membership.handle(on.ApplicationEntered(), 0.0) == ()
    membership.handle(on.Told(), 0.0)
    assert membership.error is ERROR
    only(membership.handle(on.ApplicationEntered(), 1.0), do.FindCoordinator)
    assert membership.error is None


def test_a_fenced_member_does_not_come_back_by_itself() -> None:
    membership = machine(s.Fenced(ERROR))
    membership.handle(on.Told(), 0.0)
    assert membership.handle(on.ApplicationEntered(), 0.0) == ()
    assert membership.error is ERROR


def test_a_goodbye_is_not_waited_for_long() -> None:
    membership = machine(s.Stable(GENERATION, PULSE, ()))
    leave = only(membership.handle(on.Closing(30.0), 1.0), do.SendLeave)
    assert leave.deadline == membership.next_deadline() < 2.0
    assert "closed" in leave.reason


def test_a_static_member_that_is_closed_while_it_joins_is_gone_at_once() -> None:
    membership, _ = joining(group_instance_id="static")
    assert membership.handle(on.Closing(30.0), 1.0) == ()
    assert membership.done


def test_a_keeper_that_is_closed_lets_the_rebalance_end_so_that_it_can_commit() -> None:
    membership, sync = resyncing()
    assert membership.handle(on.Closing(30.0), 4.0) == ()
    effects = membership.handle(on.Synced(sync.request, (P1,)), 4.1)
    assert only(effects, do.RevokePartitions).partitions == (P0, P1)
    assert membership.generation is not None
    assert membership.generation.number == 2
    revoked = on.Revoked(membership.state.request)  # type: ignore[attr-defined]
    only(membership.handle(revoked, 4.2), do.SendLeave)


def test_a_keeper_that_is_closed_does_not_wait_long_for_the_rebalance() -> None:
    membership, _ = keeper()
    membership.handle(on.Closing(30.0), 4.0)
    now = membership.next_deadline()
    assert 4.0 < now < 5.0
    effects = membership.handle(on.Tick(), now)
    assert only(effects, do.RevokePartitions).partitions == (P0, P1)


def test_a_keeper_about_to_leave_is_not_woken_for_an_application_that_is_away() -> None:
    membership, _ = keeper()
    membership.presence.allowance_s = 3.2
    membership.handle(on.Closing(30.0), 3.1)
    assert membership.next_deadline() == pytest.approx(3.1 + MAX_SETTLING_S)


def test_unsubscribing_and_then_closing_a_keeper_closes_it() -> None:
    membership, _ = keeper()
    membership.handle(on.Unsubscribed(), 4.0)
    membership.handle(on.Closing(30.0), 4.1)
    effects = membership.handle(on.Tick(), 5.0)
    revoke = only(effects, do.RevokePartitions)
    leave = only(membership.handle(on.Revoked(revoke.request), 5.0), do.SendLeave)
    membership.handle(on.LeftGroup(leave.request), 5.0)
    assert membership.done


@pytest.mark.parametrize("event", [on.InstanceFenced, on.Refused])
@pytest.mark.parametrize("keeps", [False, True])
def test_a_member_that_is_being_closed_ends_however_its_membership_ends(
    event: Any, keeps: bool
) -> None:
    if keeps:
        membership, _ = keeper()
        membership.handle(on.Closing(30.0), 4.0)
        beat = only(
            membership.handle(on.Doubted(), 4.0) or membership.handle(on.Tick(), 4.0),
            do.SendHeartbeat,
        )
        request = beat.request
    else:
        membership = machine(s.Revoking(GENERATION, PULSE, (P0,), (P0,), REQUEST, s.After.CLOSE))
        request = PULSE_REQUEST
    effects = membership.handle(event(request, ERROR), 4.1)
    only(effects, do.LosePartitions)
    assert membership.done


def test_what_is_left_goes_too_when_the_member_is_closed_while_it_gives_something_back() -> None:
    state = s.Revoking(GENERATION, PULSE, (P0, P1), (P0,), REQUEST, s.After.JOIN)
    membership = machine(state, cooperative=True)
    membership.handle(on.Closing(30.0), 1.0)
    revoke = only(membership.handle(on.Revoked(REQUEST), 2.0), do.RevokePartitions)
    assert revoke.partitions == (P1,)
    only(membership.handle(on.Revoked(revoke.request), 3.0), do.SendLeave)
