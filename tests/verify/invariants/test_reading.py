"""Invariant 5: that it passes what is right, and names what is wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.verify.invariants.history_builder import T0, T1, HistoryBuilder, log, v
from verify.invariants.events import PartitionsAssignedManually, Paused, Resumed, Unsubscribed
from verify.invariants.observed import Assignment, CommitRequest, PositionLost

LOG = log(v(0), v(1), v(2), None, v(4), v(5))
"""At offset 3 there is no record: a marker, or what compaction took."""


def r(*offsets: int) -> list[tuple[int, bytes]]:
    return [(offset, v(offset)) for offset in offsets]


def reader(**options: Any) -> HistoryBuilder:
    """One without a group."""
    builder = HistoryBuilder()
    builder.made()
    builder.producer()
    for number in range(6):
        builder.sending(v(number))
    builder.consumer(group_id=None, **options)
    return builder


def member(**options: Any) -> HistoryBuilder:
    builder = HistoryBuilder()
    builder.made()
    builder.producer()
    for number in range(6):
        builder.sending(v(number))
    builder.consumer(**options)
    builder.assigned(T0)
    return builder


def committed(at: float, offset: int, error: int | None = 0, client: str = "c") -> CommitRequest:
    errors = None if error is None else (error,)
    return CommitRequest(at, client, "g", "m", 1, ((T0, offset),), errors)


def kinds(found: list[tuple[int, str]]) -> list[str]:
    """Return the kinds of invariant 5's findings, without the examples."""
    return [f"5: {text.split(': ')[0].partition(' ')[2]}" for number, text in found if number == 5]


SKIPS = "5: polls skip records"
BACK = "5: polls go back"
WRONG = "5: reading starts at a wrong offset"
OUT = "5: polls omit records"
STRANGE = "5: polls return records that are not visible in the log"


def test_reading_goes_on_where_it_stopped() -> None:
    builder = reader()
    builder.polled(*r(0, 1))
    builder.polled(*r(2), following=4)
    builder.polled(*r(4, 5))
    assert builder.found(LOG) == []


def test_a_gap_without_records_is_none() -> None:
    builder = reader()
    builder.polled(*r(0, 1, 2))
    builder.polled(*r(4, 5))
    assert builder.found(LOG) == []


def test_a_poll_that_skips() -> None:
    builder = reader()
    builder.polled(*r(0, 1))
    builder.polled(*r(4, 5))
    [(number, text)] = builder.found(LOG)
    assert number == 5
    assert text == "1 polls skip records: c at t-0@4: at 4, the position was 2"


def test_a_poll_that_goes_back() -> None:
    builder = reader()
    builder.polled(*r(0, 1))
    builder.polled(*r(1, 2))
    assert kinds(builder.found(LOG)) == [BACK]


def test_a_poll_that_leaves_out_a_record() -> None:
    builder = reader()
    builder.polled(*r(0, 2))
    builder.polled(*r(4), following=6)
    [(number, text)] = builder.found(LOG)
    assert number == 5
    assert text.startswith("2 polls omit records: c at t-0@0: without p-1|@1; ")
    assert "without p-5|@5" in text


def test_a_poll_that_gives_something_else() -> None:
    builder = reader()
    builder.polled((0, v(0)), (1, v(9)))
    assert kinds(builder.found(LOG)) == [STRANGE]
    builder = reader()
    builder.polled(*r(0, 1, 2, 3))
    assert STRANGE in kinds(builder.found(LOG))


def test_offsets_that_do_not_ascend() -> None:
    builder = reader()
    builder.polled(*r(1, 0), following=2)
    assert "5: polls with offsets out of order" in kinds(builder.found(LOG))
    builder = reader()
    builder.polled(*r(0, 1), following=1)
    assert "5: polls with offsets out of order" in kinds(builder.found(LOG))


def test_where_a_reader_without_a_group_begins() -> None:
    def begins(policy: str, offset: int) -> list[str]:
        builder = reader(auto_offset_reset=policy)
        builder.polled(*r(offset), following=offset + 1)
        return kinds(builder.found(LOG))

    assert begins("earliest", 0) == []
    assert begins("earliest", 1) == [WRONG]
    assert begins("latest", 4) == []
    assert begins("none", 0) == [WRONG]


def test_seeks_move_the_position() -> None:
    builder = reader()
    builder.polled(*r(0))
    builder.sought(4)
    builder.polled(*r(4))
    builder.sought(1)
    builder.polled(*r(1))
    builder.sought("beginning")
    builder.polled(*r(0))
    builder.sought("end")
    builder.polled(*r(5))
    assert builder.found(LOG) == []


def test_a_seek_that_is_not_obeyed() -> None:
    builder = reader()
    builder.polled(*r(0))
    builder.sought(4)
    builder.polled(*r(1))
    assert kinds(builder.found(LOG)) == [BACK]
    builder = reader()
    builder.polled(*r(0, 1, 2))
    builder.sought(0)
    builder.polled(*r(4))
    assert kinds(builder.found(LOG)) == [SKIPS]
    builder = reader()
    builder.polled(*r(0))
    builder.sought("beginning")
    builder.polled(*r(1))
    assert kinds(builder.found(LOG)) == [SKIPS]


def test_reset_for_a_reason() -> None:
    def jump(to: int, **arguments: Any) -> list[str]:
        builder = reader(auto_offset_reset=arguments.pop("policy", "earliest"))
        builder.polled(*r(0, 1))
        reason = PositionLost(builder.time, "c", "t", 0, arguments.pop("code", 1))
        builder.polled(*r(to))
        return kinds(builder.found(LOG, positions_lost=(reason,), **arguments))

    assert jump(0) == []
    assert jump(4) == [SKIPS]  # the policy says the beginning
    assert jump(4, policy="latest") == []
    assert jump(4, policy="latest", code=3) == [SKIPS]
    assert jump(4, policy="latest", code=3, guarantees={"topics_remade": True}) == []


def test_a_reason_that_is_none() -> None:
    builder = reader(auto_offset_reset="latest")
    early = PositionLost(0.5, "c", "t", 0)
    builder.polled(*r(0, 1))
    other = PositionLost(builder.time, "d", "t", 0)
    elsewhere = PositionLost(builder.time, "c", "t", 1)
    builder.polled(*r(4))
    late = PositionLost(builder.time + 1, "c", "t", 0)
    assert kinds(builder.found(LOG, positions_lost=(early, other, elsewhere, late))) == [SKIPS]
    assert builder.found(LOG, guarantees={"resets": True}) == []


def test_a_member_begins_where_the_group_has_committed() -> None:
    def begins(*commits: CommitRequest, at: int, **options: Any) -> list[str]:
        builder = member(**options)
        builder.polled(*r(at))
        return kinds(builder.found(LOG, commits=commits))

    before = committed(0.5, 2)
    assert begins(before, at=2) == []
    assert begins(before, at=1) == [WRONG]
    assert begins(before, at=4) == [WRONG]
    assert begins(committed(0.5, 3), at=4) == []
    assert begins(at=0) == []
    assert begins(at=1) == [WRONG]
    assert begins(at=1, auto_offset_reset="latest") == []
    assert begins(before, at=0, auto_offset_reset="latest") == [WRONG]
    assert begins(committed(0.5, 2, error=22), at=2) == [WRONG]
    assert begins(committed(0.5, 2, error=None), at=2) == [WRONG]
    assert begins(committed(0.4, 4), before, at=2) == []
    assert begins(committed(0.4, 4), before, at=4) == [WRONG]


def test_a_commit_counts_last_that_was_carried_out_last() -> None:
    def begins(at: int, done_at: float) -> list[str]:
        builder = member()
        builder.polled(*r(at))
        late = replace(committed(0.3, 1), done_at=done_at)
        return kinds(builder.found(LOG, commits=(committed(0.4, 2), late)))

    assert begins(1, done_at=0.5) == []
    assert begins(2, done_at=0.5) == [WRONG]
    assert begins(2, done_at=0.3) == []
    assert begins(1, done_at=0.3) == [WRONG]
    assert begins(2, done_at=1_000.0) == begins(1, done_at=1_000.0) == []


def test_what_is_committed_meanwhile_may_count() -> None:
    builder = member()
    assigned_at = builder.time
    builder.polled(*r(2))
    late = committed(assigned_at + 0.5, 2)
    assert kinds(builder.found(LOG, commits=(committed(0.5, 1), late))) == []
    too_late = committed(builder.time + 1, 2)
    assert kinds(builder.found(LOG, commits=(committed(0.5, 1), too_late))) == [WRONG]


def test_a_member_that_learns_of_its_partitions_late() -> None:
    builder = member()
    arguments = Assignment(0.2, "c", "g", "m", 1, (T0,))
    builder.polled(*r(2))
    commits = (committed(0.1, 1), committed(0.5, 2))
    assert kinds(builder.found(LOG, commits=commits, assignments=(arguments,))) == []
    assert kinds(builder.found(LOG, commits=commits)) == []


def test_at_least_once_after_a_rebalance_is_right() -> None:
    builder = member()
    builder.polled(*r(0, 1, 2))
    builder.revoked(T0)
    builder.consumer("d")
    builder.assigned(T0, client="d")
    done = committed(builder.time - 3.5, 1)
    builder.polled(*r(1, 2), client="d")
    assert kinds(builder.found(LOG, commits=(done,))) == []


def test_what_a_rebalance_loses_is_found() -> None:
    builder = member()
    builder.polled(*r(0))
    builder.revoked(T0)
    builder.consumer("d")
    builder.assigned(T0, client="d")
    builder.polled(*r(4, 5), client="d")
    assert kinds(builder.found(LOG, commits=(committed(builder.time - 4, 1),))) == [WRONG]


def test_a_partition_that_is_kept_goes_on() -> None:
    builder = member()
    builder.polled(*r(0))
    builder.assigned(T1)
    builder.polled(*r(0), following=1)
    assert kinds(builder.found(LOG, commits=())) == [BACK]


def test_records_of_a_partition_that_is_not_owned() -> None:
    builder = member()
    builder.polled(*r(0))
    builder.revoked(T0)
    builder.polled(*r(1))
    assert kinds(builder.found(LOG)) == ["5: records of partitions not owned by the reader"]
    builder = member()
    builder.lost(T0)
    builder.polled(*r(0))
    assert kinds(builder.found(LOG)) == ["5: records of partitions not owned by the reader"]
    builder = member()
    builder.add(Unsubscribed, "c")
    builder.polled(*r(0))
    assert kinds(builder.found(LOG)) == ["5: records of partitions not owned by the reader"]


def test_records_of_a_partition_that_is_paused() -> None:
    builder = member()
    builder.add(Paused, "c", (T0,))
    builder.polled(*r(0))
    builder.add(Resumed, "c", (T0,))
    builder.polled(*r(1))
    assert kinds(builder.found(LOG)) == ["5: records of paused partitions"]


def test_going_back_to_what_is_committed() -> None:
    builder = member(enable_auto_commit=False)
    builder.polled(*r(0, 1, 2))
    at = builder.time
    builder.sought("committed")
    builder.polled(*r(1))
    assert kinds(builder.found(LOG, commits=(committed(at, 1),))) == []
    assert kinds(builder.found(LOG, commits=(committed(at, 2),))) == [WRONG]
    assert kinds(builder.found(LOG, commits=())) == [WRONG]


def test_offsets_of_transactions_are_commits() -> None:
    def begins(at: int, outcome: Any) -> list[str]:
        builder = member(enable_auto_commit=False)
        builder.polled(*r(0))
        builder.producer("q", transactional_id="x")
        builder.began(1, "q")
        builder.offsets_sent(1, 1, "q")
        builder.end_txn_requested(1, client="q")
        builder.ended(1, outcome, "q")
        builder.sought("committed")
        builder.polled(*r(at))
        return kinds(builder.found(LOG, commits=()))

    assert begins(1, "committed") == []
    assert begins(0, "committed") == [WRONG]
    assert begins(1, "unknown") == []
    assert begins(0, "unknown") == []
    assert begins(2, "unknown") == [WRONG]


def test_partitions_that_are_assigned_by_hand() -> None:
    builder = HistoryBuilder()
    builder.made()
    builder.consumer(group_id=None, topics=())
    builder.add(PartitionsAssignedManually, "c", (T0,))
    builder.polled(*r(0))
    builder.polled(*r(2))
    assert kinds(builder.found(LOG)) == [SKIPS]
    builder.add(PartitionsAssignedManually, "c", (T0, T1))
    builder.polled(*r(1))
    assert kinds(builder.found(LOG)) == [SKIPS]


def test_readers_of_committed_records() -> None:
    mixed = log((v(0), "committed"), (v(1), "aborted"), v(2), (v(4), "open"))
    builder = reader(isolation_level="read_committed")
    builder.polled((0, v(0)), (2, v(2)))
    assert kinds(builder.found(mixed)) == []
    builder = reader(isolation_level="read_committed")
    builder.polled((0, v(0)), (1, v(1)), (2, v(2)))
    assert STRANGE in kinds(builder.found(mixed))
    builder = reader()
    builder.polled((0, v(0)), (2, v(2)))
    assert OUT in kinds(builder.found(mixed))


def test_a_topic_that_is_made_again_is_read_from_its_beginning() -> None:
    def reads(*second: int, incarnation_two_first: bool = False) -> list[str]:
        builder = reader()
        builder.polled(*r(0, 1))
        builder.deleted()
        builder.made()
        for number in (20, 21, 22):
            builder.sending(v(number))
        builder.polled(*[(offset, v(20 + offset)) for offset in second])
        if incarnation_two_first:
            builder.polled(*r(2))
        old, new = log(v(0), v(1), v(2)), log(v(20), v(21), v(22), incarnation=1)
        guarantees = {"topics_remade": True}
        return kinds(builder.found(old, new, positions_lost=(), guarantees=guarantees))

    assert reads(0, 1) == []
    assert reads(1) == [WRONG]
    assert "5: records of a topic that is no more, after some of a new" in reads(
        0, 1, 2, incarnation_two_first=True
    )


def test_by_its_name_alone_a_topic_is_the_same() -> None:
    builder = reader()
    builder.polled(*r(0, 1))
    builder.deleted()
    builder.made()
    for number in (20, 21, 22, 23):
        builder.sending(v(number))
    builder.polled((2, v(22)))
    logs = [log(v(0), v(1)), log(v(20), v(21), v(22), v(23), incarnation=1)]
    arguments: dict[str, Any] = {"positions_lost": (), "guarantees": {"topics_remade": True}}
    assert kinds(builder.found(*logs, **arguments)) == [WRONG]
    arguments["guarantees"] = {"topics_remade": True, "in_fetches": False}
    assert kinds(builder.found(*logs, **arguments)) == []
    builder.polled((2, v(22)))
    assert kinds(builder.found(*logs, **arguments)) == [BACK]


def test_a_topic_that_is_made_again_may_be_noticed_late_but_once() -> None:
    """Readers by name find that their position is out of range first, and hear of the id later."""
    builder = reader()
    builder.polled(*r(0, 1))
    builder.deleted()
    builder.made()
    for number in (20, 21, 22):
        builder.sending(v(number))
    builder.polled((0, v(20)))
    builder.polled((0, v(20)), (1, v(21)))
    logs = [log(v(0), v(1), v(2)), log(v(20), v(21), v(22), incarnation=1)]
    arguments: dict[str, Any] = {"positions_lost": (), "guarantees": {"topics_remade": True}}
    assert kinds(builder.found(*logs, **arguments)) == []
    builder.polled((0, v(20)))
    assert kinds(builder.found(*logs, **arguments)) == [BACK]


def test_what_retention_took_cannot_be_compared() -> None:
    builder = reader()
    builder.polled(*r(0, 1))
    builder.polled(*r(4))
    found = builder.found(log(v(4), v(5), start=4), guarantees={"resets": True})
    assert found == []
    builder = reader()
    builder.polled(*r(0, 1))
    assert builder.found(log(v(4), v(5), start=4)) == []


def test_a_log_that_is_not_known_is_not_judged() -> None:
    builder = reader()
    builder.polled(*r(0))
    builder.polled(*r(4))
    assert builder.found() == []
    assert 5 in HistoryBuilder().not_checked()
