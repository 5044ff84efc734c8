"""Invariants 7 and 8: that they pass what is right, and name what is wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from aiokafkawire.types import TopicPartition
from tests.verify.invariants.history_builder import T0, T1, HistoryBuilder
from verify.invariants import events
from verify.invariants.checks.groups import Owners
from verify.invariants.observed import Assignment, CommitRequest, GenerationAssigned

COOPERATIVE = {"partition_assignment_strategy": ("cooperative-sticky",)}
EAGER = {"partition_assignment_strategy": ("range", "cooperative-sticky")}


def answered(
    generation: int, *partitions: TopicPartition, client: str = "c", at: float | None = None
) -> Assignment:
    when = generation - 0.5 if at is None else at
    return Assignment(when, client, "g", f"m-{client}", generation, partitions)


def commit(
    generation: int,
    *partitions: TopicPartition,
    client: str = "c",
    member: str | None = None,
    **rest: Any,
) -> CommitRequest:
    return CommitRequest(
        rest.pop("at", 100.0),
        client,
        "g",
        f"m-{client}" if member is None else member,
        generation,
        tuple((tp, 1) for tp in partitions),
        (0,) * len(partitions),
        **rest,
    )


def found(
    builder: HistoryBuilder,
    number: int,
    *commits: CommitRequest,
    assignments: tuple[Assignment, ...] = (),
    **rest: Any,
) -> list[str]:
    texts = builder.found(commits=commits, assignments=assignments, **rest)
    return [text.split(": ")[0].partition(" ")[2] for n, text in texts if n == number]


def member(**options: Any) -> HistoryBuilder:
    builder = HistoryBuilder()
    builder.consumer(**(options or EAGER))
    return builder


STRANGE = "partitions were committed by members that do not own them"
OUTSIDE = "members committed without a member id"
BACK = "members used an earlier generation again"
KEPT = "members do not own exactly their assigned partitions"


def test_owners_commit() -> None:
    given = (answered(1, T0, T1), answered(2, T0))
    assert found(member(), 7, commit(1, T0, T1, at=1.0), assignments=given) == []
    assert found(member(), 7, commit(2, T0), assignments=given) == []


def test_only_the_owner_commits_a_partition() -> None:
    given = (answered(1, T0, T1), answered(2, T0))
    assert found(member(), 7, commit(2, T0, T1), assignments=given) == [STRANGE]
    assert found(member(), 7, commit(1, T0), assignments=()) == []
    assert found(member(), 7, commit(1, T0, member="else"), assignments=given) == [STRANGE]
    early = (answered(2, T0, at=200.0),)
    assert found(member(), 7, commit(2, T0), assignments=early) == [STRANGE]


def test_a_cooperative_member_commits_what_it_gives_back() -> None:
    given = (answered(1, T0, T1), answered(2, T0))
    builder = member(**COOPERATIVE)
    assert found(builder, 7, commit(2, T0, T1), assignments=given) == []
    kept = GenerationAssigned(1.0, "g", 2, (("m-c", (T0,)), ("m-d", ())))
    assert found(builder, 7, commit(2, T1), assignments=given, generations=(kept,)) == []
    gone = GenerationAssigned(1.0, "g", 2, (("m-c", (T0,)), ("m-d", (T1,))))
    assert found(builder, 7, commit(2, T1), assignments=given, generations=(gone,)) == [STRANGE]


def test_a_cooperative_member_gives_back_when_its_application_calls() -> None:
    builder = member(**COOPERATIVE)
    builder.assigned(T0, T1)
    called = builder.time
    later = [answered(generation, T0, at=called + 0.1) for generation in (2, 3)]
    given = (answered(1, T0, T1, at=called - 0.9), *later)
    assert found(builder, 7, commit(3, T1), assignments=given) == []
    builder.revoked(T1)
    assert found(builder, 7, commit(3, T1), assignments=given) == []
    builder.assigned()
    assert found(builder, 7, commit(3, T1), assignments=given) == [STRANGE]


def test_a_cooperative_member_keeps_what_a_lost_answer_took_away() -> None:
    builder = member(**COOPERATIVE)
    lost = replace(answered(2, T0), received=False)
    given = (answered(1, T0, T1), lost, answered(3, T0))
    assert found(builder, 7, commit(3, T1), assignments=given) == []
    for generation in (2, 3):
        members = (("m-c", (T0,)), ("m-d", (T1,)))
        gone = GenerationAssigned(generation - 0.6, "g", generation, members)
        findings = found(builder, 7, commit(3, T1), assignments=given, generations=(gone,))
        assert findings == [STRANGE]


def test_a_member_that_has_joined_and_not_synced_yet_owns_what_it_had() -> None:
    given = (answered(1, T0),)
    assert found(member(), 7, commit(2, T0), assignments=given) == []
    assert found(member(), 7, commit(2, T1), assignments=given) == [STRANGE]


def test_a_member_does_not_commit_as_if_it_were_none() -> None:
    given = (answered(1, T0),)
    alone = commit(-1, T0, member="")
    assert found(member(), 7, alone, assignments=given) == [OUTSIDE]
    for left in (events.Unsubscribed, events.PartitionsAssignedManually):
        builder = member()
        builder.add(left, "c", *([(T0,)] if left is events.PartitionsAssignedManually else []))
        assert found(builder, 7, alone, assignments=given) == []


def test_generations_do_not_go_back_on_a_connection() -> None:
    given = (answered(1, T0), answered(2, T0))
    there = {"node": 1, "connection": 7}
    commits = (commit(2, T0, **there), commit(1, T0, **there))
    assert found(member(), 7, *commits, assignments=given) == [BACK]
    other = (commit(2, T0, **there), commit(1, T0, node=1, connection=6))
    assert found(member(), 7, *other, assignments=given) == []


def test_generations_begin_again_with_a_group_that_replaces_an_empty_one() -> None:
    there = {"node": 1, "connection": 7}
    commits = (commit(6, T0, at=10.0, **there), commit(2, T0, at=30.0, **there))
    given = (answered(6, T0, at=5.0), answered(2, T0, at=20.0))
    assert found(member(), 7, *commits, assignments=given) == []
    earlier = (answered(2, T0, at=1.0), answered(6, T0, at=5.0))
    assert found(member(), 7, *commits, assignments=earlier) == [BACK]


def test_offsets_of_transactions_name_their_member_too() -> None:
    given = (answered(1, T0),)
    sent = commit(1, T1, client="p", member="m-c", producer_id=5)
    assert found(member(), 7, sent, assignments=given) == [STRANGE]
    nobody = commit(-1, T1, client="p", member="", producer_id=5)
    assert found(member(), 7, nobody, assignments=given) == []


def test_members_own_what_they_were_given() -> None:
    builder = member(**COOPERATIVE)
    builder.assigned(T0, T1)
    one = answered(1, T0, T1)
    assert found(builder, 7, assignments=(one,)) == []
    builder.revoked(T1)
    builder.assigned()
    two = answered(2, T0, at=builder.time - 1.5)
    assert found(builder, 7, assignments=(one, two)) == []
    assert found(builder, 7, assignments=(answered(1, T0), two)) == [KEPT]
    assert found(builder, 7, assignments=(one, answered(2, T1, at=two.at))) == [KEPT]
    # The answer to the next question may arrive before the listener was called for this one.
    three = answered(3, at=builder.time - 0.5)
    assert found(builder, 7, assignments=(one, two, three)) == []


def test_members_that_keep_what_went() -> None:
    builder = member(**COOPERATIVE)
    builder.assigned(T0, T1)
    builder.assigned()
    given = (answered(1, T0, T1), answered(2, T0, at=builder.time - 0.5))
    assert found(builder, 7, assignments=given) == []  # it may be of the answer before
    builder.assigned()
    third = answered(3, T0, at=builder.time - 0.5)
    assert found(builder, 7, assignments=(*given, third)) == [KEPT]


def slow_listener(builder: HistoryBuilder) -> tuple[Assignment, ...]:
    """Assign T0; T1 comes while the listener runs, and all partitions are taken away again."""
    builder.assigned(T0)
    began = builder.time
    builder.add(events.CallbackEnded, "c", "on_partitions_assigned")
    builder.time -= 1
    builder.assigned(T1)
    return (
        answered(1, T0, at=began - 0.5),
        answered(2, T0, T1, at=began + 0.1),
        answered(2, T0, at=began + 0.2),
        answered(2, at=began + 0.3),
    )


def test_an_assignment_that_waits_for_the_listener() -> None:
    builder = member(group_protocol="consumer")
    given = slow_listener(builder)
    assert found(builder, 7, commit(2, T0, T1, at=builder.time), assignments=given) == []
    strange = commit(2, TopicPartition("t", 2), at=builder.time)
    assert found(builder, 7, strange, assignments=given) == [STRANGE]
    builder.assigned()
    assert found(builder, 7, commit(2, T1), assignments=given) == [STRANGE, KEPT]


def test_an_assignment_that_does_not_wait_for_the_listener() -> None:
    builder = member(group_protocol="consumer")
    given = slow_listener(builder)
    builder.history[-1] = replace(builder.history[-1], at=builder.time + 0.1)
    findings = found(builder, 7, commit(2, T1, at=builder.time + 0.1), assignments=given)
    assert findings == [STRANGE, KEPT]
    assert found(builder, 7, assignments=given[1:]) == [KEPT]


def test_without_requests_no_member_is_checked() -> None:
    assert 7 in member().not_checked(commits=())
    assert 7 in member().not_checked(commits=(), assignments=())


# --- owners at rest ------------------------------------------------------------------------------

ONE_EACH = "partitions do not have exactly one owner"


def two_members() -> HistoryBuilder:
    builder = HistoryBuilder()
    builder.made(partitions=2)
    builder.consumer("c")
    builder.consumer("d")
    return builder


def at_rest(builder: HistoryBuilder) -> list[str]:
    builder.add(events.GroupsStable, "", ("g",))
    return [text for number, text in builder.found() if number == 8]


def test_each_partition_has_an_owner() -> None:
    builder = two_members()
    builder.assigned(T0, client="c")
    builder.assigned(T1, client="d")
    assert at_rest(builder) == []


def test_a_partition_without_an_owner() -> None:
    builder = two_members()
    builder.assigned(T0, client="c")
    [text] = at_rest(builder)
    assert text == f"1 {ONE_EACH}: g: t-1 has no owner"


def test_a_partition_with_two_owners() -> None:
    builder = two_members()
    builder.assigned(T0, T1, client="c")
    builder.assigned(T1, client="d")
    [text] = at_rest(builder)
    assert "t-1 has 2 owners" in text


def test_members_that_left_own_nothing() -> None:
    for left in (events.Crashed, events.Unsubscribed):
        builder = two_members()
        builder.assigned(T0, T1, client="c")
        builder.add(left, "c")
        builder.assigned(T0, T1, client="d")
        assert at_rest(builder) == []


def test_partitions_that_came_later_are_owned_too() -> None:
    builder = two_members()
    builder.assigned(T0, client="c")
    builder.assigned(T1, client="d")
    builder.made(partitions=3)
    assert "t-2 has no owner" in at_rest(builder)[0]


def test_topics_by_a_pattern() -> None:
    builder = HistoryBuilder()
    builder.made("t", 1)
    builder.made("u", 1)
    builder.consumer("c", topics=())
    builder.add(events.Subscribed, "c", (), "[t]")
    builder.assigned(T0)
    assert at_rest(builder) == []
    builder.add(events.Subscribed, "c", (), ".")
    assert "u-0 has no owner" in at_rest(builder)[0]
    builder.add(events.Subscribed, "c", ("u",))
    assert "c owns t-0, to which it has not subscribed" in at_rest(builder)[0]


def test_a_group_without_members_owns_nothing() -> None:
    builder = two_members()
    owners = Owners()
    for event in builder.history:
        owners.happened(event)
    assert owners.groups == ["g"]
    builder.closed("c")
    builder.closed("d")
    assert at_rest(builder) == []


def test_a_leader_that_gives_a_partition_to_two() -> None:
    given = GenerationAssigned(1.0, "g", 4, (("a", (T0, T1)), ("b", (T1,))))
    [text] = [text for number, text in member().found(generations=(given,)) if number == 8]
    assert text == "1 partitions were assigned to several members: t-1 in generation 4 of g"
    right = GenerationAssigned(1.0, "g", 4, (("a", (T0,)), ("b", (T1,))))
    assert member().found(generations=(right,)) == []


# --- what is lost --------------------------------------------------------------------------------


def loses(builder: HistoryBuilder, **guarantees: Any) -> int:
    builder.lost(T0)
    return len([1 for number, _ in builder.found(guarantees=guarantees) if number == 8])


def working() -> HistoryBuilder:
    builder = HistoryBuilder()
    builder.made()
    builder.consumer(effective_session_timeout_ms=10_000, max_poll_interval_ms=60_000)
    builder.assigned(T0)
    builder.returned(builder.call("getmany", 10.0))
    return builder


def test_partitions_that_are_lost_without_a_reason() -> None:
    builder = working()
    assert loses(builder) == 1
    assert loses(working(), sessions_hold=False) == 0


def test_an_application_that_stays_away_loses_its_partitions() -> None:
    builder = working()
    builder.time += 60
    assert loses(builder) == 0
    builder = working()
    builder.time += 50
    assert loses(builder) == 1
    builder = working()
    builder.time += 60
    builder.call("getmany", 10.0)
    assert loses(builder) == 0
    builder = working()
    builder.call("anext", None)
    builder.time += 60
    assert loses(builder) == 1


def test_having_stayed_away_before_is_no_excuse() -> None:
    builder = working()
    builder.time += 60
    builder.returned(builder.call("getmany", 10.0))
    builder.lost(T0)
    builder.assigned(T0)
    assert loses(builder) == 1


def test_what_is_broken_ends_sessions() -> None:
    builder = working()
    builder.add(events.Fault, "", "cut")
    builder.call("anext", None)
    builder.time += 100
    assert loses(builder) == 0
    builder = working()
    builder.call("anext", None)
    builder.add(events.Fault, "", "cut")
    builder.add(events.FaultsHealed, "")
    builder.time += 15
    assert loses(builder) == 0
    builder = working()
    builder.call("anext", None)
    builder.add(events.Fault, "", "cut")
    builder.add(events.FaultsHealed, "")
    builder.time += 25
    assert loses(builder) == 1


def test_a_static_member_may_be_fenced() -> None:
    builder = HistoryBuilder()
    builder.consumer(group_instance_id="i")
    builder.assigned(T0)
    assert loses(builder) == 1
    builder = HistoryBuilder()
    builder.consumer(group_instance_id="i")
    builder.assigned(T0)
    builder.consumer("d", group_instance_id="i")
    assert loses(builder) == 0


def test_a_topic_that_is_deleted_is_lost() -> None:
    builder = working()
    builder.deleted()
    assert loses(builder) == 0


def test_without_groups_there_is_nothing_to_look_at() -> None:
    assert 8 in HistoryBuilder().not_checked()
