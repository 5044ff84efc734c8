"""The checks notice what is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from verify.soak import checker

ACKNOWLEDGED = {number: checker.PartitionOffset(number % 2, number // 2) for number in range(10)}
LOG = {partition: [(offset, 2 * offset + partition) for offset in range(5)] for partition in (0, 1)}


def test_a_whole_log_is_right() -> None:
    assert checker.check_log(ACKNOWLEDGED, [], LOG) == []


def test_an_unknown_outcome_may_be_there_or_not() -> None:
    acknowledged = {number: place for number, place in ACKNOWLEDGED.items() if number != 9}
    assert checker.check_log(acknowledged, [9], LOG) == []
    assert checker.check_log(acknowledged, [9], {0: LOG[0], 1: LOG[1][:-1]}) == []


@pytest.mark.parametrize(
    ("log", "problem"),
    [
        ({0: LOG[0][:-1], 1: LOG[1]}, "1 acknowledged and not there: 8"),
        ({0: LOG[0], 1: [*LOG[1], (5, 9)]}, "1 there more than once: 9"),
        ({0: [*LOG[0][:3], (3, 8), (4, 6)], 1: LOG[1]}, "partition 0 is not in the order"),
        ({0: [*LOG[0], (5, 10)], 1: LOG[1]}, "1 present although reported as failed: 10"),
        (
            {0: [(o + 1, n) for o, n in LOG[0]], 1: LOG[1]},
            "5 not at their acknowledged offset: 0, 2, 4, 6, 8",
        ),
    ],
    ids=["lost", "twice", "order", "strange", "elsewhere"],
)
def test_a_wrong_log_is_noticed(log: dict[int, list[tuple[int, int]]], problem: str) -> None:
    found = checker.check_log(ACKNOWLEDGED, [], log)
    assert any(problem in text for text in found), found


SPANS = [checker.Span(0, 0, 5), checker.Span(0, 5, 10), checker.Span(1, 0, 4)]


def test_spans_that_cover_everything_are_right() -> None:
    assert checker.check_processed(SPANS, {0: 10, 1: 4, 2: 0}) == []
    assert checker.check_processed([*SPANS, checker.Span(0, 3, 7)], {0: 10, 1: 4}) == []
    assert checker.processed_again(SPANS) == 0
    assert checker.processed_again([*SPANS, checker.Span(0, 3, 7)]) == 4


@pytest.mark.parametrize(
    ("spans", "ends", "problem"),
    [
        ([checker.Span(0, 1, 10)], {0: 10}, "1 messages were not processed: 0@0-0"),
        (
            [checker.Span(0, 0, 5), checker.Span(0, 6, 10)],
            {0: 10},
            "1 messages were not processed: 0@5-5",
        ),
        (SPANS, {0: 10, 1: 5}, "1 messages were not processed: 1@4-4"),
        (SPANS, {0: 10, 1: 4, 2: 3}, "3 messages were not processed: 2@0-2"),
    ],
)
def test_a_message_left_out_is_noticed(
    spans: list[checker.Span], ends: dict[int, int], problem: str
) -> None:
    assert checker.check_processed(spans, ends) == [problem]


def test_commits_that_go_back_are_noticed() -> None:
    history = [
        checker.PartitionOffset(0, 5),
        checker.PartitionOffset(1, 9),
        checker.PartitionOffset(0, 7),
        checker.PartitionOffset(0, 7),
        checker.PartitionOffset(1, 8),
        checker.PartitionOffset(0, 9),
    ]
    assert checker.check_commits(history) == ["1 commits went back: partition 1 from 9 to 8"]
    assert checker.check_commits(history, in_doubt=[checker.PartitionOffset(1, 8)]) == []
    assert checker.check_commits([place for place in history if place != (1, 8)]) == []


def test_partitions_without_and_with_two_owners_are_noticed() -> None:
    assert checker.check_owners({"a": [0, 1], "b": [2]}, 3) == []
    assert checker.check_owners({"a": [0, 1], "b": [1]}, 3) == [
        "1 partitions have more than one owner: 1",
        "1 partitions have no owner: 2",
    ]


def test_the_longest_gap() -> None:
    assert checker.longest_gap([1.0, 2.0, 6.0, 7.0, 30.0], 0.0, 8.0) == 4.0
    assert checker.longest_gap([], 2.0, 8.0) == 6.0


def copied(messages: int, partitions: int) -> dict[int, list[tuple[int, int]]]:
    """As a chain of topics should hold the numbers; offsets have gaps where markers stand."""
    return {
        partition: [
            (offset * 3, n) for offset, n in enumerate(range(partition, messages, partitions))
        ]
        for partition in range(partitions)
    }


def test_copies_that_are_whole_are_right() -> None:
    assert checker.check_copies(20, 3, copied(20, 3)) == []


@pytest.mark.parametrize(
    ("partition", "change", "problem"),
    [
        (1, lambda entries: entries[:-1], "1 not there: 19"),
        (1, lambda entries: [*entries, (99, 19)], "1 there more than once: 19"),
        (1, lambda entries: [*entries, (99, 22)], "1 that were not sent: 22"),
        (1, lambda entries: [(0, 4), (3, 1), *entries[2:]], "partition 1 is not in order"),
        (0, lambda entries: [*entries, (99, 20)], "partition 0 has records of another one"),
    ],
)
def test_copies_that_are_not_are_noticed(partition: int, change: Any, problem: str) -> None:
    found = copied(20, 3)
    found[partition] = change(found[partition])
    assert any(problem in each for each in checker.check_copies(20, 3, found))


def share_event(at: float, member: str, count: int | None, *offsets: int) -> checker.ShareEvent:
    places = frozenset(checker.PartitionOffset(0, offset) for offset in offsets)
    return checker.ShareEvent(at, member, count, places)


def test_records_that_come_again_before_they_are_accepted_are_right() -> None:
    history = [
        share_event(1, "a", 1, 0, 1),
        share_event(2, "b", 2, 1),
        share_event(3, "a", None, 0),
        share_event(4, "b", None, 1),
        # It was stopped after the delivery.
        share_event(5, "c", 1, 1),
    ]
    assert checker.check_accepted(history) == []


def test_an_accepted_record_that_comes_again_is_noticed() -> None:
    history = [
        share_event(1, "a", 1, 0, 1),
        share_event(2, "a", None, 0),
        share_event(3, "b", 2, 0, 1),
    ]
    [problem] = checker.check_accepted(history)
    assert problem.startswith("1 delivered again after they were accepted: ")


def test_spans_are_expanded() -> None:
    spans = [checker.Span(0, 1, 3), checker.Span(1, 5, 6)]
    assert checker.expand(spans) == {(0, 1), (0, 2), (1, 5)}


def job_result(done: list[int], dead: set[int]) -> checker.JobResult:
    return checker.JobResult(6, done, 0, frozenset(dead))


@pytest.mark.parametrize(
    ("done", "dead", "problem"),
    [
        ([0, 1, 2, 4, 5], {3}, None),
        ([1, 0, 1, 2, 5, 4, 0], {3}, None),  # other keys, and once more
        ([0, 1, 2, 4], {3}, "1 records were lost: 5"),
        ([0, 1, 2, 5], {3, 4}, "1 dead letters should have been processed: 4"),
        ([2, 0, 1, 4, 5], {3}, "1 records are out of order: 0"),
    ],
)
def test_a_job_is_done_in_order_and_without_loss(
    done: list[int], dead: set[int], problem: str | None
) -> None:
    found = checker.check_job(job_result(done, dead), lambda number: number == 3, keys=2)
    assert found == ([] if problem is None else [problem])
