from __future__ import annotations

from typing import Any

import pytest

from aiokafkawire.group.membership import events, states
from aiokafkawire.group.membership.effects import (
    AssignPartitions,
    EnterGeneration,
    FindCoordinator,
    ForgetCoordinator,
    InterruptPoll,
    LogMessage,
    LosePartitions,
    RevokePartitions,
    SendHeartbeat,
    SendJoin,
    SendLeave,
    SendSync,
)
from aiokafkawire.group.membership.joining import REVOKED_FOR_OTHERS

from .machines import (
    ERROR,
    GENERATION,
    HEARTBEAT,
    HEARTBEAT_REQUEST,
    NODE,
    P0,
    P1,
    REQUEST,
    answer_heartbeats,
    cooperative_rejoin,
    machine,
    only,
    resyncing,
    stable,
)


def test_heartbeats_are_sent_at_their_interval_one_at_a_time() -> None:
    membership = stable()
    assert membership.handle(events.DeadlineReached(), 2.9) == ()
    assert membership.next_deadline() == 3.0
    heartbeat = only(membership.handle(events.DeadlineReached(), 3.0), SendHeartbeat)
    assert (heartbeat.node, heartbeat.generation.member_id, heartbeat.deadline) == (
        NODE,
        "me",
        45.0,
    )
    assert membership.handle(events.DeadlineReached(), 10.0) == ()
    membership.handle(events.HeartbeatSucceeded(heartbeat.request), 10.0)
    assert membership.next_deadline() == 13.0


def test_heartbeats_continue_at_the_new_coordinator() -> None:
    membership = stable()
    heartbeat = only(membership.handle(events.DeadlineReached(), 3.0), SendHeartbeat)
    assert membership.handle(events.CoordinatorUnavailable(heartbeat.request), 3.0) == (
        ForgetCoordinator(),
    )
    now = membership.next_deadline()
    find = only(membership.handle(events.DeadlineReached(), now), FindCoordinator)
    membership.handle(events.CoordinatorFound(find.request, 8), now)
    assert only(membership.handle(events.DeadlineReached(), now), SendHeartbeat).node == 8
    assert isinstance(membership.state, states.Stable)


def test_an_unresponsive_coordinator_is_logged_once_and_so_is_its_recovery() -> None:
    membership = stable()
    only(membership.handle(events.DeadlineReached(), 3.0), SendHeartbeat)
    assign = only(membership.handle(events.DeadlineReached(), 45.0), LogMessage)
    assert assign.warning
    assert "whole session" in assign.text
    for now in (90.0, 135.0):
        effects = membership.handle(events.DeadlineReached(), now)
        assert not [effect for effect in effects if isinstance(effect, LogMessage)]
        assert ForgetCoordinator() in effects
        find = only(effects, FindCoordinator)
    membership.handle(events.CoordinatorFound(find.request, 8), 136.0)
    for now, notes in ((136.0, 1), (140.0, 0)):
        heartbeat = only(membership.handle(events.DeadlineReached(), now), SendHeartbeat)
        effects = membership.handle(events.HeartbeatSucceeded(heartbeat.request), now)
        assert len([effect for effect in effects if isinstance(effect, LogMessage)]) == notes


def test_a_session_timeout_without_response_finds_the_coordinator_again() -> None:
    membership = stable()
    first = only(membership.handle(events.DeadlineReached(), 3.0), SendHeartbeat)
    assert membership.next_deadline() == 45.0
    effects = membership.handle(events.DeadlineReached(), 45.0)
    assert ForgetCoordinator(unresponsive_node=NODE) in effects
    only(effects, FindCoordinator)
    assert membership.handle(events.UnknownMemberId(first.request), 45.0) == ()
    assert isinstance(membership.state, states.Stable)


def test_a_revocation_waits_for_the_next_poll() -> None:
    membership = stable()
    heartbeat = only(membership.handle(events.DeadlineReached(), 3.0), SendHeartbeat)
    effects = membership.handle(events.RebalanceInProgress(heartbeat.request), 3.0)
    assert effects == (LogMessage("rejoining: the group is rebalancing"), InterruptPoll())
    assert isinstance(membership.state, states.RevocationDue)
    assert membership.generation is not None
    only(
        membership.handle(events.DeadlineReached(), 6.0), SendHeartbeat
    )  # still processing, still a member
    revoke = only(membership.handle(events.PollStarted(), 6.5), RevokePartitions)
    assert revoke.partitions == (P0, P1)
    join = only(membership.handle(events.PartitionsRevoked(revoke.request), 7.0), SendJoin)
    assert join.member_id == "me"
    assert membership.generation is None


def test_a_revocation_starts_immediately_during_a_poll() -> None:
    membership = stable()
    membership.context.poll_timer.start_poll(1.0)
    heartbeat = only(membership.handle(events.DeadlineReached(), 3.0), SendHeartbeat)
    effects = membership.handle(events.RebalanceInProgress(heartbeat.request), 3.0)
    assert only(effects, RevokePartitions).partitions == (P0, P1)


def test_a_member_without_partitions_rejoins_immediately() -> None:
    membership = machine(states.Stable(GENERATION, HEARTBEAT, ()))
    effects = membership.handle(events.RebalanceInProgress(HEARTBEAT_REQUEST), 3.0)
    assert only(effects, SendJoin).member_id == "me"


@pytest.mark.parametrize("due", [False, True])
def test_an_application_that_does_not_poll_loses_its_partitions(due: bool) -> None:
    membership = stable()
    if due:
        membership.handle(events.RejoinRequested("more partitions"), 0.0)
    answer_heartbeats(membership, until=290.0)
    assert membership.next_deadline() <= 300.0
    effects = membership.handle(events.DeadlineReached(), 300.0)
    assert only(effects, LosePartitions).partitions == (P0, P1)
    assert only(effects, SendLeave).member_id == "me"
    assert isinstance(membership.state, states.PollTimedOut)
    assert membership.generation is None
    only(membership.handle(events.PollStarted(), 301.0), FindCoordinator)


def test_other_topics_do_not_make_a_member_rejoin_before_its_application_polls() -> None:
    membership = machine(states.PollTimedOut(must_rejoin=True))
    assert membership.handle(events.Subscribed(("payments",)), 300.0) == ()
    assert membership.state == states.PollTimedOut(must_rejoin=True)
    find = only(membership.handle(events.PollStarted(), 301.0), FindCoordinator)
    join = only(membership.handle(events.CoordinatorFound(find.request, 7), 301.0), SendJoin)
    assert join.topics == ("payments",)


def test_the_poll_timer_stops_during_a_poll() -> None:
    membership = stable()
    membership.context.poll_timer.start_poll(1.0)
    answer_heartbeats(membership, until=1_000.0)
    assert isinstance(membership.state, states.Stable)
    membership.context.poll_timer.finish_poll(1_000.0)
    assert membership.context.poll_timer.deadline == 1_300.0


@pytest.mark.parametrize(
    ("event", "member_id"), [(events.UnknownMemberId, ""), (events.IllegalGeneration, "me")]
)
def test_a_removed_member_loses_its_partitions(event: Any, member_id: str) -> None:
    membership = stable()
    heartbeat = only(membership.handle(events.DeadlineReached(), 3.0), SendHeartbeat)
    effects = membership.handle(event(heartbeat.request), 3.0)
    assert only(effects, LosePartitions).partitions == (P0, P1)
    join = only(membership.handle(events.DeadlineReached(), membership.next_deadline()), SendJoin)
    assert join.member_id == member_id


def test_partitions_lost_during_revocation_join_as_new_member() -> None:
    membership = machine(
        states.Revoking(GENERATION, HEARTBEAT, (P0,), (P0,), REQUEST, states.NextAction.JOIN)
    )
    membership.handle(events.UnknownMemberId(HEARTBEAT_REQUEST), 1.0)
    assert membership.next_deadline() == float("inf")
    join = only(membership.handle(events.PartitionsRevoked(REQUEST), 2.0), SendJoin)
    assert join.member_id == ""


def test_a_rejected_commit_sends_the_next_heartbeat_immediately() -> None:
    membership = stable()
    membership.handle(events.CommitRejected(), 1.0)
    assert only(membership.handle(events.DeadlineReached(), 1.0), SendHeartbeat).node == NODE


def test_a_heartbeat_with_unknown_server_error_is_logged_once_and_retried() -> None:
    membership = stable()
    heartbeat = only(membership.handle(events.DeadlineReached(), 3.0), SendHeartbeat)
    note = only(
        membership.handle(events.UnknownServerErrorReceived(heartbeat.request, ERROR), 3.0),
        LogMessage,
    )
    assert "heartbeat failed" in note.text
    now = membership.next_deadline()
    heartbeat = only(membership.handle(events.DeadlineReached(), now), SendHeartbeat)
    assert membership.handle(events.UnknownServerErrorReceived(heartbeat.request, ERROR), now) == ()
    assert isinstance(membership.state, states.Stable)


# --- members that keep their partitions -------------------------------------------------------


def test_a_cooperative_member_rejoins_immediately_with_its_partitions() -> None:
    membership, join = cooperative_rejoin()
    assert (join.member_id, join.generation, join.owned) == ("me", 1, (P0, P1))
    assert "rebalancing" in join.reason
    assert membership.generation is not None
    assert membership.generation.number == 1


def test_heartbeats_continue_while_the_rejoin_is_delayed() -> None:
    membership, _ = cooperative_rejoin()
    for _ in range(5):
        now = membership.next_deadline()
        heartbeat = only(membership.handle(events.DeadlineReached(), now), SendHeartbeat)
        assert heartbeat.generation.number == 1
        membership.handle(events.RebalanceInProgress(heartbeat.request), now)
    assert isinstance(membership.state, states.Rejoining)


def test_illegal_generation_for_a_heartbeat_before_the_join_response_is_ignored() -> None:
    membership, join = cooperative_rejoin()
    heartbeat = only(membership.handle(events.DeadlineReached(), 6.0), SendHeartbeat)
    assert membership.handle(events.IllegalGeneration(heartbeat.request), 6.0) == ()
    joined = events.JoinedAsFollower(join.request, "me", 2, "cooperative-sticky")
    only(membership.handle(joined, 6.0), SendSync)


def test_a_member_removed_during_its_rejoin_loses_all_partitions() -> None:
    membership, _ = cooperative_rejoin()
    heartbeat = only(membership.handle(events.DeadlineReached(), 6.0), SendHeartbeat)
    effects = membership.handle(events.UnknownMemberId(heartbeat.request), 6.0)
    assert only(effects, LosePartitions).partitions == (P0, P1)
    join = only(membership.handle(events.DeadlineReached(), membership.next_deadline()), SendJoin)
    assert (join.member_id, join.generation, join.owned) == ("", -1, ())


def test_only_partitions_to_revoke_wait_for_the_application() -> None:
    membership, sync = resyncing()
    effects = membership.handle(events.Synced(sync.request, (P1,)), 4.0)
    assert [type(effect) for effect in effects] == [EnterGeneration, InterruptPoll]
    assert effects[0].owned == (P0, P1)  # type: ignore[attr-defined]
    assert isinstance(membership.state, states.RevocationDue)
    revoke = only(membership.handle(events.PollStarted(), 5.0), RevokePartitions)
    assert revoke.partitions == (P0,)
    assign, join = membership.handle(events.PartitionsRevoked(revoke.request), 6.0)
    assert assign == AssignPartitions(())
    assert isinstance(join, SendJoin)
    assert (join.generation, join.owned) == (2, (P1,))
    assert "revoked" in join.reason


def test_new_partitions_are_assigned_after_the_revocation() -> None:
    third = P0._replace(partition=2)
    membership, sync = resyncing()
    membership.context.poll_timer.start_poll(3.5)
    effects = membership.handle(events.Synced(sync.request, (P1, third)), 4.0)
    revoke = only(effects, RevokePartitions)
    assert not any(isinstance(effect, AssignPartitions) for effect in effects)
    assign, join = membership.handle(events.PartitionsRevoked(revoke.request), 5.0)
    assert assign == AssignPartitions((third,))
    assert isinstance(join, SendJoin)
    assert join.owned == (P1, third)


def test_new_partitions_without_a_revocation_are_assigned_immediately() -> None:
    third = P0._replace(partition=2)
    membership, sync = resyncing()
    enter, assign = membership.handle(events.Synced(sync.request, (third, P1, P0)), 4.0)
    assert isinstance(enter, EnterGeneration)
    assert enter.owned == (P0, P1, third)
    assert assign == AssignPartitions((third,))
    assert isinstance(membership.state, states.Stable)


def test_another_rebalance_does_not_wait_for_a_due_revocation() -> None:
    membership, sync = resyncing()
    membership.handle(events.Synced(sync.request, (P1,)), 4.0)
    heartbeat = only(membership.handle(events.DeadlineReached(), 7.0), SendHeartbeat)
    join = only(membership.handle(events.RebalanceInProgress(heartbeat.request), 7.0), SendJoin)
    assert (join.generation, join.owned) == (2, (P0, P1))


def test_unsubscribed_topics_are_revoked_before_the_rejoin() -> None:
    membership = stable(cooperative=True)
    effects = membership.handle(events.Subscribed(("payments",)), 1.0)
    assert effects == (InterruptPoll(),)
    assert isinstance(membership.state, states.RevocationDue)
    # Subscribed again before the revocation: nothing is revoked.
    join = only(membership.handle(events.Subscribed(("orders", "payments")), 1.0), SendJoin)
    assert (join.topics, join.owned) == (("orders", "payments"), (P0, P1))


def test_a_poll_timeout_during_the_rejoin_loses_all_partitions() -> None:
    membership, _ = cooperative_rejoin()
    membership.context.poll_timer.last_poll = 0.0
    effects = membership.handle(events.DeadlineReached(), 300.0)
    assert only(effects, LosePartitions).partitions == (P0, P1)
    assert only(effects, SendLeave).member_id == "me"
    assert isinstance(membership.state, states.PollTimedOut)


def test_a_rejoin_moves_to_the_new_coordinator() -> None:
    membership, join = cooperative_rejoin()
    heartbeat = only(membership.handle(events.DeadlineReached(), 6.0), SendHeartbeat)
    membership.handle(events.CoordinatorUnavailable(heartbeat.request), 6.0)
    now = membership.next_deadline()
    find = only(membership.handle(events.DeadlineReached(), now), FindCoordinator)
    membership.handle(events.CoordinatorFound(find.request, 8), now)
    assert isinstance(membership.state, states.RejoinBackoff)
    again = None
    while again is None and now < 10.0:
        now = membership.next_deadline()
        effects = membership.handle(events.DeadlineReached(), now)
        again = next((effect for effect in effects if isinstance(effect, SendJoin)), None)
    assert again is not None
    assert (again.node, again.owned) == (8, (P0, P1))
    # The response of the old coordinator is late.
    assert membership.handle(events.JoinedAsFollower(join.request, "me", 2, "range"), now) == ()


def test_losing_the_membership_during_a_partial_revocation_loses_the_rest_once() -> None:
    state = states.Revoking(
        GENERATION, HEARTBEAT, (P0, P1), (P0,), REQUEST, states.NextAction.JOIN, "rebalance"
    )
    membership = machine(state, cooperative=True)
    effects = membership.handle(events.UnknownMemberId(HEARTBEAT_REQUEST), 1.0)
    assert only(effects, LosePartitions).partitions == (P1,)
    join = only(membership.handle(events.PartitionsRevoked(REQUEST), 2.0), SendJoin)
    assert (join.member_id, join.owned) == ("", ())
    assert "UNKNOWN_MEMBER_ID" in join.reason


def test_a_static_member_with_a_poll_timeout_before_revocation_rejoins_once_more() -> None:
    membership, join = cooperative_rejoin("static")
    joined = events.JoinedAsFollower(join.request, "me", 2, "cooperative-sticky")
    sync = only(membership.handle(joined, 3.0), SendSync)
    membership.handle(events.Synced(sync.request, (P0,)), 3.0)
    assert isinstance(membership.state, states.RevocationDue)
    membership.context.poll_timer.interval_s = 3.0
    membership.handle(events.DeadlineReached(), 3.5)
    assert isinstance(membership.state, states.PollTimedOut)
    membership.context.poll_timer.start_poll(4.0)
    find = only(membership.handle(events.PollStarted(), 4.0), FindCoordinator)
    join = only(membership.handle(events.CoordinatorFound(find.request, 7), 4.0), SendJoin)
    joined = events.JoinedAsFollower(join.request, "again", 2, "cooperative-sticky")
    sync = only(membership.handle(joined, 4.0), SendSync)
    effects = membership.handle(events.Synced(sync.request, (P0,)), 4.0)
    assert "max_poll_interval_ms" in join.reason
    again = only(effects, SendJoin)
    assert (again.owned, again.reason) == ((P0,), REVOKED_FOR_OTHERS)
    assert isinstance(membership.state, states.Rejoining)
