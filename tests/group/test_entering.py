from __future__ import annotations

from typing import Any

import pytest

from aiokafkawire.errors import GroupFailed
from aiokafkawire.group import effects as do
from aiokafkawire.group import events as on
from aiokafkawire.group import states as s
from aiokafkawire.group.entering import MAX_CONTRADICTIONS, MAX_SERVER_FAILURES
from aiokafkawire.types import TopicPartition

from .machines import (
    ERROR,
    GENERATION,
    KNOWN,
    MEMBERS,
    NODE,
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
)


def test_a_leader_assigns_and_a_follower_syncs_with_nothing() -> None:
    membership, join = joining()
    assert join.member_id == ""
    assert join.session_timeout_ms == 45_000
    leader = on.JoinedAsLeader(join.request, "me", 1, "range", MEMBERS)
    make = only(membership.handle(leader, 0.0), do.MakeAssignment)
    assert make.members == MEMBERS
    made = on.AssignmentMade(make.request, {"me": b"1", "other": b"2"})
    sync = only(membership.handle(made, 0.0), do.SendSync)
    assert sync.assignments == {"me": b"1", "other": b"2"}
    membership.handle(on.Synced(sync.request, (P0,)), 0.0)
    assert isinstance(membership.state, s.Stable)
    assert membership.generation is not None
    assert membership.generation.leads


def test_a_leader_that_need_not_assign_syncs_at_once() -> None:
    membership, join = joining(group_instance_id="static")
    answer = on.JoinedAsLeader(join.request, "me", 1, "range", (), skip_assignment=True)
    watch, sync = membership.handle(answer, 0.0)
    assert watch == do.WatchPartitions(())
    assert isinstance(sync, do.SendSync)
    assert sync.assignments == {}


def test_member_id_required_joins_again_at_once_under_the_id() -> None:
    membership, join = joining()
    again = only(membership.handle(on.MemberIdAssigned(join.request, "me"), 0.0), do.SendJoin)
    assert again.member_id == "me"
    assert membership.handle(on.MemberIdAssigned(again.request, "you"), 0.0)
    assert isinstance(membership.state, s.BackingOff)
    assert membership.state.identity.member_id == ""


@pytest.mark.parametrize(
    ("event", "member_id", "node"),
    [
        (on.CoordinatorLost, "me", None),
        (on.CoordinatorLoading, "me", NODE),
        (on.RebalanceBegan, "me", NODE),
        (on.MemberUnknown, "", NODE),
    ],
)
def test_where_and_as_whom_a_failed_join_is_repeated(
    event: Any, member_id: str, node: int | None
) -> None:
    membership = machine(s.Joining(KNOWN, NODE, TOPICS, REQUEST))
    effects = membership.handle(event(REQUEST), 0.0)
    assert isinstance(membership.state, s.BackingOff)
    assert membership.state.identity.member_id == member_id
    assert membership.state.node == node
    assert (do.ForgetCoordinator() in effects) == (node is None)


def test_a_default_session_timeout_falls_back_once_and_a_chosen_one_fails() -> None:
    membership, join = joining()
    refused = on.SessionTimeoutRefused(join.request, ERROR)
    effects = membership.handle(refused, 0.0)
    assert "30000 ms" in only(effects, do.Note).text
    again = only(effects, do.SendJoin)
    assert again.session_timeout_ms == 30_000
    membership.handle(on.SessionTimeoutRefused(again.request, ERROR), 0.0)
    assert membership.error is ERROR
    membership, join = joining(session_timeout_is_default=False, session_timeout_ms=40_000)
    membership.handle(on.SessionTimeoutRefused(join.request, ERROR), 0.0)
    assert membership.error is ERROR


def test_other_topics_while_a_join_is_under_way_need_another_join() -> None:
    membership, join = joining()
    assert membership.handle(on.Subscribed(("payments",)), 0.0) == ()
    joined = on.JoinedAsFollower(join.request, "me", 1, "range")
    again = only(membership.handle(joined, 0.0), do.SendJoin)
    assert (again.member_id, again.topics) == ("me", ("payments",))


def test_other_topics_while_syncing_are_joined_for_after_the_revocation() -> None:
    membership, join = joining()
    joined = on.JoinedAsFollower(join.request, "me", 1, "range")
    sync = only(membership.handle(joined, 0.0), do.SendSync)
    membership.handle(on.Subscribed(("payments",)), 0.0)
    effects = membership.handle(on.Synced(sync.request, (P0,)), 0.0)
    names = [type(effect) for effect in effects]
    assert names == [do.EnterGeneration, do.AssignPartitions, do.Interrupt]
    assert isinstance(membership.state, s.RevocationDue)


def test_a_heartbeat_answered_27_before_the_sync_does_not_end_the_sync() -> None:
    membership = machine(s.Syncing(GENERATION, PULSE, REQUEST, 0))
    membership.handle(on.RebalanceBegan(PULSE_REQUEST), 1.0)
    assert isinstance(membership.state, s.Syncing)
    only(membership.handle(on.RebalanceBegan(REQUEST), 1.0), do.SendJoin)


def test_a_sync_that_is_answered_27_again_and_again_is_repeated_with_pauses() -> None:
    membership, join = joining()
    for attempt in range(3):
        joined = on.JoinedAsFollower(join.request, "me", 1, "range")
        sync = only(membership.handle(joined, 0.0), do.SendSync)
        effects = membership.handle(on.RebalanceBegan(sync.request), 0.0)
        if attempt:
            assert not effects
            assert isinstance(membership.state, s.BackingOff)
            effects = membership.handle(on.Tick(), membership.next_deadline())
        join = only(effects, do.SendJoin)


@pytest.mark.parametrize(
    "answer",
    [
        on.JoinedAsLeader(0, "me", 6, "range", ()),
        on.JoinedAsLeader(0, "me", 6, "range", (MEMBERS[1],)),
        on.JoinedAsLeader(0, "me", 6, "range", (MEMBERS[0], MEMBERS[0])),
        on.JoinedAsFollower(0, "", 6, "range"),
        on.JoinedAsFollower(0, "you", 6, "range"),
        on.JoinedAsFollower(0, "me", 4, "range"),
        on.JoinedAsFollower(0, "me", -1, "range"),
    ],
)
def test_a_contradicting_join_starts_over_and_then_fails(answer: Any) -> None:
    membership = machine()
    for count in range(1, MAX_CONTRADICTIONS + 1):
        membership.state = state = s.Joining(KNOWN, NODE, TOPICS, REQUEST)
        effects = membership.handle(addressed(answer, state), 0.0)
        assert only(effects, do.SendLeave).member_id == "me"
        if count < MAX_CONTRADICTIONS:
            assert isinstance(membership.state, s.BackingOff)
            assert membership.state.identity.member_id == ""
    assert isinstance(membership.error, GroupFailed)


def test_the_same_generation_again_is_no_contradiction() -> None:
    membership = machine(s.Joining(KNOWN, NODE, TOPICS, REQUEST))
    membership.handle(on.JoinedAsFollower(REQUEST, "me", KNOWN.previous, "range"), 0.0)
    assert isinstance(membership.state, s.Syncing)


@pytest.mark.parametrize("strange", [TopicPartition("payments", 0), TopicPartition("orders", -1)])
def test_an_assignment_of_what_was_not_subscribed_to_is_never_owned(
    strange: TopicPartition,
) -> None:
    membership = machine(s.Syncing(GENERATION, PULSE, REQUEST, 0))
    effects = membership.handle(on.Synced(REQUEST, (P0, strange)), 0.0)
    assert not any(isinstance(effect, do.AssignPartitions) for effect in effects)
    # As the same member, with words of its own: so the coordinator has it divided anew.
    join = only(membership.handle(on.Tick(), membership.next_deadline()), do.SendJoin)
    assert (join.member_id, join.generation, join.owned) == ("me", GENERATION.number, ())


def test_a_leader_that_goes_on_assigning_what_was_not_subscribed_to_is_told_of() -> None:
    membership = machine()
    for _ in range(MAX_CONTRADICTIONS):
        assert membership.error is None
        membership.state = s.Syncing(GENERATION, PULSE, REQUEST, 0)
        membership.handle(on.Synced(REQUEST, (TopicPartition("payments", 0),)), 0.0)
    assert "payments-0" in str(membership.error)


def test_a_coordinator_that_fails_inside_is_asked_again_and_then_told_of() -> None:
    membership, join = joining()
    for count in range(1, MAX_SERVER_FAILURES + 1):
        effects = membership.handle(on.ServerFailed(join.request, ERROR), 0.0)
        assert any(isinstance(effect, do.Note) for effect in effects) == (count == 1)
        if count < MAX_SERVER_FAILURES:
            now = membership.next_deadline()
            find = only(membership.handle(on.Tick(), now), do.FindCoordinator)
            found = on.CoordinatorFound(find.request, NODE)
            join = only(membership.handle(found, now), do.SendJoin)
    assert membership.error is ERROR


def test_failures_that_are_not_in_a_row_do_not_add_up() -> None:
    membership = machine(s.Joining(KNOWN, NODE, TOPICS, REQUEST))
    membership.server_failures = MAX_SERVER_FAILURES - 1
    joined = on.JoinedAsFollower(REQUEST, "me", 6, "range")
    sync = only(membership.handle(joined, 0.0), do.SendSync)
    membership.handle(on.Synced(sync.request, ()), 0.0)
    assert membership.server_failures == 0


# --- members that keep their partitions -------------------------------------------------------


def test_a_generation_without_the_member_takes_all_that_it_kept() -> None:
    membership, join = keeper(group_instance_id="static")
    joined = on.JoinedAsFollower(join.request, "me", 3, "cooperative-sticky")
    effects = membership.handle(joined, 4.0)
    assert only(effects, do.LosePartitions).reason.startswith("the group had a generation")
    again = only(effects, do.SendJoin)
    assert (again.member_id, again.owned) == ("me", ())
    assert isinstance(membership.state, s.Joining)


def test_a_keeper_that_leads_hands_out() -> None:
    membership, join = keeper()
    leader = on.JoinedAsLeader(join.request, "me", 2, "cooperative-sticky", MEMBERS)
    make = only(membership.handle(leader, 3.0), do.MakeAssignment)
    assert isinstance(membership.state, s.Reassigning)
    made = on.AssignmentMade(make.request, {"me": b"1", "other": b"2"})
    sync = only(membership.handle(made, 3.0), do.SendSync)
    assert sync.generation.number == 2
    assert isinstance(membership.state, s.Resyncing)


@pytest.mark.parametrize("event", [on.CoordinatorLost, on.CoordinatorLoading, on.RebalanceBegan])
def test_a_keeper_keeps_all_through_failures_of_its_sync(event: Any) -> None:
    membership, sync = resyncing()
    effects = membership.handle(event(sync.request), 4.0)
    assert not any(isinstance(effect, do.LosePartitions) for effect in effects)
    assert isinstance(membership.state, s.Returning)
    for _ in range(3):
        now = membership.next_deadline()
        effects = membership.handle(on.Tick(), now)
        for find in effects:
            if isinstance(find, do.FindCoordinator):
                membership.handle(on.CoordinatorFound(find.request, NODE), now)
        if isinstance(membership.state, s.Rejoining):
            break
    join = only(effects, do.SendJoin)
    assert (join.generation, join.owned) == (2, (P0, P1))


def test_a_keeper_that_is_given_what_it_did_not_ask_for_keeps_what_it_has() -> None:
    membership, sync = resyncing()
    effects = membership.handle(on.Synced(sync.request, (TopicPartition("payments", 0),)), 4.0)
    assert not any(isinstance(effect, do.LosePartitions) for effect in effects)
    assert isinstance(membership.state, s.Returning)


@pytest.mark.parametrize("topics", [("orders", "payments"), ("payments",)])
def test_other_topics_while_a_keeper_joins_are_joined_for_afterwards(
    topics: tuple[str, ...],
) -> None:
    membership, sync = resyncing()
    assert membership.handle(on.Subscribed(topics), 3.0) == ()
    effects = membership.handle(on.Synced(sync.request, (P0, P1)), 4.0)
    if "orders" in topics:
        join = only(effects, do.SendJoin)
        assert (join.topics, join.owned) == (topics, (P0, P1))
    else:
        only(effects, do.Interrupt)
        assert isinstance(membership.state, s.RevocationDue)


@pytest.mark.parametrize(
    ("event", "member_id"), [(on.MemberUnknown, ""), (on.GenerationOutdated, "me")]
)
@pytest.mark.parametrize("request_number", [REQUEST, PULSE_REQUEST])
def test_a_generation_that_is_over_does_not_cost_a_member_its_id(
    event: Any, member_id: str, request_number: int
) -> None:
    membership = machine(s.Syncing(GENERATION, PULSE, REQUEST, 0))
    membership.handle(event(request_number), 1.0)
    join = only(membership.handle(on.Tick(), membership.next_deadline()), do.SendJoin)
    assert (join.member_id, join.generation) == (member_id, s.NO_GENERATION)
