"""Invariants 1 to 4: that they pass what is right, and name what is wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.invariants.history_builder import T1, HistoryBuilder, log, v
from tests.invariants.observed import Log


def three_sent(**options: Any) -> HistoryBuilder:
    story = HistoryBuilder()
    story.made(partitions=2)
    story.producer(**options)
    story.sent(v(1), v(2), v(3))
    return story


def numbers(found: list[tuple[int, str]]) -> list[int]:
    return [number for number, _ in found]


def test_what_was_acknowledged_is_there() -> None:
    story = three_sent()
    assert story.found(log(v(1), v(2), v(3))) == []


def test_a_batch_with_a_wrong_max_timestamp() -> None:
    misdated = replace(log(v(1), v(2), v(3)), misdated=(1,))
    [(number, text)] = three_sent().found(misdated)
    assert number == 1
    assert "maximum timestamp" in text
    assert "t-0@1" in text


def test_an_acknowledged_record_is_missing() -> None:
    [(number, text)] = three_sent().found(log(v(1), None, v(3)))
    assert number == 1
    assert text == "1 acknowledged records are not in the log: p-2| acknowledged at t-0@1"


def test_a_record_is_not_at_its_acknowledged_offset() -> None:
    [(number, text)] = three_sent().found(log(v(1), None, v(2), v(3)))
    assert number == 1
    assert "p-2| is at t-0@2, acknowledged at 1" in text
    assert "2 records are not at" in text


def test_a_record_in_another_partition_is_missing_from_its_own() -> None:
    story = three_sent()
    story.send(v(4))
    story.acknowledge(0, v(4), tp=T1)
    assert numbers(story.found(log(v(1), v(2), v(3), v(4)), log(partition=1))) == [1]


def test_a_record_without_an_acknowledged_offset_may_be_anywhere_in_its_partition() -> None:
    story = three_sent()
    story.send(v(4))
    story.acknowledge(-1, v(4))
    assert story.found(log(v(1), v(2), v(3), None, v(4))) == []
    assert numbers(story.found(log(v(1), v(2), v(3)))) == [1]


def test_what_retention_took_is_not_missing() -> None:
    assert three_sent().found(log(v(3), start=2)) == []


def test_acks_of_the_leader_alone_promise_nothing() -> None:
    story = three_sent(required_acks=1, idempotent=False)
    assert story.found(log(v(1), v(3))) == []


def test_brokers_that_lose_what_was_acknowledged_are_said_to() -> None:
    story = three_sent()
    lost = log(v(1))
    assert numbers(story.found(lost)) == [1]
    assert story.found(lost, guarantees={"durable": False}) == []
    assert 1 in story.not_checked(lost, guarantees={"durable": False})


def test_a_topic_that_was_deleted_takes_its_records_along() -> None:
    story = three_sent()
    story.deleted()
    assert story.found(guarantees={"topics_remade": True}) == []
    assert story.found(log(v(1), v(2), v(3)), guarantees={"topics_remade": True}) == []
    story.made()
    second = log(incarnation=1)
    assert story.found(second, guarantees={"topics_remade": True}) == []
    # If the log of the deleted topic was kept, it is checked.
    assert numbers(story.found(log(v(1)), second, guarantees={"topics_remade": True})) == [1]


def test_a_record_that_stands_twice() -> None:
    [(number, text)] = three_sent().found(log(v(1), v(2), v(3), v(2)))
    assert number == 2
    assert "p-2| at t-0@1 and t-0@3" in text


def test_a_record_in_two_partitions() -> None:
    assert numbers(three_sent().found(log(v(1), v(2), v(3)), log(v(2), partition=1))) == [2]


def test_without_numbers_a_record_may_stand_twice() -> None:
    story = three_sent(idempotent=False)
    assert story.found(log(v(1), v(2), v(3), v(2))) == []
    assert 2 in story.not_checked()
    assert three_sent().found(log(v(1), v(2), v(3), v(2)), guarantees={"numbers": False}) == []


def test_a_record_in_a_topic_and_in_the_one_made_after_it() -> None:
    story = three_sent()
    story.deleted()
    story.made()
    logs = [log(v(1), v(2), v(3)), log(v(3), incarnation=1)]
    assert story.found(*logs, guarantees={"topics_remade": True}) == []


def test_records_in_another_order_than_sent() -> None:
    story = HistoryBuilder()
    story.producer()
    story.send(v(1))
    story.send(v(2))
    [(number, text)] = story.found(log(v(2), v(1)))
    assert number == 3
    assert "p-1| at t-0@1 behind p-2|" in text


def test_sends_at_the_same_time_have_no_order() -> None:
    story = HistoryBuilder()
    story.producer()
    story.sending(v(1))
    story.sending(v(2))
    story.handed(v(2))
    story.handed(v(1))
    assert story.found(log(v(1), v(2))) == []
    assert story.found(log(v(2), v(1))) == []


def test_an_order_that_is_broken_further_back() -> None:
    story = HistoryBuilder()
    story.producer()
    for number in (1, 2, 3):
        story.send(v(number))
    assert numbers(story.found(log(v(2), v(3), v(1)))) == [3]
    assert numbers(story.found(log(v(3), v(1), v(2)))) == [3]


def test_records_of_one_call_have_an_order() -> None:
    story = HistoryBuilder()
    story.producer()
    story.send(v(1), v(2), v(3))
    assert story.found(log(v(1), v(2), v(3))) == []
    assert numbers(story.found(log(v(1), v(3), v(2)))) == [3]


def test_partitions_and_producers_have_orders_of_their_own() -> None:
    story = HistoryBuilder()
    story.producer()
    story.producer("q")
    story.send(v(1))
    story.send(v(1, "q"), client="q")
    story.send(v(2))
    assert story.found(log(v(2), v(1, "q")), log(v(1), partition=1)) == []


def test_an_unknown_outcome_does_not_excuse_another_order() -> None:
    story = HistoryBuilder()
    story.producer()
    story.send(v(1))
    story.fail(v(1), "DeliveryUnknown", unknown=True)
    story.send(v(2))
    assert story.found(log(v(1), v(2))) == []
    assert numbers(story.found(log(v(2), v(1)))) == [3]


def test_one_request_in_flight_keeps_the_order_of_what_is_acknowledged() -> None:
    story = HistoryBuilder()
    story.producer(idempotent=False, max_in_flight_requests_per_connection=1)
    story.send(v(1))
    story.fail(v(1), "DeliveryUnknown", unknown=True)
    story.sent(v(2), v(3))
    assert story.found(log(v(2), v(3), v(2), v(1))) == []
    story = HistoryBuilder()
    story.producer(idempotent=False, max_in_flight_requests_per_connection=1)
    story.sent(v(1), v(2))
    assert 3 in numbers(story.found(log(v(2), v(1))))


def test_without_any_promise_of_order_none_is_looked_for() -> None:
    story = HistoryBuilder()
    story.producer(idempotent=False)
    story.send(v(1))
    story.send(v(2))
    assert story.found(log(v(2), v(1))) == []
    assert 3 in story.not_checked()


def test_a_failed_record_that_appears() -> None:
    story = three_sent()
    story.send(v(4))
    story.fail(v(4))
    [(number, text)] = story.found(log(v(1), v(2), v(3), v(4)))
    assert number == 4
    assert "p-4| at t-0@3 after DeliveryTimedOut" in text
    assert story.found(log(v(1), v(2), v(3))) == []


def test_a_record_may_fail_once_it_is_gone_with_its_topic() -> None:
    story = three_sent()
    story.send(v(4))
    story.deleted()
    story.made()
    story.fail(v(4))
    old = log(v(1), v(2), v(3), v(4))
    assert story.found(old, log(incarnation=1)) == []
    [(number, _)] = story.found(old, log(v(4), incarnation=1))
    assert number == 4


def test_a_record_of_unknown_outcome_may_appear() -> None:
    story = three_sent()
    story.send(v(4))
    story.fail(v(4), "DeliveryUnknown", unknown=True)
    assert story.found(log(v(1), v(2), v(3), v(4))) == []
    assert story.found(log(v(1), v(2), v(3))) == []


def test_a_record_without_any_outcome_may_appear() -> None:
    story = three_sent()
    story.sending(v(4))
    assert story.found(log(v(1), v(2), v(3), v(4))) == []


@pytest.mark.parametrize(("fate", "wrong"), [("aborted", []), ("committed", [4]), ("none", [4])])
def test_a_record_of_an_aborted_transaction(fate: Any, wrong: list[int]) -> None:
    story = three_sent()
    story.send(v(4))
    story.fail(v(4), "TransactionAborted")
    assert numbers(story.found(log(v(1), v(2), v(3), (v(4), fate)))) == wrong


def test_a_record_that_was_never_sent() -> None:
    assert numbers(three_sent().found(log(v(1), v(2), v(3), v(99)))) == [4]
    # What others wrote is not ours to judge.
    assert three_sent().found(log(v(1), v(2), v(3), b"else", v(1, "who"))) == []


def test_a_record_in_another_topic_than_sent_to() -> None:
    story = three_sent()
    assert numbers(story.found(log(v(1), v(2), v(3)), log(v(1), topic="u"))) == [4]


def test_a_scenario_that_sends_a_value_twice_is_reported() -> None:
    story = three_sent()
    story.sending(v(3))
    assert numbers(story.found(log(v(1), v(2), v(3)))) == [4]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from(["ok", "unknown there", "unknown", "failed"]), max_size=12),
    st.data(),
)
def test_whatever_a_right_producer_does_passes_and_each_change_of_it_is_found(
    outcomes: list[str], data: st.DataObject
) -> None:
    story = HistoryBuilder()
    story.producer()
    values: list[bytes] = []
    certain: list[int] = []
    for number, outcome in enumerate(outcomes):
        story.send(v(number))
        if outcome == "ok":
            story.acknowledge(len(values), v(number))
            certain.append(len(values))
        else:
            story.fail(v(number), "E", unknown=outcome != "failed")
        if outcome in {"ok", "unknown there"}:
            values.append(v(number))

    def found(changed: list[bytes | None]) -> list[tuple[int, str]]:
        logs: Log = log(*changed)
        return story.found(logs)

    assert found([*values]) == []
    if certain:
        place = data.draw(st.sampled_from(certain))
        assert 1 in numbers(found([*values[:place], None, *values[place + 1 :]]))
        assert 2 in numbers(found([*values, values[place]]))
    if len(values) > 1:
        assert 3 in numbers(found([values[1], values[0], *values[2:]]))
    if "failed" in outcomes:
        assert 4 in numbers(found([*values, v(outcomes.index("failed"))]))
