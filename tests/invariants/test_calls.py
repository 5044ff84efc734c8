"""Invariants 9, 10, 12 and 13: that they pass what is right, and name what is wrong."""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import Any

import pytest

from aiokafkawire.config.options import ConsumerOptions, ProducerOptions
from aiokafkawire.wire import ErrorCode
from tests.invariants.events import (
    Acknowledged,
    Crashed,
    Fault,
    HandedOver,
    Healed,
    OutcomeMissing,
    Returned,
)
from tests.invariants.history_builder import HistoryBuilder, v
from tests.invariants.observed import CommitRequest, Peak, Refusal


def numbers(found: list[tuple[int, str]]) -> list[int]:
    return [number for number, _ in found]


def calling(limit_s: float | None, took_s: float) -> HistoryBuilder:
    story = HistoryBuilder()
    story.consumer()
    call = story.call("commit", limit_s)
    story.time += took_s - 1.0
    story.returned(call)
    return story


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
    story = HistoryBuilder()
    story.consumer()
    story.call("getmany", 5.0)
    assert story.found(ended_at=story.time + 5) == []
    assert numbers(story.found(ended_at=story.time + 6)) == [9]
    story.add(Crashed, "c")
    assert story.found(ended_at=story.time + 6) == []


def test_waiting_for_data_may_take_for_ever() -> None:
    story = HistoryBuilder()
    story.consumer()
    story.call("anext")
    assert story.found(ended_at=1e6) == []


def test_handing_over_ends_in_time() -> None:
    story = HistoryBuilder()
    story.producer()
    story.sending(v(1))
    story.time += 61
    assert numbers(story.found(ended_at=story.time)) == [9]
    story.handed(v(1))
    assert numbers(story.found()) == [9]


def test_a_record_has_its_outcome_in_time() -> None:
    def found_numbers(awaited_at: float | None, after_s: float) -> list[int]:
        story = HistoryBuilder()
        story.producer()
        story.sending(v(1))
        story.add(HandedOver, "p", 1, 120.0)
        handed = story.time
        story.time += after_s - 1.0
        since = None if awaited_at is None else handed + awaited_at
        story.add(Acknowledged, "p", 1, "t", 0, ((0, v(1)),), since)
        return [n for n in numbers(story.found()) if n == 9]

    assert found_numbers(0.0, 120.0) == []
    assert found_numbers(0.0, 121.0) == [9]
    assert found_numbers(300.0, 300.0) == []  # the application waited for it that late
    assert found_numbers(300.0, 301.0) == [9]
    assert found_numbers(None, 500.0) == []


def test_a_record_without_an_outcome() -> None:
    story = HistoryBuilder()
    story.producer()
    story.send(v(1))
    story.closed("p")
    story.add(OutcomeMissing, "p", 1, (v(1),))
    assert numbers(story.found()) == [9]


def test_what_is_left_behind() -> None:
    story = calling(None, 1.0)
    assert 10 in story.not_checked()
    assert story.found(left_behind=()) == []
    [(number, text)] = story.found(left_behind=("task reader", "timer at 7"))
    assert number == 10
    assert text == "2 things were left behind: task reader; timer at 7"


def test_limits_that_are_passed() -> None:
    story = calling(None, 1.0)
    kept = Peak("p", "bytes in the buffer", 100, 100)
    passed = Peak("p", "bytes in the buffer", 101, 100)
    assert story.found(peaks=(kept,)) == []
    assert numbers(story.found(peaks=(kept, passed))) == [10]


@pytest.mark.parametrize(
    ("broken", "after_s", "wrong"),
    [(False, 0.0, True), (True, 10.0, False), (True, 40.0, True)],
)
def test_members_leave_their_groups(broken: bool, after_s: float, wrong: bool) -> None:
    story = HistoryBuilder()
    story.consumer()
    if broken:
        story.add(Fault, "", "cut")
        story.add(Healed, "")
    story.time += after_s
    assert story.found(members=(("g", "c"), ("g", "else"))) == []
    story.closed()
    assert story.found(members=(("g", "else"),)) == []
    assert numbers(story.found(members=(("g", "c"),))) == [10] * wrong


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
    story = HistoryBuilder()
    story.consumer()
    began = story.time
    story.closed(cancelled=cancelled)
    assert story.time == began + 1.0
    joined = () if answered_s is None else (("c", began + answered_s),)
    assert numbers(story.found(members=(("g", "c"),), joined=joined)) == [10] * wrong


def test_a_crashed_member_may_stay_in_the_group() -> None:
    story = HistoryBuilder()
    story.consumer()
    story.add(Crashed, "c")
    assert story.found(members=(("g", "c"),)) == []


def failing(**named: Any) -> HistoryBuilder:
    story = HistoryBuilder()
    story.consumer()
    story.returned(story.call("getmany", 5.0), **named)
    return story


def test_errors_that_callers_know() -> None:
    assert failing(error="RequestTimedOut").found() == []
    assert numbers(failing(error="KeyError", typed=False).found()) == [12]


def test_nobody_is_blamed_for_what_he_did_not_do() -> None:
    story = failing(error="MalformedMessage")
    assert numbers(story.found()) == [12]
    assert story.found(guarantees={"hostile": True}) == []


def test_nobody_ends_a_connection_over_an_answer_that_was_right() -> None:
    story = failing(error="RequestTimedOut")
    line = "aiokafkawire.consumer: a response with correlation id 7 is repeated"
    assert numbers(story.found(log_lines=(line,))) == [12]
    assert story.found(log_lines=(line,), guarantees={"hostile": True}) == []


@pytest.mark.parametrize(
    ("after_s", "put_off", "found"),
    [(0.05, True, [12]), (0.05, False, []), (0.1, True, []), (0.0, True, [])],
)
def test_a_commit_that_is_refused_for_a_moment_is_not_sent_again_at_once(
    after_s: float, put_off: bool, found: list[int]
) -> None:
    story = HistoryBuilder()
    story.consumer()
    first = CommitRequest(1.0, "c", "g", "m", 1, (), None, put_off=put_off)
    assert numbers(story.found(commits=(first, replace(first, at=1.0 + after_s)))) == found


@pytest.mark.parametrize(("crowded", "found"), [(True, []), (False, [12])])
def test_errors_of_a_resuming_node_need_not_be_received(crowded: bool, found: list[int]) -> None:
    story = HistoryBuilder()
    story.consumer()
    late = CommitRequest(1.0, "c", "g", "m", 1, (), None, node=1, put_off=True, crowded=crowded)
    elsewhere = replace(late, at=1.05, node=2, crowded=False)
    assert numbers(story.found(commits=(late, elsewhere))) == found


@pytest.mark.parametrize(("connected_at", "found"), [(0.5, []), (0.8, [12]), (0.9, [12])])
def test_errors_on_an_abandoned_connection_are_not_received(
    connected_at: float, found: list[int]
) -> None:
    story = HistoryBuilder()
    story.consumer()
    first = CommitRequest(1.0, "c", "g", "m", 1, (), None, connected_at=0.8)
    late = replace(first, at=2.0, put_off=True, connected_at=connected_at)
    last = replace(first, at=2.05, connected_at=max(0.8, connected_at))
    assert numbers(story.found(commits=(first, late, last))) == found


def test_a_send_that_fails_of_an_unknown_kind() -> None:
    story = HistoryBuilder()
    story.producer()
    story.sending(v(1))
    story.fail(v(1), "KeyError", typed=False)
    assert numbers(story.found()) == [12]


def test_failures_in_the_background() -> None:
    story = calling(None, 1.0)
    assert numbers(story.found(crashes=("task x failed",))) == [12]
    assert numbers(story.found(unreadable=("node 1: connection 3: a length of -1",))) == [12]
    assert story.found(crashes=(), unreadable=()) == []


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
    story = HistoryBuilder()
    story.producer(max_in_flight_requests_per_connection=in_flight)
    story.time = 20.0
    story.add(Fault, "", "a node is killed")
    refusals = (Refusal(at, "p", "PRODUCE", code),)
    assert numbers(story.found(refusals=refusals)) == ([12] if mistaken else [])
    assert story.found(refusals=(Refusal(at, "stranger", "PRODUCE", code),)) == []


def test_no_option_holds_a_secret_yet() -> None:
    """Once one does, scenarios have to give it, and name it in their promises."""
    options = {*ProducerOptions.__annotations__, *ConsumerOptions.__annotations__}
    words = ("password", "secret", "token", "credential", "jaas")
    assert not [name for name in options if any(word in name for word in words)]


SECRET = "correct horse"


@pytest.mark.parametrize(
    "shape", [SECRET, SECRET.encode().hex(), base64.b64encode(SECRET.encode()).decode()]
)
def test_a_secret_in_a_log_line_or_repr(shape: str) -> None:
    guarantees = {"secrets": (SECRET,)}
    story = failing(error="AuthenticationFailed", text="no such user")
    assert story.found(log_lines=("all is well",), reprs=(), guarantees=guarantees) == []
    for found_numbers in ({"log_lines": (f"x={shape}",)}, {"reprs": (f"<P {shape}>",)}):
        assert numbers(story.found(guarantees=guarantees, **found_numbers)) == [13]
    story = failing(error="AuthenticationFailed", text=f"refused {shape}")
    assert numbers(story.found(log_lines=(), guarantees=guarantees)) == [13]


def test_without_a_secret_none_is_looked_for() -> None:
    story = failing()
    assert "secret" in story.not_checked(log_lines=())[13]
    assert "kept" in story.not_checked(guarantees={"secrets": (SECRET,)})[13]


def test_a_return_without_its_call_is_passed_over() -> None:
    story = HistoryBuilder()
    story.add(Returned, "c", 7)
    assert story.found() == []
