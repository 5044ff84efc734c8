"""Every event in every state."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterable
from typing import Any

import pytest

from aiokafkawire.group.membership import events, states
from aiokafkawire.group.membership.effects import (
    AssignPartitions,
    EnterGeneration,
    LosePartitions,
    SendJoin,
)
from aiokafkawire.group.membership.membership_machine import MembershipMachine
from aiokafkawire.group.membership.table import TRANSITIONS
from aiokafkawire.runtime import NEVER
from aiokafkawire.runtime.state_machine import InvalidTransition
from aiokafkawire.types import TopicPartition

from .. import golden
from .machines import (
    ATTEMPT,
    ERROR,
    GENERATION,
    HEARTBEAT,
    KNOWN,
    MEMBERS,
    NODE,
    P0,
    P1,
    REQUEST,
    TOPICS,
    as_response,
    machine,
)

STATES: tuple[states.MembershipState, ...] = (
    states.Unjoined(),
    states.FindingCoordinator(KNOWN, REQUEST),
    states.BackingOff(KNOWN, NODE, 1.0),
    states.Joining(KNOWN, NODE, TOPICS, REQUEST),
    states.Assigning(GENERATION, HEARTBEAT, REQUEST, ATTEMPT),
    states.Syncing(GENERATION, HEARTBEAT, REQUEST, ATTEMPT),
    states.Stable(GENERATION, HEARTBEAT, (P0,)),
    states.RevocationDue(GENERATION, HEARTBEAT, (P0,), (P0,), "why"),
    states.Revoking(GENERATION, HEARTBEAT, (P0,), (P0,), REQUEST, states.NextAction.JOIN),
    states.RejoinBackoff(GENERATION, HEARTBEAT, (P0,), ATTEMPT, 1.0),
    states.Rejoining(GENERATION, HEARTBEAT, (P0,), ATTEMPT, REQUEST, NODE, TOPICS),
    states.Reassigning(GENERATION, HEARTBEAT, (P0,), REQUEST, ATTEMPT),
    states.Resyncing(GENERATION, HEARTBEAT, (P0,), REQUEST, ATTEMPT),
    states.PollTimedOut(),
    states.AwaitingMemberId(REQUEST, states.NextAction.CLOSE, 10.0),
    states.Leaving(REQUEST, states.NextAction.CLOSE, 10.0),
    states.Fenced(ERROR),
    states.JoinFailed(ERROR),
    states.MembershipClosed(),
)


EVENTS: tuple[Any, ...] = (
    events.Subscribed(("payments",)),
    events.Unsubscribed(),
    events.CloseRequested(50.0),
    events.PollStarted(),
    events.RejoinRequested("more partitions"),
    events.CommitRejected(),
    events.GroupErrorReported(),
    events.DeadlineReached(),
    events.CoordinatorFound(REQUEST, 8),
    events.CoordinatorNotFound(REQUEST),
    events.JoinedAsFollower(REQUEST, "me", 6, "range"),
    events.JoinedAsLeader(REQUEST, "me", 6, "range", MEMBERS),
    events.MemberIdAssigned(REQUEST, "new"),
    events.SessionTimeoutRejected(REQUEST, ERROR),
    events.AssignmentComputed(REQUEST, {"me": b"", "other": b""}),
    events.Synced(REQUEST, (P0, P1)),
    events.HeartbeatSucceeded(REQUEST),
    events.RebalanceInProgress(REQUEST),
    events.CoordinatorUnavailable(REQUEST),
    events.CoordinatorLoadInProgress(REQUEST),
    events.UnknownMemberId(REQUEST),
    events.IllegalGeneration(REQUEST),
    events.ProtocolViolation(REQUEST, "nonsense"),
    events.InstanceFenced(REQUEST, ERROR),
    events.UnknownServerErrorReceived(REQUEST, ERROR),
    events.FatalErrorOccurred(REQUEST, ERROR),
    events.PartitionsRevoked(REQUEST),
    events.GroupLeft(REQUEST),
)


EXPECTED = golden.read("membership")
"""The next state; "=" if the state does not change at all. Other pairs have no transition."""


def observed() -> dict[tuple[str, str], str]:
    """Return the next state by state and event."""
    table = {}
    for state in STATES:
        for event in EVENTS:
            if (type(state), type(event)) in TRANSITIONS:
                membership = machine_in(state)
                membership.handle(as_response(event, state), 0.5)
                unchanged = membership.state == state
                then = "=" if unchanged else type(membership.state).__name__
                table[type(state).__name__, type(event).__name__] = then
    return table


def names(classes: Iterable[Any]) -> set[str]:
    return {type(item).__name__ for item in classes}


def test_the_tables_contain_all_states_and_events() -> None:
    def concrete(module: Any, base: type) -> set[str]:
        return {
            name
            for name, cls in inspect.getmembers(module, inspect.isclass)
            if issubclass(cls, base) and hasattr(cls, "__dataclass_fields__")
        }

    assert names(STATES) == concrete(states, states.MembershipState)
    assert names(EVENTS) == concrete(events, events.MembershipEvent)
    assert {row.__name__ for row, _ in TRANSITIONS} | {"MembershipClosed"} == names(STATES)


def machine_in(state: states.MembershipState) -> MembershipMachine:
    return machine(state, cooperative=isinstance(state, states.CooperativeRejoin))


@pytest.mark.parametrize("state", STATES, ids=lambda state: type(state).__name__)
def test_every_state_and_event(state: states.MembershipState) -> None:
    for event in EVENTS:
        check_event(state, event)


def check_event(state: states.MembershipState, event: events.MembershipEvent) -> None:
    membership = machine_in(state)
    event = as_response(event, state)
    expected = EXPECTED.get((type(state).__name__, type(event).__name__))
    if expected is None:
        if isinstance(event, events.RequestCompleted) and event.request not in state.awaited:
            assert membership.handle(event, 0.5) == ()  # a late response is ignored
            assert membership.state is state
        else:
            with pytest.raises(InvalidTransition):
                membership.handle(event, 0.5)
        return
    effects = membership.handle(event, 0.5)
    if expected == "=":
        assert membership.state == state, event
    else:
        assert type(membership.state).__name__ == expected, event
    check_invariants(membership)
    check_step(state, event, effects, membership.state)


def check_invariants(membership: MembershipMachine) -> None:
    """Check the invariants of all states."""
    state = membership.state
    awaited = [request for request in state.awaited if request is not None]
    assert len(awaited) == len(set(awaited))
    if isinstance(state, states.Assigned):
        assert state.heartbeat.deadline < NEVER or not state.generation.member_id
        assert membership.next_deadline() < NEVER or not state.generation.member_id
        assert state.assignment or isinstance(state, states.Stable)
        assert len(set(state.assignment)) == len(state.assignment)
    else:
        assert membership.generation is None
    if isinstance(state, states.RevocationDue | states.Revoking):
        assert state.to_revoke
        assert set(state.to_revoke) <= set(state.assignment)
        assert not set(state.to_add or ()) & set(state.assignment)
    if isinstance(state, states.CooperativeRejoin):
        assert membership.context.settings.cooperative
    assert (membership.error is not None) == isinstance(state, states.JoinFailed | states.Fenced)
    assert membership.is_closed == isinstance(state, states.MembershipClosed)


def owned_by(state: states.MembershipState) -> set[TopicPartition]:
    return set(state.assignment) if isinstance(state, states.Assigned) else set()


def check_step(
    before: states.MembershipState,
    event: events.MembershipEvent,
    effects: Any,
    after: states.MembershipState,
) -> None:
    """Check that partitions are only added by an assignment and removed by revocation or loss."""
    come, lost = set(), set()
    for effect in effects:
        if isinstance(effect, AssignPartitions):
            come.update(effect.partitions)
        elif isinstance(effect, LosePartitions):
            lost.update(effect.partitions)
        elif isinstance(effect, EnterGeneration):
            assert isinstance(event, events.Synced)
    revoked: set[TopicPartition] = set()
    if isinstance(event, events.PartitionsRevoked):
        assert isinstance(before, states.Revoking)
        revoked = set(before.to_revoke)
    had = owned_by(before)
    assert not come & had
    assert not lost & revoked
    assert owned_by(after) == (had | come) - lost - revoked
    sent = [effect for effect in effects if isinstance(effect, SendJoin)]
    assert all(set(join.owned) == owned_by(after) for join in sent)


@pytest.mark.parametrize("state", STATES, ids=lambda state: type(state).__name__)
def test_a_late_response_is_ignored(state: states.MembershipState) -> None:
    for event in EVENTS:
        if isinstance(event, events.RequestCompleted):
            late = dataclasses.replace(event, request=55)  # type: ignore[type-var]
            membership = machine_in(state)
            assert membership.handle(late, 0.5) == (), late
            assert membership.state is state, late
