from __future__ import annotations

from typing import Any

import pytest

from aiokafkawire.errors import FencedInstanceId
from aiokafkawire.group import events, states
from aiokafkawire.group.effects import (
    FindCoordinator,
    LosePartitions,
    RevokePartitions,
    SendHeartbeat,
    SendLeave,
)
from aiokafkawire.group.leaving import LEAVE_DURING_REBALANCE_TIMEOUT_S

from .machines import (
    ERROR,
    GENERATION,
    HEARTBEAT,
    HEARTBEAT_REQUEST,
    MEMBERS,
    P0,
    P1,
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
    beat = only(membership.handle(events.DeadlineReached(), 3.0), SendHeartbeat)
    effects = membership.handle(events.InstanceFenced(beat.request, ERROR), 3.0)
    only(effects, LosePartitions)
    assert isinstance(membership.error, FencedInstanceId)
    assert "'static'" in str(membership.error)


def test_closing_revokes_then_leaves() -> None:
    membership = stable()
    revoke = only(membership.handle(events.CloseRequested(20.0), 1.0), RevokePartitions)
    leave = only(membership.handle(events.PartitionsRevoked(revoke.request), 2.0), SendLeave)
    assert leave.member_id == "me"
    membership.handle(events.GroupLeft(leave.request), 3.0)
    assert membership.is_closed


def test_a_static_member_does_not_leave() -> None:
    membership = stable(group_instance_id="static")
    revoke = only(membership.handle(events.CloseRequested(20.0), 1.0), RevokePartitions)
    assert membership.handle(events.PartitionsRevoked(revoke.request), 2.0) == ()
    assert membership.is_closed


@pytest.mark.parametrize(
    "answer",
    [
        events.MemberIdAssigned(0, "me"),
        events.JoinedAsFollower(0, "me", 1, "range"),
        events.JoinedAsLeader(0, "me", 1, "range", MEMBERS),
    ],
)
def test_closing_before_the_member_id_is_known_waits_for_it(answer: Any) -> None:
    membership, _ = joining()
    assert membership.handle(events.CloseRequested(20.0), 1.0) == ()
    assert membership.next_deadline() == 20.0
    leave = only(membership.handle(addressed(answer, membership.state), 2.0), SendLeave)
    assert leave.member_id == "me"


def test_closing_ends_at_its_deadline() -> None:
    for state in (
        states.AwaitingMemberId(1, states.NextAction.CLOSE, 20.0),
        states.Leaving(1, states.NextAction.CLOSE, 20.0),
    ):
        membership = machine(state)
        membership.handle(events.DeadlineReached(), 19.9)
        assert not membership.is_closed
        membership.handle(events.DeadlineReached(), 20.0)
        assert membership.is_closed


def test_subscribing_again_while_leaving_joins_afterwards() -> None:
    membership = stable()
    revoke = only(membership.handle(events.Unsubscribed(), 1.0), RevokePartitions)
    leave = only(membership.handle(events.PartitionsRevoked(revoke.request), 2.0), SendLeave)
    membership.handle(events.Subscribed(("payments",)), 2.0)
    only(membership.handle(events.GroupLeft(leave.request), 3.0), FindCoordinator)
    assert membership.topics == ("payments",)


def test_unsubscribing_after_a_failure_allows_another_try() -> None:
    membership = machine(states.JoinFailed(ERROR))
    membership.handle(events.Unsubscribed(), 0.0)
    assert membership.error is None
    only(membership.handle(events.Subscribed(TOPICS), 0.0), FindCoordinator)


def test_a_call_after_the_failure_was_told_tries_anew() -> None:
    membership = machine(states.JoinFailed(ERROR))
    assert membership.handle(events.PollStarted(), 0.0) == ()
    membership.handle(events.ErrorReported(), 0.0)
    assert membership.error is ERROR
    only(membership.handle(events.PollStarted(), 1.0), FindCoordinator)
    assert membership.error is None


def test_a_fenced_member_does_not_come_back_by_itself() -> None:
    membership = machine(states.Fenced(ERROR))
    membership.handle(events.ErrorReported(), 0.0)
    assert membership.handle(events.PollStarted(), 0.0) == ()
    assert membership.error is ERROR


def test_a_goodbye_is_not_waited_for_long() -> None:
    membership = machine(states.Stable(GENERATION, HEARTBEAT, ()))
    leave = only(membership.handle(events.CloseRequested(30.0), 1.0), SendLeave)
    assert leave.deadline == membership.next_deadline() < 2.0
    assert "closed" in leave.reason


def test_a_static_member_that_is_closed_while_it_joins_is_gone_at_once() -> None:
    membership, _ = joining(group_instance_id="static")
    assert membership.handle(events.CloseRequested(30.0), 1.0) == ()
    assert membership.is_closed


def test_a_keeper_that_is_closed_lets_the_rebalance_end_so_that_it_can_commit() -> None:
    membership, sync = resyncing()
    assert membership.handle(events.CloseRequested(30.0), 4.0) == ()
    effects = membership.handle(events.Synced(sync.request, (P1,)), 4.1)
    assert only(effects, RevokePartitions).partitions == (P0, P1)
    assert membership.generation is not None
    assert membership.generation.number == 2
    revoked = events.PartitionsRevoked(membership.state.request)  # type: ignore[attr-defined]
    only(membership.handle(revoked, 4.2), SendLeave)


def test_a_keeper_that_is_closed_does_not_wait_long_for_the_rebalance() -> None:
    membership, _ = keeper()
    membership.handle(events.CloseRequested(30.0), 4.0)
    now = membership.next_deadline()
    assert 4.0 < now < 5.0
    effects = membership.handle(events.DeadlineReached(), now)
    assert only(effects, RevokePartitions).partitions == (P0, P1)


def test_a_keeper_about_to_leave_is_not_woken_for_an_application_that_is_away() -> None:
    membership, _ = keeper()
    membership.poll_timer.interval_s = 3.2
    membership.handle(events.CloseRequested(30.0), 3.1)
    assert membership.next_deadline() == pytest.approx(3.1 + LEAVE_DURING_REBALANCE_TIMEOUT_S)


def test_unsubscribing_and_then_closing_a_keeper_closes_it() -> None:
    membership, _ = keeper()
    membership.handle(events.Unsubscribed(), 4.0)
    membership.handle(events.CloseRequested(30.0), 4.1)
    effects = membership.handle(events.DeadlineReached(), 5.0)
    revoke = only(effects, RevokePartitions)
    leave = only(membership.handle(events.PartitionsRevoked(revoke.request), 5.0), SendLeave)
    membership.handle(events.GroupLeft(leave.request), 5.0)
    assert membership.is_closed


@pytest.mark.parametrize("event", [events.InstanceFenced, events.FatalErrorOccurred])
@pytest.mark.parametrize("keeps", [False, True])
def test_a_member_that_is_being_closed_ends_however_its_membership_ends(
    event: Any, keeps: bool
) -> None:
    if keeps:
        membership, _ = keeper()
        membership.handle(events.CloseRequested(30.0), 4.0)
        beat = only(
            membership.handle(events.CommitRejected(), 4.0)
            or membership.handle(events.DeadlineReached(), 4.0),
            SendHeartbeat,
        )
        request = beat.request
    else:
        membership = machine(
            states.Revoking(GENERATION, HEARTBEAT, (P0,), (P0,), REQUEST, states.NextAction.CLOSE)
        )
        request = HEARTBEAT_REQUEST
    effects = membership.handle(event(request, ERROR), 4.1)
    only(effects, LosePartitions)
    assert membership.is_closed


def test_what_is_left_goes_too_when_the_member_is_closed_while_it_gives_something_back() -> None:
    state = states.Revoking(GENERATION, HEARTBEAT, (P0, P1), (P0,), REQUEST, states.NextAction.JOIN)
    membership = machine(state, cooperative=True)
    membership.handle(events.CloseRequested(30.0), 1.0)
    revoke = only(membership.handle(events.PartitionsRevoked(REQUEST), 2.0), RevokePartitions)
    assert revoke.partitions == (P1,)
    only(membership.handle(events.PartitionsRevoked(revoke.request), 3.0), SendLeave)
