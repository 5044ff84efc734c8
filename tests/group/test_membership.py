"""Every state x every event."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterable
from typing import Any

import pytest

from aiokafkawire.group import effects as do
from aiokafkawire.group import events as on
from aiokafkawire.group import states as s
from aiokafkawire.group.membership import TRANSITIONS, Membership
from aiokafkawire.runtime import NEVER
from aiokafkawire.runtime.transitions import ImpossibleEvent
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
    REQUEST,
    TOPICS,
    addressed,
    machine,
)

STATES: tuple[s.State, ...] = (
    s.Unjoined(),
    s.FindingCoordinator(KNOWN, REQUEST),
    s.BackingOff(KNOWN, NODE, 1.0),
    s.Joining(KNOWN, NODE, TOPICS, REQUEST),
    s.Assigning(GENERATION, PULSE, REQUEST, 0),
    s.Syncing(GENERATION, PULSE, REQUEST, 0),
    s.Stable(GENERATION, PULSE, (P0,)),
    s.RevocationDue(GENERATION, PULSE, (P0,), (P0,)),
    s.Revoking(GENERATION, PULSE, (P0,), (P0,), REQUEST, s.After.JOIN),
    s.Returning(GENERATION, PULSE, (P0,), 1, 1.0),
    s.Rejoining(GENERATION, PULSE, (P0,), 0, REQUEST, NODE, TOPICS),
    s.Reassigning(GENERATION, PULSE, (P0,), REQUEST, 0),
    s.Resyncing(GENERATION, PULSE, (P0,), REQUEST, 0),
    s.Lapsed(),
    s.AwaitingIdentity(REQUEST, s.After.CLOSE, 10.0),
    s.Leaving(REQUEST, s.After.CLOSE, 10.0),
    s.Fenced(ERROR),
    s.Failed(ERROR),
    s.Closed(),
)


EVENTS: tuple[Any, ...] = (
    on.Subscribed(("payments",)),
    on.Unsubscribed(),
    on.Closing(50.0),
    on.ApplicationEntered(),
    on.Rejoin("more partitions"),
    on.Doubted(),
    on.Told(),
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
    on.ServerFailed(REQUEST, ERROR),
    on.Refused(REQUEST, ERROR),
    on.Revoked(REQUEST),
    on.LeftGroup(REQUEST),
)


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
        "ServerFailed": "BackingOff",
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
        "ServerFailed": "BackingOff",
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
        "ServerFailed": "Stable",
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
        "ServerFailed": "RevocationDue",
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
        "ServerFailed": "Revoking",
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
        "ServerFailed": "Closed",
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
        "Told": "Fenced",
        "Tick": "=",
    },
    "Closed": {},
}


EXPECTED["Failed"] = EXPECTED["Fenced"] | {"Told": "Failed"}


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
        "ServerFailed": "BackingOff",
        "Refused": "Failed",
    }

for _name in ("Returning", "Rejoining", "Reassigning", "Resyncing"):
    EXPECTED[_name] = {
        "Subscribed": "=",
        "Unsubscribed": _name,
        "Closing": _name,
        "ApplicationEntered": "=",
        "Rejoin": "=",
        "Doubted": _name,
        "Tick": "=",
        "HeartbeatAnswered": _name,
        "CoordinatorFound": _name,
        "CoordinatorMissing": _name,
        "CoordinatorLost": "Returning",
        "CoordinatorLoading": "Returning",
        "RebalanceBegan": "Returning",
        "MemberUnknown": "BackingOff",
        "GenerationOutdated": "BackingOff",
        "Contradicted": "BackingOff",
        "InstanceFenced": "Fenced",
        "ServerFailed": "Returning",
        "Refused": "Failed",
    }

EXPECTED["Returning"] |= {
    "Unsubscribed": "Revoking",
    "Closing": "Revoking",
    "Contradicted": "Returning",  # by a heartbeat: nothing else is under way
}
EXPECTED["Rejoining"] |= {
    "CoordinatorFound": "Returning",
    "JoinedAsFollower": "Resyncing",
    "JoinedAsLeader": "Reassigning",
    "MemberIdAssigned": "BackingOff",
    "SessionTimeoutRefused": "Returning",
}
EXPECTED["Reassigning"] |= {"AssignmentMade": "Resyncing"}
EXPECTED["Resyncing"] |= {"Synced": "Stable"}


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
    assert {row.__name__ for row, _ in TRANSITIONS} | {"Closed"} == set(EXPECTED) == names(STATES)
    assert {(a.__name__, b.__name__) for a, b in TRANSITIONS} == {
        (state, event) for state, row in EXPECTED.items() for event in row
    }


def machine_in(state: s.State) -> Membership:
    return machine(state, cooperative=isinstance(state, s.Keeper))


@pytest.mark.parametrize("state", STATES, ids=lambda state: type(state).__name__)
def test_every_state_and_event(state: s.State) -> None:
    for event in EVENTS:
        check_event(state, event)


def check_event(state: s.State, event: on.Event) -> None:
    membership = machine_in(state)
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
    effects = membership.handle(event, 0.5)
    if expected == "=":
        assert membership.state == state, event
    else:
        assert type(membership.state).__name__ == expected, event
    check_invariants(membership)
    check_step(state, event, effects, membership.state)


def check_invariants(membership: Membership) -> None:
    """What is so in every state."""
    state = membership.state
    awaited = [request for request in state.awaited if request is not None]
    assert len(awaited) == len(set(awaited))
    if isinstance(state, s.Owner):
        assert state.pulse.deadline < NEVER or not state.generation.member_id
        assert membership.next_deadline() < NEVER or not state.generation.member_id
        assert state.assignment or isinstance(state, s.Stable)
        assert len(set(state.assignment)) == len(state.assignment)
    else:
        assert membership.generation is None
    if isinstance(state, s.RevocationDue | s.Revoking):
        assert state.going
        assert set(state.going) <= set(state.assignment)
        assert not set(state.coming or ()) & set(state.assignment)
    if isinstance(state, s.Keeper):
        assert membership.settings.cooperative
    assert (membership.error is not None) == isinstance(state, s.Failed | s.Fenced)
    assert membership.done == isinstance(state, s.Closed)


def owned_by(state: s.State) -> set[TopicPartition]:
    return set(state.assignment) if isinstance(state, s.Owner) else set()


def check_step(before: s.State, event: on.Event, effects: Any, after: s.State) -> None:
    """Partitions come by an assignment, and go only when they are revoked or lost."""
    come, lost = set(), set()
    for effect in effects:
        if isinstance(effect, do.AssignPartitions):
            come.update(effect.partitions)
        elif isinstance(effect, do.LosePartitions):
            lost.update(effect.partitions)
        elif isinstance(effect, do.EnterGeneration):
            assert isinstance(event, on.Synced)
    revoked: set[TopicPartition] = set()
    if isinstance(event, on.Revoked):
        assert isinstance(before, s.Revoking)
        revoked = set(before.going)
    had = owned_by(before)
    assert not come & had
    assert not lost & revoked
    assert owned_by(after) == (had | come) - lost - revoked
    sent = [effect for effect in effects if isinstance(effect, do.SendJoin)]
    assert all(set(join.owned) == owned_by(after) for join in sent)


@pytest.mark.parametrize("state", STATES, ids=lambda state: type(state).__name__)
def test_an_answer_to_another_request_changes_nothing(state: s.State) -> None:
    for event in EVENTS:
        if isinstance(event, on.Answer):
            late = dataclasses.replace(event, request=55)  # type: ignore[type-var]
            membership = machine_in(state)
            assert membership.handle(late, 0.5) == (), late
            assert membership.state is state, late
