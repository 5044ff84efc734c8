from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from aiokafkawire.group import events, states
from aiokafkawire.group.effects import (
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

from .machines import (
    ERROR,
    GENERATION,
    HEARTBEAT,
    HEARTBEAT_REQUEST,
    NODE,
    P0,
    P1,
    REQUEST,
    beaten,
    keeper,
    machine,
    only,
    resyncing,
    stable,
)


def test_heartbeats_come_at_their_interval_one_at_a_time() -> None:
    membership = stable()
    assert membership.handle(events.DeadlineReached(), 2.9) == ()
    assert membership.next_deadline() == 3.0
    beat = only(membership.handle(events.DeadlineReached(), 3.0), SendHeartbeat)
    assert (beat.node, beat.generation.member_id, beat.deadline) == (NODE, "me", 45.0)
    assert membership.handle(events.DeadlineReached(), 10.0) == ()
    membership.handle(events.HeartbeatSucceeded(beat.request), 10.0)
    assert membership.next_deadline() == 13.0


def test_heartbeats_go_on_at_the_coordinator_that_is_found_anew() -> None:
    membership = stable()
    beat = only(membership.handle(events.DeadlineReached(), 3.0), SendHeartbeat)
    assert membership.handle(events.CoordinatorUnavailable(beat.request), 3.0) == (
        ForgetCoordinator(),
    )
    now = membership.next_deadline()
    find = only(membership.handle(events.DeadlineReached(), now), FindCoordinator)
    membership.handle(events.CoordinatorFound(find.request, 8), now)
    assert only(membership.handle(events.DeadlineReached(), now), SendHeartbeat).node == 8
    assert isinstance(membership.state, states.Stable)


def test_a_silent_coordinator_is_told_once_and_once_more_when_it_answers() -> None:
    membership = stable()
    only(membership.handle(events.DeadlineReached(), 3.0), SendHeartbeat)
    told = only(membership.handle(events.DeadlineReached(), 45.0), LogMessage)
    assert told.warning
    assert "whole session" in told.text
    for now in (90.0, 135.0):
        effects = membership.handle(events.DeadlineReached(), now)
        assert not [effect for effect in effects if isinstance(effect, LogMessage)]
        assert ForgetCoordinator() in effects
        find = only(effects, FindCoordinator)
    membership.handle(events.CoordinatorFound(find.request, 8), 136.0)
    for now, notes in ((136.0, 1), (140.0, 0)):
        beat = only(membership.handle(events.DeadlineReached(), now), SendHeartbeat)
        effects = membership.handle(events.HeartbeatSucceeded(beat.request), now)
        assert len([effect for effect in effects if isinstance(effect, LogMessage)]) == notes


def test_a_coordinator_that_is_silent_for_a_session_is_looked_for_anew() -> None:
    membership = stable()
    first = only(membership.handle(events.DeadlineReached(), 3.0), SendHeartbeat)
    assert membership.next_deadline() == 45.0
    effects = membership.handle(events.DeadlineReached(), 45.0)
    assert ForgetCoordinator(unresponsive_node=NODE) in effects
    only(effects, FindCoordinator)
    assert membership.handle(events.UnknownMemberId(first.request), 45.0) == ()
    assert isinstance(membership.state, states.Stable)


def test_a_revocation_waits_for_the_application() -> None:
    membership = stable()
    beat = only(membership.handle(events.DeadlineReached(), 3.0), SendHeartbeat)
    effects = membership.handle(events.RebalanceInProgress(beat.request), 3.0)
    assert effects == (InterruptPoll(),)
    assert isinstance(membership.state, states.RevocationDue)
    assert membership.generation is not None
    only(
        membership.handle(events.DeadlineReached(), 6.0), SendHeartbeat
    )  # still at work, still alive
    revoke = only(membership.handle(events.PollStarted(), 6.5), RevokePartitions)
    assert revoke.partitions == (P0, P1)
    join = only(membership.handle(events.PartitionsRevoked(revoke.request), 7.0), SendJoin)
    assert join.member_id == "me"
    assert membership.generation is None


def test_a_revocation_begins_at_once_while_the_application_waits() -> None:
    membership = stable()
    membership.poll_timer.start_poll(1.0)
    beat = only(membership.handle(events.DeadlineReached(), 3.0), SendHeartbeat)
    effects = membership.handle(events.RebalanceInProgress(beat.request), 3.0)
    assert only(effects, RevokePartitions).partitions == (P0, P1)


def test_a_member_without_partitions_rejoins_at_once() -> None:
    membership = machine(states.Stable(GENERATION, HEARTBEAT, ()))
    effects = membership.handle(events.RebalanceInProgress(HEARTBEAT_REQUEST), 3.0)
    assert only(effects, SendJoin).member_id == "me"


@pytest.mark.parametrize("due", [False, True])
def test_an_application_that_stays_away_loses_its_partitions(due: bool) -> None:
    membership = stable()
    if due:
        membership.handle(events.RejoinRequested("more partitions"), 0.0)
    beaten(membership, until=290.0)
    assert membership.next_deadline() <= 300.0
    effects = membership.handle(events.DeadlineReached(), 300.0)
    assert only(effects, LosePartitions).partitions == (P0, P1)
    assert only(effects, SendLeave).member_id == "me"
    assert isinstance(membership.state, states.PollTimedOut)
    assert membership.generation is None
    only(membership.handle(events.PollStarted(), 301.0), FindCoordinator)


def test_an_application_inside_a_call_is_never_away() -> None:
    membership = stable()
    membership.poll_timer.start_poll(1.0)
    beaten(membership, until=1_000.0)
    assert isinstance(membership.state, states.Stable)
    membership.poll_timer.finish_poll(1_000.0)
    assert membership.poll_timer.deadline == 1_300.0


@pytest.mark.parametrize(
    ("event", "member_id"), [(events.UnknownMemberId, ""), (events.IllegalGeneration, "me")]
)
def test_a_member_that_is_thrown_out_loses_its_partitions(event: Any, member_id: str) -> None:
    membership = stable()
    beat = only(membership.handle(events.DeadlineReached(), 3.0), SendHeartbeat)
    effects = membership.handle(event(beat.request), 3.0)
    assert only(effects, LosePartitions).partitions == (P0, P1)
    join = only(membership.handle(events.DeadlineReached(), membership.next_deadline()), SendJoin)
    assert join.member_id == member_id


def test_partitions_lost_while_they_are_revoked_end_with_a_fresh_join() -> None:
    membership = machine(
        states.Revoking(GENERATION, HEARTBEAT, (P0,), (P0,), REQUEST, states.NextAction.JOIN)
    )
    membership.handle(events.UnknownMemberId(HEARTBEAT_REQUEST), 1.0)
    assert membership.next_deadline() == float("inf")
    join = only(membership.handle(events.PartitionsRevoked(REQUEST), 2.0), SendJoin)
    assert join.member_id == ""


def test_a_refused_commit_brings_the_next_heartbeat_forward() -> None:
    membership = stable()
    membership.handle(events.CommitRejected(), 1.0)
    assert only(membership.handle(events.DeadlineReached(), 1.0), SendHeartbeat).node == NODE


def test_a_heartbeat_that_fails_inside_of_the_coordinator_is_told_once_and_repeated() -> None:
    membership = stable()
    beat = only(membership.handle(events.DeadlineReached(), 3.0), SendHeartbeat)
    note = only(
        membership.handle(events.UnknownServerErrorReceived(beat.request, ERROR), 3.0), LogMessage
    )
    assert "heartbeat failed" in note.text
    now = membership.next_deadline()
    beat = only(membership.handle(events.DeadlineReached(), now), SendHeartbeat)
    assert membership.handle(events.UnknownServerErrorReceived(beat.request, ERROR), now) == ()
    assert isinstance(membership.state, states.Stable)


# --- members that keep their partitions -------------------------------------------------------


def test_a_keeper_joins_at_once_with_what_it_owns_though_the_application_is_at_work() -> None:
    membership, join = keeper()
    assert (join.member_id, join.generation, join.owned) == ("me", 1, (P0, P1))
    assert "rebalancing" in join.reason
    assert membership.generation is not None
    assert membership.generation.number == 1


def test_a_keeper_goes_on_with_its_heartbeats_while_its_join_is_parked() -> None:
    membership, _ = keeper()
    for _ in range(5):
        now = membership.next_deadline()
        beat = only(membership.handle(events.DeadlineReached(), now), SendHeartbeat)
        assert beat.generation.number == 1
        membership.handle(events.RebalanceInProgress(beat.request), now)
    assert isinstance(membership.state, states.Rejoining)


def test_all_have_joined_but_the_answer_is_not_here_yet() -> None:
    membership, join = keeper()
    beat = only(membership.handle(events.DeadlineReached(), 6.0), SendHeartbeat)
    assert membership.handle(events.IllegalGeneration(beat.request), 6.0) == ()
    joined = events.JoinedAsFollower(join.request, "me", 2, "cooperative-sticky")
    only(membership.handle(joined, 6.0), SendSync)


def test_a_keeper_that_is_thrown_out_while_it_joins_loses_all() -> None:
    membership, _ = keeper()
    beat = only(membership.handle(events.DeadlineReached(), 6.0), SendHeartbeat)
    effects = membership.handle(events.UnknownMemberId(beat.request), 6.0)
    assert only(effects, LosePartitions).partitions == (P0, P1)
    join = only(membership.handle(events.DeadlineReached(), membership.next_deadline()), SendJoin)
    assert (join.member_id, join.generation, join.owned) == ("", -1, ())


def test_the_difference_waits_for_the_application_and_the_rest_does_not() -> None:
    membership, sync = resyncing()
    effects = membership.handle(events.Synced(sync.request, (P1,)), 4.0)
    assert [type(effect) for effect in effects] == [EnterGeneration, InterruptPoll]
    assert effects[0].owned == (P0, P1)  # type: ignore[attr-defined]
    assert isinstance(membership.state, states.RevocationDue)
    revoke = only(membership.handle(events.PollStarted(), 5.0), RevokePartitions)
    assert revoke.partitions == (P0,)
    told, join = membership.handle(events.PartitionsRevoked(revoke.request), 6.0)
    assert told == AssignPartitions(())
    assert isinstance(join, SendJoin)
    assert (join.generation, join.owned) == (2, (P1,))
    assert "revoked" in join.reason


def test_what_is_new_is_told_of_after_what_goes() -> None:
    third = P0._replace(partition=2)
    membership, sync = resyncing()
    membership.poll_timer.start_poll(3.5)
    effects = membership.handle(events.Synced(sync.request, (P1, third)), 4.0)
    revoke = only(effects, RevokePartitions)
    assert not any(isinstance(effect, AssignPartitions) for effect in effects)
    told, join = membership.handle(events.PartitionsRevoked(revoke.request), 5.0)
    assert told == AssignPartitions((third,))
    assert isinstance(join, SendJoin)
    assert join.owned == (P1, third)


def test_what_is_new_alone_is_taken_at_once() -> None:
    third = P0._replace(partition=2)
    membership, sync = resyncing()
    enter, assign = membership.handle(events.Synced(sync.request, (third, P1, P0)), 4.0)
    assert isinstance(enter, EnterGeneration)
    assert enter.owned == (P0, P1, third)
    assert assign == AssignPartitions((third,))
    assert isinstance(membership.state, states.Stable)


def test_another_rebalance_does_not_wait_for_what_is_to_be_given_back() -> None:
    membership, sync = resyncing()
    membership.handle(events.Synced(sync.request, (P1,)), 4.0)
    beat = only(membership.handle(events.DeadlineReached(), 7.0), SendHeartbeat)
    join = only(membership.handle(events.RebalanceInProgress(beat.request), 7.0), SendJoin)
    assert (join.generation, join.owned) == (2, (P0, P1))


def test_topics_that_are_not_subscribed_to_any_more_go_before_the_join() -> None:
    membership = stable(cooperative=True)
    effects = membership.handle(events.Subscribed(("payments",)), 1.0)
    assert effects == (InterruptPoll(),)
    assert isinstance(membership.state, states.RevocationDue)
    # Subscribed to again before they went: nothing has to go.
    join = only(membership.handle(events.Subscribed(("orders", "payments")), 1.0), SendJoin)
    assert (join.topics, join.owned) == (("orders", "payments"), (P0, P1))


def test_a_keeper_whose_application_stays_away_loses_all_while_its_join_is_parked() -> None:
    membership, _ = keeper()
    membership.poll_timer.last_poll = 0.0
    effects = membership.handle(events.DeadlineReached(), 300.0)
    assert only(effects, LosePartitions).partitions == (P0, P1)
    assert only(effects, SendLeave).member_id == "me"
    assert isinstance(membership.state, states.PollTimedOut)


def test_a_keeper_joins_where_the_coordinator_is_now() -> None:
    membership, join = keeper()
    beat = only(membership.handle(events.DeadlineReached(), 6.0), SendHeartbeat)
    membership.handle(events.CoordinatorUnavailable(beat.request), 6.0)
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
    # The answer of the old one comes too late.
    assert membership.handle(events.JoinedAsFollower(join.request, "me", 2, "range"), now) == ()


def test_losing_all_while_some_is_given_back_loses_the_rest_once() -> None:
    state = states.Revoking(
        GENERATION, HEARTBEAT, (P0, P1), (P0,), REQUEST, states.NextAction.JOIN, (P1,)
    )
    membership = machine(replace(state, to_add=None), cooperative=True)
    effects = membership.handle(events.UnknownMemberId(HEARTBEAT_REQUEST), 1.0)
    assert only(effects, LosePartitions).partitions == (P1,)
    join = only(membership.handle(events.PartitionsRevoked(REQUEST), 2.0), SendJoin)
    assert (join.member_id, join.owned) == ("", ())


def test_a_static_member_that_lapsed_before_it_gave_back_joins_once_more() -> None:
    membership, join = keeper("static")
    joined = events.JoinedAsFollower(join.request, "me", 2, "cooperative-sticky")
    sync = only(membership.handle(joined, 3.0), SendSync)
    membership.handle(events.Synced(sync.request, (P0,)), 3.0)
    assert isinstance(membership.state, states.RevocationDue)
    membership.poll_timer.interval_s = 3.0
    membership.handle(events.DeadlineReached(), 3.5)
    assert isinstance(membership.state, states.PollTimedOut)
    membership.poll_timer.start_poll(4.0)
    find = only(membership.handle(events.PollStarted(), 4.0), FindCoordinator)
    join = only(membership.handle(events.CoordinatorFound(find.request, 7), 4.0), SendJoin)
    joined = events.JoinedAsFollower(join.request, "again", 2, "cooperative-sticky")
    sync = only(membership.handle(joined, 4.0), SendSync)
    effects = membership.handle(events.Synced(sync.request, (P0,)), 4.0)
    assert only(effects, SendJoin).owned == (P0,)
    assert isinstance(membership.state, states.Rejoining)
