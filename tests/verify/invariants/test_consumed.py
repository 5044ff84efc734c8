"""Invariant 11: that it passes what is right, and names what is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from aiokafkawire.types import TopicPartition
from tests.verify.invariants.history_builder import T0, HistoryBuilder, log, v
from verify.invariants.events import Fault, FaultsHealed, PartitionsAssignedManually, Subscribed
from verify.invariants.observed import CommitRequest, Log, PositionLost

GROUP = {"complete_groups": ("g",)}


def r(*offsets: int) -> list[tuple[int, bytes]]:
    return [(offset, v(offset)) for offset in offsets]


def consumption_findings(builder: HistoryBuilder, *logs: Log, **guarantees: Any) -> list[str]:
    found = builder.found(*logs, guarantees=guarantees or GROUP)
    return [text for number, text in found if number == 11]


def group(**options: Any) -> HistoryBuilder:
    """Two members, and three records."""
    builder = HistoryBuilder()
    builder.made()
    builder.producer(request_timeout_ms=30_000)
    builder.sent(v(0), v(1), v(2))
    builder.consumer("c", **options)
    builder.consumer("d", **options)
    builder.assigned(T0, client="c")
    return builder


ALL = log(v(0), v(1), v(2))


def test_what_the_members_of_a_group_read_between_them() -> None:
    builder = group()
    builder.polled(*r(0, 1))
    builder.revoked(T0)
    builder.assigned(T0, client="d")
    builder.polled(*r(1, 2), client="d")
    assert consumption_findings(builder, ALL) == []


def test_an_undelivered_record() -> None:
    builder = group()
    builder.polled(*r(0, 1))
    builder.consumer("e", group_id="other")
    builder.polled(*r(2), client="e")
    assert consumption_findings(builder, ALL) == [
        "1 records were never given to group g: p-2| at t-0@2"
    ]
    assert consumption_findings(builder, ALL, complete_readers=()) == []


def test_unsubscribed_partitions_are_left_out() -> None:
    builder = group()
    builder.polled(*r(0, 1, 2))
    builder.made("u")
    assert consumption_findings(builder, ALL, log(b"x", topic="u")) == []
    builder.add(Subscribed, "c", (), "u.*")
    assert len(consumption_findings(builder, ALL, log(b"x", topic="u"))) == 1


def test_a_topic_that_is_gone_needs_not_be_read() -> None:
    builder = group()
    builder.deleted()
    assert consumption_findings(builder, ALL) == []
    builder.made()
    builder.sent(v(10))
    assert consumption_findings(builder, ALL, log(incarnation=1)) == []
    again = (ALL, log(v(10), incarnation=1))
    assert len(consumption_findings(builder, *again)) == 1
    assert consumption_findings(builder, *again, complete_groups=("g",), in_metadata=False) == []


def test_a_topic_made_again_with_fewer_partitions() -> None:
    builder = group()
    builder.polled(*r(0, 1, 2))
    builder.deleted()
    builder.made()
    gone = log(b"gone", partition=1)
    assert consumption_findings(builder, ALL, gone, log(incarnation=1)) == []


def test_readers_without_a_group() -> None:
    builder = HistoryBuilder()
    builder.consumer("c", group_id=None)
    builder.consumer("h", group_id=None, topics=())
    builder.add(PartitionsAssignedManually, "h", (T0, TopicPartition("t", 5)))
    builder.polled(*r(0, 1), client="c")
    builder.polled(*r(0, 1, 2), client="h")
    assert consumption_findings(builder, ALL, complete_readers=("h",)) == []
    assert len(consumption_findings(builder, ALL, complete_readers=("c", "h"))) == 1


def test_readers_of_committed_records_need_no_others() -> None:
    mixed = log((v(0), "committed"), (v(1), "aborted"), v(2))
    for isolation, count in (("read_committed", 0), ("read_uncommitted", 1)):
        builder = HistoryBuilder()
        builder.consumer("c", isolation_level=isolation)
        builder.polled((0, v(0)), (2, v(2)))
        assert len(consumption_findings(builder, mixed)) == count


@pytest.mark.parametrize(
    ("after_s", "fetch_max_wait_ms", "late"),
    [(55.0, 500, 0), (70.0, 500, 1), (70.0, 20_000, 0), (85.0, 20_000, 1)],
)
def test_everything_is_consumed_in_time_after_the_heal(
    after_s: float, fetch_max_wait_ms: int, late: int
) -> None:
    builder = group(fetch_max_wait_ms=fetch_max_wait_ms)
    builder.polled(*r(0, 1))
    builder.add(Fault, "", "cut")
    builder.time += 1_000
    builder.add(FaultsHealed, "")
    builder.time += after_s
    builder.polled(*r(2))
    assert len(consumption_findings(builder, ALL)) == late
    assert consumption_findings(builder, ALL, complete_groups=("g",), consumed_within_s=100.0) == []


def test_what_was_sent_later_is_given_later() -> None:
    builder = group()
    builder.add(FaultsHealed, "")
    builder.polled(*r(0, 1, 2))
    builder.time += 200
    builder.sent(v(3), first=3)
    builder.polled(*r(3))
    assert consumption_findings(builder, log(v(0), v(1), v(2), v(3))) == []


@pytest.mark.parametrize(("after_s", "late"), [(1.0, 0), (70.0, 1)])
def test_the_time_of_a_reader_begins_when_it_is_opened(after_s: float, late: int) -> None:
    builder = HistoryBuilder()
    builder.made()
    builder.producer(request_timeout_ms=30_000)
    builder.sent(v(0))
    builder.add(FaultsHealed, "")
    builder.time += 200
    builder.consumer("late", group_id=None)
    builder.assigned(T0, client="late")
    builder.time += after_s
    builder.polled(*r(0), client="late")
    found = consumption_findings(builder, log(v(0)), complete_readers=("late",))
    assert len(found) == late


def test_a_transaction_can_be_read_from_its_end_on() -> None:
    def found(*, asked: bool) -> int:
        builder = group()
        builder.add(FaultsHealed, "")
        builder.polled(*r(0, 1, 2))
        builder.producer("q", transactional_id="x")
        builder.began(1, "q")
        builder.send(v(1, "q"), client="q", transaction=1)
        builder.time += 200
        if asked:
            builder.end_txn_requested(1, client="q")
        builder.polled((3, v(1, "q")))
        return len(consumption_findings(builder, log(v(0), v(1), v(2), (v(1, "q"), "committed"))))

    assert found(asked=True) == 0
    assert found(asked=False) == 1


def failing_send(error: str, after_s: float, *, broken: bool = True) -> list[str]:
    builder = group()
    if broken:
        builder.add(Fault, "", "cut")
        builder.add(FaultsHealed, "")
    builder.time += after_s
    builder.send(v(9))
    builder.fail(v(9), error, unknown=True)
    return consumption_findings(builder, complete_readers=())


@pytest.mark.parametrize(
    ("error", "after_s", "wrong"),
    [
        ("DeliveryUnknown", 40.0, True),
        ("BrokerError", 40.0, True),
        ("DeliveryUnknown", 20.0, False),
        ("ProducerFenced", 40.0, False),
        ("Cancelled", 40.0, False),
    ],
)
def test_sends_succeed_after_the_heal(error: str, after_s: float, wrong: bool) -> None:
    found = failing_send(error, after_s)
    assert [text.partition(":")[0] for text in found] == [
        "1 sends failed after all faults had ended"
    ] * wrong


def test_sends_succeed_where_nothing_is_ever_broken() -> None:
    assert len(failing_send("DeliveryTimedOut", 60.0, broken=False)) == 1


def test_without_a_heal_sends_may_fail() -> None:
    builder = group()
    builder.add(Fault, "", "cut")
    builder.time += 1_000
    builder.send(v(9))
    builder.fail(v(9), "DeliveryUnknown", unknown=True)
    assert consumption_findings(builder, complete_readers=()) == []
    assert 11 in builder.not_checked()


def test_calls_find_the_cluster_after_the_heal() -> None:
    def found(name: str, error: str) -> int:
        builder = group()
        builder.time += 60
        builder.returned(builder.call(name, 60.0), error)
        return len(consumption_findings(builder, complete_readers=()))

    assert found("commit", "RequestTimedOut") == 1
    assert found("start", "NoBrokerAvailable") == 1
    assert found("flush", "RequestTimedOut") == 0
    assert found("commit", "CommitFailed") == 0


NEW = log(v(10), v(11), v(12), v(13), incarnation=1)
IN_OLD = r(0, 1, 2)


def hidden(
    *,
    polled: Sequence[tuple[int, bytes]] = IN_OLD,
    offset: int = 3,
    error: int = 0,
    after_s: float = 0.0,
    lost_s: float | None = None,
    in_commits: bool = False,
) -> list[str]:
    """A member commits an offset of an old log, and the group goes on in the new log after it."""
    builder = group(metadata_max_age_ms=10_000)
    builder.deleted()
    builder.made()
    made_at = builder.time
    builder.polled(*polled)
    at = builder.time + 0.5 + after_s
    commit = CommitRequest(at, "c", "g", "c", 1, ((T0, offset),), (error,))
    builder.sent(v(10), v(11), v(12), v(13))
    builder.polled((3, v(13)))
    lost = () if lost_s is None else (PositionLost(made_at + lost_s, "c", "t", 0),)
    return [
        text
        for number, text in builder.found(
            ALL,
            NEW,
            guarantees={**GROUP, "topics_remade": True, "in_commits": in_commits},
            commits=(commit,),
            positions_lost=lost,
        )
        if number == 11
    ]


def test_a_commit_of_an_old_log_is_stored_for_the_new_one() -> None:
    assert hidden() == []
    assert hidden(lost_s=3.4) == []
    assert hidden(lost_s=-0.5) == []


@pytest.mark.parametrize(
    ("changed", "missing"),
    [
        pytest.param({"offset": 2}, 1, id="records after the commit"),
        pytest.param({"offset": 4}, 3, id="an offset that was not read"),
        pytest.param({"error": 25}, 3, id="a refused commit"),
        pytest.param({"after_s": 60.0}, 3, id="the metadata is newer"),
        pytest.param({"lost_s": 1.0}, 3, id="a fetch has failed before"),
        pytest.param({"in_commits": True}, 3, id="commits have topic ids"),
        pytest.param({"polled": [(2, v(12))]}, 2, id="an offset in the new log"),
        pytest.param({"polled": [(0, v(0)), (2, v(12))]}, 2, id="offsets in both logs"),
    ],
)
def test_records_are_lost_in_a_new_log(changed: dict[str, Any], missing: int) -> None:
    (found,) = hidden(**changed)
    assert found.startswith(f"{missing} records were never given to group g: ")
