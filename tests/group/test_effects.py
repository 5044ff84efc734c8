"""A walk through the table with effects performed by a model of the world."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from aiokafkawire.errors import KafkaError
from aiokafkawire.group import effects as do
from aiokafkawire.group import events as on
from aiokafkawire.group import states as s

from .machines import NODE, P0, P1, machine

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
    failures += [on.Contradicted(request, "nonsense")]
    match effect:
        case do.FindCoordinator():
            good: list[Any] = [on.CoordinatorFound(request, NODE)]
            failures = [on.CoordinatorMissing(request), on.Refused(request, ERROR)]
        case do.SendJoin(member_id=member_id):
            generation = data.draw(st.integers(0, 9))
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
            good = [on.Synced(request, (P0, P1)), on.Synced(request, ())]
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


@settings(max_examples=100)
@given(st.data())
def test_partitions_come_and_go_in_pairs_whatever_the_world_answers(data: st.DataObject) -> None:
    m = machine()
    m.state = s.Unjoined()
    now = 0.0
    owned: tuple[Any, ...] = ()
    waiting: list[do.Effect] = []

    def handle(event: on.Event) -> None:
        nonlocal owned
        for effect in m.handle(event, now):
            if isinstance(effect, REQUESTS):
                waiting.append(effect)
            if isinstance(effect, do.AssignPartitions):
                assert owned == ()
                assert {tp.topic for tp in effect.partitions} <= set(effect.generation.topics)
                owned = effect.partitions
            elif isinstance(effect, do.LosePartitions):
                assert effect.partitions == owned
                owned = ()
        if isinstance(event, on.Revoked) and not isinstance(m.state, s.Owner):
            owned = ()
        if not isinstance(m.state, s.Owner):
            assert owned == () or isinstance(event, on.Revoked)

    handle(on.Subscribed(("orders",)))
    for _ in range(data.draw(st.integers(1, 60))):
        if m.done:
            break
        match data.draw(st.sampled_from(["answer"] * 5 + ["tick", "tick", "enter", "say"])):
            case "answer" if waiting:
                index = data.draw(st.integers(0, len(waiting) - 1))
                handle(answers(waiting.pop(index), data))
            case "tick":
                now = min(m.next_deadline(), now + 400)
                handle(on.Tick())
            case "enter":
                m.presence.enter(now)
                handle(on.ApplicationEntered())
                if data.draw(st.booleans()):
                    m.presence.leave(now)
            case "say":
                said = [
                    on.Subscribed(("orders",)),
                    on.Subscribed(("orders", "payments")),
                    on.Unsubscribed(),
                    on.Rejoin("grew"),
                    on.Doubted(),
                    on.Closing(now + 5),
                ]
                handle(data.draw(st.sampled_from(said)))
    handle(on.Closing(now + 5)) if not m.done else None
    for _ in range(20):
        if m.done:
            break
        if waiting:
            effect = waiting.pop()
            handle(answers(effect, data))
        else:
            now = min(m.next_deadline(), now + 400)
            handle(on.Tick())
    assert m.done
    assert owned == ()
