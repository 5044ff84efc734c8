"""Invariant 14: that it passes what is right, and names what is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from tests.verify.invariants.history_builder import T0, HistoryBuilder, log, v
from verify.invariants.observed import CommitRequest, Log


def transaction(
    outcome: Any, *, commit: bool = True, ended: bool = True, **options: Any
) -> HistoryBuilder:
    """Records 1 and 2 in a transaction that ended so."""
    builder = HistoryBuilder()
    builder.made()
    builder.producer(transactional_id="x", **options)
    builder.began(1)
    builder.send(v(1), transaction=1)
    builder.send(v(2), transaction=1)
    if ended:
        builder.end_txn_requested(1, commit=commit)
        builder.ended(1, outcome)
    return builder


def transaction_findings(builder: HistoryBuilder, *logs: Log, **rest: Any) -> list[str]:
    found = builder.found(*logs, **rest)
    return [text.split(": ")[0].partition(" ")[2] for number, text in found if number == 14]


def both(first: Any, second: Any) -> Log:
    return log((v(1), first), (v(2), second))


VISIBLE = "records of uncommitted transactions are visible"
MISSING = "records of committed transactions are not visible"
PART = "transactions are partly visible"
EARLY = "records were read before EndTxn"
PASSED = "readers passed an open transaction"
OFFSETS = "offsets are not those of the last transaction"


@pytest.mark.parametrize(
    ("outcome", "first", "second", "wrong"),
    [
        ("committed", "committed", "committed", []),
        ("committed", "committed", "aborted", [MISSING]),
        ("committed", "open", "open", [MISSING]),
        ("aborted", "aborted", "aborted", []),
        ("aborted", "aborted", "committed", [VISIBLE]),
        ("fenced", "aborted", "aborted", []),
        ("fenced", "committed", "committed", [VISIBLE]),
        ("unknown", "committed", "committed", []),
        ("unknown", "aborted", "aborted", []),
        ("unknown", "aborted", "committed", [PART]),
        ("unknown", "open", "open", []),
    ],
)
def test_a_transaction_is_visible_whole_or_not_at_all(
    outcome: Any, first: Any, second: Any, wrong: list[str]
) -> None:
    assert transaction_findings(transaction(outcome), both(first, second)) == wrong


def test_a_record_that_was_taken_after_the_end_of_its_transaction() -> None:
    late = "records were accepted after the end of their transactions"
    for during, wrong in ((True, []), (False, [late])):
        builder = transaction("committed", ended=False)
        builder.sending(v(3), transaction=1)
        if during:
            builder.handed(v(3))
        builder.end_txn_requested(1, commit=True)
        builder.ended(1, "committed")
        if not during:
            builder.handed(v(3))
        rows = log((v(1), "committed"), (v(2), "committed"), (v(3), "committed"))
        assert transaction_findings(builder, rows) == wrong


def test_a_record_of_a_committed_transaction_that_is_nowhere() -> None:
    assert transaction_findings(transaction("committed"), log((v(1), "committed"))) == [MISSING]
    assert transaction_findings(transaction("unknown"), log((v(1), "committed"))) == [PART]
    assert transaction_findings(transaction("aborted"), log((v(1), "aborted"))) == []


def test_a_transaction_that_was_never_to_be_committed() -> None:
    builder = transaction(None, ended=False)
    assert transaction_findings(builder, both("aborted", "open")) == []
    assert transaction_findings(builder, both("committed", "committed")) == [VISIBLE]
    builder.end_txn_requested(1)
    assert transaction_findings(builder, both("committed", "committed")) == []
    builder = transaction("aborted", commit=False)
    assert transaction_findings(builder, both("committed", "aborted")) == [VISIBLE]


def test_the_outcome_of_an_uncertain_commit_may_come_later() -> None:
    builder = transaction("unknown")
    builder.ended(1, "aborted")
    assert transaction_findings(builder, both("committed", "committed")) == []
    builder.ended(1, "committed")
    assert transaction_findings(builder, both("aborted", "aborted")) == [MISSING]


def test_a_record_outside_of_its_transaction() -> None:
    found = transaction_findings(transaction("committed"), both("committed", "none"))
    assert found == ["records are outside their transactions"]


def test_a_record_that_failed_and_its_transaction_did_not() -> None:
    builder = transaction("committed", ended=False)
    builder.fail(v(2))
    builder.end_txn_requested(1)
    builder.ended(1, "committed")
    found = transaction_findings(builder, log((v(1), "committed")))
    assert found == ["records failed in committed transactions"]


def test_a_record_that_was_never_handed_over_is_no_part() -> None:
    builder = transaction("committed", ended=False)
    builder.sending(v(3), transaction=1)
    builder.fail(v(3), "BufferFull")
    builder.end_txn_requested(1)
    builder.ended(1, "committed")
    assert transaction_findings(builder, both("committed", "committed")) == []


def test_deleted_records_are_not_missing() -> None:
    builder = transaction("committed")
    assert transaction_findings(builder, log((v(2), "committed"), start=1)) == []
    builder.deleted()
    builder.made()
    assert transaction_findings(builder, log(incarnation=1)) == []


def test_reading_before_the_commit_was_asked_for() -> None:
    builder = transaction("committed", ended=False)
    builder.consumer(group_id=None, isolation_level="read_committed")
    builder.consumer("d", group_id=None)
    builder.polled((0, v(1)), client="d")
    builder.end_txn_requested(1)
    builder.polled((0, v(1)), (1, v(2)))
    builder.ended(1)
    assert transaction_findings(builder, both("committed", "committed")) == []
    builder = transaction("committed", ended=False)
    builder.consumer(group_id=None, isolation_level="read_committed")
    builder.polled((0, v(1)), (1, v(2)))
    builder.end_txn_requested(1)
    builder.ended(1)
    assert transaction_findings(builder, both("committed", "committed")) == [EARLY]


def test_reading_past_a_transaction_that_is_open() -> None:
    def read(*records: tuple[int, bytes], client: str = "c") -> list[str]:
        builder = transaction("committed", ended=False)
        builder.producer("q")
        builder.send(v(1, "q"), client="q")
        builder.consumer(group_id=None, isolation_level="read_committed")
        builder.consumer("d", group_id=None)
        builder.polled(*records, client=client)
        builder.end_txn_requested(1)
        builder.ended(1)
        there = log(v(1, "q"), (v(1), "committed"), (v(2), "committed"), v(1, "q"))
        return transaction_findings(builder, there)

    assert read((0, v(1, "q"))) == []
    assert read((3, v(1, "q"))) == [PASSED]
    assert read((3, v(1, "q")), client="d") == []


def sent_offsets(*ends: tuple[int, Any]) -> HistoryBuilder:
    builder = HistoryBuilder()
    builder.producer(transactional_id="x")
    for number, (offset, outcome) in enumerate(ends, 1):
        builder.began(number)
        builder.offsets_sent(number, offset)
        builder.end_txn_requested(number, commit=outcome != "aborted")
        builder.ended(number, outcome)
    return builder


@pytest.mark.parametrize(
    ("ends", "right"),
    [
        ([(2, "committed"), (4, "committed")], {4}),
        ([(2, "committed"), (4, "aborted")], {2}),
        ([(2, "committed"), (4, "unknown")], {2, 4}),
        ([(2, "committed"), (4, "fenced")], {2}),
        ([(2, "aborted")], {None, 2, 4}),
        ([(2, "unknown")], {None, 2}),
    ],
)
def test_offsets_count_with_their_transaction(ends: Any, right: set[int | None]) -> None:
    builder = sent_offsets(*ends)
    for found in (None, 2, 4):
        committed = {"g": () if found is None else ((T0, found),)}
        assert transaction_findings(builder, committed=committed) == (
            [] if found in right else [OFFSETS]
        )


def test_transactions_at_the_same_time_end_in_either_order() -> None:
    builder = HistoryBuilder()
    for name in ("p", "q"):
        builder.producer(name, transactional_id=name)
        builder.began(1, name)
    builder.offsets_sent(1, 2, "p")
    builder.offsets_sent(1, 4, "q")
    builder.end_txn_requested(1, client="p")
    builder.end_txn_requested(1, client="q")
    builder.ended(1, client="q")
    builder.ended(1, client="p")
    for found, wrong in ((2, []), (4, []), (3, [OFFSETS])):
        assert transaction_findings(builder, committed={"g": ((T0, found),)}) == wrong


def test_a_group_that_commits_otherwise_too_is_left_out() -> None:
    builder = sent_offsets((2, "committed"))
    plain = CommitRequest(1.0, "c", "g", "m", 1, ((T0, 3),), (0,))
    assert transaction_findings(builder, committed={"g": ((T0, 3),)}, commits=(plain,)) == []


def test_without_transactions_there_is_nothing_to_look_at() -> None:
    assert 14 in HistoryBuilder().not_checked()
