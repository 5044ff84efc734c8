from __future__ import annotations

from typing import Any

import pytest

from aiokafkawire.errors import GroupFailed
from aiokafkawire.group.membership import events, states
from aiokafkawire.group.membership.effects import (
    AssignPartitions,
    ComputeAssignment,
    EnterGeneration,
    FindCoordinator,
    ForgetCoordinator,
    InterruptPoll,
    LogMessage,
    LosePartitions,
    SendJoin,
    SendLeave,
    SendSync,
    WatchPartitionCounts,
)
from aiokafkawire.group.membership.joining import MAX_PROTOCOL_VIOLATIONS, MAX_UNKNOWN_SERVER_ERRORS
from aiokafkawire.types import TopicPartition

from .machines import (
    ATTEMPT,
    ERROR,
    GENERATION,
    HEARTBEAT,
    HEARTBEAT_REQUEST,
    KNOWN,
    MEMBERS,
    NODE,
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
)


def test_a_leader_sends_assignments_and_a_follower_sends_none() -> None:
    membership, join = joining()
    assert join.member_id == ""
    assert join.session_timeout_ms == 45_000
    leader = events.JoinedAsLeader(join.request, "me", 1, "range", MEMBERS)
    make = only(membership.handle(leader, 0.0), ComputeAssignment)
    assert make.members == MEMBERS
    made = events.AssignmentComputed(make.request, {"me": b"1", "other": b"2"})
    sync = only(membership.handle(made, 0.0), SendSync)
    assert sync.assignments == {"me": b"1", "other": b"2"}
    membership.handle(events.Synced(sync.request, (P0,)), 0.0)
    assert isinstance(membership.state, states.Stable)
    assert membership.generation is not None
    assert membership.generation.is_leader


def test_a_leader_that_skips_the_assignment_syncs_immediately() -> None:
    membership, join = joining(group_instance_id="static")
    answer = events.JoinedAsLeader(join.request, "me", 1, "range", (), skip_assignment=True)
    watch, sync = membership.handle(answer, 0.0)
    assert watch == WatchPartitionCounts(())
    assert isinstance(sync, SendSync)
    assert sync.assignments == {}


def test_member_id_required_rejoins_immediately_with_the_id() -> None:
    membership, join = joining()
    again = only(membership.handle(events.MemberIdAssigned(join.request, "me"), 0.0), SendJoin)
    assert again.member_id == "me"
    assert membership.handle(events.MemberIdAssigned(again.request, "you"), 0.0)
    assert isinstance(membership.state, states.BackingOff)
    assert membership.state.identity.member_id == ""


@pytest.mark.parametrize(
    ("event", "member_id", "node"),
    [
        (events.CoordinatorUnavailable, "me", None),
        (events.CoordinatorLoadInProgress, "me", NODE),
        (events.RebalanceInProgress, "me", NODE),
        (events.UnknownMemberId, "", NODE),
    ],
)
def test_a_failed_join_is_retried_with_the_right_node_and_member_id(
    event: Any, member_id: str, node: int | None
) -> None:
    membership = machine(states.Joining(KNOWN, NODE, TOPICS, REQUEST))
    effects = membership.handle(event(REQUEST), 0.0)
    assert isinstance(membership.state, states.BackingOff)
    assert membership.state.identity.member_id == member_id
    assert membership.state.node == node
    assert (ForgetCoordinator() in effects) == (node is None)


def test_a_default_session_timeout_is_lowered_once_and_a_configured_one_fails() -> None:
    membership, join = joining()
    refused = events.SessionTimeoutRejected(join.request, ERROR)
    effects = membership.handle(refused, 0.0)
    assert "30000 ms" in only(effects, LogMessage).text
    again = only(effects, SendJoin)
    assert again.session_timeout_ms == 30_000
    membership.handle(events.SessionTimeoutRejected(again.request, ERROR), 0.0)
    assert membership.error is ERROR
    membership, join = joining(session_timeout_is_default=False, session_timeout_ms=40_000)
    membership.handle(events.SessionTimeoutRejected(join.request, ERROR), 0.0)
    assert membership.error is ERROR


def test_a_subscription_changed_during_join_needs_another_join() -> None:
    membership, join = joining()
    assert membership.handle(events.Subscribed(("payments",)), 0.0) == ()
    joined = events.JoinedAsFollower(join.request, "me", 1, "range")
    again = only(membership.handle(joined, 0.0), SendJoin)
    assert (again.member_id, again.topics) == ("me", ("payments",))


def test_a_subscription_changed_during_sync_rejoins_after_the_revocation() -> None:
    membership, join = joining()
    joined = events.JoinedAsFollower(join.request, "me", 1, "range")
    sync = only(membership.handle(joined, 0.0), SendSync)
    membership.handle(events.Subscribed(("payments",)), 0.0)
    effects = membership.handle(events.Synced(sync.request, (P0,)), 0.0)
    names = [type(effect) for effect in effects]
    assert names == [EnterGeneration, AssignPartitions, InterruptPoll]
    assert isinstance(membership.state, states.RevocationDue)


def test_a_heartbeat_with_rebalance_in_progress_does_not_end_the_sync() -> None:
    membership = machine(states.Syncing(GENERATION, HEARTBEAT, REQUEST, ATTEMPT))
    membership.handle(events.RebalanceInProgress(HEARTBEAT_REQUEST), 1.0)
    assert isinstance(membership.state, states.Syncing)
    only(membership.handle(events.RebalanceInProgress(REQUEST), 1.0), SendJoin)


def test_a_sync_with_repeated_rebalance_in_progress_backs_off() -> None:
    membership, join = joining()
    for attempt in range(3):
        joined = events.JoinedAsFollower(join.request, "me", 1, "range")
        sync = only(membership.handle(joined, 0.0), SendSync)
        effects = membership.handle(events.RebalanceInProgress(sync.request), 0.0)
        if attempt:
            assert not effects
            assert isinstance(membership.state, states.BackingOff)
            effects = membership.handle(events.DeadlineReached(), membership.next_deadline())
        join = only(effects, SendJoin)


@pytest.mark.parametrize(
    "answer",
    [
        events.JoinedAsLeader(0, "me", 6, "range", ()),
        events.JoinedAsLeader(0, "me", 6, "range", (MEMBERS[1],)),
        events.JoinedAsLeader(0, "me", 6, "range", (MEMBERS[0], MEMBERS[0])),
        events.JoinedAsFollower(0, "", 6, "range"),
        events.JoinedAsFollower(0, "you", 6, "range"),
        events.JoinedAsFollower(0, "me", 4, "range"),
        events.JoinedAsFollower(0, "me", -1, "range"),
    ],
)
def test_invalid_join_responses_rejoin_as_new_member_and_finally_fail(answer: Any) -> None:
    membership = machine()
    for count in range(1, MAX_PROTOCOL_VIOLATIONS + 1):
        membership.state = state = states.Joining(KNOWN, NODE, TOPICS, REQUEST)
        effects = membership.handle(as_response(answer, state), 0.0)
        assert only(effects, SendLeave).member_id == "me"
        if count < MAX_PROTOCOL_VIOLATIONS:
            assert isinstance(membership.state, states.BackingOff)
            assert membership.state.identity.member_id == ""
    assert isinstance(membership.error, GroupFailed)


def test_the_same_generation_again_is_valid() -> None:
    membership = machine(states.Joining(KNOWN, NODE, TOPICS, REQUEST))
    membership.handle(events.JoinedAsFollower(REQUEST, "me", KNOWN.last_generation, "range"), 0.0)
    assert isinstance(membership.state, states.Syncing)


@pytest.mark.parametrize("strange", [TopicPartition("payments", 0), TopicPartition("orders", -1)])
def test_an_assignment_of_unsubscribed_partitions_is_ignored(
    strange: TopicPartition,
) -> None:
    membership = machine(states.Syncing(GENERATION, HEARTBEAT, REQUEST, ATTEMPT))
    effects = membership.handle(events.Synced(REQUEST, (P0, strange)), 0.0)
    assert not any(isinstance(effect, AssignPartitions) for effect in effects)
    # The same member rejoins with a reason, so that the leader assigns again.
    join = only(membership.handle(events.DeadlineReached(), membership.next_deadline()), SendJoin)
    assert (join.member_id, join.generation, join.owned) == ("me", GENERATION.number, ())
    assert join.reason == "the assignment does not match the subscription"


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (events.RebalanceInProgress(REQUEST), "the group is rebalancing"),
        (events.UnknownMemberId(REQUEST), "UNKNOWN_MEMBER_ID"),
        (events.IllegalGeneration(REQUEST), "ILLEGAL_GENERATION"),
        (events.ProtocolViolation(REQUEST, "a strange response"), "violated the protocol"),
        (events.CoordinatorUnavailable(REQUEST), ATTEMPT.reason),
    ],
)
def test_a_member_gives_the_reason_of_the_error_that_made_it_join_again(
    event: Any, reason: str
) -> None:
    membership = machine(states.Syncing(GENERATION, HEARTBEAT, REQUEST, ATTEMPT))
    now, effects = 0.0, membership.handle(event, 0.0)
    while not any(isinstance(effect, SendJoin) for effect in effects):
        if isinstance(membership.state, states.FindingCoordinator):
            found = events.CoordinatorFound(membership.state.request, NODE)
            effects = membership.handle(found, now)
        else:
            now = membership.next_deadline()
            effects = membership.handle(events.DeadlineReached(), now)
    assert reason in only(effects, SendJoin).reason


def test_repeated_assignments_of_unsubscribed_partitions_fail() -> None:
    membership = machine()
    for _ in range(MAX_PROTOCOL_VIOLATIONS):
        assert membership.error is None
        membership.state = states.Syncing(GENERATION, HEARTBEAT, REQUEST, ATTEMPT)
        membership.handle(events.Synced(REQUEST, (TopicPartition("payments", 0),)), 0.0)
    assert "payments-0" in str(membership.error)


def test_unknown_server_errors_are_retried_and_finally_fail() -> None:
    membership, join = joining()
    for count in range(1, MAX_UNKNOWN_SERVER_ERRORS + 1):
        effects = membership.handle(events.UnknownServerErrorReceived(join.request, ERROR), 0.0)
        assert any(isinstance(effect, LogMessage) for effect in effects) == (count == 1)
        if count < MAX_UNKNOWN_SERVER_ERRORS:
            now = membership.next_deadline()
            find = only(membership.handle(events.DeadlineReached(), now), FindCoordinator)
            found = events.CoordinatorFound(find.request, NODE)
            join = only(membership.handle(found, now), SendJoin)
    assert membership.error is ERROR


def test_a_success_resets_the_count_of_unknown_server_errors() -> None:
    membership = machine(states.Joining(KNOWN, NODE, TOPICS, REQUEST))
    membership.context.unknown_server_errors = MAX_UNKNOWN_SERVER_ERRORS - 1
    joined = events.JoinedAsFollower(REQUEST, "me", 6, "range")
    sync = only(membership.handle(joined, 0.0), SendSync)
    membership.handle(events.Synced(sync.request, ()), 0.0)
    assert membership.context.unknown_server_errors == 0


# --- members that keep their partitions -------------------------------------------------------


def test_a_missed_generation_loses_all_kept_partitions() -> None:
    membership, join = cooperative_rejoin(group_instance_id="static")
    joined = events.JoinedAsFollower(join.request, "me", 3, "cooperative-sticky")
    effects = membership.handle(joined, 4.0)
    assert only(effects, LosePartitions).reason.startswith("the group had a generation")
    again = only(effects, SendJoin)
    assert (again.member_id, again.owned) == ("me", ())
    assert isinstance(membership.state, states.Joining)


def test_a_missed_epoch_of_a_group_of_the_consumer_protocol_loses_nothing() -> None:
    """The epoch of such a group also grows while this member is asked for nothing."""
    membership, join = cooperative_rejoin()
    joined = events.JoinedAsFollower(
        join.request, "me", 7, "cooperative-sticky", coordinator_assigns=True
    )
    effects = membership.handle(joined, 4.0)
    assert only(effects, SendSync).generation.number == 7
    assert not any(isinstance(effect, LosePartitions) for effect in effects)
    assert isinstance(membership.state, states.Resyncing)
    assert membership.state.assignment == (P0, P1)


def test_a_rejoining_leader_sends_assignments() -> None:
    membership, join = cooperative_rejoin()
    leader = events.JoinedAsLeader(join.request, "me", 2, "cooperative-sticky", MEMBERS)
    make = only(membership.handle(leader, 3.0), ComputeAssignment)
    assert isinstance(membership.state, states.Reassigning)
    made = events.AssignmentComputed(make.request, {"me": b"1", "other": b"2"})
    sync = only(membership.handle(made, 3.0), SendSync)
    assert sync.generation.number == 2
    assert isinstance(membership.state, states.Resyncing)


@pytest.mark.parametrize(
    "event",
    [events.CoordinatorUnavailable, events.CoordinatorLoadInProgress, events.RebalanceInProgress],
)
def test_a_rejoining_member_keeps_its_partitions_when_sync_fails(event: Any) -> None:
    membership, sync = resyncing()
    effects = membership.handle(event(sync.request), 4.0)
    assert not any(isinstance(effect, LosePartitions) for effect in effects)
    assert isinstance(membership.state, states.RejoinBackoff)
    for _ in range(3):
        now = membership.next_deadline()
        effects = membership.handle(events.DeadlineReached(), now)
        for find in effects:
            if isinstance(find, FindCoordinator):
                membership.handle(events.CoordinatorFound(find.request, NODE), now)
        if isinstance(membership.state, states.Rejoining):
            break
    join = only(effects, SendJoin)
    assert (join.generation, join.owned) == (2, (P0, P1))


def test_a_rejoining_member_keeps_its_partitions_when_the_assignment_is_invalid() -> None:
    membership, sync = resyncing()
    effects = membership.handle(events.Synced(sync.request, (TopicPartition("payments", 0),)), 4.0)
    assert not any(isinstance(effect, LosePartitions) for effect in effects)
    assert isinstance(membership.state, states.RejoinBackoff)


@pytest.mark.parametrize("topics", [("orders", "payments"), ("payments",)])
def test_a_subscription_changed_during_a_cooperative_rejoin_rejoins_afterwards(
    topics: tuple[str, ...],
) -> None:
    membership, sync = resyncing()
    assert membership.handle(events.Subscribed(topics), 3.0) == ()
    effects = membership.handle(events.Synced(sync.request, (P0, P1)), 4.0)
    if "orders" in topics:
        join = only(effects, SendJoin)
        assert (join.topics, join.owned) == (topics, (P0, P1))
    else:
        only(effects, InterruptPoll)
        assert isinstance(membership.state, states.RevocationDue)


@pytest.mark.parametrize(
    ("event", "member_id"), [(events.UnknownMemberId, ""), (events.IllegalGeneration, "me")]
)
@pytest.mark.parametrize("request_number", [REQUEST, HEARTBEAT_REQUEST])
def test_an_illegal_generation_keeps_the_member_id(
    event: Any, member_id: str, request_number: int
) -> None:
    membership = machine(states.Syncing(GENERATION, HEARTBEAT, REQUEST, ATTEMPT))
    membership.handle(event(request_number), 1.0)
    join = only(membership.handle(events.DeadlineReached(), membership.next_deadline()), SendJoin)
    assert (join.member_id, join.generation) == (member_id, states.NO_GENERATION)
