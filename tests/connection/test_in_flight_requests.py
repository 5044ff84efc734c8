"""The in-flight machine: every decision, without a connection."""

from __future__ import annotations

import itertools
import math
import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafkawire.connection import in_flight_requests
from aiokafkawire.connection.in_flight_requests import (
    STALE_HEAP_ENTRIES,
    TRANSITIONS,
    ChannelLimits,
    InFlightRequest,
    InFlightRequests,
    RequestEvent,
    RequestState,
)
from aiokafkawire.errors import KafkaError, ProtocolError
from aiokafkawire.runtime.state_machine import InvalidTransition
from aiokafkawire.wire import ApiKey


def machine(max_in_flight: int = 5, max_idle_s: float = 540.0):
    return InFlightRequests(
        0.0,
        ChannelLimits(
            max_in_flight, request_timeout_s=30.0, max_idle_s=max_idle_s, max_frame_bytes=1
        ),
    )


def make(
    in_flight: InFlightRequests, deadline: float, expects_response: bool = True
) -> InFlightRequest:
    number = in_flight.next_correlation_id
    request = InFlightRequest(number, deadline, ApiKey.HEARTBEAT, 4, [b"frame"])
    request.expects_response = expects_response
    return request


def submit(in_flight: InFlightRequests, deadline: float, expects_response: bool) -> InFlightRequest:
    request = make(in_flight, deadline, expects_response)
    assert not in_flight.submit(request, 0.0, can_write=False)
    return request


def submit_now(in_flight: InFlightRequests, deadline: float, now: float) -> InFlightRequest | None:
    request = make(in_flight, deadline)
    return request if in_flight.submit(request, now) else None


def sent(in_flight: InFlightRequests, count: int, deadline: float = 10.0) -> list[InFlightRequest]:
    made = [submit(in_flight, deadline, True) for number in range(count)]
    assert in_flight.take_writable(0.0) == made
    assert in_flight.mark_written(0.0) == []
    return made


def test_responses_arrive_in_the_order_of_requests():
    calls = machine()
    first, second = sent(calls, 2)
    assert calls.complete_next(first.correlation_id, 1.0) == (first, True)
    assert calls.complete_next(second.correlation_id, 1.0) == (second, True)
    assert len(calls) == 0
    assert first.state is second.state is RequestState.DONE


def test_a_request_taken_at_once_equals_one_that_was_queued():
    calls, others = machine(), machine()
    queued = submit(others, 10.0, True)
    assert others.take_writable(1.0) == [queued]
    begun = submit_now(calls, 10.0, 1.0)
    assert begun is not None
    for name in InFlightRequest.__slots__:
        assert getattr(begun, name) == getattr(queued, name), name
    assert len(calls) == len(others) == 1
    assert calls.next_correlation_id == others.next_correlation_id == 1
    assert calls.next_deadline(1.0) == others.next_deadline(1.0) == 10.0
    assert calls.check_deadlines(10.0).expired == [begun]
    assert calls.complete_next(0, 11.0) == (begun, False)


def test_a_request_is_queued_without_a_slot_while_throttled_and_behind_another():
    throttled = machine()
    throttled.throttle(5.0)
    assert submit_now(throttled, 10.0, 4.9) is None
    assert submit_now(throttled, 10.0, 5.0) is None  # behind the first
    assert len(throttled.take_writable(5.0)) == 2
    throttled.complete_next(0, 6.0)
    calls = machine(max_in_flight=1)
    first = submit_now(calls, 10.0, 5.0)
    assert first is not None
    assert submit_now(calls, 10.0, 5.0) is None
    calls.complete_next(first.correlation_id, 6.0)
    assert submit_now(calls, 10.0, 6.0) is None
    assert [request.correlation_id for request in calls.take_writable(6.0)] == [1]
    assert len(calls) == 2


@pytest.mark.parametrize(
    ("correlation_id", "reason"),
    [(1, "out of order"), (7, "unknown"), (-1, "unknown"), (2**31 - 1, "unknown")],
)
def test_a_response_that_is_not_for_the_oldest_request_is_a_protocol_error(
    correlation_id: int, reason: str
):
    calls = machine()
    sent(calls, 2)
    with pytest.raises(ProtocolError, match=f"{reason}.*oldest unanswered request is 0"):
        calls.complete_next(correlation_id, 1.0)


def test_a_repeated_response_is_a_protocol_error():
    calls = machine()
    sent(calls, 1)
    calls.complete_next(0, 1.0)
    with pytest.raises(ProtocolError, match=r"repeated.*no request is unanswered"):
        calls.complete_next(0, 1.0)


def test_a_response_to_a_queued_request_is_a_protocol_error():
    calls = machine()
    submit(calls, 10.0, True)
    with pytest.raises(ProtocolError):
        calls.complete_next(0, 1.0)


def test_correlation_ids_begin_again_after_the_highest():
    calls = machine()
    calls.next_correlation_id = 2**31 - 1
    last, first = sent(calls, 2)
    assert (last.correlation_id, first.correlation_id) == (2**31 - 1, 0)
    calls.complete_next(2**31 - 1, 1.0)
    calls.complete_next(0, 1.0)


def test_more_than_the_slots_wait_in_the_queue():
    calls = machine(max_in_flight=2)
    made = [submit(calls, 10.0, True) for number in range(3)]
    assert calls.take_writable(0.0) == made[:2]
    assert calls.next_write_at(0.0) == math.inf
    calls.complete_next(0, 1.0)
    assert list(calls.queued) == made[2:]
    assert calls.next_write_at(1.0) == 1.0
    assert calls.take_writable(1.0) == made[2:]


def test_the_queue_is_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(in_flight_requests, "MAX_QUEUED", 2)
    calls = machine()
    submit(calls, 1.0, True)
    submit(calls, 1.0, True)
    with pytest.raises(KafkaError, match="2 requests are already waiting"):
        submit(calls, 1.0, True)


def test_a_request_without_a_response_occupies_no_slot():
    calls = machine(max_in_flight=1)
    one_way = [submit(calls, 10.0, False) for number in range(3)]
    asking = submit(calls, 10.0, True)
    assert calls.take_writable(0.0) == [*one_way, asking]
    assert calls.mark_written(0.0) == one_way
    assert all(call.state is RequestState.DONE for call in one_way)
    assert calls.complete_next(asking.correlation_id, 1.0) == (asking, True)


def test_a_cancelled_request_occupies_its_slot_until_its_response():
    calls = machine(max_in_flight=1)
    (first,) = sent(calls, 1)
    second = submit(calls, 10.0, True)
    calls.cancel(first, 1.0)
    assert first.state is RequestState.ABANDONED
    assert calls.take_writable(1.0) == []
    assert calls.complete_next(0, 2.0) == (first, False)
    assert calls.take_writable(2.0) == [second]


def test_a_request_cancelled_in_the_queue_is_never_sent():
    calls = machine(max_in_flight=1)
    sent(calls, 1)
    second = submit(calls, 10.0, True)
    third = submit(calls, 10.0, True)
    calls.cancel(second, 1.0)
    assert not second.sent
    calls.complete_next(0, 2.0)
    assert calls.take_writable(2.0) == [third]
    # Its correlation id was given away: a gap is no error.
    assert calls.complete_next(third.correlation_id, 3.0) == (third, True)


def test_each_deadline_is_reported_once():
    calls = machine(max_in_flight=1)
    first = submit(calls, 5.0, True)
    second = submit(calls, 3.0, True)
    calls.take_writable(0.0)
    assert calls.next_deadline(0.0) == 3.0
    assert calls.check_deadlines(3.0).expired == [second]
    assert not second.sent
    assert calls.next_deadline(3.0) == 5.0
    assert calls.check_deadlines(5.0).expired == [first]
    assert first.sent
    assert first.state is RequestState.ABANDONED
    assert calls.check_deadlines(6.0).expired == []


def test_the_oldest_unanswered_request_times_out_the_broker():
    calls = machine()
    first, second = sent(calls, 2, deadline=1.0)
    assert calls.check_deadlines(1.0).expired == [first, second]
    # The caller has gone; the connection is given up at the request timeout only.
    assert calls.next_deadline(1.0) == 30.0
    assert calls.check_deadlines(29.9).unresponsive is None
    assert calls.check_deadlines(30.0).unresponsive is first


def test_a_request_that_cannot_be_written_times_out_the_broker():
    calls = machine()
    first = submit(calls, 1.0, False)
    calls.take_writable(0.0)
    assert calls.check_deadlines(1.0).expired == [first]
    assert calls.next_deadline(1.0) == 30.0
    assert calls.check_deadlines(29.9).unresponsive is None
    assert calls.check_deadlines(30.0).unresponsive is first


def test_a_request_with_a_long_deadline_may_stay_unanswered_for_longer():
    calls = machine()
    (parked,) = sent(calls, 1, deadline=300.0)
    assert calls.check_deadlines(299.0).unresponsive is None
    assert calls.check_deadlines(300.0).unresponsive is parked


def test_a_long_request_does_not_time_out_the_broker_for_later_ones():
    calls = machine()
    parked = submit(calls, 300.0, True)
    behind = submit(calls, 1.0, True)
    calls.take_writable(0.0)
    due = calls.check_deadlines(100.0)
    assert due.expired == [behind]
    assert due.unresponsive is None
    assert parked.state is RequestState.SENT


def test_the_request_timeout_starts_when_the_request_is_written():
    calls = machine()
    calls.throttle(100.0)
    call = submit(calls, 110.0, True)
    assert calls.take_writable(100.0) == [call]
    assert calls.disconnect_at(call) == 130.0


def test_nothing_is_written_while_throttled():
    calls = machine()
    calls.throttle(5.0)
    calls.throttle(3.0)
    call = submit(calls, 10.0, True)
    assert calls.take_writable(4.9) == []
    assert calls.next_write_at(4.9) == 5.0
    assert calls.take_writable(5.0) == [call]


def test_throttling_does_not_extend_the_deadline():
    calls = machine()
    calls.throttle((2**31 - 1) / 1_000)
    call = submit(calls, 10.0, True)
    assert calls.next_deadline(0.0) == 10.0
    assert calls.check_deadlines(10.0).expired == [call]
    assert len(calls) == 0


def test_an_unused_connection_is_idle_after_a_while():
    calls = machine(max_idle_s=540.0)
    assert calls.next_deadline(0.0) == 540.0
    call = submit(calls, 5_000.0, True)
    calls.take_writable(500.0)
    assert calls.next_deadline(500.0) == 1_040.0
    assert not calls.check_deadlines(600.0).is_idle
    calls.complete_next(call.correlation_id, 700.0)
    assert not calls.check_deadlines(1_239.0).is_idle
    assert calls.check_deadlines(1_240.0).is_idle


def test_a_retiring_connection_is_idle_after_its_last_request():
    calls = machine()
    sent(calls, 1)
    calls.close_when_idle()
    assert not calls.check_deadlines(1.0).is_idle
    calls.complete_next(0, 1.0)
    assert calls.check_deadlines(1.0).is_idle


def test_close_returns_all_requests_with_waiting_callers():
    calls = machine(max_in_flight=2)
    first, second = sent(calls, 2)
    one_way_behind = submit(calls, 10.0, False)
    third = submit(calls, 10.0, True)
    calls.cancel(first, 0.0)
    taken = calls.take_writable(0.0)
    assert taken == [one_way_behind]
    assert calls.sent_requests() == [first, second, one_way_behind]
    assert calls.close() == [second, one_way_behind, third]
    assert [request.sent for request in (second, one_way_behind, third)] == [True, True, False]
    assert len(calls) == 0


def test_finished_requests_do_not_fill_the_deadline_heap():
    calls = machine()
    for now in range(1_000):
        call = submit(calls, now + 3_600.0, True)
        calls.take_writable(float(now))
        calls.complete_next(call.correlation_id, float(now))
    assert len(calls._deadlines) <= STALE_HEAP_ENTRIES + 3


def test_a_completed_request_is_garbage_collected():
    class Answer:
        pass

    calls = machine()
    carried = Answer()
    reference = weakref.ref(carried)
    submit(calls, 10.0, True)
    second = submit(calls, 10.0, True)
    calls.take_writable(0.0)
    first, _ = calls.complete_next(0, 1.0)
    first.set_result(carried)
    del carried, first
    assert reference() is None
    assert calls.next_deadline(1.0) == second.deadline


def test_done_is_a_final_state():
    assert {state for state, _ in TRANSITIONS} == set(RequestState) - {RequestState.DONE}
    assert {event for _, event in TRANSITIONS} == set(RequestEvent)
    request = make(machine(), 1.0)
    request.state = RequestState.DONE
    for event in RequestEvent:
        with pytest.raises(InvalidTransition):
            request.apply(event)


STEPS = st.lists(
    st.sampled_from(["submit", "one way", "take", "answer", "cancel", "tick", "throttle"]),
    max_size=60,
)


@given(steps=STEPS, pick=st.randoms(use_true_random=False))
@pytest.mark.slow
def test_no_order_of_events_loses_a_request(steps: list[str], pick):
    """Every call ends exactly once: answered, expired, cancelled, or given at the close."""
    calls = machine(max_in_flight=2)
    clock = itertools.count()
    live: dict[int, InFlightRequest] = {}
    ended: list[int] = []

    def end(request: InFlightRequest) -> None:
        ended.append(request.correlation_id)
        live.pop(request.correlation_id, None)

    now = 0.0
    for step in steps:
        now = float(next(clock))
        if step in {"submit", "one way"}:
            call = submit(calls, now + pick.randrange(1, 20), step == "submit")
            live[call.correlation_id] = call
        elif step == "take":
            calls.take_writable(now)
            for call in calls.mark_written(now):
                if call.correlation_id in live:
                    end(call)
        elif step == "answer" and calls.sent_requests():
            call, wanted = calls.complete_next(calls.sent_requests()[0].correlation_id, now)
            if wanted:
                end(call)
        elif step == "cancel" and live:
            call = live[pick.choice(sorted(live))]
            calls.cancel(call, now)
            end(call)
        elif step == "throttle":
            calls.throttle(now + pick.randrange(5))
        else:
            due = calls.check_deadlines(now)
            assert calls.next_deadline(now) > now or due.unresponsive is not None or due.is_idle
            for call in due.expired:
                end(call)
        assert len([call for call in calls.sent_requests() if call.expects_response]) <= 2
    for call in calls.close():
        end(call)
    assert not live
    assert len(ended) == len(set(ended))
