"""Random walks through the table. A model performs the effects."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiokafkawire.errors import KafkaError
from aiokafkawire.group.membership import events, states
from aiokafkawire.group.membership.effects import (
    ComputeAssignment,
    FindCoordinator,
    MembershipEffect,
    RevokePartitions,
    SendHeartbeat,
    SendJoin,
    SendLeave,
    SendSync,
)

from .machines import NODE, P0, P1, machine
from .test_membership_machine import check_invariants, check_step

ERROR = KafkaError("refused")

COMMON: tuple[Any, ...] = (
    events.CoordinatorUnavailable,
    events.CoordinatorLoadInProgress,
    events.UnknownMemberId,
    events.IllegalGeneration,
    events.RebalanceInProgress,
)


def draw_result(effect: MembershipEffect, data: st.DataObject) -> events.MembershipEvent:
    """Return one of the possible results of a request."""
    request = effect.request  # type: ignore[attr-defined]
    failures = [make(request) for make in COMMON]
    failures += [events.InstanceFenced(request, ERROR), events.FatalErrorOccurred(request, ERROR)]
    failures += [
        events.ProtocolViolation(request, "nonsense"),
        events.UnknownServerErrorReceived(request, ERROR),
    ]
    match effect:
        case FindCoordinator():
            good: list[Any] = [events.CoordinatorFound(request, NODE)]
            failures = [
                events.CoordinatorNotFound(request),
                events.FatalErrorOccurred(request, ERROR),
            ]
            failures += [events.UnknownServerErrorReceived(request, ERROR)]
        case SendJoin(member_id=member_id):
            generation = data.draw(st.integers(max(effect.generation, 0), 9))
            me = member_id or "me"
            member = states.JoinedMember(me, None, b"")
            good = [
                events.JoinedAsFollower(request, me, generation, "range"),
                events.JoinedAsLeader(request, me, generation, "range", (member,)),
                events.MemberIdAssigned(request, "me"),
                events.SessionTimeoutRejected(request, ERROR),
            ]
        case ComputeAssignment():
            good = [events.AssignmentComputed(request, {"me": b""})]
            failures = [events.FatalErrorOccurred(request, ERROR)]
        case SendSync():
            given = data.draw(st.sampled_from([(P0, P1), (P1, P0), (P0,), (P1,), ()]))
            good = [events.Synced(request, given)]
        case SendHeartbeat():
            good = [events.HeartbeatSucceeded(request)]
        case SendLeave():
            return events.GroupLeft(request)
        case RevokePartitions():
            return events.PartitionsRevoked(request)
        case _:
            raise AssertionError(effect)
    return data.draw(st.sampled_from(good * 3 + failures))


REQUESTS = (
    FindCoordinator,
    SendJoin,
    ComputeAssignment,
    SendSync,
    SendHeartbeat,
    SendLeave,
    RevokePartitions,
)


class Environment:
    """Performs the effects of a machine and checks it after each step."""

    def __init__(self, data: st.DataObject, *, cooperative: bool) -> None:
        self.machine = machine(cooperative=cooperative)
        self.waiting: list[MembershipEffect] = []
        self.now = 0.0
        self._data = data

    def handle(self, event: events.MembershipEvent) -> None:
        before = self.machine.state
        late = isinstance(event, events.RequestCompleted) and event.request not in before.awaited
        effects = self.machine.handle(event, self.now)
        check_invariants(self.machine)
        if not late:
            check_step(before, event, effects, self.machine.state)
        self.waiting += [effect for effect in effects if isinstance(effect, REQUESTS)]

    def answer(self, index: int) -> None:
        effect = self.waiting.pop(index)
        self.handle(draw_result(effect, self._data))

    def tick(self) -> None:
        self.now = min(self.machine.next_deadline(), self.now + 400)
        self.handle(events.DeadlineReached())


@settings(max_examples=100, deadline=None)
@given(st.data(), st.booleans())
@pytest.mark.slow
def test_each_assigned_partition_is_revoked_or_lost_for_any_responses(
    data: st.DataObject, cooperative: bool
) -> None:
    environment = Environment(data, cooperative=cooperative)
    m = environment.machine
    environment.handle(events.Subscribed(("orders",)))
    for _ in range(data.draw(st.integers(1, 60))):
        if m.is_closed:
            break
        match data.draw(st.sampled_from(["answer"] * 5 + ["tick", "tick", "poll", "input"])):
            case "answer" if environment.waiting:
                environment.answer(data.draw(st.integers(0, len(environment.waiting) - 1)))
            case "tick":
                environment.tick()
            case "poll":
                m.context.poll_timer.start_poll(environment.now)
                environment.handle(events.PollStarted())
                if m.error is not None:
                    environment.handle(events.GroupErrorReported())
                if data.draw(st.booleans()):
                    m.context.poll_timer.finish_poll(environment.now)
            case "input":
                inputs = [
                    events.Subscribed(("orders",)),
                    events.Subscribed(("orders", "payments")),
                    events.Subscribed(("payments",)),
                    events.Unsubscribed(),
                    events.RejoinRequested("grew"),
                    events.CommitRejected(),
                    events.CloseRequested(environment.now + 5),
                ]
                environment.handle(data.draw(st.sampled_from(inputs)))
    if not m.is_closed:
        environment.handle(events.CloseRequested(environment.now + 5))
    for _ in range(30):
        if m.is_closed:
            break
        if environment.waiting:
            environment.answer(-1)
        else:
            environment.tick()
    assert m.is_closed
