"""Errors in logs, copies and commits are found; a killed process counts as crashed."""

from __future__ import annotations

from pathlib import Path

import pytest

from aiokafkawire.types import TopicPartition
from verify.invariants.events import (
    Acknowledged,
    Called,
    Closed,
    Committed,
    Committing,
    Crashed,
    Event,
    Failed,
    Fault,
    Opened,
    Polled,
    Returned,
    TransactionEnded,
    make_value,
    to_line,
)
from verify.soak.checker import PartitionOffset
from verify.soak.faults import check_run
from verify.soak.faults.load import PARTITIONS, Killed

VALUES = [make_value("producer-1", number) for number in range(4)]
SOURCE = {0: list(enumerate(VALUES)), 1: [(0, make_value("producer-2", 0))]}


def copies() -> dict[int, list[tuple[int, bytes]]]:
    """As a worker makes them; offsets have gaps where markers stand."""
    return {
        partition: [
            (offset * 2, make_value("first-1", number, value))
            for number, (offset, value) in enumerate(entries)
        ]
        for partition, entries in SOURCE.items()
    }


def test_whole_copies_are_right() -> None:
    assert check_run.check_chain(SOURCE, copies(), "copy") == []


def test_copies_that_are_missing_doubled_or_out_of_order_are_noticed() -> None:
    lost = copies()
    del lost[0][2]
    assert check_run.check_chain(SOURCE, lost, "copy") == [
        "copy, partition 0: 4 records, 3 copies; 1 without one [b'producer-1-2|'],"
        " 0 with several []"
    ]
    twice = copies()
    twice[0].append((99, make_value("first-2", 1, VALUES[0])))
    assert "1 with several [b'producer-1-0|']" in check_run.check_chain(SOURCE, twice, "copy")[0]
    swapped = copies()
    swapped[0][1:3] = reversed(swapped[0][1:3])
    assert len(check_run.check_chain(SOURCE, swapped, "copy")) == 1


TP = TopicPartition("orders", 0)


def commit(call: int, offset: int, outcome: str | None, client: str = "hand-1") -> list[Event]:
    events: list[Event] = [Committing(call, client, call, ((TP, offset),))]
    if outcome is not None:
        events.append(Committed(call + 0.5, client, call, outcome))  # type: ignore[arg-type]
    return events


def test_commits_of_unknown_outcome_are_in_doubt_and_no_others() -> None:
    history = [
        *commit(1, 10, "ok"),
        *commit(2, 20, "unknown"),
        *commit(3, 30, "failed"),
        *commit(4, 40, None),
        *commit(5, 50, "unknown", client="auto-1"),
    ]
    assert check_run.in_doubt(history, "hand") == {PartitionOffset(0, 20), PartitionOffset(0, 40)}


def test_stored_commits_that_went_back_are_noticed() -> None:
    found = check_run.FinalContents(
        group_commits={
            "hand": [PartitionOffset(0, 10), PartitionOffset(0, 30), PartitionOffset(0, 20)]
        }
    )
    assert check_run.check_stored_commits(commit(2, 20, "unknown"), found) == {"hand": []}
    assert check_run.check_stored_commits(commit(2, 20, "ok"), found) == {
        "hand": ["1 commits went back: partition 0 from 30 to 20"]
    }


def test_killed_processes_count_as_crashed_unless_closed_before(tmp_path: Path) -> None:
    written: list[Event] = [
        Opened(1.0, "first-1", "consumer", {}),
        Opened(2.0, "first-1.producer.1", "producer", {}),
        Closed(3.0, "first-1.producer.1"),
        Opened(4.0, "first-1.producer.2", "producer", {}),
    ]
    file = tmp_path / "first-1.jsonl"
    file.write_text("".join(f"{to_line(event)}\n" for event in written) + '{"event": "Op')
    other = [Opened(1.5, "hand-1", "consumer", {})]
    (tmp_path / "hand-1.jsonl").write_text(f"{to_line(other[0])}\n")
    world: list[Event] = [Fault(2.5, "", "killed")]
    history = check_run.history_of(tmp_path, [Killed("first-1", 5.0)], world)
    assert [event for event in history if isinstance(event, Crashed)] == [
        Crashed(5.0, "first-1"),
        Crashed(5.0, "first-1.producer.2"),
    ]
    assert [event.at for event in history] == [1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 5.0]


HISTORY: list[Event] = [
    Called(0.0, "hand-1", 1, "getmany", 0.2),
    Polled(1.0, "hand-1", "orders", 0, ((0, b"a"), (1, b"b")), 2),
    Returned(1.5, "hand-1", 1),
    Acknowledged(2.0, "producer-1", 1, "orders", 0, ((0, b"a"),)),
    Acknowledged(3.0, "first-1.producer.1", 1, "copies", 0, ((0, b"c"),)),
    Failed(3.0, "producer-1", 2, (b"x",), "DeliveryUnknown", True),
    Polled(7.0, "hand-2", "orders", 0, ((1, b"b"), (2, b"d")), 3),
    TransactionEnded(7.5, "first-1.producer.1", 1, "committed"),
    Called(8.0, "hand-2", 1, "commit", 60.0),
    Returned(9.0, "hand-2", 1, "CommitFailed"),
    Acknowledged(9.0, "producer-1", 3, "orders", 0, ((1, b"b"),)),
]


def test_a_history_is_counted() -> None:
    counts = check_run.counts_of(HISTORY)
    assert counts.acknowledged == {"orders": 2, "copies": 1}
    assert counts.failed == {"unknown: DeliveryUnknown": 1}
    assert (counts.delivered["hand"], counts.again["hand"]) == (4, 1)
    assert counts.transactions == {"committed": 1}
    assert counts.calls == 2
    assert counts.longest == {"getmany": 1.5, "commit": 1.0}
    assert counts.errors == {"commit: CommitFailed": 1}


def test_the_longest_silence() -> None:
    others = [
        Acknowledged(at, "producer-2", 1, "orders", partition, ((0, b"x"),))
        for partition in range(1, PARTITIONS)
        for at in (2.0, 4.0, 8.0)
    ]
    silences = check_run.Silences([*HISTORY, *others])
    assert silences.sending(1.0, 9.5) == pytest.approx(7.0), "the partition that waited longest"
    assert check_run.Silences(HISTORY).sending(1.0, 9.5) == pytest.approx(8.5), (
        "nothing in the others"
    )
    assert silences.reading(0.0, 8.0)[0] == pytest.approx(8.0), "the other groups read nothing"
    reads = [Polled(4.0, f"{group}-1", "t", 0, (), 0) for group in ("auto", "first", "second")]
    longest, group = check_run.Silences([*HISTORY, *reads]).reading(0.0, 8.0)
    assert (longest, group) == (6.0, "hand")
