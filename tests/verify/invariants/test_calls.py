"""Invariants 9, 10, 12 and 13: that they pass what is right, and name what is wrong."""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import Any

import pytest

from aiokafkawire.wire import ErrorCode
from tests.verify.invariants.history_builder import HistoryBuilder, v
from verify.invariants import events
from verify.invariants.observed import CommitRequest, Peak, RejectedRequest


def numbers(found: list[tuple[int, str]]) -> list[int]:
    return [number for number, _ in found]


def calling(limit_s: float | None, took_s: float) -> HistoryBuilder:
    builder = HistoryBuilder()
    builder.consumer()
    call = builder.call("commit", limit_s)
    builder.time += took_s - 1.0
    builder.returned(call)
    return builder


@pytest.mark.parametrize(
    ("limit_s", "took_s", "late"), [(2.0, 2.1, False), (2.0, 2.5, True), (None, 1e6, False)]
)
def test_a_call_ends_by_its_deadline(limit_s: float | None, took_s: float, late: bool) -> None:
    assert numbers(calling(limit_s, took_s).found()) == [9] * late


def test_a_late_call_is_named() -> None:
    [(_, text)] = calling(2.0, 3.0).found()
    assert text == "1 calls ended after their deadline: commit of c took 3.000 s of 2.0 s"


def test_how_late_a_call_may_be_is_for_the_scenario_to_say() -> None:
    assert calling(2.0, 3.0).found(guarantees={"slack_s": 1.5}) == []


def test_a_call_that_never_ends() -> None:
    builder = HistoryBuilder()
    builder.consumer()
    builder.call("getmany", 5.0)
    assert builder.found(ended_at=builder.time + 5) == []
    assert numbers(builder.found(ended_at=builder.time + 6)) == [9]
    builder.add(events.Crashed, "c")
    assert builder.found(ended_at=builder.time + 6) == []


def test_waiting_for_data_may_take_for_ever() -> None:
    builder = HistoryBuilder()
    builder.consumer()
    builder.call("anext")
    assert builder.found(ended_at=1e6) == []


def test_handing_over_ends_in_time() -> None:
    builder = HistoryBuilder()
    builder.producer()
    builder.sending(v(1))
    builder.time += 61
    assert numbers(builder.found(ended_at=builder.time)) == [9]
    builder.handed(v(1))
    assert numbers(builder.found()) == [9]


def test_a_record_has_its_outcome_in_time() -> None:
    def found_numbers(awaited_at: float | None, after_s: float) -> list[int]:
        builder = HistoryBuilder()
        builder.producer()
        builder.sending(v(1))
        builder.add(events.RecordsBuffered, "p", 1, 120.0)
        handed = builder.time
        builder.time += after_s - 1.0
        since = None if awaited_at is None else handed + awaited_at
        builder.add(events.Acknowledged, "p", 1, "t", 0, ((0, v(1)),), since)
        return [n for n in numbers(builder.found()) if n == 9]

    assert found_numbers(0.0, 120.0) == []
    assert found_numbers(0.0, 121.0) == [9]
    assert found_numbers(300.0, 300.0) == []  # the application waited for it that late
    assert found_numbers(300.0, 301.0) == [9]
    assert found_numbers(None, 500.0) == []


def test_a_record_without_an_outcome() -> None:
    builder = HistoryBuilder()
    builder.producer()
    builder.send(v(1))
    builder.closed("p")
    builder.add(events.OutcomeMissing, "p", 1, (v(1),))
    assert numbers(builder.found()) == [9]


def test_what_is_left_behind() -> None:
    builder = calling(None, 1.0)
    assert 10 in builder.not_checked()
    assert builder.found(left_behind=()) == []
    [(number, text)] = builder.found(left_behind=("task reader", "timer at 7"))
    assert number == 10
    assert text == "2 leaked tasks, sockets or timers: task reader; timer at 7"


def test_limits_that_are_passed() -> None:
    builder = calling(None, 1.0)
    kept = Peak("p", "bytes in the buffer", 100, 100)
    passed = Peak("p", "bytes in the buffer", 101, 100)
    assert builder.found(peaks=(kept,)) == []
    assert numbers(builder.found(peaks=(kept, passed))) == [10]


@pytest.mark.parametrize(
    ("broken", "after_s", "wrong"),
    [(False, 0.0, True), (True, 10.0, False), (True, 40.0, True)],
)
def test_members_leave_their_groups(broken: bool, after_s: float, wrong: bool) -> None:
    builder = HistoryBuilder()
    builder.consumer()
    if broken:
        builder.add(events.Fault, "", "cut")
        builder.add(events.FaultsHealed, "")
    builder.time += after_s
    assert builder.found(members=(("g", "c"), ("g", "else"))) == []
    builder.closed()
    assert builder.found(members=(("g", "else"),)) == []
    assert numbers(builder.found(members=(("g", "c"),))) == [10] * wrong


@pytest.mark.parametrize(
    ("cancelled", "protocol", "wrong"),
    [(True, "PLAINTEXT", True), (True, "SASL_SSL", False), (False, "SASL_SSL", True)],
)
def test_a_cancelled_member_may_lack_the_time_to_authenticate(
    cancelled: bool, protocol: str, wrong: bool
) -> None:
    builder = HistoryBuilder()
    builder.consumer(security_protocol=protocol)
    builder.time += 10.0
    builder.closed(cancelled=cancelled)
    found = builder.found(members=(("g", "c"),), joined=(("c", 1.0),))
    assert numbers(found) == [10] * wrong


@pytest.mark.parametrize(
    ("cancelled", "answered_s", "wrong"),
    [
        (True, None, False),
        (True, 2.0, False),
        (True, 0.9, False),
        (True, 0.5, True),
        (False, None, True),
    ],
)
def test_a_cancelled_member_need_not_wait_for_its_member_id(
    cancelled: bool, answered_s: float | None, wrong: bool
) -> None:
    builder = HistoryBuilder()
    builder.consumer()
    began = builder.time
    builder.closed(cancelled=cancelled)
    assert builder.time == began + 1.0
    joined = () if answered_s is None else (("c", began + answered_s),)
    assert numbers(builder.found(members=(("g", "c"),), joined=joined)) == [10] * wrong


def test_a_crashed_member_may_stay_in_the_group() -> None:
    builder = HistoryBuilder()
    builder.consumer()
    builder.add(events.Crashed, "c")
    assert builder.found(members=(("g", "c"),)) == []


def failing(**named: Any) -> HistoryBuilder:
    builder = HistoryBuilder()
    builder.consumer()
    builder.returned(builder.call("getmany", 5.0), **named)
    return builder


def test_errors_that_callers_know() -> None:
    assert failing(error="RequestTimedOut").found() == []
    assert numbers(failing(error="KeyError", typed=False).found()) == [12]


def test_a_protocol_error_is_a_violation_unless_the_broker_is_hostile() -> None:
    builder = failing(error="MalformedMessage")
    assert numbers(builder.found()) == [12]
    assert builder.found(guarantees={"hostile": True}) == []


def test_a_repeated_correlation_id_is_a_violation_unless_the_broker_is_hostile() -> None:
    builder = failing(error="RequestTimedOut")
    line = "aiokafkawire.consumer: a response with correlation id 7 is repeated"
    assert numbers(builder.found(log_lines=(line,))) == [12]
    assert builder.found(log_lines=(line,), guarantees={"hostile": True}) == []


@pytest.mark.parametrize(
    ("after_s", "retriable_error", "found"),
    [(0.05, True, [12]), (0.05, False, []), (0.1, True, []), (0.0, True, [])],
)
def test_a_commit_that_is_refused_for_a_moment_is_not_sent_again_at_once(
    after_s: float, retriable_error: bool, found: list[int]
) -> None:
    builder = HistoryBuilder()
    builder.consumer()
    first = CommitRequest(1.0, "c", "g", "m", 1, (), None, retriable_error=retriable_error)
    assert numbers(builder.found(commits=(first, replace(first, at=1.0 + after_s)))) == found


@pytest.mark.parametrize(("in_backlog", "found"), [(True, []), (False, [12])])
def test_errors_of_a_resuming_node_need_not_be_received(in_backlog: bool, found: list[int]) -> None:
    builder = HistoryBuilder()
    builder.consumer()
    late = CommitRequest(
        1.0, "c", "g", "m", 1, (), None, node=1, retriable_error=True, in_backlog=in_backlog
    )
    elsewhere = replace(late, at=1.05, node=2, in_backlog=False)
    assert numbers(builder.found(commits=(late, elsewhere))) == found


@pytest.mark.parametrize(("connected_at", "found"), [(0.5, []), (0.8, [12]), (0.9, [12])])
def test_errors_on_an_abandoned_connection_are_not_received(
    connected_at: float, found: list[int]
) -> None:
    builder = HistoryBuilder()
    builder.consumer()
    first = CommitRequest(1.0, "c", "g", "m", 1, (), None, connected_at=0.8)
    late = replace(first, at=2.0, retriable_error=True, connected_at=connected_at)
    last = replace(first, at=2.05, connected_at=max(0.8, connected_at))
    assert numbers(builder.found(commits=(first, late, last))) == found


def test_a_send_that_fails_of_an_unknown_kind() -> None:
    builder = HistoryBuilder()
    builder.producer()
    builder.sending(v(1))
    builder.fail(v(1), "KeyError", typed=False)
    assert numbers(builder.found()) == [12]


def test_failures_in_the_background() -> None:
    builder = calling(None, 1.0)
    assert numbers(builder.found(crashes=("task x failed",))) == [12]
    assert numbers(builder.found(unreadable=("node 1: connection 3: a length of -1",))) == [12]
    assert builder.found(crashes=(), unreadable=()) == []


@pytest.mark.parametrize(
    ("at", "code", "in_flight", "mistaken"),
    [
        (3.0, ErrorCode.INVALID_REQUEST, 5, True),
        (3.0, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 1, True),
        # Behind what is refused for its size the rest is out of order.
        (3.0, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 5, False),
        (30.0, ErrorCode.INVALID_REQUEST, 5, False),
    ],
)
def test_requests_that_brokers_take_for_a_mistake(
    at: float, code: ErrorCode, in_flight: int, mistaken: bool
) -> None:
    builder = HistoryBuilder()
    builder.producer(max_in_flight_requests_per_connection=in_flight)
    builder.time = 20.0
    builder.add(events.Fault, "", "a node is killed")
    rejected_requests = (RejectedRequest(at, "p", "PRODUCE", code),)
    assert numbers(builder.found(rejected_requests=rejected_requests)) == ([12] if mistaken else [])
    assert (
        builder.found(rejected_requests=(RejectedRequest(at, "stranger", "PRODUCE", code),)) == []
    )


SECRET = "correct horse"


@pytest.mark.parametrize(
    "shape", [SECRET, SECRET.encode().hex(), base64.b64encode(SECRET.encode()).decode()]
)
def test_a_secret_in_a_log_line_or_repr(shape: str) -> None:
    guarantees = {"secrets": (SECRET,)}
    builder = failing(error="AuthenticationFailed", text="no such user")
    assert builder.found(log_lines=("all is well",), reprs=(), guarantees=guarantees) == []
    for found_numbers in ({"log_lines": (f"x={shape}",)}, {"reprs": (f"<P {shape}>",)}):
        assert numbers(builder.found(guarantees=guarantees, **found_numbers)) == [13]
    builder = failing(error="AuthenticationFailed", text=f"refused {shape}")
    assert numbers(builder.found(log_lines=(), guarantees=guarantees)) == [13]


def test_without_a_secret_none_is_looked_for() -> None:
    builder = failing()
    assert "secret" in builder.not_checked(log_lines=())[13]
    assert "kept" in builder.not_checked(guarantees={"secrets": (SECRET,)})[13]


def test_a_return_without_its_call_is_passed_over() -> None:
    builder = HistoryBuilder()
    builder.add(events.Returned, "c", 7)
    assert builder.found() == []
