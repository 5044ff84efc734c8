"""Handwritten reads of members that join and leave, and their evaluation."""

from __future__ import annotations

from verify.soak.checker import Span
from verify.soak.churn_record import ChurnRecord, Read, check_epochs, describe_ms, waits


def read(
    at: float, member: str, epoch: int, first: int, end: int, *, created: float = 0, partition=0
) -> Read:
    return Read(at, created, member, epoch, Span(partition, first, end))


def test_records_wait_from_their_creation_or_the_read_before() -> None:
    record = ChurnRecord(
        [
            read(1.0, "a", 5, 0, 10, created=0.9),
            read(3.0, "a", 5, 10, 20, created=2.5),
            read(4.0, "a", 5, 20, 30, created=2.0),
            read(9.0, "b", 6, 30, 40, created=5.0),
            read(2.0, "b", 6, 0, 5, created=1.9, partition=1),
        ]
    )
    found = waits(record)
    assert [[wait.seconds for wait in some] for some in found] == [[0.5, 1.0], [4.0]]
    record.began = 0.0
    text = "median 750 ms, longest 1,000 ms (partition 0 of a, 3.0 s after start)"
    assert record.describe_waits(found.stayed) == text


def test_a_record_of_one_epoch_belongs_to_one_member() -> None:
    once = [read(1, "a", 5, 0, 10), read(2, "b", 5, 10, 20), read(3, "b", 5, 0, 9, partition=1)]
    assert check_epochs(once) == []
    assert check_epochs([*once, read(4, "c", 6, 0, 20)]) == []
    assert check_epochs([*once, read(4, "b", 5, 15, 20)]) == []
    assert check_epochs([*once, read(4, "c", 5, 5, 8)]) == [
        "1 reads of two members of one epoch: 0@5 by a and c (5)"
    ]
    assert len(check_epochs([*once, read(4, "c", 5, 0, 3), read(5, "d", 5, 15, 21)])) == 1


def test_times_are_described_in_milliseconds() -> None:
    assert describe_ms([]) == "none"
    assert describe_ms([0.1, 0.2, 1.5]) == "median 200 ms, longest 1,500 ms"
