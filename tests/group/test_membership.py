"""Every state x every event, and the ways through the table."""

from __future__ import annotations

import inspect
import random
from collections.abc import Iterable
from typing import Any

import pytest

from aiokafkawire.errors import GroupFailed, KafkaError, MemberFenced
from aiokafkawire.group import effects as do
from aiokafkawire.group import events as on
from aiokafkawire.group import states as s
from aiokafkawire.group.entering import MAX_CONTRADICTIONS
from aiokafkawire.group.membership import (
    TRANSITIONS,
    GroupSettings,
    ImpossibleEvent,
    Membership,
)
from aiokafkawire.types import TopicPartition

NODE = 7
REQUEST = 100
PULSE_REQUEST = 101
TOPICS = ("orders",)
P0 = TopicPartition("orders", 0)
P1 = TopicPartition("orders", 1)
GENERATION = s.Generation("me", 5, "range", TOPICS, leads=False)
PULSE = s.Pulse(NODE, PULSE_REQUEST, next_at=3.0, session_ends=45.0)
KNOWN = s.Identity("me", 5, 0)
ERROR = KafkaError("refused")

STATES: tuple[s.State, ...] = (
    s.Unjoined(),
    s.FindingCoordinator(KNOWN, REQUEST),
    s.BackingOff(KNOWN, NODE, 1.0),
    s.Joining(KNOWN, NODE, TOPICS, REQUEST),
    s.Assigning(GENERATION, PULSE, REQUEST, 0),
    s.Syncing(GENERATION, PULSE, REQUEST, 0),
    s.Stable(GENERATION, PULSE, (P0,)),
    s.RevocationDue(GENERATION, PULSE, (P0,)),
    s.Revoking(GENERATION, PULSE, (P0,), REQUEST, s.After.JOIN),
    s.Lapsed(),
    s.AwaitingIdentity(REQUEST, s.After.CLOSE, 10.0),
    s.Leaving(REQUEST, s.After.CLOSE, 10.0),
    s.Fenced(ERROR),
    s.Failed(ERROR),
    s.Closed(),
)

MEMBERS = (s.JoinedMember("me", None, b""), s.JoinedMember("other", None, b""))

EVENTS: tuple[Any, ...] = (
    on.Subscribed(("payments",)),
    on.Unsubscribed(),
    on.Closing(50.0),
    on.ApplicationEntered(),
    on.Rejoin("more partitions"),
    on.Doubted(),
    on.Tick(),
    on.CoordinatorFound(REQUEST, 8),
    on.CoordinatorMissing(REQUEST),
    on.JoinedAsFollower(REQUEST, "me", 6, "range"),
    on.JoinedAsLeader(REQUEST, "me", 6, "range", MEMBERS),
    on.MemberIdAssigned(REQUEST, "new"),
    on.SessionTimeoutRefused(REQUEST, ERROR),
    on.AssignmentMade(REQUEST, {"me": b"", "other": b""}),
    on.Synced(REQUEST, (P0, P1)),
    on.HeartbeatAnswered(REQUEST),
    on.RebalanceBegan(REQUEST),
    on.CoordinatorLost(REQUEST),
    on.CoordinatorLoading(REQUEST),
    on.MemberUnknown(REQUEST),
    on.GenerationOutdated(REQUEST),
    on.Contradicted(REQUEST, "nonsense"),
    on.InstanceFenced(REQUEST, ERROR),
    on.Refused(REQUEST, ERROR),
    on.Revoked(REQUEST),
    on.LeftGroup(REQUEST),
)

# What a state may become by an event; "=" is the state itself with its data unchanged.
EXPECTED: dict[str, dict[str, str]] = {
    "Unjoined": {
        "Subscribed": "FindingCoordinator",
        "Unsubscribed": "=",
        "Closing": "Closed",
        "ApplicationEntered": "=",
        "Rejoin": "=",
        "Doubted": "=",
        "Tick": "=",
    },
    "FindingCoordinator": {
        "Subscribed": "=",
        "Unsubscribed": "Leaving",
        "Closing": "Leaving",
        "ApplicationEntered": "=",
        "Rejoin": "=",
        "Doubted": "=",
        "Tick": "=",
        "CoordinatorFound": "Joining",
        "CoordinatorMissing": "BackingOff",
        "Refused": "Failed",
    },
    "BackingOff": {
        "Subscribed": "=",
        "Unsubscribed": "Leaving",
        "Closing": "Leaving",
        "ApplicationEntered": "=",
        "Rejoin": "=",
        "Doubted": "=",
        "Tick": "=",
    },
    "Joining": {
        "Subscribed": "=",
        "Unsubscribed": "Leaving",
        "Closing": "Leaving",
        "ApplicationEntered": "=",
        "Rejoin": "=",
        "Doubted": "=",
        "Tick": "=",
        "JoinedAsFollower": "Syncing",
        "JoinedAsLeader": "Assigning",
        "MemberIdAssigned": "BackingOff",  # it has an id already: a contradiction
        "SessionTimeoutRefused": "Joining",
        "RebalanceBegan": "BackingOff",
        "CoordinatorLost": "BackingOff",
        "CoordinatorLoading": "BackingOff",
        "MemberUnknown": "BackingOff",
        "GenerationOutdated": "BackingOff",
        "Contradicted": "BackingOff",
        "InstanceFenced": "Fenced",
        "Refused": "Failed",
    },
    "Assigning": {
        "AssignmentMade": "Syncing",
    },
    "Syncing": {
        "Synced": "Stable",
    },
    "Stable": {
        "Subscribed": "RevocationDue",
        "Unsubscribed": "Revoking",
        "Closing": "Revoking",
        "ApplicationEntered": "=",
        "Rejoin": "RevocationDue",
        "Doubted": "Stable",
        "Tick": "=",
        "CoordinatorFound": "Stable",
        "CoordinatorMissing": "Stable",
        "HeartbeatAnswered": "Stable",
        "RebalanceBegan": "RevocationDue",
        "CoordinatorLost": "Stable",
        "CoordinatorLoading": "Stable",
        "MemberUnknown": "BackingOff",
        "Contradicted": "Stable",
        "GenerationOutdated": "BackingOff",
        "InstanceFenced": "Fenced",
        "Refused": "Failed",
    },
    "RevocationDue": {
        "Subscribed": "=",
        "Unsubscribed": "Revoking",
        "Closing": "Revoking",
        "ApplicationEntered": "Revoking",
        "Rejoin": "=",
        "Doubted": "RevocationDue",
        "Tick": "=",
        "CoordinatorFound": "RevocationDue",
        "CoordinatorMissing": "RevocationDue",
        "HeartbeatAnswered": "RevocationDue",
        "RebalanceBegan": "RevocationDue",
        "CoordinatorLost": "RevocationDue",
        "CoordinatorLoading": "RevocationDue",
        "MemberUnknown": "BackingOff",
        "Contradicted": "RevocationDue",
        "GenerationOutdated": "BackingOff",
        "InstanceFenced": "Fenced",
        "Refused": "Failed",
    },
    "Revoking": {
        "Subscribed": "=",
        "Unsubscribed": "Revoking",
        "Closing": "Revoking",
        "ApplicationEntered": "=",
        "Rejoin": "=",
        "Doubted": "=",
        "Tick": "=",
        "CoordinatorFound": "Revoking",
        "CoordinatorMissing": "Revoking",
        "HeartbeatAnswered": "Revoking",
        "RebalanceBegan": "Revoking",
        "CoordinatorLost": "Revoking",
        "CoordinatorLoading": "Revoking",
        "MemberUnknown": "Revoking",
        "Contradicted": "Revoking",
        "GenerationOutdated": "Revoking",
        "InstanceFenced": "Fenced",
        "Refused": "Failed",
        "Revoked": "Joining",
    },
    "Lapsed": {
        "Subscribed": "FindingCoordinator",
        "Unsubscribed": "Unjoined",
        "Closing": "Closed",
        "ApplicationEntered": "FindingCoordinator",
        "Rejoin": "=",
        "Doubted": "=",
        "Tick": "=",
    },
    "AwaitingIdentity": {
        "Subscribed": "=",
        "Unsubscribed": "=",
        "Closing": "AwaitingIdentity",
        "ApplicationEntered": "=",
        "Rejoin": "=",
        "Doubted": "=",
        "Tick": "=",
        "JoinedAsFollower": "Leaving",
        "JoinedAsLeader": "Leaving",
        "MemberIdAssigned": "Leaving",
        "SessionTimeoutRefused": "Closed",
        "RebalanceBegan": "Closed",
        "CoordinatorLost": "Closed",
        "CoordinatorLoading": "Closed",
        "MemberUnknown": "Closed",
        "GenerationOutdated": "Closed",
        "Contradicted": "Closed",
        "InstanceFenced": "Closed",
        "Refused": "Closed",
    },
    "Leaving": {
        "Subscribed": "=",
        "Unsubscribed": "=",
        "Closing": "Leaving",
        "ApplicationEntered": "=",
        "Rejoin": "=",
        "Doubted": "=",
        "Tick": "=",
        "LeftGroup": "Closed",
    },
    "Fenced": {
        "Subscribed": "=",
        "Unsubscribed": "Unjoined",
        "Closing": "Closed",
        "ApplicationEntered": "=",
        "Rejoin": "=",
        "Doubted": "=",
        "Tick": "=",
    },
    "Closed": {},
}
EXPECTED["Failed"] = EXPECTED["Fenced"]
for _name in ("Assigning", "Syncing"):
    EXPECTED[_name] |= {
        "Subscribed": "=",
        "Unsubscribed": "Leaving",
        "Closing": "Leaving",
        "ApplicationEntered": "=",
        "Rejoin": "=",
        "Doubted": "=",
        "Tick": "=",
        "CoordinatorFound": _name,
        "CoordinatorMissing": _name,
        "HeartbeatAnswered": _name,
        "RebalanceBegan": "Joining",
        "CoordinatorLost": "BackingOff",
        "CoordinatorLoading": "BackingOff",
        "MemberUnknown": "BackingOff",
        "GenerationOutdated": "BackingOff",
        "Contradicted": "BackingOff",
        "InstanceFenced": "Fenced",
        "Refused": "Failed",
    }


def settings(**changes: Any) -> GroupSettings:
    values: dict[str, Any] = {
        "group_instance_id": None,
        "session_timeout_ms": 45_000,
        "session_timeout_is_default": True,
        "heartbeat_interval_ms": 3_000,
        "max_poll_interval_ms": 300_000,
        "retry_backoff_ms": 100,
        "retry_backoff_max_ms": 1_000,
        "request_timeout_ms": 30_000,
    }
    return GroupSettings(**values | changes)


def machine(state: s.State | None = None, **changes: Any) -> Membership:
    membership = Membership(settings(**changes), random.Random(1), now=0.0)
    if state is not None:
        membership.state = state
        if not isinstance(state, s.Unjoined):
            membership.topics = TOPICS
    membership._last_request = 1_000
    return membership


def addressed(event: Any, state: s.State) -> Any:
    """The event as the answer to a request that the state waits for."""
    if not isinstance(event, on.Answer) or not state.awaited:
        return event
    awaited = state.awaited[0]
    fields = {name: getattr(event, name) for name in type(event).__dataclass_fields__}  # type: ignore[attr-defined]
    return type(event)(**fields | {"request": awaited})


def names(classes: Iterable[Any]) -> set[str]:
    return {type(item).__name__ for item in classes}


def test_the_examples_are_all_states_and_all_events() -> None:
    def concrete(module: Any, base: type) -> set[str]:
        return {
            name
            for name, cls in inspect.getmembers(module, inspect.isclass)
            if issubclass(cls, base) and hasattr(cls, "__dataclass_fields__")
        }

    assert names(STATES) == concrete(s, s.State)
    assert names(EVENTS) == concrete(on, on.Event)
    assert {(a.__name__, b.__name__) for a, b in TRANSITIONS} == {
        (state, event) for state, row in EXPECTED.items() for event in row
    }


@pytest.mark.parametrize("state", STATES, ids=lambda state: type(state).__name__)
@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_every_state_and_event(state: s.State, event: on.Event) -> None:
    membership = machine(state)
    event = addressed(event, state)
    expected = EXPECTED[type(state).__name__].get(type(event).__name__)
    if expected is None:
        if isinstance(event, on.Answer) and event.request not in state.awaited:
            assert membership.handle(event, 0.5) == ()  # too late to matter
            assert membership.state is state
        else:
            with pytest.raises(ImpossibleEvent):
                membership.handle(event, 0.5)
        return
    membership.handle(event, 0.5)
    if expected == "=":
        assert membership.state == state
    else:
        assert type(membership.state).__name__ == expected
    awaited = [request for request in membership.state.awaited if request is not None]
    assert len(awaited) == len(set(awaited))


@pytest.mark.parametrize("state", STATES, ids=lambda state: type(state).__name__)
@pytest.mark.parametrize(
    "event",
    [event for event in EVENTS if isinstance(event, on.Answer)],
    ids=lambda event: type(event).__name__,
)
def test_an_answer_to_another_request_changes_nothing(state: s.State, event: on.Event) -> None:
    fields = {name: getattr(event, name) for name in type(event).__dataclass_fields__}  # type: ignore[attr-defined]
    membership = machine(state)
    assert membership.handle(type(event)(**fields | {"request": 55}), 0.5) == ()
    assert membership.state is state


@pytest.mark.parametrize("state", STATES, ids=lambda state: type(state).__name__)
def test_partitions_end_only_when_revoked_or_lost(state: s.State) -> None:
    for event in EVENTS:
        membership = machine(state)
        pair = (type(state), type(event))
        if pair not in TRANSITIONS:
            continue
        effects = membership.handle(addressed(event, state), 0.5)
        was_owner = isinstance(state, s.Owner)
        is_owner = isinstance(membership.state, s.Owner)
        given_back = isinstance(event, on.Revoked)
        lost = any(isinstance(effect, do.LosePartitions) for effect in effects)
        assert lost == (was_owner and not is_owner and not given_back), event


# --- ways through the table -------------------------------------------------------------------


def only(effects: Any, cls: type) -> Any:
    found = [effect for effect in effects if isinstance(effect, cls)]
    assert len(found) == 1, effects
    return found[0]


def joining(**changes: Any) -> tuple[Membership, Any]:
    membership = machine(**changes)
    find = only(membership.handle(on.Subscribed(TOPICS), 0.0), do.FindCoordinator)
    join = only(membership.handle(on.CoordinatorFound(find.request, NODE), 0.0), do.SendJoin)
    return membership, join


def stable(now: float = 0.0, **changes: Any) -> Membership:
    membership, join = joining(**changes)
    joined = on.JoinedAsFollower(join.request, "me", 1, "range")
    sync = only(membership.handle(joined, now), do.SendSync)
    assign = only(membership.handle(on.Synced(sync.request, (P1, P0)), now), do.AssignPartitions)
    assert assign.partitions == (P0, P1)
    return membership


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
    assert only(membership.handle(answer, 0.0), do.SendSync).assignments == {}


def test_member_id_required_joins_again_at_once_under_the_id() -> None:
    membership, join = joining()
    again = only(membership.handle(on.MemberIdAssigned(join.request, "me"), 0.0), do.SendJoin)
    assert again.member_id == "me"
    assert membership.handle(on.MemberIdAssigned(again.request, "you"), 0.0)
    assert isinstance(membership.state, s.BackingOff)
    assert membership.state.identity.member_id == ""


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
    only(membership.handle(on.RebalanceBegan(beat.request), 3.0), do.RevokePartitions)


def test_a_member_without_partitions_rejoins_at_once() -> None:
    membership = machine(s.Stable(GENERATION, PULSE, ()))
    only(membership.handle(on.RebalanceBegan(PULSE_REQUEST), 3.0), do.SendJoin)


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


def beaten(membership: Membership, until: float) -> None:
    """Answer heartbeats until then."""
    while (now := membership.next_deadline()) < until:
        beat = only(membership.handle(on.Tick(), now), do.SendHeartbeat)
        membership.handle(on.HeartbeatAnswered(beat.request), now)


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
    assert [type(effect) for effect in effects] == [do.AssignPartitions, do.Interrupt]
    assert isinstance(membership.state, s.RevocationDue)


def test_a_heartbeat_answered_27_before_the_sync_does_not_end_the_sync() -> None:
    membership = machine(s.Syncing(GENERATION, PULSE, REQUEST, 0))
    membership.handle(on.RebalanceBegan(PULSE_REQUEST), 1.0)
    assert isinstance(membership.state, s.Syncing)
    only(membership.handle(on.RebalanceBegan(REQUEST), 1.0), do.SendJoin)


def test_partitions_lost_while_they_are_revoked_end_with_a_fresh_join() -> None:
    membership = machine(s.Revoking(GENERATION, PULSE, (P0,), REQUEST, s.After.JOIN))
    membership.handle(on.MemberUnknown(PULSE_REQUEST), 1.0)
    assert membership.next_deadline() == float("inf")
    join = only(membership.handle(on.Revoked(REQUEST), 2.0), do.SendJoin)
    assert join.member_id == ""


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
    assert isinstance(membership.state, s.BackingOff)


def test_a_refused_commit_brings_the_next_heartbeat_forward() -> None:
    membership = stable()
    membership.handle(on.Doubted(), 1.0)
    only(membership.handle(on.Tick(), 1.0), do.SendHeartbeat)


def test_a_fenced_instance_is_told_apart() -> None:
    membership = stable(group_instance_id="static")
    beat = only(membership.handle(on.Tick(), 3.0), do.SendHeartbeat)
    effects = membership.handle(on.InstanceFenced(beat.request, ERROR), 3.0)
    only(effects, do.LosePartitions)
    assert isinstance(membership.error, MemberFenced)
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
