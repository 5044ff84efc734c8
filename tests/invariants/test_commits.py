"""Invariant 6: that it passes what is right, and names what is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from tests.invariants.events import Committing, Fault, Healed
from tests.invariants.history_builder import T0, HistoryBuilder, log, v
from tests.invariants.observed import CommitRequest, PositionLost

LOG = log(*[v(number) for number in range(8)])


def r(*offsets: int) -> list[tuple[int, bytes]]:
    return [(offset, v(offset)) for offset in offsets]


def reader(**options: Any) -> HistoryBuilder:
    story = HistoryBuilder()
    story.made()
    story.producer()
    story.send(*[v(number) for number in range(8)])
    story.consumer(**options)
    story.assigned(T0)
    return story


class Commits(list[CommitRequest]):
    """Commits stored by a coordinator."""

    def __init__(self, story: HistoryBuilder) -> None:
        super().__init__()
        self.story = story

    def add(
        self, offset: int, client: str = "c", error: int | None = 0, connected_at: float = 1.0
    ) -> None:
        """A commit that arrives half a second after the last event, or while a call for it is
        under way."""
        asked = [event for event in self.story.history[-3:] if type(event) is Committing]
        self.append(
            CommitRequest(
                (asked[0].at if asked else self.story.time) + 0.5,
                client,
                "g",
                client,
                1,
                ((T0, offset),),
                None if error is None else (error,),
                connected_at=connected_at,
            )
        )


def sixes(story: HistoryBuilder, commits: Commits, **rest: Any) -> list[str]:
    found = story.found(LOG, commits=tuple(commits), **rest)
    return [text for number, text in found if number == 6]


def test_commits_follow_what_is_processed() -> None:
    story = reader()
    commits = Commits(story)
    story.polled(*r(0, 1))
    story.polled(*r(2, 3))
    commits.add(2)
    story.polled(*r(4))
    commits.add(4)
    commits.add(4)
    story.call("stop")
    commits.add(5)
    assert sixes(story, commits) == []


def test_a_commit_that_goes_back() -> None:
    story = reader()
    commits = Commits(story)
    story.polled(*r(0, 1, 2, 3))
    story.call("getmany", 1.0)
    commits.add(4)
    commits.add(2)
    assert sixes(story, commits) == ["1 commits went back: g t-0 from 4 to 2 by c"]


def test_a_commit_that_was_refused_or_never_taken_up_does_not_count() -> None:
    story = reader()
    commits = Commits(story)
    story.polled(*r(0, 1, 2, 3))
    story.call("getmany", 1.0)
    commits.add(4, error=25)
    commits.add(4, error=None)
    commits.add(2)
    assert sixes(story, commits) == []


def test_a_commit_that_was_overtaken_on_its_way() -> None:
    def found(client: str, connected_at: float) -> int:
        story = reader()
        story.consumer("d")
        commits = Commits(story)
        for name in ("c", "d"):
            story.polled(*r(0, 1, 2, 3), client=name)
            story.call("getmany", 1.0, client=name)
        commits.add(4, connected_at=5.0)
        commits.add(2, client=client, connected_at=connected_at)
        return len(sixes(story, commits))

    assert found("c", 3.0) == 0
    assert found("c", 5.0) == 1
    assert found("c", 7.0) == 1
    assert found("d", 3.0) == 1


def test_going_back_after_a_seek() -> None:
    story = reader()
    commits = Commits(story)
    story.polled(*r(0, 1, 2, 3))
    story.call("getmany", 1.0)
    commits.add(4)
    story.sought(1)
    commits.add(1)
    assert sixes(story, commits) == []


def test_going_back_before_the_seek() -> None:
    story = reader()
    commits = Commits(story)
    story.polled(*r(0, 1, 2, 3))
    story.call("getmany", 1.0)
    commits.add(4)
    commits.add(1)
    story.sought(1)
    assert len(sixes(story, commits)) == 1


def test_going_back_after_a_reset() -> None:
    story = reader()
    commits = Commits(story)
    story.polled(*r(0, 1, 2, 3))
    story.call("getmany", 1.0)
    commits.add(4)
    reset = PositionLost(story.time + 0.6, "c", "t", 0)
    story.time += 1
    commits.add(0)
    assert sixes(story, commits, positions_lost=(reset,)) == []
    assert len(sixes(story, commits, positions_lost=())) == 1


def test_going_back_with_a_topic_that_is_made_again() -> None:
    story = reader()
    commits = Commits(story)
    story.polled(*r(0, 1, 2, 3))
    story.call("getmany", 1.0)
    commits.add(4)
    story.deleted()
    story.made()
    commits.add(1)
    assert sixes(story, commits) == []


@pytest.mark.parametrize(("later_s", "found"), [(2.0, 0), (9.0, 1)])
def test_a_member_hears_late_that_a_topic_was_made_again(later_s: float, found: int) -> None:
    story = reader(metadata_max_age_ms=3_000)
    commits = Commits(story)
    story.polled(*r(0, 1, 2, 3))
    story.call("getmany", 1.0)
    story.deleted()
    story.made()
    story.time += later_s
    commits.add(4)
    commits.add(1)
    assert len(sixes(story, commits)) == found


def test_an_acknowledged_commit_is_stored() -> None:
    story = reader(enable_auto_commit=False)
    commits = Commits(story)
    story.polled(*r(0, 1, 2, 3))
    story.commit(2)
    commits.add(2)
    story.commit(4)
    assert len(sixes(story, commits)) == 1
    commits.add(4, error=22)
    assert len(sixes(story, commits)) == 1
    commits.add(4)
    assert sixes(story, commits) == []
    story.commit(4, "unknown")
    assert sixes(story, commits) == []


def test_what_is_revoked_is_committed_before_anything_else_comes() -> None:
    story = reader()
    commits = Commits(story)
    story.polled(*r(0, 1, 2, 3))
    story.returned(story.call("getmany", 1.0, task="1"))
    story.revoked(T0)
    story.assigned()
    assert len(sixes(story, commits)) == 1
    commits.insert(0, CommitRequest(story.time - 0.5, "c", "g", "c", 1, ((T0, 4),), (0,)))
    assert sixes(story, commits) == []


def test_what_is_revoked_while_something_is_broken_may_be_read_again() -> None:
    story = reader()
    commits = Commits(story)
    story.polled(*r(0, 1, 2, 3))
    story.returned(story.call("getmany", 1.0, task="1"))
    story.add(Fault, "", "  1.000 s  kill(node=1)")
    story.revoked(T0)
    story.assigned()
    assert sixes(story, commits) == []


def test_what_the_application_itself_commits_may_go_back() -> None:
    story = reader(enable_auto_commit=False)
    commits = Commits(story)
    story.polled(*r(0, 1, 2, 3))
    story.commit(4)
    commits.add(4)
    story.commit(2)
    commits.add(2)
    assert sixes(story, commits) == []
    story.commit(3)
    commits.add(3)
    commits.add(2)
    assert len(sixes(story, commits)) == 1


def test_a_commit_that_passes_the_running_record() -> None:
    story = reader()
    commits = Commits(story)
    story.polled(*r(0, 1))
    commits.add(2)
    assert sixes(story, commits) == [
        "1 commits pass what was processed: c t-0: 2, processed is what is before 0"
    ]


def test_a_commit_that_passes_what_was_given() -> None:
    story = reader()
    commits = Commits(story)
    story.polled(*r(0, 1))
    story.call("getmany", 1.0)
    commits.add(3)
    assert len(sixes(story, commits)) == 1


def test_a_commit_behind_the_end_of_the_log() -> None:
    story = reader()
    commits = Commits(story)
    story.polled(*r(0, 1, 2, 3, 4, 5, 6, 7))
    story.call("getmany", 1.0)
    commits.add(8)
    assert sixes(story, commits) == []
    commits.add(9)
    assert len(sixes(story, commits)) == 1


def test_offsets_without_records_may_be_passed() -> None:
    story = reader()
    commits = Commits(story)
    story.polled(*r(0, 1))
    story.call("getmany", 1.0)
    commits.add(3)
    gap = log(v(0), v(1), None, v(3))
    found = story.found(gap, commits=tuple(commits))
    assert [text for number, text in found if number == 6] == []


def test_each_task_finishes_its_own() -> None:
    story = reader()
    commits = Commits(story)
    story.polled(*r(0, 1), task="1")
    story.polled(*r(2, 3), task="2")
    story.call("getmany", 1.0, task="2")
    commits.add(2)
    assert len(sixes(story, commits)) == 1
    story = reader()
    commits = Commits(story)
    story.polled(*r(0, 1), task="1")
    story.polled(*r(2, 3), task="2")
    story.call("getmany", 1.0, task="1")
    commits.add(2)
    assert sixes(story, commits) == []
    commits.add(4)
    assert len(sixes(story, commits)) == 1


def test_committing_all_says_that_it_is_processed() -> None:
    story = reader()
    commits = Commits(story)
    story.polled(*r(0, 1))
    story.commit(None)
    commits.add(2)
    assert sixes(story, commits) == []


def test_committing_by_name_says_so_of_what_is_named() -> None:
    story = reader()
    commits = Commits(story)
    story.polled(*r(0, 1, 2))
    story.commit(2)
    commits.add(2)
    assert sixes(story, commits) == []
    commits.add(3)
    assert len(sixes(story, commits)) == 1


def test_what_was_sought_may_be_committed() -> None:
    story = reader()
    commits = Commits(story)
    story.polled(*r(0, 1))
    story.sought(5)
    commits.add(5)
    assert sixes(story, commits) == []
    commits.add(6)
    assert len(sixes(story, commits)) == 1


def test_a_reader_of_the_end_begins_anywhere() -> None:
    story = reader(auto_offset_reset="latest")
    commits = Commits(story)
    commits.add(5)
    story.polled(*r(5, 6))
    commits.add(5)
    assert sixes(story, commits) == []
    commits.add(7)
    assert len(sixes(story, commits)) == 1


def test_a_new_owner_commits_from_where_it_began() -> None:
    story = reader()
    commits = Commits(story)
    story.polled(*r(0, 1, 2))
    story.commit(3)
    commits.add(3)
    story.consumer("d")
    story.assigned(T0, client="d")
    commits.add(3, client="d")
    assert sixes(story, commits) == []
    story.polled(*r(3), client="d")
    commits.add(4, client="d")
    assert len(sixes(story, commits)) == 1


def test_what_is_committed_in_the_end() -> None:
    story = reader()
    story.polled(*r(0, 1))

    def found(offset: int) -> int:
        seen = story.found(LOG, committed={"g": ((T0, offset),)})
        return len([text for number, text in seen if number == 6])

    assert found(2) == 0
    assert found(3) == 1


def leaving(*, task: str = "1", error: str | None = None, **options: Any) -> HistoryBuilder:
    """A member that has processed two records of three when it leaves."""
    story = reader(**options)
    story.polled(*r(0, 1))
    story.polled(*r(2), task="2")
    call = story.call("stop", 10.0, task=task)
    story.revoked(T0)
    story.returned(call, error)
    story.closed(error=error)
    return story


def in_the_end(story: HistoryBuilder, offset: int | None) -> int:
    committed = {"g": () if offset is None else ((T0, offset),)}
    return len([text for n, text in story.found(LOG, committed=committed) if n == 6])


def test_a_leaving_member_has_committed_its_processed_records() -> None:
    assert in_the_end(leaving(), 2) == 0
    assert in_the_end(leaving(), 1) == 1
    assert in_the_end(leaving(), None) == 1
    assert in_the_end(leaving(task=""), 1) == 0  # it was left by an error or a cancellation
    assert in_the_end(leaving(error="RequestTimedOut"), 1) == 0
    assert in_the_end(leaving(enable_auto_commit=False), 1) == 0


@pytest.mark.parametrize(("read_again", "found"), [(False, 0), (True, 1)])
def test_what_was_lost_is_committed_by_who_reads_it_again(read_again: bool, found: int) -> None:
    story = reader()
    story.polled(*r(0, 1, 2))
    story.call("getmany", 1.0)
    story.lost(T0)
    story.assigned(T0)
    if read_again:
        story.polled(*r(0, 1, 2))
        story.call("getmany", 1.0)
    call = story.call("stop", 10.0)
    story.revoked(T0)
    story.returned(call)
    story.closed()
    assert in_the_end(story, 0) == found


def test_a_commit_that_a_connection_given_up_brings_late_is_none_of_who_leaves() -> None:
    for newest, found in ((3, 0), (2, 1)):
        story = reader()
        commits = Commits(story)
        story.polled(*r(0, 1, 2))
        story.call("getmany", 1.0)
        commits.add(newest, connected_at=story.time)
        commits.add(1, connected_at=0.0)
        call = story.call("stop", 10.0)
        story.revoked(T0)
        story.returned(call)
        story.closed()
        findings = story.found(LOG, commits=tuple(commits), committed={"g": ((T0, 1),)})
        assert len([text for _, text in findings if "as they left" in text]) == found


def test_a_member_that_leaves_during_a_fault_may_fail_to_commit() -> None:
    story = leaving()
    story.history.insert(0, Fault(0.0, "", "cut"))
    assert in_the_end(story, 1) == 0
    story.history.insert(1, Healed(0.5, ""))
    assert in_the_end(story, 1) == 1


def test_offsets_of_transactions_do_not_go_back() -> None:
    story = reader(enable_auto_commit=False)
    story.producer("q", transactional_id="x")
    for number, offset in ((1, 2), (2, 4)):
        story.began(number, "q")
        story.offsets_sent(number, offset, "q")
        story.end_asked(number, client="q")
        story.ended(number, "committed", "q")
    assert sixes(story, Commits(story)) == []
    story.began(3, "q")
    story.offsets_sent(3, 3, "q")
    story.end_asked(3, client="q")
    story.ended(3, "aborted", "q")
    assert sixes(story, Commits(story)) == []
    story.ended(3, "committed", "q")
    assert len(sixes(story, Commits(story))) == 1


def test_of_transactions_at_the_same_time_none_goes_back() -> None:
    story = reader(enable_auto_commit=False)
    for name in ("p1", "p2"):
        story.producer(name, transactional_id=name)
        story.began(1, name)
    story.offsets_sent(1, 2, "p1")
    story.end_asked(1, client="p1")
    story.offsets_sent(1, 4, "p2")
    story.end_asked(1, client="p2")
    story.ended(1, client="p2")
    story.ended(1, client="p1")
    assert sixes(story, Commits(story)) == []


def test_without_commits_there_is_nothing_to_look_at() -> None:
    assert 6 in reader().not_checked(LOG)
    alone = HistoryBuilder()
    alone.producer()
    assert 6 in alone.not_checked(LOG, commits=())
