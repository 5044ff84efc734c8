"""Invariants 1 to 4: that they pass what is right, and name what is wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.verify.invariants.history_builder import T1, HistoryBuilder, log, v
from verify.invariants import events
from verify.invariants.observed import Log


def three_sent(**options: Any) -> HistoryBuilder:
    builder = HistoryBuilder()
    builder.made(partitions=2)
    builder.producer(**options)
    builder.sent(v(1), v(2), v(3))
    return builder


def numbers(found: list[tuple[int, str]]) -> list[int]:
    return [number for number, _ in found]


def test_what_was_acknowledged_is_there() -> None:
    builder = three_sent()
    assert builder.found(log(v(1), v(2), v(3))) == []


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
    builder = three_sent()
    builder.send(v(4))
    builder.acknowledge(0, v(4), tp=T1)
    assert numbers(builder.found(log(v(1), v(2), v(3), v(4)), log(partition=1))) == [1]


def test_a_record_without_an_acknowledged_offset_may_be_anywhere_in_its_partition() -> None:
    builder = three_sent()
    builder.send(v(4))
    builder.acknowledge(-1, v(4))
    assert builder.found(log(v(1), v(2), v(3), None, v(4))) == []
    assert numbers(builder.found(log(v(1), v(2), v(3)))) == [1]


def test_what_retention_took_is_not_missing() -> None:
    assert three_sent().found(log(v(3), start=2)) == []


def test_acks_of_the_leader_alone_promise_nothing() -> None:
    builder = three_sent(required_acks=1, idempotent=False)
    assert builder.found(log(v(1), v(3))) == []


def test_brokers_that_lose_what_was_acknowledged_are_said_to() -> None:
    builder = three_sent()
    lost = log(v(1))
    assert numbers(builder.found(lost)) == [1]
    assert builder.found(lost, guarantees={"durable": False}) == []
    assert 1 in builder.not_checked(lost, guarantees={"durable": False})


def test_a_topic_that_was_deleted_takes_its_records_along() -> None:
    builder = three_sent()
    builder.deleted()
    assert builder.found(guarantees={"topics_remade": True}) == []
    assert builder.found(log(v(1), v(2), v(3)), guarantees={"topics_remade": True}) == []
    builder.made()
    second = log(incarnation=1)
    assert builder.found(second, guarantees={"topics_remade": True}) == []
    # If the log of the deleted topic was kept, it is checked.
    assert numbers(builder.found(log(v(1)), second, guarantees={"topics_remade": True})) == [1]


def test_a_record_written_twice() -> None:
    [(number, text)] = three_sent().found(log(v(1), v(2), v(3), v(2)))
    assert number == 2
    assert "p-2| at t-0@1 and t-0@3" in text


def test_a_record_in_two_partitions() -> None:
    assert numbers(three_sent().found(log(v(1), v(2), v(3)), log(v(2), partition=1))) == [2]


def test_without_numbers_a_record_may_stand_twice() -> None:
    builder = three_sent(idempotent=False)
    assert builder.found(log(v(1), v(2), v(3), v(2))) == []
    assert 2 in builder.not_checked()
    assert three_sent().found(log(v(1), v(2), v(3), v(2)), guarantees={"numbers": False}) == []


def test_a_record_in_a_topic_and_in_the_one_made_after_it() -> None:
    builder = three_sent()
    builder.deleted()
    builder.made()
    logs = [log(v(1), v(2), v(3)), log(v(3), incarnation=1)]
    assert builder.found(*logs, guarantees={"topics_remade": True}) == []


def test_records_in_another_order_than_sent() -> None:
    builder = HistoryBuilder()
    builder.producer()
    builder.send(v(1))
    builder.send(v(2))
    [(number, text)] = builder.found(log(v(2), v(1)))
    assert number == 3
    assert "p-1| at t-0@1 behind p-2|" in text


def test_sends_at_the_same_time_have_no_order() -> None:
    builder = HistoryBuilder()
    builder.producer()
    builder.sending(v(1))
    builder.sending(v(2))
    builder.handed(v(2))
    builder.handed(v(1))
    assert builder.found(log(v(1), v(2))) == []
    assert builder.found(log(v(2), v(1))) == []


def test_an_order_that_is_broken_further_back() -> None:
    builder = HistoryBuilder()
    builder.producer()
    for number in (1, 2, 3):
        builder.send(v(number))
    assert numbers(builder.found(log(v(2), v(3), v(1)))) == [3]
    assert numbers(builder.found(log(v(3), v(1), v(2)))) == [3]


def test_records_of_one_call_have_an_order() -> None:
    builder = HistoryBuilder()
    builder.producer()
    builder.send(v(1), v(2), v(3))
    assert builder.found(log(v(1), v(2), v(3))) == []
    assert numbers(builder.found(log(v(1), v(3), v(2)))) == [3]


def test_partitions_and_producers_have_orders_of_their_own() -> None:
    builder = HistoryBuilder()
    builder.producer()
    builder.producer("q")
    builder.send(v(1))
    builder.send(v(1, "q"), client="q")
    builder.send(v(2))
    assert builder.found(log(v(2), v(1, "q")), log(v(1), partition=1)) == []


def test_an_unknown_outcome_does_not_excuse_another_order() -> None:
    builder = HistoryBuilder()
    builder.producer()
    builder.send(v(1))
    builder.fail(v(1), "DeliveryUnknown", unknown=True)
    builder.send(v(2))
    assert builder.found(log(v(1), v(2))) == []
    assert numbers(builder.found(log(v(2), v(1)))) == [3]


def test_one_request_in_flight_keeps_the_order_of_what_is_acknowledged() -> None:
    builder = HistoryBuilder()
    builder.producer(idempotent=False, max_in_flight_requests_per_connection=1)
    builder.send(v(1))
    builder.fail(v(1), "DeliveryUnknown", unknown=True)
    builder.sent(v(2), v(3))
    assert builder.found(log(v(2), v(3), v(2), v(1))) == []
    builder = HistoryBuilder()
    builder.producer(idempotent=False, max_in_flight_requests_per_connection=1)
    builder.sent(v(1), v(2))
    assert 3 in numbers(builder.found(log(v(2), v(1))))


@pytest.mark.parametrize("in_flight", [1, 5])
def test_records_without_acknowledgement_keep_their_order_until_a_fault(in_flight: int) -> None:
    def written() -> HistoryBuilder:
        builder = HistoryBuilder()
        builder.producer(
            idempotent=False,
            required_acks=0,
            max_in_flight_requests_per_connection=in_flight,
        )
        builder.sent(v(1), first=-1)
        return builder

    # A broker may append records of a lost connection later than those of the next connection.
    builder = written()
    builder.add(events.Fault, "", "reset")
    builder.sent(v(2), first=-1)
    assert builder.found(log(v(2), v(1))) == []
    builder = written()
    builder.sent(v(2), first=-1)
    builder.add(events.Fault, "", "reset")
    assert numbers(builder.found(log(v(2), v(1)))) == [3]


def test_a_fault_does_not_excuse_another_order_of_acknowledged_records() -> None:
    builder = HistoryBuilder()
    builder.producer(idempotent=False, required_acks=1, max_in_flight_requests_per_connection=1)
    builder.sent(v(1))
    builder.add(events.Fault, "", "reset")
    builder.sent(v(2), first=1)
    assert 3 in numbers(builder.found(log(v(2), v(1))))


def test_without_any_promise_of_order_none_is_looked_for() -> None:
    builder = HistoryBuilder()
    builder.producer(idempotent=False)
    builder.send(v(1))
    builder.send(v(2))
    assert builder.found(log(v(2), v(1))) == []
    assert 3 in builder.not_checked()


def test_a_failed_record_that_appears() -> None:
    builder = three_sent()
    builder.send(v(4))
    builder.fail(v(4))
    [(number, text)] = builder.found(log(v(1), v(2), v(3), v(4)))
    assert number == 4
    assert "p-4| at t-0@3 after DeliveryTimedOut" in text
    assert builder.found(log(v(1), v(2), v(3))) == []


def test_a_record_may_fail_once_it_is_gone_with_its_topic() -> None:
    builder = three_sent()
    builder.send(v(4))
    builder.deleted()
    builder.made()
    builder.fail(v(4))
    old = log(v(1), v(2), v(3), v(4))
    assert builder.found(old, log(incarnation=1)) == []
    [(number, _)] = builder.found(old, log(v(4), incarnation=1))
    assert number == 4


def test_a_record_of_unknown_outcome_may_appear() -> None:
    builder = three_sent()
    builder.send(v(4))
    builder.fail(v(4), "DeliveryUnknown", unknown=True)
    assert builder.found(log(v(1), v(2), v(3), v(4))) == []
    assert builder.found(log(v(1), v(2), v(3))) == []


def test_a_record_without_any_outcome_may_appear() -> None:
    builder = three_sent()
    builder.sending(v(4))
    assert builder.found(log(v(1), v(2), v(3), v(4))) == []


@pytest.mark.parametrize(("fate", "wrong"), [("aborted", []), ("committed", [4]), ("none", [4])])
def test_a_record_of_an_aborted_transaction(fate: Any, wrong: list[int]) -> None:
    builder = three_sent()
    builder.send(v(4))
    builder.fail(v(4), "TransactionAborted")
    assert numbers(builder.found(log(v(1), v(2), v(3), (v(4), fate)))) == wrong


def test_a_record_that_was_never_sent() -> None:
    assert numbers(three_sent().found(log(v(1), v(2), v(3), v(99)))) == [4]
    # What others wrote is not ours to judge.
    assert three_sent().found(log(v(1), v(2), v(3), b"else", v(1, "who"))) == []


def test_a_record_in_another_topic_than_sent_to() -> None:
    builder = three_sent()
    assert numbers(builder.found(log(v(1), v(2), v(3)), log(v(1), topic="u"))) == [4]


def test_a_scenario_that_sends_a_value_twice_is_reported() -> None:
    builder = three_sent()
    builder.sending(v(3))
    assert numbers(builder.found(log(v(1), v(2), v(3)))) == [4]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from(["ok", "unknown there", "unknown", "failed"]), max_size=12),
    st.data(),
)
def test_whatever_a_right_producer_does_passes_and_each_change_of_it_is_found(
    outcomes: list[str], data: st.DataObject
) -> None:
    builder = HistoryBuilder()
    builder.producer()
    values: list[bytes] = []
    certain: list[int] = []
    for number, outcome in enumerate(outcomes):
        builder.send(v(number))
        if outcome == "ok":
            builder.acknowledge(len(values), v(number))
            certain.append(len(values))
        else:
            builder.fail(v(number), "E", unknown=outcome != "failed")
        if outcome in {"ok", "unknown there"}:
            values.append(v(number))

    def found(changed: list[bytes | None]) -> list[tuple[int, str]]:
        logs: Log = log(*changed)
        return builder.found(logs)

    assert found([*values]) == []
    if certain:
        place = data.draw(st.sampled_from(certain))
        assert 1 in numbers(found([*values[:place], None, *values[place + 1 :]]))
        assert 2 in numbers(found([*values, values[place]]))
    if len(values) > 1:
        assert 3 in numbers(found([values[1], values[0], *values[2:]]))
    if "failed" in outcomes:
        assert 4 in numbers(found([*values, v(outcomes.index("failed"))]))
