from __future__ import annotations

from typing import Any

import pytest

from aiokafkawire.errors import FencedInstanceId
from aiokafkawire.group.membership import events, states
from aiokafkawire.group.membership.effects import (
    FindCoordinator,
    LosePartitions,
    RevokePartitions,
    SendHeartbeat,
    SendJoin,
    SendLeave,
)
from aiokafkawire.group.membership.leaving import LEAVE_DURING_REBALANCE_TIMEOUT_S

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
    as_response,
    cooperative_rejoin,
    joining,
    machine,
    only,
    resyncing,
    stable,
)


def test_a_fenced_instance_has_its_own_error() -> None:
    membership = stable(group_instance_id="static")
    heartbeat = only(membership.handle(events.DeadlineReached(), 3.0), SendHeartbeat)
    effects = membership.handle(events.InstanceFenced(heartbeat.request, ERROR), 3.0)
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
def test_closing_waits_for_the_member_id(answer: Any) -> None:
    membership, _ = joining()
    assert membership.handle(events.CloseRequested(20.0), 1.0) == ()
    assert membership.next_deadline() == 20.0
    leave = only(membership.handle(as_response(answer, membership.state), 2.0), SendLeave)
    assert leave.member_id == "me"


def test_closing_ends_at_the_deadline() -> None:
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
    assert membership.context.topics == ("payments",)


def test_unsubscribing_after_a_failure_allows_a_retry() -> None:
    membership = machine(states.JoinFailed(ERROR))
    membership.handle(events.Unsubscribed(), 0.0)
    assert membership.error is None
    only(membership.handle(events.Subscribed(TOPICS), 0.0), FindCoordinator)


def test_a_poll_after_the_error_was_reported_retries() -> None:
    membership = machine(states.JoinFailed(ERROR))
    assert membership.handle(events.PollStarted(), 0.0) == ()
    membership.handle(events.GroupErrorReported(), 0.0)
    assert membership.error is ERROR
    find = only(membership.handle(events.PollStarted(), 1.0), FindCoordinator)
    assert membership.error is None
    join = only(membership.handle(events.CoordinatorFound(find.request, 7), 1.0), SendJoin)
    assert join.reason == "the last attempt failed"


def test_a_static_member_that_must_rejoin_remembers_it_through_failures() -> None:
    ended = states.PollTimedOut(must_rejoin=True)
    membership = machine(ended, group_instance_id="static", cooperative=True)
    membership.handle(events.PollStarted(), 0.0)
    assert isinstance(membership.state, states.FindingCoordinator)
    membership.handle(events.FatalErrorOccurred(membership.state.request, ERROR), 0.0)
    assert membership.state == states.JoinFailed(ERROR, must_rejoin=True)
    membership.handle(events.Unsubscribed(), 1.0)
    assert membership.state == states.Unjoined(must_rejoin=True)
    membership.handle(events.Subscribed(TOPICS), 2.0)
    assert isinstance(membership.state, states.FindingCoordinator)
    assert membership.state.identity.attempt.must_rejoin


@pytest.mark.parametrize("must_rejoin", [False, True])
def test_a_static_member_that_must_rejoin_leaves_if_it_is_closed_instead(must_rejoin: bool) -> None:
    timed_out = states.PollTimedOut(must_rejoin, "me")
    membership = machine(timed_out, group_instance_id="static", cooperative=True)
    effects = membership.handle(events.CloseRequested(30.0), 1.0)
    if must_rejoin:
        assert only(effects, SendLeave).member_id == "me"
    else:
        assert effects == ()
        assert membership.is_closed


@pytest.mark.parametrize("must_rejoin", [False, True])
def test_a_static_member_that_must_rejoin_leaves_with_its_new_member_id(must_rejoin: bool) -> None:
    timed_out = states.PollTimedOut(must_rejoin, "me")
    membership = machine(timed_out, group_instance_id="static", cooperative=True)
    find = only(membership.handle(events.PollStarted(), 0.0), FindCoordinator)
    join = only(membership.handle(events.CoordinatorFound(find.request, 7), 0.0), SendJoin)
    assert membership.handle(events.CloseRequested(30.0), 1.0) == ()
    assert membership.is_closed is not must_rejoin
    joined = events.JoinedAsFollower(join.request, "new", 1, "cooperative-sticky")
    effects = membership.handle(joined, 1.1)
    assert [effect.member_id for effect in effects] == ["new"] * must_rejoin


def test_a_static_member_that_must_rejoin_waits_only_briefly_for_its_new_member_id() -> None:
    in_flight = states.Joining(
        states.JoinIdentity(states.JoinAttempt("", must_rejoin=True)), 7, TOPICS, REQUEST
    )
    membership = machine(in_flight, group_instance_id="static", cooperative=True)
    membership.handle(events.CloseRequested(30.0), 1.0)
    assert membership.next_deadline() == pytest.approx(1.0 + LEAVE_DURING_REBALANCE_TIMEOUT_S)
    membership.handle(events.DeadlineReached(), membership.next_deadline())
    assert membership.is_closed


@pytest.mark.parametrize("instance_id", [None, "static"])
def test_a_closing_member_that_missed_a_generation_leaves(instance_id: str | None) -> None:
    membership, join = cooperative_rejoin(instance_id)
    membership.handle(events.CloseRequested(30.0), 3.1)
    joined = events.JoinedAsFollower(join.request, "me", 3, "cooperative-sticky")
    effects = membership.handle(joined, 3.2)
    assert only(effects, LosePartitions).partitions == (P0, P1)
    leave = only(effects, SendLeave)
    assert leave.member_id == "me"
    membership.handle(events.GroupLeft(leave.request), 3.3)
    assert membership.is_closed


def test_a_fenced_member_does_not_rejoin() -> None:
    membership = machine(states.Fenced(ERROR))
    membership.handle(events.GroupErrorReported(), 0.0)
    assert membership.handle(events.PollStarted(), 0.0) == ()
    assert membership.error is ERROR


def test_closing_waits_only_briefly_for_the_leave_response() -> None:
    membership = machine(states.Stable(GENERATION, HEARTBEAT, ()))
    leave = only(membership.handle(events.CloseRequested(30.0), 1.0), SendLeave)
    assert leave.deadline == membership.next_deadline() < 2.0
    assert "closed" in leave.reason


def test_a_static_member_closed_during_join_closes_immediately() -> None:
    membership, _ = joining(group_instance_id="static")
    assert membership.handle(events.CloseRequested(30.0), 1.0) == ()
    assert membership.is_closed


def test_closing_during_a_cooperative_rejoin_waits_for_the_rebalance_to_commit() -> None:
    membership, sync = resyncing()
    assert membership.handle(events.CloseRequested(30.0), 4.0) == ()
    effects = membership.handle(events.Synced(sync.request, (P1,)), 4.1)
    assert only(effects, RevokePartitions).partitions == (P0, P1)
    assert membership.generation is not None
    assert membership.generation.number == 2
    revoked = events.PartitionsRevoked(membership.state.request)  # type: ignore[attr-defined]
    only(membership.handle(revoked, 4.2), SendLeave)


def test_closing_during_a_cooperative_rejoin_waits_only_briefly() -> None:
    membership, _ = cooperative_rejoin()
    membership.handle(events.CloseRequested(30.0), 4.0)
    now = membership.next_deadline()
    assert 4.0 < now < 5.0
    effects = membership.handle(events.DeadlineReached(), now)
    assert only(effects, RevokePartitions).partitions == (P0, P1)


def test_the_poll_timer_does_not_matter_with_a_pending_leave() -> None:
    membership, _ = cooperative_rejoin()
    membership.context.poll_timer.interval_s = 3.2
    membership.handle(events.CloseRequested(30.0), 3.1)
    assert membership.next_deadline() == pytest.approx(3.1 + LEAVE_DURING_REBALANCE_TIMEOUT_S)


def test_closing_after_unsubscribing_in_a_cooperative_rejoin_closes() -> None:
    membership, _ = cooperative_rejoin()
    membership.handle(events.Unsubscribed(), 4.0)
    membership.handle(events.CloseRequested(30.0), 4.1)
    effects = membership.handle(events.DeadlineReached(), 5.0)
    revoke = only(effects, RevokePartitions)
    leave = only(membership.handle(events.PartitionsRevoked(revoke.request), 5.0), SendLeave)
    membership.handle(events.GroupLeft(leave.request), 5.0)
    assert membership.is_closed


@pytest.mark.parametrize("event", [events.InstanceFenced, events.FatalErrorOccurred])
@pytest.mark.parametrize("keeps", [False, True])
def test_a_closing_member_closes_when_its_membership_ends(event: Any, keeps: bool) -> None:
    if keeps:
        membership, _ = cooperative_rejoin()
        membership.handle(events.CloseRequested(30.0), 4.0)
        heartbeat = only(
            membership.handle(events.CommitRejected(), 4.0)
            or membership.handle(events.DeadlineReached(), 4.0),
            SendHeartbeat,
        )
        request = heartbeat.request
    else:
        membership = machine(
            states.Revoking(GENERATION, HEARTBEAT, (P0,), (P0,), REQUEST, states.NextAction.CLOSE)
        )
        request = HEARTBEAT_REQUEST
    effects = membership.handle(event(request, ERROR), 4.1)
    only(effects, LosePartitions)
    assert membership.is_closed


def test_closing_during_a_partial_revocation_revokes_the_rest() -> None:
    state = states.Revoking(GENERATION, HEARTBEAT, (P0, P1), (P0,), REQUEST, states.NextAction.JOIN)
    membership = machine(state, cooperative=True)
    membership.handle(events.CloseRequested(30.0), 1.0)
    revoke = only(membership.handle(events.PartitionsRevoked(REQUEST), 2.0), RevokePartitions)
    assert revoke.partitions == (P1,)
    only(membership.handle(events.PartitionsRevoked(revoke.request), 3.0), SendLeave)


@pytest.mark.parametrize(
    ("operation", "instance_id", "leaves"),
    [
        ("default", None, True),
        ("default", "a", False),
        ("leave_group", None, True),
        ("leave_group", "a", True),
        ("remain_in_group", None, False),
        ("remain_in_group", "a", False),
    ],
)
def test_the_operation_of_a_close_decides_whether_the_member_leaves(
    operation: Any, instance_id: str | None, leaves: bool
) -> None:
    membership = stable(group_instance_id=instance_id)
    revoke = only(membership.handle(events.CloseRequested(20.0, operation), 1.0), RevokePartitions)
    effects = membership.handle(events.PartitionsRevoked(revoke.request), 2.0)
    assert [type(effect) for effect in effects] == ([SendLeave] if leaves else [])
    assert membership.is_closed is not leaves
