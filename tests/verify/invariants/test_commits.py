"""Invariant 6: that it passes what is right, and names what is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from tests.verify.invariants.history_builder import T0, HistoryBuilder, log, v
from verify.invariants.events import Committing, Fault, FaultsHealed
from verify.invariants.observed import Assignment, CommitRequest, MemberRemoved, PositionLost

LOG = log(*[v(number) for number in range(8)])


def r(*offsets: int) -> list[tuple[int, bytes]]:
    return [(offset, v(offset)) for offset in offsets]


def reader(**options: Any) -> HistoryBuilder:
    builder = HistoryBuilder()
    builder.made()
    builder.producer()
    builder.send(*[v(number) for number in range(8)])
    builder.consumer(**options)
    builder.assigned(T0)
    return builder


class Commits(list[CommitRequest]):
    """Commits stored by a coordinator."""

    def __init__(self, builder: HistoryBuilder) -> None:
        super().__init__()
        self.builder = builder

    def add(
        self, offset: int, client: str = "c", error: int | None = 0, connected_at: float = 1.0
    ) -> None:
        """A commit that arrives half a second after the last event, or while a call for it is
        under way."""
        asked = [event for event in self.builder.history[-3:] if type(event) is Committing]
        self.append(
            CommitRequest(
                (asked[0].at if asked else self.builder.time) + 0.5,
                client,
                "g",
                client,
                1,
                ((T0, offset),),
                None if error is None else (error,),
                connected_at=connected_at,
            )
        )


def commit_findings(builder: HistoryBuilder, commits: Commits, **rest: Any) -> list[str]:
    found = builder.found(LOG, commits=tuple(commits), **rest)
    return [text for number, text in found if number == 6]


def test_commits_follow_what_is_processed() -> None:
    builder = reader()
    commits = Commits(builder)
    builder.polled(*r(0, 1))
    builder.polled(*r(2, 3))
    commits.add(2)
    builder.polled(*r(4))
    commits.add(4)
    commits.add(4)
    builder.call("stop")
    commits.add(5)
    assert commit_findings(builder, commits) == []


def test_a_commit_that_goes_back() -> None:
    builder = reader()
    commits = Commits(builder)
    builder.polled(*r(0, 1, 2, 3))
    builder.call("getmany", 1.0)
    commits.add(4)
    commits.add(2)
    assert commit_findings(builder, commits) == ["1 commits went back: g t-0 from 4 to 2 by c"]


def test_a_commit_that_was_refused_or_never_taken_up_does_not_count() -> None:
    builder = reader()
    commits = Commits(builder)
    builder.polled(*r(0, 1, 2, 3))
    builder.call("getmany", 1.0)
    commits.add(4, error=25)
    commits.add(4, error=None)
    commits.add(2)
    assert commit_findings(builder, commits) == []


def test_a_commit_that_was_overtaken_on_its_way() -> None:
    def found(client: str, connected_at: float) -> int:
        builder = reader()
        builder.consumer("d")
        commits = Commits(builder)
        for name in ("c", "d"):
            builder.polled(*r(0, 1, 2, 3), client=name)
            builder.call("getmany", 1.0, client=name)
        commits.add(4, connected_at=5.0)
        commits.add(2, client=client, connected_at=connected_at)
        return len(commit_findings(builder, commits))

    assert found("c", 3.0) == 0
    assert found("c", 5.0) == 1
    assert found("c", 7.0) == 1
    assert found("d", 3.0) == 1


@pytest.mark.parametrize(
    ("converted_at", "by_conversion", "given_at", "found"),
    [
        (2.0, True, 3.0, 0),
        (2.0, True, None, 1),  # the other one has no right to commit
        (2.0, False, 3.0, 1),
        (3.5, True, 3.0, 1),  # the partition was given away before
        (0.5, True, 3.0, 1),  # the owner got the partition after the conversion
    ],
)
@pytest.mark.parametrize("committing", ["cd", "dc"])
def test_two_members_commit_a_partition_after_a_conversion(
    committing: str, converted_at: float, by_conversion: bool, given_at: float | None, found: int
) -> None:
    """A cooperative member has yet to revoke the partition that another one was given."""
    builder = reader()
    builder.consumer("d")
    commits = Commits(builder)
    for name in ("c", "d"):
        builder.polled(*r(0, 1, 2, 3), client=name)
        builder.call("getmany", 1.0, client=name)
    for name, offset in zip(committing, (4, 2), strict=True):
        commits.add(offset, client=name)
    answers = [Assignment(1.0, "c", "g", "c", 1, (T0,))]
    if given_at is not None:
        answers.append(Assignment(given_at, "d", "g", "d", 1, (T0,)))
    removed = MemberRemoved(converted_at, "c", "g", by_conversion)
    texts = commit_findings(builder, commits, assignments=tuple(answers), removed=(removed,))
    assert len(texts) == found


def test_going_back_after_a_seek() -> None:
    builder = reader()
    commits = Commits(builder)
    builder.polled(*r(0, 1, 2, 3))
    builder.call("getmany", 1.0)
    commits.add(4)
    builder.sought(1)
    commits.add(1)
    assert commit_findings(builder, commits) == []


def test_going_back_before_the_seek() -> None:
    builder = reader()
    commits = Commits(builder)
    builder.polled(*r(0, 1, 2, 3))
    builder.call("getmany", 1.0)
    commits.add(4)
    commits.add(1)
    builder.sought(1)
    assert len(commit_findings(builder, commits)) == 1


def test_going_back_after_a_reset() -> None:
    builder = reader()
    commits = Commits(builder)
    builder.polled(*r(0, 1, 2, 3))
    builder.call("getmany", 1.0)
    commits.add(4)
    reset = PositionLost(builder.time + 0.6, "c", "t", 0)
    builder.time += 1
    commits.add(0)
    assert commit_findings(builder, commits, positions_lost=(reset,)) == []
    assert len(commit_findings(builder, commits, positions_lost=())) == 1


def test_going_back_with_a_topic_that_is_made_again() -> None:
    builder = reader()
    commits = Commits(builder)
    builder.polled(*r(0, 1, 2, 3))
    builder.call("getmany", 1.0)
    commits.add(4)
    builder.deleted()
    builder.made()
    commits.add(1)
    assert commit_findings(builder, commits) == []


@pytest.mark.parametrize(("later_s", "found"), [(2.0, 0), (9.0, 1)])
def test_a_member_hears_late_that_a_topic_was_made_again(later_s: float, found: int) -> None:
    builder = reader(metadata_max_age_ms=3_000)
    commits = Commits(builder)
    builder.polled(*r(0, 1, 2, 3))
    builder.call("getmany", 1.0)
    builder.deleted()
    builder.made()
    builder.time += later_s
    commits.add(4)
    commits.add(1)
    assert len(commit_findings(builder, commits)) == found


def test_an_acknowledged_commit_is_stored() -> None:
    builder = reader(enable_auto_commit=False)
    commits = Commits(builder)
    builder.polled(*r(0, 1, 2, 3))
    builder.commit(2)
    commits.add(2)
    builder.commit(4)
    assert len(commit_findings(builder, commits)) == 1
    commits.add(4, error=22)
    assert len(commit_findings(builder, commits)) == 1
    commits.add(4)
    assert commit_findings(builder, commits) == []
    builder.commit(4, "unknown")
    assert commit_findings(builder, commits) == []


def test_what_is_revoked_is_committed_before_anything_else_comes() -> None:
    builder = reader()
    commits = Commits(builder)
    builder.polled(*r(0, 1, 2, 3))
    builder.returned(builder.call("getmany", 1.0, task="1"))
    builder.revoked(T0)
    builder.assigned()
    assert len(commit_findings(builder, commits)) == 1
    commits.insert(0, CommitRequest(builder.time - 0.5, "c", "g", "c", 1, ((T0, 4),), (0,)))
    assert commit_findings(builder, commits) == []


def test_what_is_revoked_while_something_is_broken_may_be_read_again() -> None:
    builder = reader()
    commits = Commits(builder)
    builder.polled(*r(0, 1, 2, 3))
    builder.returned(builder.call("getmany", 1.0, task="1"))
    builder.add(Fault, "", "  1.000 s  kill(node=1)")
    builder.revoked(T0)
    builder.assigned()
    assert commit_findings(builder, commits) == []


def test_what_the_application_itself_commits_may_go_back() -> None:
    builder = reader(enable_auto_commit=False)
    commits = Commits(builder)
    builder.polled(*r(0, 1, 2, 3))
    builder.commit(4)
    commits.add(4)
    builder.commit(2)
    commits.add(2)
    assert commit_findings(builder, commits) == []
    builder.commit(3)
    commits.add(3)
    commits.add(2)
    assert len(commit_findings(builder, commits)) == 1


def test_a_commit_that_passes_the_running_record() -> None:
    builder = reader()
    commits = Commits(builder)
    builder.polled(*r(0, 1))
    commits.add(2)
    assert commit_findings(builder, commits) == [
        "1 commits pass the processed records: c t-0: 2, processed up to 0"
    ]


def test_a_commit_that_passes_what_was_given() -> None:
    builder = reader()
    commits = Commits(builder)
    builder.polled(*r(0, 1))
    builder.call("getmany", 1.0)
    commits.add(3)
    assert len(commit_findings(builder, commits)) == 1


def test_a_commit_behind_the_end_of_the_log() -> None:
    builder = reader()
    commits = Commits(builder)
    builder.polled(*r(0, 1, 2, 3, 4, 5, 6, 7))
    builder.call("getmany", 1.0)
    commits.add(8)
    assert commit_findings(builder, commits) == []
    commits.add(9)
    assert len(commit_findings(builder, commits)) == 1


def test_offsets_without_records_may_be_passed() -> None:
    builder = reader()
    commits = Commits(builder)
    builder.polled(*r(0, 1))
    builder.call("getmany", 1.0)
    commits.add(3)
    gap = log(v(0), v(1), None, v(3))
    found = builder.found(gap, commits=tuple(commits))
    assert [text for number, text in found if number == 6] == []


def test_each_task_finishes_its_own() -> None:
    builder = reader()
    commits = Commits(builder)
    builder.polled(*r(0, 1), task="1")
    builder.polled(*r(2, 3), task="2")
    builder.call("getmany", 1.0, task="2")
    commits.add(2)
    assert len(commit_findings(builder, commits)) == 1
    builder = reader()
    commits = Commits(builder)
    builder.polled(*r(0, 1), task="1")
    builder.polled(*r(2, 3), task="2")
    builder.call("getmany", 1.0, task="1")
    commits.add(2)
    assert commit_findings(builder, commits) == []
    commits.add(4)
    assert len(commit_findings(builder, commits)) == 1


def test_committing_all_says_that_it_is_processed() -> None:
    builder = reader()
    commits = Commits(builder)
    builder.polled(*r(0, 1))
    builder.commit(None)
    commits.add(2)
    assert commit_findings(builder, commits) == []


def test_committing_by_name_says_so_of_what_is_named() -> None:
    builder = reader()
    commits = Commits(builder)
    builder.polled(*r(0, 1, 2))
    builder.commit(2)
    commits.add(2)
    assert commit_findings(builder, commits) == []
    commits.add(3)
    assert len(commit_findings(builder, commits)) == 1


def test_what_was_sought_may_be_committed() -> None:
    builder = reader()
    commits = Commits(builder)
    builder.polled(*r(0, 1))
    builder.sought(5)
    commits.add(5)
    assert commit_findings(builder, commits) == []
    commits.add(6)
    assert len(commit_findings(builder, commits)) == 1


def test_a_reader_of_the_end_begins_anywhere() -> None:
    builder = reader(auto_offset_reset="latest")
    commits = Commits(builder)
    commits.add(5)
    builder.polled(*r(5, 6))
    commits.add(5)
    assert commit_findings(builder, commits) == []
    commits.add(7)
    assert len(commit_findings(builder, commits)) == 1


def test_a_new_owner_commits_from_where_it_began() -> None:
    builder = reader()
    commits = Commits(builder)
    builder.polled(*r(0, 1, 2))
    builder.commit(3)
    commits.add(3)
    builder.consumer("d")
    builder.assigned(T0, client="d")
    commits.add(3, client="d")
    assert commit_findings(builder, commits) == []
    builder.polled(*r(3), client="d")
    commits.add(4, client="d")
    assert len(commit_findings(builder, commits)) == 1


def test_what_is_committed_in_the_end() -> None:
    builder = reader()
    builder.polled(*r(0, 1))

    def found(offset: int) -> int:
        seen = builder.found(LOG, committed={"g": ((T0, offset),)})
        return len([text for number, text in seen if number == 6])

    assert found(2) == 0
    assert found(3) == 1


def leaving(*, task: str = "1", error: str | None = None, **options: Any) -> HistoryBuilder:
    """A member that has processed two records of three when it leaves."""
    builder = reader(**options)
    builder.polled(*r(0, 1))
    builder.polled(*r(2), task="2")
    call = builder.call("stop", 10.0, task=task)
    builder.revoked(T0)
    builder.returned(call, error)
    builder.closed(error=error)
    return builder


def in_the_end(builder: HistoryBuilder, offset: int | None) -> int:
    committed = {"g": () if offset is None else ((T0, offset),)}
    return len([text for n, text in builder.found(LOG, committed=committed) if n == 6])


def test_a_leaving_member_has_committed_its_processed_records() -> None:
    assert in_the_end(leaving(), 2) == 0
    assert in_the_end(leaving(), 1) == 1
    assert in_the_end(leaving(), None) == 1
    assert in_the_end(leaving(task=""), 1) == 0  # it was left by an error or a cancellation
    assert in_the_end(leaving(error="RequestTimedOut"), 1) == 0
    assert in_the_end(leaving(enable_auto_commit=False), 1) == 0


@pytest.mark.parametrize(("read_again", "found"), [(False, 0), (True, 1)])
def test_lost_partitions_are_committed_by_the_next_reader(read_again: bool, found: int) -> None:
    builder = reader()
    builder.polled(*r(0, 1, 2))
    builder.call("getmany", 1.0)
    builder.lost(T0)
    builder.assigned(T0)
    if read_again:
        builder.polled(*r(0, 1, 2))
        builder.call("getmany", 1.0)
    call = builder.call("stop", 10.0)
    builder.revoked(T0)
    builder.returned(call)
    builder.closed()
    assert in_the_end(builder, 0) == found


@pytest.mark.parametrize(("calls_again", "stored", "found"), [(False, 1, 0), (True, 1, 1)])
def test_records_that_a_task_processes_during_a_revocation_are_read_again(
    calls_again: bool, stored: int, found: int
) -> None:
    builder = reader()
    builder.polled(*r(0), task="a")
    builder.polled(*r(1, 2), task="b")
    builder.call("getmany", 1.0, task="a")
    if calls_again:
        builder.call("getmany", 1.0, task="b")
    builder.revoked(T0)
    builder.assigned(T0)
    call = builder.call("stop", 10.0)
    builder.revoked(T0)
    builder.returned(call)
    builder.closed()
    findings = builder.found(LOG, commits=(), committed={"g": ((T0, stored),)})
    assert len([text for _, text in findings if "when leaving" in text]) == found


def test_a_late_commit_of_an_abandoned_connection_is_not_the_leavers() -> None:
    for newest, found in ((3, 0), (2, 1)):
        builder = reader()
        commits = Commits(builder)
        builder.polled(*r(0, 1, 2))
        builder.call("getmany", 1.0)
        commits.add(newest, connected_at=builder.time)
        commits.add(1, connected_at=0.0)
        call = builder.call("stop", 10.0)
        builder.revoked(T0)
        builder.returned(call)
        builder.closed()
        findings = builder.found(LOG, commits=tuple(commits), committed={"g": ((T0, 1),)})
        assert len([text for _, text in findings if "when leaving" in text]) == found


def test_a_member_that_leaves_during_a_fault_may_fail_to_commit() -> None:
    builder = leaving()
    builder.history.insert(0, Fault(0.0, "", "cut"))
    assert in_the_end(builder, 1) == 0
    builder.history.insert(1, FaultsHealed(0.5, ""))
    assert in_the_end(builder, 1) == 1


def test_offsets_of_transactions_do_not_go_back() -> None:
    builder = reader(enable_auto_commit=False)
    builder.producer("q", transactional_id="x")
    for number, offset in ((1, 2), (2, 4)):
        builder.began(number, "q")
        builder.offsets_sent(number, offset, "q")
        builder.end_txn_requested(number, client="q")
        builder.ended(number, "committed", "q")
    assert commit_findings(builder, Commits(builder)) == []
    builder.began(3, "q")
    builder.offsets_sent(3, 3, "q")
    builder.end_txn_requested(3, client="q")
    builder.ended(3, "aborted", "q")
    assert commit_findings(builder, Commits(builder)) == []
    builder.ended(3, "committed", "q")
    assert len(commit_findings(builder, Commits(builder))) == 1


def test_of_transactions_at_the_same_time_none_goes_back() -> None:
    builder = reader(enable_auto_commit=False)
    for name in ("p1", "p2"):
        builder.producer(name, transactional_id=name)
        builder.began(1, name)
    builder.offsets_sent(1, 2, "p1")
    builder.end_txn_requested(1, client="p1")
    builder.offsets_sent(1, 4, "p2")
    builder.end_txn_requested(1, client="p2")
    builder.ended(1, client="p2")
    builder.ended(1, client="p1")
    assert commit_findings(builder, Commits(builder)) == []


def test_without_commits_there_is_nothing_to_look_at() -> None:
    assert 6 in reader().not_checked(LOG)
    alone = HistoryBuilder()
    alone.producer()
    assert 6 in alone.not_checked(LOG, commits=())
