from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafkawire.connection.backoff import Backoff
from aiokafkawire.errors import BrokerError, CommitFailed, ConnectionLost, UnsupportedVersion
from aiokafkawire.group.commit_machine import (
    MAX_UNKNOWN_TOPIC_RESPONSES,
    REBALANCE_CHECK_INTERVAL_S,
    TRANSITIONS,
    AwaitingRebalance,
    ChunkCommitted,
    CommitBackoff,
    CommitDue,
    CommitIdle,
    CommitInFlight,
    CommitMachine,
    CommitRequestFailed,
    CommitResponseReceived,
    CommitSubmitted,
    CompleteCommit,
    ForgetCoordinator,
    OwnershipEnded,
    PendingOffset,
    RebalanceContinues,
    Rejoined,
    ReportCommitted,
    SendCommit,
    VerifyMembership,
)
from aiokafkawire.types import OffsetAndMetadata, TopicPartition
from aiokafkawire.wire import ErrorCode

P0 = TopicPartition("orders", 0)
P1 = TopicPartition("orders", 1)


def machine() -> CommitMachine:
    return CommitMachine(Backoff(0.1, 1.0), random.Random(1))


def at(**offsets: int) -> dict[TopicPartition, OffsetAndMetadata]:
    return {TopicPartition("orders", int(n[1:])): OffsetAndMetadata(o) for n, o in offsets.items()}


def send(m: CommitMachine, now: float = 0.0, generation: int = 3) -> SendCommit:
    assert m.can_send(now)
    (effect,) = m.handle(CommitDue(generation), now)
    assert isinstance(effect, SendCommit)
    return effect


def answer(m: CommitMachine, sent: SendCommit, code: int = 0, now: float = 0.0) -> list[Any]:
    return list(
        m.handle(CommitResponseReceived(sent.request, dict.fromkeys(sent.offsets, code)), now)
    )


def completed(effects: Any) -> dict[int, Any]:
    return {
        effect.commit_id: effect.error for effect in effects if isinstance(effect, CompleteCommit)
    }


STATES = (
    CommitIdle(),
    CommitInFlight(1, {P0: PendingOffset(OffsetAndMetadata(5), 1)}, 3, 0),
    CommitBackoff(0.0, 1),
    AwaitingRebalance(3),
)
EVENTS = (
    CommitSubmitted(9, at(p0=7), False),
    CommitDue(3),
    ChunkCommitted(1, [P0]),
    CommitResponseReceived(1, {P0: 0}),
    CommitRequestFailed(1, ConnectionLost("gone")),
    OwnershipEnded([P0], True, "gone"),
    Rejoined(4, [P0]),
    RebalanceContinues(),
)
EXPECTED = {
    "CommitIdle": [
        "CommitIdle",
        "CommitInFlight",
        None,
        None,
        None,
        "CommitIdle",
        "CommitIdle",
        None,
    ],
    "CommitInFlight": [
        "CommitInFlight",
        "CommitInFlight",
        "CommitInFlight",
        "CommitIdle",
        "CommitBackoff",
        "CommitInFlight",
        "CommitInFlight",
        None,
    ],
    "CommitBackoff": [
        "CommitBackoff",
        "CommitInFlight",
        None,
        None,
        None,
        "CommitBackoff",
        "CommitBackoff",
        None,
    ],
    "AwaitingRebalance": [
        "AwaitingRebalance",
        "AwaitingRebalance",
        None,
        None,
        None,
        "AwaitingRebalance",
        "CommitIdle",
        "AwaitingRebalance",
    ],
}


@pytest.mark.parametrize("state", STATES, ids=lambda state: type(state).__name__)
@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_every_state_and_event(state: Any, event: Any) -> None:
    m = machine()
    m.pending_offsets[P0] = PendingOffset(OffsetAndMetadata(5), 1)
    m.state = state
    expected = EXPECTED[type(state).__name__][EVENTS.index(event)]
    assert (expected is not None) == ((type(state), type(event)) in TRANSITIONS)
    if expected is None and isinstance(event, RebalanceContinues):  # nobody asked
        assert not m.needs_rebalance_check(1.0)
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
    assert isinstance(m.state, AwaitingRebalance)
    last, _ = m.submit(at(p0=7), 0.0, before_revocation=True)
    sent = send(m)
    assert sent.offsets == at(p0=7)
    assert completed(answer(m, sent)) == {first: None, last: None}


def committed(effects: Any) -> dict[TopicPartition, OffsetAndMetadata]:
    found: dict[TopicPartition, OffsetAndMetadata] = {}
    for effect in effects:
        if isinstance(effect, ReportCommitted):
            found |= effect.offsets
    return found


def test_parts_of_a_commit_are_kept_one_by_one() -> None:
    m = machine()
    both, _ = m.submit(at(p0=5, p1=6), 0.0)
    one, _ = m.submit(at(p1=6), 0.0)
    sent = send(m)
    effects = m.handle(ChunkCommitted(sent.request, [P1]), 0.0)
    assert (committed(effects), completed(effects)) == (at(p1=6), {one: None})
    later, _ = m.submit(at(p0=7), 0.0)
    effects = m.handle(ChunkCommitted(sent.request, [P0]), 0.0)
    assert (committed(effects), completed(effects)) == (at(p0=5), {both: None})
    assert isinstance(m.state, CommitInFlight)
    m.handle(CommitResponseReceived(sent.request, {}), 0.0)
    assert completed(answer(m, send(m))) == {later: None}


def test_a_part_that_ended_in_a_rebalance_is_not_kept() -> None:
    m = machine()
    commit_id, _ = m.submit(at(p0=5, p1=6), 0.0)
    sent = send(m)
    m.handle(ChunkCommitted(sent.request, [P0]), 0.0)
    outcome = completed(m.handle(OwnershipEnded([P1], False, "given back"), 0.0))
    assert isinstance(outcome[commit_id], CommitFailed)
    assert committed(m.handle(ChunkCommitted(sent.request, [P1]), 0.0)) == {}
    m.handle(CommitResponseReceived(sent.request, {}), 0.0)
    assert not m.can_send(0.0)


def test_parts_that_a_rebalance_refuses_go_out_in_the_next_generation() -> None:
    m = machine()
    commit_id, _ = m.submit(at(p0=5, p1=6), 0.0)
    sent = send(m)
    m.handle(ChunkCommitted(sent.request, [P0]), 0.0)
    m.handle(
        CommitResponseReceived(
            sent.request, {P1: ErrorCode.REBALANCE_IN_PROGRESS}, in_cooperative_rejoin=True
        ),
        0.0,
    )
    assert isinstance(m.state, AwaitingRebalance)
    m.handle(Rejoined(4, [P0, P1]), 0.0)
    again = send(m, generation=4)
    assert again.offsets == at(p1=6)
    assert completed(answer(m, again)) == {commit_id: None}


def test_outside_of_a_membership_no_rebalance_is_waited_for() -> None:
    m = machine()
    commit_id, _ = m.submit(at(p0=5), 0.0)
    outcome = completed(answer(m, send(m, generation=-1), ErrorCode.REBALANCE_IN_PROGRESS))
    assert isinstance(outcome[commit_id], BrokerError)
    assert isinstance(m.state, CommitIdle)


def test_what_is_asked_for_meanwhile_goes_out_afterwards_newest_only() -> None:
    m = machine()
    first, _ = m.submit(at(p0=1, p1=1), 0.0)
    sent = send(m)
    second, _ = m.submit(at(p0=2), 0.0)
    third, _ = m.submit(at(p0=3), 0.0)
    assert not m.can_send(0.0)
    assert completed(answer(m, sent)) == {first: None}
    sent = send(m)
    assert sent.offsets == at(p0=3)
    assert completed(answer(m, sent)) == {second: None, third: None}
    assert not m.can_send(0.0)


def test_nothing_to_commit_is_committed_at_once() -> None:
    commit_id, effects = machine().submit({}, 0.0)
    assert completed(effects) == {commit_id: None}


def test_an_unknown_outcome_sends_the_newest_offset_again() -> None:
    m = machine()
    commit_id, _ = m.submit(at(p0=1), 0.0)
    sent = send(m)
    newer, _ = m.submit(at(p0=5), 0.0)
    effects = m.handle(CommitRequestFailed(sent.request, ConnectionLost("gone")), 0.0)
    assert effects == (ForgetCoordinator(),)
    assert not m.can_send(0.0)
    again = m.next_deadline()
    assert 0.08 <= again <= 0.12
    sent = send(m, again)
    assert sent.offsets == at(p0=5)
    assert completed(answer(m, sent)) == {commit_id: None, newer: None}


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
    commit_id, _ = m.submit(at(p0=1), 0.0)
    effects = answer(m, send(m), code)
    assert completed(effects) == {}
    assert (ForgetCoordinator() in effects) == forgets
    assert completed(answer(m, send(m, m.next_deadline()))) == {commit_id: None}


def test_part_of_a_request_may_be_refused() -> None:
    m = machine()
    one, _ = m.submit(at(p0=1), 0.0)
    both, _ = m.submit(at(p1=1), 0.0)
    sent = send(m)
    codes = {P0: 0, P1: int(ErrorCode.OFFSET_METADATA_TOO_LARGE)}
    outcome = completed(m.handle(CommitResponseReceived(sent.request, codes), 0.0))
    assert outcome[one] is None
    assert isinstance(outcome[both], BrokerError)
    assert (outcome[both].topic, outcome[both].partition, outcome[both].offset) == ("orders", 1, 1)
    assert not m.can_send(0.0)


def test_a_partition_that_the_answer_leaves_out_is_not_committed() -> None:
    m = machine()
    commit_id, _ = m.submit(at(p0=1), 0.0)
    sent = send(m)
    assert isinstance(
        completed(m.handle(CommitResponseReceived(sent.request, {}), 0.0))[commit_id], BrokerError
    )


@pytest.mark.parametrize(
    "code",
    [ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID],
)
def test_a_fenced_commit_fails_and_raises_doubt(code: ErrorCode) -> None:
    m = machine()
    commit_id, _ = m.submit(at(p0=1), 0.0)
    effects = answer(m, send(m), code)
    assert VerifyMembership() in effects
    error = completed(effects)[commit_id]
    assert isinstance(error, CommitFailed)
    assert code.name in str(error)
    assert not m.can_send(0.0)


def held() -> tuple[CommitMachine, int]:
    m = machine()
    commit_id, _ = m.submit(at(p0=1, p1=1), 0.0)
    effects = answer(m, send(m, generation=3), ErrorCode.REBALANCE_IN_PROGRESS)
    assert effects == [VerifyMembership()]
    assert isinstance(m.state, AwaitingRebalance)
    assert not m.can_send(100.0)
    return m, commit_id


def test_a_commit_during_a_rebalance_is_repeated_for_what_is_still_owned() -> None:
    m, commit_id = held()
    m.handle(OwnershipEnded([P0, P1], False, "revoked"), 0.0)
    assert completed(m.handle(Rejoined(4, [P0, P1]), 0.0)) == {}
    assert completed(answer(m, send(m))) == {commit_id: None}


def test_a_commit_during_a_rebalance_fails_for_what_went_away() -> None:
    m, commit_id = held()
    effects = m.handle(Rejoined(4, [P0]), 0.0)
    assert isinstance(completed(effects)[commit_id], CommitFailed)
    assert send(m).offsets == at(p0=1)


def test_a_commit_is_not_repeated_if_another_generation_came_between() -> None:
    m, commit_id = held()
    assert isinstance(completed(m.handle(Rejoined(5, [P0, P1]), 0.0))[commit_id], CommitFailed)
    assert not m.can_send(0.0)


def test_a_commit_of_the_generation_before_is_repeated_for_what_was_kept() -> None:
    m = machine()
    commit_id, _ = m.submit(at(p0=1, p1=1), 0.0)
    sent = send(m, generation=3)
    codes = dict.fromkeys(sent.offsets, int(ErrorCode.ILLEGAL_GENERATION))
    # The member is on its way into generation 4, with both partitions.
    assert not m.handle(
        CommitResponseReceived(sent.request, codes, in_cooperative_rejoin=True), 0.0
    )
    assert not m.can_send(100.0)
    m.handle(Rejoined(4, [P0, P1]), 0.0)
    assert completed(answer(m, send(m, generation=4))) == {commit_id: None}


@pytest.mark.parametrize("code", [ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS])
def test_a_rebalance_that_ends_before_the_refusal_is_here_is_not_waited_for(
    code: ErrorCode,
) -> None:
    m = machine()
    committed, _ = m.submit(at(p0=1), 0.0)
    gone, _ = m.submit(at(p1=1), 0.0)
    sent = send(m, generation=3)
    m.handle(Rejoined(4, [P0]), 0.0)
    outcome = completed(answer(m, sent, code))
    assert list(outcome) == [gone]
    assert isinstance(outcome[gone], CommitFailed)
    again = send(m, generation=4)
    assert again.offsets == at(p0=1)
    assert completed(answer(m, again)) == {committed: None}


def test_a_refusal_of_what_was_sent_before_does_not_hold_the_last_commit() -> None:
    m = machine()
    first, _ = m.submit(at(p0=1), 0.0)
    sent = send(m)
    last, _ = m.submit(at(p0=2), 0.0, before_revocation=True)
    answer(m, sent, ErrorCode.REBALANCE_IN_PROGRESS)
    assert completed(answer(m, send(m))) == {first: None, last: None}


def test_a_commit_that_waits_asks_now_and_then_whether_there_is_a_rebalance() -> None:
    m, commit_id = held()
    assert not m.needs_rebalance_check(0.5)
    assert m.next_deadline() == REBALANCE_CHECK_INTERVAL_S
    assert m.needs_rebalance_check(REBALANCE_CHECK_INTERVAL_S)
    m.handle(RebalanceContinues(), REBALANCE_CHECK_INTERVAL_S)
    assert m.next_deadline() == 2 * REBALANCE_CHECK_INTERVAL_S
    m.handle(Rejoined(3, [P0, P1]), 2 * REBALANCE_CHECK_INTERVAL_S)
    assert completed(answer(m, send(m, 2 * REBALANCE_CHECK_INTERVAL_S))) == {commit_id: None}


def test_the_last_commit_before_giving_back_is_not_held() -> None:
    m = machine()
    commit_id, _ = m.submit(at(p0=1), 0.0, before_revocation=True)
    effects = answer(m, send(m), ErrorCode.REBALANCE_IN_PROGRESS)
    assert isinstance(completed(effects)[commit_id], CommitFailed)
    assert isinstance(m.state, CommitIdle)


def test_what_is_not_owned_any_more_is_not_committed() -> None:
    m = machine()
    commit_id, _ = m.submit(at(p0=1), 0.0)
    sent = send(m)
    effects = m.handle(OwnershipEnded([P0], True, "lost it"), 0.0)
    assert "lost it" in str(completed(effects)[commit_id])
    assert answer(m, sent, ErrorCode.NOT_COORDINATOR) == []
    assert not m.can_send(100.0)


def test_a_failure_that_no_repetition_mends_is_told() -> None:
    m = machine()
    commit_id, _ = m.submit(at(p0=1), 0.0)
    error = UnsupportedVersion("too old")
    assert completed(m.handle(CommitRequestFailed(send(m).request, error), 0.0)) == {
        commit_id: error
    }


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID])
def test_a_topic_that_stays_unknown_is_given_up(code: int) -> None:
    m = machine()
    commit_id, _ = m.submit(at(p0=1), 0.0)
    for now in range(MAX_UNKNOWN_TOPIC_RESPONSES - 1):
        assert answer(m, send(m, now), code, now) == []
    m.handle(CommitRequestFailed(send(m, 10).request, ConnectionLost("gone")), 10)
    outcome = completed(answer(m, send(m, 20), code, 20))
    assert isinstance(outcome[commit_id], BrokerError)
    m.submit(at(p0=2), 20)
    assert answer(m, send(m, 20), code, 20) == []  # it is asked anew


def test_what_is_kept_is_the_newest_that_was_sent() -> None:
    m = machine()
    m.submit(at(p0=5, p1=5), 0.0)
    m.submit(at(p0=9), 0.0)
    effects = answer(m, send(m))
    assert [effect for effect in effects if isinstance(effect, ReportCommitted)] == [
        ReportCommitted(at(p0=9, p1=5))
    ]


def test_an_abandoned_ticket_is_committed_all_the_same() -> None:
    m = machine()
    commit_id, _ = m.submit(at(p0=1), 0.0)
    m.abandon(commit_id)
    sent = send(m)
    assert sent.offsets == at(p0=1)
    assert answer(m, sent) == [ReportCommitted(at(p0=1))]


CODES = st.sampled_from([0, 0, 0, 14, 16, 27, 22, 12])


@given(st.data())
def test_every_ticket_is_settled_once_and_acknowledged_means_kept(data: st.DataObject) -> None:
    m = machine()
    committed: dict[TopicPartition, int] = {}
    asked: dict[int, dict[TopicPartition, int]] = {}
    outcomes: dict[int, Any] = {}
    newest = 0
    now = 0.0

    def note(effects: Any) -> None:
        for commit_id, error in completed(effects).items():
            assert commit_id not in outcomes
            outcomes[commit_id] = error
            if error is None:  # a later or the same offset of each partition is kept
                for tp, offset in asked[commit_id].items():
                    assert committed[tp] >= offset

    for _ in range(data.draw(st.integers(1, 25))):
        now += 1.0
        match data.draw(st.sampled_from(["submit", "step", "step", "rejoin"])):
            case "submit":
                newest += 1
                tps = data.draw(st.lists(st.sampled_from([P0, P1]), min_size=1, unique=True))
                commit_id, effects = m.submit({tp: OffsetAndMetadata(newest) for tp in tps}, now)
                asked[commit_id] = dict.fromkeys(tps, newest)
                note(effects)
            case "rejoin":
                note(m.handle(Rejoined(4, [P0, P1]), now))
            case "step" if m.can_send(now):
                sent = send(m, now)
                codes = {tp: data.draw(CODES) for tp in sent.offsets}
                lost = data.draw(st.booleans())
                for tp, offset in sent.offsets.items():
                    if codes[tp] == 0:
                        committed[tp] = offset.offset
                event = (
                    CommitRequestFailed(sent.request, ConnectionLost("gone"))
                    if lost
                    else CommitResponseReceived(sent.request, codes)
                )
                note(m.handle(event, now))
    note(m.handle(Rejoined(4, [P0, P1]), now))
    while m.can_send(now := now + 2.0):
        sent = send(m, now)
        committed.update({tp: offset.offset for tp, offset in sent.offsets.items()})
        note(answer(m, sent, now=now))
    assert set(outcomes) == set(asked)
    assert not m.pending_commits
