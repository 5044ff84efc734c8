"""Invariants 15 to 17: handwritten changes of a share group, with and without a violation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from tests.verify.invariants.history_builder import log, v
from verify.invariants import events
from verify.invariants.checker import Guarantees, judge
from verify.invariants.observed import Observed, ShareAcquired, ShareLocksEnded

GROUP = "work"
Change = ShareAcquired | ShareLocksEnded


def acquired(client: str, offset: int, count: int = 1, *, loaded: int = 0) -> ShareAcquired:
    return ShareAcquired(1.0, client, GROUP, "t", 0, offset, offset, count, 2, loaded)


def ended(
    offset: int, state: Literal["available", "acknowledged", "archived"], count: int = 1
) -> ShareLocksEnded:
    return ShareLocksEnded(2.0, GROUP, "t", 0, offset, offset, state, count)


def received(client: str, offset: int, count: int = 1) -> events.ShareReceived:
    return events.ShareReceived(1.5, client, "t", 0, ((offset, v(offset)),), (count,))


def decided(client: str, offset: int, decision: str, *, owed: bool = True) -> events.ShareDecided:
    return events.ShareDecided(1.6, client, "t", 0, (offset,), decision, owed)


def reported(client: str, offset: int, error: str | None = None) -> events.ShareReported:
    return events.ShareReported(2.5, client, "t", 0, (offset,), error)


def found(
    changes: Sequence[Change], history: Sequence[events.Event] = (), records: int = 1
) -> list[tuple[int, str]]:
    """Return number and text of each violation of 15 to 17, of two members of a group."""
    opened = [
        events.Opened(0.0, name, "share consumer", {"group_id": GROUP, "client_id": name})
        for name in ("a", "b")
    ]
    observed = Observed(logs=(log(*map(v, range(records))),), share_changes=tuple(changes))
    result = judge([*opened, *history], observed, Guarantees(share_groups=(GROUP,)))
    return [(each.invariant, each.text) for each in result.violations if each.invariant >= 15]


GOOD = (acquired("a", 0), ended(0, "acknowledged"))
DONE = (received("a", 0), decided("a", 0, "accept"), reported("a", 0), events.Closed(3.0, "a"))


def test_an_accepted_record_is_right() -> None:
    assert found(GOOD, DONE) == []


def test_a_released_record_is_accepted_by_the_other_member() -> None:
    changes = (acquired("a", 0), ended(0, "available"), acquired("b", 0, 2))
    history = (received("b", 0, 2), decided("b", 0, "accept"), reported("b", 0))
    assert found((*changes, ended(0, "acknowledged", 2)), history) == []


def test_two_locks_at_once() -> None:
    ((number, text), *_) = found((acquired("a", 0), acquired("b", 0, 2)))
    assert number == 15
    assert "t-0@0 of work was locked for a when b acquired it" in text


def test_a_leader_that_loads_a_partition_knows_no_locks() -> None:
    changes = (acquired("a", 0), acquired("b", 0, loaded=1), ended(0, "acknowledged"))
    assert found(changes, (decided("b", 0, "accept"), reported("b", 0))) == []


def test_a_count_above_the_limit_or_out_of_order() -> None:
    changes = (acquired("a", 0, 2), ended(0, "available", 2), acquired("b", 0, 3))
    assert "delivery count 3 of 2" in str(found(changes))
    changes = (acquired("a", 0), ended(0, "available"), acquired("b", 0, 1))
    assert "delivery count 1 after 1" in str(found(changes))


def test_a_record_without_a_lock() -> None:
    assert "a got t-0@5 in delivery 1" in str(found(GOOD, (*DONE, received("a", 5))))


def test_an_accepted_record_that_comes_again() -> None:
    texts = str(found((*GOOD, acquired("b", 0, 2)), DONE))
    assert "acknowledged by a, came to b" in texts
    assert "is available now" in str(found((*GOOD, ended(0, "available")), DONE))


def test_a_record_that_is_never_finished() -> None:
    assert (16, "1 records were never finished: t-0@1 of work") in found(GOOD, DONE, records=2)


def test_a_record_is_given_up_only_at_the_limit_or_by_its_application() -> None:
    changes = (acquired("a", 0), ended(0, "archived"))
    assert "archived before the delivery limit" in str(found(changes))
    assert found(changes, (decided("a", 0, "reject"), reported("a", 0))) == []
    assert found((acquired("a", 0, 2), ended(0, "archived", 2))) == []


def test_an_offset_without_a_record_is_archived_at_once() -> None:
    assert found((*GOOD, acquired("a", 1), ended(1, "archived")), DONE) == []
    kept = (*GOOD, acquired("a", 1), ended(1, "available"))
    assert "kept until a lock ended: t-0@1 of work" in str(found(kept, DONE))
    assert found(kept, (events.Fault(0.5, "", "reset"), *DONE)) == []


def test_a_record_that_its_application_did_not_accept() -> None:
    assert "accepted without their application: t-0@0 of work of a" in str(found(GOOD))


def test_a_result_that_the_broker_has_not_stored() -> None:
    changes = (acquired("a", 0), ended(0, "available"))
    history = (decided("a", 0, "accept"), reported("a", 0))
    assert "succeeded, but are not stored: a: t-0@0" in str(found(changes, history))
    failed = (decided("a", 0, "accept"), reported("a", 0, "AcknowledgementFailed"))
    assert "stored" not in str(found(changes, failed))


def test_a_late_result_of_a_record_that_another_member_has_finished() -> None:
    changes = (acquired("a", 0), ended(0, "available"), acquired("b", 0, 2))
    history = (decided("a", 0, "accept"), decided("b", 0, "accept"), reported("a", 0))
    assert found((*changes, ended(0, "acknowledged", 2)), history) == []


def test_the_result_of_a_renewal_says_nothing_about_a_later_decision() -> None:
    changes = (acquired("a", 0), ended(0, "available"))
    history = (decided("a", 0, "renew"), decided("a", 0, "accept"), reported("a", 0))
    assert "stored" not in str(found(changes, history))


def test_a_decision_without_a_result() -> None:
    history = (decided("a", 0, "accept"), events.Closed(3.0, "a"))
    assert "have no result: a: accept of t-0@0" in str(found(GOOD, history))
    implicit = (decided("a", 0, "accept", owed=False), events.Closed(3.0, "a"))
    assert found(GOOD, implicit) == []


def test_events_are_read_back_from_their_lines() -> None:
    for event in (received("a", 0), decided("a", 0, "reject"), reported("a", 0, "Error")):
        assert events.from_line(events.to_line(event)) == event
