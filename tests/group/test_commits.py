from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafkawire.connection.backoff import Backoff
from aiokafkawire.errors import BrokerError, CommitFailed, ConnectionLost, UnsupportedVersion
from aiokafkawire.group import commits as c
from aiokafkawire.types import OffsetAndMetadata, TopicPartition
from aiokafkawire.wire import ErrorCode

P0 = TopicPartition("orders", 0)
P1 = TopicPartition("orders", 1)


def machine() -> c.Commits:
    return c.Commits(Backoff(0.1, 1.0), random.Random(1))


def at(**offsets: int) -> dict[TopicPartition, OffsetAndMetadata]:
    return {TopicPartition("orders", int(n[1:])): OffsetAndMetadata(o) for n, o in offsets.items()}


def send(m: c.Commits, now: float = 0.0, generation: int = 3) -> c.SendCommit:
    assert m.due(now)
    (effect,) = m.handle(c.CommitDue(generation), now)
    assert isinstance(effect, c.SendCommit)
    return effect


def answer(m: c.Commits, sent: c.SendCommit, code: int = 0, now: float = 0.0) -> list[Any]:
    return list(m.handle(c.Answered(sent.request, dict.fromkeys(sent.offsets, code)), now))


def settled(effects: Any) -> dict[int, Any]:
    return {effect.ticket: effect.error for effect in effects if isinstance(effect, c.Settle)}


STATES = (
    c.Idle(),
    c.Sending(1, {P0: c.Wanted(OffsetAndMetadata(5), 1)}, 3, 0),
    c.Delayed(0.0, 1),
    c.Held(3),
)
EVENTS = (
    c.Submitted(9, at(p0=7), False),
    c.CommitDue(3),
    c.PartKept(1, [P0]),
    c.Answered(1, {P0: 0}),
    c.Unanswered(1, ConnectionLost("gone")),
    c.Ended([P0], True, "gone"),
    c.Rejoined(4, [P0]),
    c.Waiting(),
)
EXPECTED = {
    "Idle": ["Idle", "Sending", None, None, None, "Idle", "Idle", None],
    "Sending": ["Sending", "Sending", "Sending", "Idle", "Delayed", "Sending", "Sending", None],
    "Delayed": ["Delayed", "Sending", None, None, None, "Delayed", "Delayed", None],
    "Held": ["Held", "Held", None, None, None, "Held", "Idle", "Held"],
}


@pytest.mark.parametrize("state", STATES, ids=lambda state: type(state).__name__)
@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_every_state_and_event(state: Any, event: Any) -> None:
    m = machine()
    m.wanted[P0] = c.Wanted(OffsetAndMetadata(5), 1)
    m.state = state
    expected = EXPECTED[type(state).__name__][EVENTS.index(event)]
    assert (expected is not None) == ((type(state), type(event)) in c.TRANSITIONS)
    if expected is None and isinstance(event, c.Waiting):  # nobody asked
        assert not m.overdue(1.0)
        return
    effects = m.handle(event, 1.0)
    if expected is None:  # an answer that nobody waits for
        assert (m.state, effects) == (state, ())
    else:
        assert type(m.state).__name__ == expected


def test_a_last_commit_does_not_wait_for_the_rebalance_that_waits_for_it() -> None:
    m = machine()
    first, _ = m.submit(at(p0=5), 0.0)
    answer(m, send(m), ErrorCode.REBALANCE_IN_PROGRESS)
    assert isinstance(m.state, c.Held)
    last, _ = m.submit(at(p0=7), 0.0, last=True)
    sent = send(m)
    assert sent.offsets == at(p0=7)
    assert settled(answer(m, sent)) == {first: None, last: None}


def kept(effects: Any) -> dict[TopicPartition, OffsetAndMetadata]:
    found: dict[TopicPartition, OffsetAndMetadata] = {}
    for effect in effects:
        if isinstance(effect, c.Kept):
            found |= effect.offsets
    return found


def test_parts_of_a_commit_are_kept_one_by_one() -> None:
    m = machine()
    both, _ = m.submit(at(p0=5, p1=6), 0.0)
    one, _ = m.submit(at(p1=6), 0.0)
    sent = send(m)
    effects = m.handle(c.PartKept(sent.request, [P1]), 0.0)
    assert (kept(effects), settled(effects)) == (at(p1=6), {one: None})
    later, _ = m.submit(at(p0=7), 0.0)
    effects = m.handle(c.PartKept(sent.request, [P0]), 0.0)
    assert (kept(effects), settled(effects)) == (at(p0=5), {both: None})
    assert isinstance(m.state, c.Sending)
    m.handle(c.Answered(sent.request, {}), 0.0)
    assert settled(answer(m, send(m))) == {later: None}


def test_a_part_that_ended_in_a_rebalance_is_not_kept() -> None:
    m = machine()
    ticket, _ = m.submit(at(p0=5, p1=6), 0.0)
    sent = send(m)
    m.handle(c.PartKept(sent.request, [P0]), 0.0)
    outcome = settled(m.handle(c.Ended([P1], False, "given back"), 0.0))
    assert isinstance(outcome[ticket], CommitFailed)
    assert kept(m.handle(c.PartKept(sent.request, [P1]), 0.0)) == {}
    m.handle(c.Answered(sent.request, {}), 0.0)
    assert not m.due(0.0)


def test_parts_that_a_rebalance_refuses_go_out_in_the_next_generation() -> None:
    m = machine()
    ticket, _ = m.submit(at(p0=5, p1=6), 0.0)
    sent = send(m)
    m.handle(c.PartKept(sent.request, [P0]), 0.0)
    m.handle(c.Answered(sent.request, {P1: ErrorCode.REBALANCE_IN_PROGRESS}, keeping=True), 0.0)
    assert isinstance(m.state, c.Held)
    m.handle(c.Rejoined(4, [P0, P1]), 0.0)
    again = send(m, generation=4)
    assert again.offsets == at(p1=6)
    assert settled(answer(m, again)) == {ticket: None}


def test_outside_of_a_membership_no_rebalance_is_waited_for() -> None:
    m = machine()
    ticket, _ = m.submit(at(p0=5), 0.0)
    outcome = settled(answer(m, send(m, generation=-1), ErrorCode.REBALANCE_IN_PROGRESS))
    assert isinstance(outcome[ticket], BrokerError)
    assert isinstance(m.state, c.Idle)


def test_what_is_asked_for_meanwhile_goes_out_afterwards_newest_only() -> None:
    m = machine()
    first, _ = m.submit(at(p0=1, p1=1), 0.0)
    sent = send(m)
    second, _ = m.submit(at(p0=2), 0.0)
    third, _ = m.submit(at(p0=3), 0.0)
    assert not m.due(0.0)
    assert settled(answer(m, sent)) == {first: None}
    sent = send(m)
    assert sent.offsets == at(p0=3)
    assert settled(answer(m, sent)) == {second: None, third: None}
    assert not m.due(0.0)


def test_nothing_to_commit_is_committed_at_once() -> None:
    ticket, effects = machine().submit({}, 0.0)
    assert settled(effects) == {ticket: None}


def test_an_unknown_outcome_sends_the_newest_offset_again() -> None:
    m = machine()
    ticket, _ = m.submit(at(p0=1), 0.0)
    sent = send(m)
    newer, _ = m.submit(at(p0=5), 0.0)
    effects = m.handle(c.Unanswered(sent.request, ConnectionLost("gone")), 0.0)
    assert effects == (c.ForgetCoordinator(),)
    assert not m.due(0.0)
    again = m.next_deadline()
    assert 0.08 <= again <= 0.12
    sent = send(m, again)
    assert sent.offsets == at(p0=5)
    assert settled(answer(m, sent)) == {ticket: None, newer: None}


@pytest.mark.parametrize(
    ("code", "forgets"),
    [
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, False),
        (ErrorCode.NOT_COORDINATOR, True),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, True),
        (ErrorCode.REQUEST_TIMED_OUT, False),
    ],
)
def test_what_passes_is_tried_again(code: int, forgets: bool) -> None:
    m = machine()
    ticket, _ = m.submit(at(p0=1), 0.0)
    effects = answer(m, send(m), code)
    assert settled(effects) == {}
    assert (c.ForgetCoordinator() in effects) == forgets
    assert settled(answer(m, send(m, m.next_deadline()))) == {ticket: None}


def test_part_of_a_request_may_be_refused() -> None:
    m = machine()
    one, _ = m.submit(at(p0=1), 0.0)
    both, _ = m.submit(at(p1=1), 0.0)
    sent = send(m)
    codes = {P0: 0, P1: int(ErrorCode.OFFSET_METADATA_TOO_LARGE)}
    outcome = settled(m.handle(c.Answered(sent.request, codes), 0.0))
    assert outcome[one] is None
    assert isinstance(outcome[both], BrokerError)
    assert (outcome[both].topic, outcome[both].partition, outcome[both].offset) == ("orders", 1, 1)
    assert not m.due(0.0)


def test_a_partition_that_the_answer_leaves_out_is_not_committed() -> None:
    m = machine()
    ticket, _ = m.submit(at(p0=1), 0.0)
    sent = send(m)
    assert isinstance(settled(m.handle(c.Answered(sent.request, {}), 0.0))[ticket], BrokerError)


@pytest.mark.parametrize(
    "code",
    [ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID],
)
def test_a_fenced_commit_fails_and_raises_doubt(code: ErrorCode) -> None:
    m = machine()
    ticket, _ = m.submit(at(p0=1), 0.0)
    effects = answer(m, send(m), code)
    assert c.Doubt() in effects
    error = settled(effects)[ticket]
    assert isinstance(error, CommitFailed)
    assert code.name in str(error)
    assert not m.due(0.0)


def held() -> tuple[c.Commits, int]:
    m = machine()
    ticket, _ = m.submit(at(p0=1, p1=1), 0.0)
    effects = answer(m, send(m, generation=3), ErrorCode.REBALANCE_IN_PROGRESS)
    assert effects == [c.Doubt()]
    assert isinstance(m.state, c.Held)
    assert not m.due(100.0)
    return m, ticket


def test_a_commit_during_a_rebalance_is_repeated_for_what_is_still_owned() -> None:
    m, ticket = held()
    m.handle(c.Ended([P0, P1], False, "revoked"), 0.0)
    assert settled(m.handle(c.Rejoined(4, [P0, P1]), 0.0)) == {}
    assert settled(answer(m, send(m))) == {ticket: None}


def test_a_commit_during_a_rebalance_fails_for_what_went_away() -> None:
    m, ticket = held()
    effects = m.handle(c.Rejoined(4, [P0]), 0.0)
    assert isinstance(settled(effects)[ticket], CommitFailed)
    assert send(m).offsets == at(p0=1)


def test_a_commit_is_not_repeated_if_another_generation_came_between() -> None:
    m, ticket = held()
    assert isinstance(settled(m.handle(c.Rejoined(5, [P0, P1]), 0.0))[ticket], CommitFailed)
    assert not m.due(0.0)


def test_a_commit_of_the_generation_before_is_repeated_for_what_was_kept() -> None:
    m = machine()
    ticket, _ = m.submit(at(p0=1, p1=1), 0.0)
    sent = send(m, generation=3)
    codes = dict.fromkeys(sent.offsets, int(ErrorCode.ILLEGAL_GENERATION))
    # The member is on its way into generation 4, with both partitions.
    assert not m.handle(c.Answered(sent.request, codes, keeping=True), 0.0)
    assert not m.due(100.0)
    m.handle(c.Rejoined(4, [P0, P1]), 0.0)
    assert settled(answer(m, send(m, generation=4))) == {ticket: None}


@pytest.mark.parametrize("code", [ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS])
def test_a_rebalance_that_ends_before_the_refusal_is_here_is_not_waited_for(
    code: ErrorCode,
) -> None:
    m = machine()
    kept, _ = m.submit(at(p0=1), 0.0)
    gone, _ = m.submit(at(p1=1), 0.0)
    sent = send(m, generation=3)
    m.handle(c.Rejoined(4, [P0]), 0.0)
    outcome = settled(answer(m, sent, code))
    assert list(outcome) == [gone]
    assert isinstance(outcome[gone], CommitFailed)
    again = send(m, generation=4)
    assert again.offsets == at(p0=1)
    assert settled(answer(m, again)) == {kept: None}


def test_a_refusal_of_what_was_sent_before_does_not_hold_the_last_commit() -> None:
    m = machine()
    first, _ = m.submit(at(p0=1), 0.0)
    sent = send(m)
    last, _ = m.submit(at(p0=2), 0.0, last=True)
    answer(m, sent, ErrorCode.REBALANCE_IN_PROGRESS)
    assert settled(answer(m, send(m))) == {first: None, last: None}


def test_a_commit_that_waits_asks_now_and_then_whether_there_is_a_rebalance() -> None:
    m, ticket = held()
    assert not m.overdue(0.5)
    assert m.next_deadline() == c.HOLD_S
    assert m.overdue(c.HOLD_S)
    m.handle(c.Waiting(), c.HOLD_S)
    assert m.next_deadline() == 2 * c.HOLD_S
    m.handle(c.Rejoined(3, [P0, P1]), 2 * c.HOLD_S)
    assert settled(answer(m, send(m, 2 * c.HOLD_S))) == {ticket: None}


def test_the_last_commit_before_giving_back_is_not_held() -> None:
    m = machine()
    ticket, _ = m.submit(at(p0=1), 0.0, last=True)
    effects = answer(m, send(m), ErrorCode.REBALANCE_IN_PROGRESS)
    assert isinstance(settled(effects)[ticket], CommitFailed)
    assert isinstance(m.state, c.Idle)


def test_what_is_not_owned_any_more_is_not_committed() -> None:
    m = machine()
    ticket, _ = m.submit(at(p0=1), 0.0)
    sent = send(m)
    effects = m.handle(c.Ended([P0], True, "lost it"), 0.0)
    assert "lost it" in str(settled(effects)[ticket])
    assert answer(m, sent, ErrorCode.NOT_COORDINATOR) == []
    assert not m.due(100.0)


def test_a_failure_that_no_repetition_mends_is_told() -> None:
    m = machine()
    ticket, _ = m.submit(at(p0=1), 0.0)
    error = UnsupportedVersion("too old")
    assert settled(m.handle(c.Unanswered(send(m).request, error), 0.0)) == {ticket: error}


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID])
def test_a_topic_that_stays_unknown_is_given_up(code: int) -> None:
    m = machine()
    ticket, _ = m.submit(at(p0=1), 0.0)
    for now in range(c.MAX_ABSENT - 1):
        assert answer(m, send(m, now), code, now) == []
    m.handle(c.Unanswered(send(m, 10).request, ConnectionLost("gone")), 10)
    outcome = settled(answer(m, send(m, 20), code, 20))
    assert isinstance(outcome[ticket], BrokerError)
    m.submit(at(p0=2), 20)
    assert answer(m, send(m, 20), code, 20) == []  # it is asked anew


def test_what_is_kept_is_the_newest_that_was_sent() -> None:
    m = machine()
    m.submit(at(p0=5, p1=5), 0.0)
    m.submit(at(p0=9), 0.0)
    effects = answer(m, send(m))
    assert [effect for effect in effects if isinstance(effect, c.Kept)] == [c.Kept(at(p0=9, p1=5))]


def test_an_abandoned_ticket_is_committed_all_the_same() -> None:
    m = machine()
    ticket, _ = m.submit(at(p0=1), 0.0)
    m.abandon(ticket)
    sent = send(m)
    assert sent.offsets == at(p0=1)
    assert answer(m, sent) == [c.Kept(at(p0=1))]


CODES = st.sampled_from([0, 0, 0, 14, 16, 27, 22, 12])


@given(st.data())
def test_every_ticket_is_settled_once_and_acknowledged_means_kept(data: st.DataObject) -> None:
    m = machine()
    kept: dict[TopicPartition, int] = {}
    asked: dict[int, dict[TopicPartition, int]] = {}
    outcomes: dict[int, Any] = {}
    newest = 0
    now = 0.0

    def note(effects: Any) -> None:
        for ticket, error in settled(effects).items():
            assert ticket not in outcomes
            outcomes[ticket] = error
            if error is None:  # a later or the same offset of each partition is kept
                for tp, offset in asked[ticket].items():
                    assert kept[tp] >= offset

    for _ in range(data.draw(st.integers(1, 25))):
        now += 1.0
        match data.draw(st.sampled_from(["submit", "step", "step", "rejoin"])):
            case "submit":
                newest += 1
                tps = data.draw(st.lists(st.sampled_from([P0, P1]), min_size=1, unique=True))
                ticket, effects = m.submit({tp: OffsetAndMetadata(newest) for tp in tps}, now)
                asked[ticket] = dict.fromkeys(tps, newest)
                note(effects)
            case "rejoin":
                note(m.handle(c.Rejoined(4, [P0, P1]), now))
            case "step" if m.due(now):
                sent = send(m, now)
                codes = {tp: data.draw(CODES) for tp in sent.offsets}
                lost = data.draw(st.booleans())
                for tp, offset in sent.offsets.items():
                    if codes[tp] == 0:
                        kept[tp] = offset.offset
                event = (
                    c.Unanswered(sent.request, ConnectionLost("gone"))
                    if lost
                    else c.Answered(sent.request, codes)
                )
                note(m.handle(event, now))
    note(m.handle(c.Rejoined(4, [P0, P1]), now))
    while m.due(now := now + 2.0):
        sent = send(m, now)
        kept.update({tp: offset.offset for tp, offset in sent.offsets.items()})
        note(answer(m, sent, now=now))
    assert set(outcomes) == set(asked)
    assert not m.tickets
