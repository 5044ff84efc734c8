from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafkawire.connection.backoff import Backoff
from aiokafkawire.errors import BrokerError, CommitFailed, ConnectionLost, UnsupportedVersion
from aiokafkawire.group.commit_events import (
    ChunkCommitted,
    CommitDue,
    CommitRequestFailed,
    CommitResponseReceived,
    CommitSubmitted,
    CompleteCommit,
    OwnershipEnded,
    Rejoined,
    ReportCommitted,
    SendCommit,
    VerifyMembership,
)
from aiokafkawire.group.commit_machine import (
    MAX_UNKNOWN_TOPIC_COMMITS,
    REBALANCE_CHECK_INTERVAL_S,
    TRANSITIONS,
    AwaitingRebalance,
    CommitBackoff,
    CommitIdle,
    CommitInFlight,
    CommitMachine,
    PendingOffset,
)
from aiokafkawire.group.membership.effects import ForgetCoordinator
from aiokafkawire.types import OffsetAndMetadata, TopicPartition
from aiokafkawire.wire import ErrorCode

P0 = TopicPartition("orders", 0)
P1 = TopicPartition("orders", 1)


def machine() -> CommitMachine:
    return CommitMachine(Backoff(0.1, 1.0), random.Random(1))


def at(**offsets: int) -> dict[TopicPartition, OffsetAndMetadata]:
    return {TopicPartition("orders", int(n[1:])): OffsetAndMetadata(o) for n, o in offsets.items()}


def can_send(m: CommitMachine, now: float) -> bool:
    return m.next_deadline() <= now and not isinstance(m.state, AwaitingRebalance)


def send(m: CommitMachine, now: float = 0.0, generation: int = 3) -> SendCommit:
    assert can_send(m, now)
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
    AwaitingRebalance(3, 0.0),
)
EVENTS = (
    CommitSubmitted(9, at(p0=7), False),
    CommitDue(3),
    ChunkCommitted(1, [P0]),
    CommitResponseReceived(1, {P0: 0}),
    CommitRequestFailed(1, ConnectionLost("gone")),
    OwnershipEnded([P0], True, "gone"),
    Rejoined(4, [P0]),
)


def machine_in(state: Any) -> CommitMachine:
    m = machine()
    m.pending_offsets[P0] = PendingOffset(OffsetAndMetadata(5), 1)
    m.state = state
    return m


def observed() -> dict[tuple[str, str], str]:
    """Return the next state by state and event."""
    table = {}
    for state in STATES:
        for event in EVENTS:
            if (type(state), type(event)) in TRANSITIONS:
                m = machine_in(state)
                m.handle(event, 1.0)
                table[type(state).__name__, type(event).__name__] = type(m.state).__name__
    return table


@pytest.mark.parametrize(
    ("state", "event"),
    [(s, e) for s in STATES for e in EVENTS if (type(s), type(e)) not in TRANSITIONS],
    ids=lambda value: type(value).__name__,
)
def test_events_without_a_transition_are_late(state: Any, event: Any) -> None:
    m = machine_in(state)
    assert (m.handle(event, 1.0), m.state) == ((), state)


def test_a_commit_before_revocation_does_not_wait_for_the_rebalance() -> None:
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


def test_requests_of_a_large_commit_complete_independently() -> None:
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


def test_a_revoked_partition_is_not_reported_as_committed() -> None:
    m = machine()
    commit_id, _ = m.submit(at(p0=5, p1=6), 0.0)
    sent = send(m)
    m.handle(ChunkCommitted(sent.request, [P0]), 0.0)
    outcome = completed(m.handle(OwnershipEnded([P1], False, "given back"), 0.0))
    assert isinstance(outcome[commit_id], CommitFailed)
    assert committed(m.handle(ChunkCommitted(sent.request, [P1]), 0.0)) == {}
    m.handle(CommitResponseReceived(sent.request, {}), 0.0)
    assert not can_send(m, 0.0)


def test_offsets_rejected_in_a_rebalance_are_committed_in_the_next_generation() -> None:
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


def test_commits_without_a_membership_do_not_wait_for_a_rebalance() -> None:
    m = machine()
    commit_id, _ = m.submit(at(p0=5), 0.0)
    outcome = completed(answer(m, send(m, generation=-1), ErrorCode.REBALANCE_IN_PROGRESS))
    assert isinstance(outcome[commit_id], BrokerError)
    assert isinstance(m.state, CommitIdle)


def test_commits_submitted_in_flight_are_merged_to_the_newest_offset() -> None:
    m = machine()
    first, _ = m.submit(at(p0=1, p1=1), 0.0)
    sent = send(m)
    second, _ = m.submit(at(p0=2), 0.0)
    third, _ = m.submit(at(p0=3), 0.0)
    assert not can_send(m, 0.0)
    assert completed(answer(m, sent)) == {first: None}
    sent = send(m)
    assert sent.offsets == at(p0=3)
    assert completed(answer(m, sent)) == {second: None, third: None}
    assert not can_send(m, 0.0)


def test_an_empty_commit_completes_immediately() -> None:
    commit_id, effects = machine().submit({}, 0.0)
    assert completed(effects) == {commit_id: None}


def test_an_unknown_outcome_sends_the_newest_offset_again() -> None:
    m = machine()
    commit_id, _ = m.submit(at(p0=1), 0.0)
    sent = send(m)
    newer, _ = m.submit(at(p0=5), 0.0)
    effects = m.handle(CommitRequestFailed(sent.request, ConnectionLost("gone")), 0.0)
    assert effects == (ForgetCoordinator(),)
    assert not can_send(m, 0.0)
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
def test_retriable_errors_are_retried(code: int, forgets: bool) -> None:
    m = machine()
    commit_id, _ = m.submit(at(p0=1), 0.0)
    effects = answer(m, send(m), code)
    assert completed(effects) == {}
    assert (ForgetCoordinator() in effects) == forgets
    assert completed(answer(m, send(m, m.next_deadline()))) == {commit_id: None}


def test_one_partition_of_a_request_can_fail() -> None:
    m = machine()
    one, _ = m.submit(at(p0=1), 0.0)
    both, _ = m.submit(at(p1=1), 0.0)
    sent = send(m)
    codes = {P0: 0, P1: int(ErrorCode.OFFSET_METADATA_TOO_LARGE)}
    outcome = completed(m.handle(CommitResponseReceived(sent.request, codes), 0.0))
    assert outcome[one] is None
    assert isinstance(outcome[both], BrokerError)
    assert (outcome[both].topic, outcome[both].partition, outcome[both].offset) == ("orders", 1, 1)
    assert not can_send(m, 0.0)


def test_a_partition_missing_in_the_response_is_not_committed() -> None:
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
def test_a_fenced_commit_fails_and_verifies_the_membership(code: ErrorCode) -> None:
    m = machine()
    commit_id, _ = m.submit(at(p0=1), 0.0)
    effects = answer(m, send(m), code)
    assert VerifyMembership() in effects
    error = completed(effects)[commit_id]
    assert isinstance(error, CommitFailed)
    assert code.name in str(error)
    assert not can_send(m, 0.0)


def held() -> tuple[CommitMachine, int]:
    m = machine()
    commit_id, _ = m.submit(at(p0=1, p1=1), 0.0)
    effects = answer(m, send(m, generation=3), ErrorCode.REBALANCE_IN_PROGRESS)
    assert effects == [VerifyMembership()]
    assert isinstance(m.state, AwaitingRebalance)
    assert not can_send(m, 100.0)
    return m, commit_id


def test_a_commit_during_a_rebalance_is_retried_for_partitions_still_owned() -> None:
    m, commit_id = held()
    m.handle(OwnershipEnded([P0, P1], False, "revoked"), 0.0)
    assert completed(m.handle(Rejoined(4, [P0, P1]), 0.0)) == {}
    assert completed(answer(m, send(m))) == {commit_id: None}


def test_a_commit_during_a_rebalance_fails_for_partitions_no_longer_owned() -> None:
    m, commit_id = held()
    effects = m.handle(Rejoined(4, [P0]), 0.0)
    assert isinstance(completed(effects)[commit_id], CommitFailed)
    assert send(m).offsets == at(p0=1)


def test_a_commit_is_not_retried_after_a_missed_generation() -> None:
    m, commit_id = held()
    assert isinstance(completed(m.handle(Rejoined(5, [P0, P1]), 0.0))[commit_id], CommitFailed)
    assert not can_send(m, 0.0)


def test_a_commit_with_the_previous_generation_is_retried_for_kept_partitions() -> None:
    m = machine()
    commit_id, _ = m.submit(at(p0=1, p1=1), 0.0)
    sent = send(m, generation=3)
    codes = dict.fromkeys(sent.offsets, int(ErrorCode.ILLEGAL_GENERATION))
    # The member is rejoining generation 4 with both partitions.
    assert not m.handle(
        CommitResponseReceived(sent.request, codes, in_cooperative_rejoin=True), 0.0
    )
    assert not can_send(m, 100.0)
    m.handle(Rejoined(4, [P0, P1]), 0.0)
    assert completed(answer(m, send(m, generation=4))) == {commit_id: None}


@pytest.mark.parametrize("code", [ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS])
def test_a_rebalance_that_ends_before_the_response_is_not_awaited(
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


def test_a_rejected_earlier_commit_does_not_delay_the_one_before_revocation() -> None:
    m = machine()
    first, _ = m.submit(at(p0=1), 0.0)
    sent = send(m)
    last, _ = m.submit(at(p0=2), 0.0, before_revocation=True)
    answer(m, sent, ErrorCode.REBALANCE_IN_PROGRESS)
    assert completed(answer(m, send(m))) == {first: None, last: None}


def test_a_waiting_commit_checks_regularly_whether_the_rebalance_continues() -> None:
    m, commit_id = held()
    first, second = REBALANCE_CHECK_INTERVAL_S, 2 * REBALANCE_CHECK_INTERVAL_S
    assert m.next_deadline() == first
    assert m.handle(CommitDue(3), first / 2) == ()
    assert isinstance(m.state, AwaitingRebalance)
    assert m.handle(CommitDue(3, rebalancing=True), first) == ()
    assert m.next_deadline() == second
    assert m.handle(CommitDue(3), second) == []
    assert completed(answer(m, send(m, second))) == {commit_id: None}


def test_a_commit_before_revocation_fails_during_a_rebalance() -> None:
    m = machine()
    commit_id, _ = m.submit(at(p0=1), 0.0, before_revocation=True)
    effects = answer(m, send(m), ErrorCode.REBALANCE_IN_PROGRESS)
    assert isinstance(completed(effects)[commit_id], CommitFailed)
    assert isinstance(m.state, CommitIdle)


def test_partitions_no_longer_owned_are_not_committed() -> None:
    m = machine()
    commit_id, _ = m.submit(at(p0=1), 0.0)
    sent = send(m)
    effects = m.handle(OwnershipEnded([P0], True, "lost it"), 0.0)
    assert "lost it" in str(completed(effects)[commit_id])
    assert answer(m, sent, ErrorCode.NOT_COORDINATOR) == []
    assert not can_send(m, 100.0)


def test_an_error_that_is_not_retriable_fails_the_commit() -> None:
    m = machine()
    commit_id, _ = m.submit(at(p0=1), 0.0)
    error = UnsupportedVersion("too old")
    assert completed(m.handle(CommitRequestFailed(send(m).request, error), 0.0)) == {
        commit_id: error
    }


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID])
def test_a_topic_that_stays_unknown_fails_the_commit(code: int) -> None:
    m = machine()
    commit_id, _ = m.submit(at(p0=1), 0.0)
    for now in range(MAX_UNKNOWN_TOPIC_COMMITS - 1):
        assert answer(m, send(m, now), code, now) == []
    m.handle(CommitRequestFailed(send(m, 10).request, ConnectionLost("gone")), 10)
    outcome = completed(answer(m, send(m, 20), code, 20))
    assert isinstance(outcome[commit_id], BrokerError)
    m.submit(at(p0=2), 20)
    assert answer(m, send(m, 20), code, 20) == []  # the count starts again


def test_the_newest_sent_offsets_are_reported_as_committed() -> None:
    m = machine()
    m.submit(at(p0=5, p1=5), 0.0)
    m.submit(at(p0=9), 0.0)
    effects = answer(m, send(m))
    assert [effect for effect in effects if isinstance(effect, ReportCommitted)] == [
        ReportCommitted(at(p0=9, p1=5))
    ]


def test_an_abandoned_commit_is_still_sent() -> None:
    m = machine()
    commit_id, _ = m.submit(at(p0=1), 0.0)
    m.abandon(commit_id)
    sent = send(m)
    assert sent.offsets == at(p0=1)
    assert answer(m, sent) == [ReportCommitted(at(p0=1))]


CODES = st.sampled_from([0, 0, 0, 14, 16, 27, 22, 12])


@given(st.data())
def test_every_commit_completes_once_and_success_means_committed(data: st.DataObject) -> None:
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
            if error is None:  # the same or a later offset is committed
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
            case "step" if can_send(m, now):
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
    while can_send(m, now := now + 2.0):
        sent = send(m, now)
        committed.update({tp: offset.offset for tp, offset in sent.offsets.items()})
        note(answer(m, sent, now=now))
    assert set(outcomes) == set(asked)
    assert not m.pending_commits
