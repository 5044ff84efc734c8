"""A walk through the table with effects performed by a model of the world."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiokafkawire.errors import KafkaError
from aiokafkawire.group import effects as do
from aiokafkawire.group import events as on
from aiokafkawire.group import states as s

from .machines import NODE, P0, P1, machine
from .test_membership import check_invariants, check_step

ERROR = KafkaError("refused")

COMMON: tuple[Any, ...] = (
    on.CoordinatorLost,
    on.CoordinatorLoading,
    on.MemberUnknown,
    on.GenerationOutdated,
    on.RebalanceBegan,
)


def answers(effect: do.Effect, data: st.DataObject) -> on.Event:
    """One of the answers that the world may give to a request."""
    request = effect.request  # type: ignore[attr-defined]
    failures = [make(request) for make in COMMON]
    failures += [on.InstanceFenced(request, ERROR), on.Refused(request, ERROR)]
    failures += [on.Contradicted(request, "nonsense"), on.ServerFailed(request, ERROR)]
    match effect:
        case do.FindCoordinator():
            good: list[Any] = [on.CoordinatorFound(request, NODE)]
            failures = [on.CoordinatorMissing(request), on.Refused(request, ERROR)]
            failures += [on.ServerFailed(request, ERROR)]
        case do.SendJoin(member_id=member_id):
            generation = data.draw(st.integers(max(effect.generation, 0), 9))
            me = member_id or "me"
            member = s.JoinedMember(me, None, b"")
            good = [
                on.JoinedAsFollower(request, me, generation, "range"),
                on.JoinedAsLeader(request, me, generation, "range", (member,)),
                on.MemberIdAssigned(request, "me"),
                on.SessionTimeoutRefused(request, ERROR),
            ]
        case do.MakeAssignment():
            good = [on.AssignmentMade(request, {"me": b""})]
            failures = [on.Refused(request, ERROR)]
        case do.SendSync():
            given = data.draw(st.sampled_from([(P0, P1), (P1, P0), (P0,), (P1,), ()]))
            good = [on.Synced(request, given)]
        case do.SendHeartbeat():
            good = [on.HeartbeatAnswered(request)]
        case do.SendLeave():
            return on.LeftGroup(request)
        case do.RevokePartitions():
            return on.Revoked(request)
        case _:
            raise AssertionError(effect)
    return data.draw(st.sampled_from(good * 3 + failures))


REQUESTS = (
    do.FindCoordinator,
    do.SendJoin,
    do.MakeAssignment,
    do.SendSync,
    do.SendHeartbeat,
    do.SendLeave,
    do.RevokePartitions,
)


class World:
    """Carries out what a machine asks for, and holds it to what must be so after each step."""

    def __init__(self, data: st.DataObject, *, cooperative: bool) -> None:
        self.machine = machine(cooperative=cooperative)
        self.waiting: list[do.Effect] = []
        self.now = 0.0
        self._data = data

    def handle(self, event: on.Event) -> None:
        before = self.machine.state
        late = isinstance(event, on.Answer) and event.request not in before.awaited
        effects = self.machine.handle(event, self.now)
        check_invariants(self.machine)
        if not late:
            check_step(before, event, effects, self.machine.state)
        self.waiting += [effect for effect in effects if isinstance(effect, REQUESTS)]

    def answer(self, index: int) -> None:
        effect = self.waiting.pop(index)
        self.handle(answers(effect, self._data))

    def tick(self) -> None:
        self.now = min(self.machine.next_deadline(), self.now + 400)
        self.handle(on.Tick())


@settings(max_examples=100, deadline=None)
@given(st.data(), st.booleans())
@pytest.mark.slow
def test_partitions_come_and_go_in_pairs_whatever_the_world_answers(
    data: st.DataObject, cooperative: bool
) -> None:
    world = World(data, cooperative=cooperative)
    m = world.machine
    world.handle(on.Subscribed(("orders",)))
    for _ in range(data.draw(st.integers(1, 60))):
        if m.done:
            break
        match data.draw(st.sampled_from(["answer"] * 5 + ["tick", "tick", "enter", "say"])):
            case "answer" if world.waiting:
                world.answer(data.draw(st.integers(0, len(world.waiting) - 1)))
            case "tick":
                world.tick()
            case "enter":
                m.presence.enter(world.now)
                world.handle(on.ApplicationEntered())
                if m.error is not None:
                    world.handle(on.Told())
                if data.draw(st.booleans()):
                    m.presence.leave(world.now)
            case "say":
                said = [
                    on.Subscribed(("orders",)),
                    on.Subscribed(("orders", "payments")),
                    on.Subscribed(("payments",)),
                    on.Unsubscribed(),
                    on.Rejoin("grew"),
                    on.Doubted(),
                    on.Closing(world.now + 5),
                ]
                world.handle(data.draw(st.sampled_from(said)))
    if not m.done:
        world.handle(on.Closing(world.now + 5))
    for _ in range(30):
        if m.done:
            break
        if world.waiting:
            world.answer(-1)
        else:
            world.tick()
    assert m.done
