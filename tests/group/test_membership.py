"""Every state x every event."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

import pytest

from aiokafkawire.group import effects as do
from aiokafkawire.group import events as on
from aiokafkawire.group import states as s
from aiokafkawire.group.membership import TRANSITIONS, ImpossibleEvent

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
    s.RevocationDue(GENERATION, PULSE, (P0,)),
    s.Revoking(GENERATION, PULSE, (P0,), REQUEST, s.After.JOIN),
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
